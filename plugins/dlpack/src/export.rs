//! From batches to tensors.

use std::sync::Arc;

use arrow_schema::{Schema, SchemaRef};
use crossdock_arrays::{DeviceArray, call_stream, import_batch, import_schema_ref};
use crossdock_kernels::unpack_bits;
use crossdock_memory::{Buffer, Memory, Stream};
use crossdock_plugin_api::{
    BatchWriter, Call, Capsule, ColumnPlan, Device, Error, Owned, Result, Verdict, abi,
};

use crate::column::Column;
use crate::options::{Copy, Writing};
use crate::produce::{Elements, capsule};

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
    columns: Vec<Column>,
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
    fn tensors(&self, call: &Call<'_>, batch: Owned<abi::Batch>) -> Result<Vec<Capsule>> {
        let batch = import_batch(batch, &self.schema, &self.memory)?;
        let (rows, from) = (batch.len(), batch.device());
        let batch = batch.move_for_call(&self.memory, call, call.device())?;
        let device = if rows == 0 { call.device() } else { batch.device() };
        let stream = call_stream(&self.memory, call, device)?;
        let mut capsules = Vec::with_capacity(self.columns.len() * 2);
        for (column, array) in self.columns.iter().zip(batch.columns()) {
            let mut export = || -> Result<()> {
                self.check_nulls(array, &stream)?;
                let values = self.values(column, array, from != device, &stream)?;
                capsules.push(capsule(column, rows, values, device, &stream, self.writing.legacy)?);
                if self.writing.masked {
                    let mask = Elements { buffer: Some(mask(array, &stream)?), ours: true };
                    capsules.push(capsule(
                        &Column::mask(),
                        rows,
                        mask,
                        device,
                        &stream,
                        self.writing.legacy,
                    )?);
                }
                Ok(())
            };
            export().map_err(|error| error.context(format_args!("column '{}'", column.name)))?;
        }
        Ok(capsules)
    }

    /// Nulls that would be lost are an error: of rows unless a mask tells them, of values within a row always.
    fn check_nulls(&self, array: &DeviceArray, stream: &Stream) -> Result<()> {
        if !self.writing.masked {
            let nulls = array.count_nulls(stream)?;
            if nulls > 0 {
                return Err(Error::unsupported(format!(
                    "{nulls} of {} rows are null, and DLPack has no nulls: fill or drop them, leave the column out, or ask \
                     for masks (--nulls mask; the option nulls=mask)",
                    array.len()
                )));
            }
        }
        let mut array = array.clone();
        while let Some(child) = used(&array)? {
            let nulls = child.count_nulls(stream)?;
            if nulls > 0 {
                return Err(Error::unsupported(format!(
                    "{nulls} values within its rows are null, and neither DLPack nor a mask of rows has a place for them: \
                     fill them, or leave the column out"
                )));
            }
            array = child;
        }
        Ok(())
    }

    /// The column's elements as a tensor wants them: one after the other, booleans as bytes.
    fn values(&self, column: &Column, array: &DeviceArray, moved: bool, stream: &Stream) -> Result<Elements> {
        let mut array = array.clone();
        while let Some(child) = used(&array)? {
            array = child;
        }
        let (offset, len, width) = (array.offset(), array.len(), column.element.width());
        let Some(buffer) = array.buffers().get(1).and_then(Option::as_ref).filter(|_| len > 0) else {
            return Ok(Elements { buffer: None, ours: true });
        };
        let why = if column.bits { Some("bits become bytes") } else { self.writing.must_copy() };
        let why = if moved { Some("it lies on another device") } else { why };
        if let (Some(why), Copy::Never) = (why, self.writing.copy) {
            return Err(Error::unsupported(format!("{why}, and copy=never was asked for")));
        }
        if column.bits {
            let mut bytes = self.memory.alloc(stream, len)?;
            unpack_bits(stream, buffer, offset, len, false, &mut bytes, 0)?;
            return Ok(Elements { buffer: Some(bytes.freeze(stream)?), ours: true });
        }
        let range = buffer.slice(offset * width, len * width)?;
        if why.is_none() || moved {
            return Ok(Elements { buffer: Some(range), ours: moved });
        }
        let mut copy = self.memory.alloc(stream, len * width)?;
        stream.copy(&mut copy, 0, &range, 0, len * width)?;
        Ok(Elements { buffer: Some(copy.freeze(stream)?), ours: true })
    }
}

/// Of a fixed-size list, the part of its child that its rows are made of.
fn used(array: &DeviceArray) -> Result<Option<DeviceArray>> {
    let Some(child) = array.children().first() else { return Ok(None) };
    let crossdock_arrays::layout::ChildRule::Times(n) = array.layout().child_rule else { return Ok(None) };
    child.slice(array.offset() * n, array.len() * n).map(Some)
}

/// One byte a row, 1 where it is null.
fn mask(array: &DeviceArray, stream: &Stream) -> Result<Buffer> {
    let len = array.len();
    let mut bytes = stream.memory().alloc(stream, len)?;
    match array.buffers().first().and_then(Option::as_ref).filter(|_| array.null_count() != Some(0)) {
        Some(validity) => unpack_bits(stream, validity, array.offset(), len, true, &mut bytes, 0)?,
        None => stream.fill(&mut bytes, 0, len, 0)?,
    }
    bytes.freeze(stream)
}
