//! From batches to tensors.

use std::sync::Arc;

use arrow_schema::{Schema, SchemaRef};
use crossdock_arrays::layout::ChildRule;
use crossdock_arrays::{
    DeviceArray, call_stream, count_nulls, import_batch, import_schema_ref, plain_values,
};
use crossdock_memory::{Buffer, Memory, Stream};
use crossdock_plugin_api::{
    BatchWriter, Call, Capsule, ColumnPlan, Device, Error, Owned, Result, Verdict, abi,
};

use smallvec::SmallVec;

use crate::column::Column;
use crate::making::{Elements, Making};
use crate::options::{Copy, Writing};
use crate::produce::{Described, KeptBatch, KeptBuffer, lend};
use crate::tensor::to_dlpack;

pub(crate) fn plan(
    writing: Writing,
    call: &Call<'_>,
    schema: &abi::ArrowSchema,
    from: Device,
) -> Result<Vec<ColumnPlan>> {
    let to = call.device();
    let verdict = |field: &arrow_schema::FieldRef| {
        let column = match Column::of_field(field) {
            Ok(column) => column,
            Err(error) => return (Verdict::Unsupported, error.message().to_string()),
        };
        let (verdict, reason) = match writing.must_copy() {
            _ if column.bits => (Verdict::Converted, "bits become bytes".to_string()),
            _ if from != to => (Verdict::Copied, format!("from {from} to {to}")),
            Some(why) => (Verdict::Converted, why.to_string()),
            None => return (Verdict::ZeroCopy, "the buffer is lent as it is".to_string()),
        };
        if writing.copy == Copy::Never {
            return (Verdict::Unsupported, format!("{reason}, and copy=never was asked for"));
        }
        (verdict, reason)
    };
    let schema = borrowed(schema)?;
    Ok(schema
        .fields()
        .iter()
        .map(|field| {
            let (verdict, reason) = verdict(field);
            ColumnPlan { name: field.name().clone(), verdict, to, reason }
        })
        .collect())
}

fn borrowed(schema: &abi::ArrowSchema) -> Result<Schema> {
    // SAFETY: what crosses the boundary as a schema is a valid struct, alive for the call.
    unsafe { import_schema_ref(schema) }
}

pub(crate) fn begin(
    memory: &Memory,
    writing: Writing,
    schema: &abi::ArrowSchema,
) -> Result<Box<dyn BatchWriter>> {
    let schema = borrowed(schema)?;
    if schema.fields().is_empty() {
        return Err(Error::unsupported(
            "a table without columns: without a tensor nobody could tell how many rows there are",
        ));
    }
    let columns = schema.fields().iter().map(|field| Column::of_field(field));
    let (columns, refused): (Vec<_>, Vec<_>) = columns.partition(Result::is_ok);
    let mut refused = refused.into_iter().filter_map(Result::err);
    if let Some(first) = refused.next() {
        let more = refused.count();
        return Err(match more {
            0 => first,
            _ => Error::unsupported(format!("{}; {more} more columns have no place either", first.message())),
        });
    }
    Ok(Box::new(Exported {
        memory: memory.clone(),
        writing,
        columns: columns.into_iter().filter_map(Result::ok).collect(),
        schema: Arc::new(schema),
        batches: 0,
    }))
}

struct Exported {
    memory: Memory,
    writing: Writing,
    schema: SchemaRef,
    columns: SmallVec<[Column; 1]>,
    batches: u64,
}

impl BatchWriter for Exported {
    fn write(&mut self, call: &Call<'_>, batch: Owned<abi::Batch>) -> Result<Vec<Capsule>> {
        call.check_cancelled()?;
        let tensors = self.tensors(call, batch);
        let tensors = tensors.map_err(|error| error.context(format_args!("batch {}", self.batches)))?;
        self.batches += 1;
        Ok(tensors)
    }

    fn finish(&mut self, _: &Call<'_>) -> Result<Vec<Capsule>> {
        Ok(Vec::new())
    }
}

impl Exported {
    /// Where the columns begin, if each is a tensor as it is.
    fn plain(&self, call: &Call<'_>, batch: &Owned<abi::Batch>) -> Option<SmallVec<[u64; 8]>> {
        let as_they_are = !self.writing.masked && self.writing.must_copy().is_none();
        if !as_they_are || self.columns.iter().any(|column| column.plain_width().is_none()) {
            return None;
        }
        let mut addresses = SmallVec::new();
        let widths = self.columns.iter().map(|column| column.plain_width().unwrap_or(0));
        plain_values(batch, call.device(), widths, |address| addresses.push(address)).then_some(addresses)
    }

    fn tensors(&self, call: &Call<'_>, batch: Owned<abi::Batch>) -> Result<Vec<Capsule>> {
        if let Some(addresses) = self.plain(call, &batch) {
            let (rows, device) = (batch.array.array.length as usize, to_dlpack(call.device())?);
            let kept = KeptBatch::new(batch);
            let mut tensors = Vec::with_capacity(self.columns.len());
            for (column, address) in self.columns.iter().zip(addresses) {
                let described = Described::new(column, rows, device, address, false);
                tensors.push(described.capsule(self.writing.legacy, kept.clone())?);
            }
            return Ok(tensors);
        }
        let batch = import_batch(batch, &self.schema, &self.memory)?;
        let (rows, from) = (batch.len(), batch.device());
        if from != call.device() && rows > 0 && self.writing.copy == Copy::Never {
            return Err(Error::unsupported(format!(
                "it lies on {from}, expected {}, where the tensors are to be, as copy=never was asked for",
                call.device()
            )));
        }
        let batch = batch.move_for_call(&self.memory, call, call.device())?;
        let device = if rows == 0 { call.device() } else { batch.device() };
        let export = Export {
            writing: self.writing,
            device,
            moved: from != device,
            stream: call_stream(&self.memory, call, device)?,
        };
        let named = |i: usize, error: Error| {
            error.context(format_args!("column '{}'", self.schema.fields().get(i).map_or("", |f| f.name())))
        };
        export.check_nulls(batch.columns()).map_err(|(i, error)| named(i, error))?;
        let mut making = Making::default();
        let mut tensors = Vec::with_capacity(self.columns.len() * 2);
        for (i, (column, array)) in self.columns.iter().zip(batch.columns()).enumerate() {
            tensors.push((i, export.values(column, array, &mut making).map_err(|error| named(i, error))?));
            if self.writing.masked {
                tensors.push((i, making.mask(array)));
            }
        }
        let made = making.run(&export.stream)?;
        let mask = Column::mask();
        let mut capsules = Vec::with_capacity(tensors.len());
        let each = if self.writing.masked { 2 } else { 1 };
        for (t, (i, elements)) in tensors.into_iter().enumerate() {
            let column = self.columns.get(i).filter(|_| t % each == 0).unwrap_or(&mask);
            let capsule = made.of(elements).and_then(|buffer| export.capsule(column, rows, buffer));
            capsules.push(capsule.map_err(|error| named(i, error))?);
        }
        Ok(capsules)
    }
}

/// One batch's way out.
struct Export {
    writing: Writing,
    device: Device,
    /// Whether the batch is a copy on this device already.
    moved: bool,
    stream: Stream,
}

impl Export {
    /// With its bytes, and whether they were made for it.
    fn capsule(
        &self,
        column: &Column,
        rows: usize,
        (buffer, ours): (Option<Buffer>, bool),
    ) -> Result<Capsule> {
        let buffer = buffer.filter(|buffer| !buffer.is_empty());
        if let Some(buffer) = &buffer {
            lend(buffer, self.device, &self.stream)?;
        }
        let address = buffer.as_ref().map_or(0, Buffer::address);
        let described = Described::new(column, rows, to_dlpack(self.device)?, address, ours);
        described.capsule(self.writing.legacy, Box::new(KeptBuffer(buffer)))
    }

    /// Nulls that would be lost are an error: of rows unless a mask tells them, of values within a row always. An error says
    /// which column it is of.
    fn check_nulls(&self, columns: &[DeviceArray]) -> Result<(), (usize, Error)> {
        // Each column, and what lies within its rows.
        let mut levels: Vec<(usize, DeviceArray, bool)> = Vec::new();
        for (i, array) in columns.iter().enumerate() {
            let mut array = array.clone();
            let mut within = false;
            loop {
                let child = used(&array).map_err(|error| (i, error))?;
                if within || !self.writing.masked {
                    levels.push((i, array, within));
                }
                let Some(child) = child else { break };
                (array, within) = (child, true);
            }
        }
        let arrays: Vec<&DeviceArray> = levels.iter().map(|(_, array, _)| array).collect();
        let counted = count_nulls(&arrays, &self.stream).map_err(|error| (0, error))?;
        let Some(((i, array, within), nulls)) = levels.iter().zip(counted).find(|(_, nulls)| *nulls > 0)
        else {
            return Ok(());
        };
        let what = match within {
            true => format!(
                "{nulls} values within its rows are null, and neither DLPack nor a mask of rows has a place for them: fill \
                 them, or leave the column out"
            ),
            false => format!(
                "{nulls} of {} rows are null, and DLPack has no nulls: fill or drop them, leave the column out, or ask for \
                 masks (--nulls mask; the option nulls=mask)",
                array.len()
            ),
        };
        Err((*i, Error::unsupported(what)))
    }

    /// The column's elements as a tensor wants them: one after the other, booleans as bytes.
    fn values(&self, column: &Column, array: &DeviceArray, making: &mut Making) -> Result<Elements> {
        let mut array = array.clone();
        while let Some(child) = used(&array)? {
            array = child;
        }
        let (offset, len, width) = (array.offset(), array.len(), column.element.width());
        let Some(buffer) = array.buffers().get(1).and_then(Option::as_ref).filter(|_| len > 0) else {
            return Ok(Elements::None);
        };
        let why = if column.bits { Some("bits become bytes") } else { self.writing.must_copy() };
        if let (Some(why), Copy::Never) = (why, self.writing.copy) {
            return Err(Error::unsupported(format!("{why}, and copy=never was asked for")));
        }
        if column.bits {
            return Ok(making.unpacked(buffer.clone(), offset, len, false));
        }
        let range = buffer.slice(offset * width, len * width)?;
        if self.moved || why.is_none() {
            return Ok(Elements::InPlace(range, self.moved));
        }
        Ok(making.copied(range))
    }
}

/// Of a fixed-size list, the part of its child that its rows are made of.
fn used(array: &DeviceArray) -> Result<Option<DeviceArray>> {
    let (Some(child), ChildRule::Times(n)) = (array.children().first(), array.layout().child_rule) else {
        return Ok(None);
    };
    child.slice(array.offset() * n, array.len() * n).map(Some)
}
