//! Exports batches as tensors.

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
use crate::managed_tensor::{BatchOwner, BufferOwner, TensorSpec, prepare_export};
use crate::options::{Copy, ExportOptions};
use crate::staging::{Elements, StagingPlan};
use crate::tensor::to_dlpack;

pub(crate) fn plan(
    options: ExportOptions,
    call: &Call<'_>,
    schema: &abi::ArrowSchema,
    from: Device,
) -> Result<Vec<ColumnPlan>> {
    let to = call.device();
    let verdict = |field: &arrow_schema::FieldRef| {
        let column = match Column::from_field(field) {
            Ok(column) => column,
            Err(error) => return (Verdict::Unsupported, error.message().to_string()),
        };
        let (verdict, reason) = match options.must_copy() {
            _ if column.bits => (Verdict::Converted, "bits become bytes".to_string()),
            _ if from != to => (Verdict::Copied, format!("from {from} to {to}")),
            Some(why) => (Verdict::Converted, why.to_string()),
            None => return (Verdict::ZeroCopy, "the tensor refers to the buffer".to_string()),
        };
        if options.copy == Copy::Never {
            return (Verdict::Unsupported, format!("{reason}, but copy=never forbids a copy"));
        }
        (verdict, reason)
    };
    let schema = import_borrowed_schema(schema)?;
    Ok(schema
        .fields()
        .iter()
        .map(|field| {
            let (verdict, reason) = verdict(field);
            ColumnPlan { name: field.name().clone(), verdict, to, reason }
        })
        .collect())
}

fn import_borrowed_schema(schema: &abi::ArrowSchema) -> Result<Schema> {
    // SAFETY: the plugin interface requires that the caller passes a valid ArrowSchema that lives
    // until the call returns.
    unsafe { import_schema_ref(schema) }
}

pub(crate) fn begin(
    memory: &Memory,
    options: ExportOptions,
    schema: &abi::ArrowSchema,
) -> Result<Box<dyn BatchWriter>> {
    let schema = import_borrowed_schema(schema)?;
    if schema.fields().is_empty() {
        return Err(Error::unsupported("the table has no columns, so no tensor would contain its row count"));
    }
    let columns = schema.fields().iter().map(|field| Column::from_field(field));
    let (columns, errors): (Vec<_>, Vec<_>) = columns.partition(Result::is_ok);
    let mut errors = errors.into_iter().filter_map(Result::err);
    if let Some(first) = errors.next() {
        let more = errors.count();
        return Err(match more {
            0 => first,
            _ => Error::unsupported(format!("{}; {more} more columns are unsupported too", first.message())),
        });
    }
    Ok(Box::new(TensorWriter {
        memory: memory.clone(),
        options,
        columns: columns.into_iter().filter_map(Result::ok).collect(),
        schema: Arc::new(schema),
        batches: 0,
    }))
}

struct TensorWriter {
    memory: Memory,
    options: ExportOptions,
    schema: SchemaRef,
    columns: SmallVec<[Column; 1]>,
    batches: u64,
}

impl BatchWriter for TensorWriter {
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

impl TensorWriter {
    /// The address of each column's values; `None` if any column must be copied.
    fn in_place_addresses(&self, call: &Call<'_>, batch: &Owned<abi::Batch>) -> Option<SmallVec<[u64; 8]>> {
        let is_in_place = !self.options.has_masks && self.options.must_copy().is_none();
        if !is_in_place || self.columns.iter().any(|column| column.plain_width().is_none()) {
            return None;
        }
        let mut addresses = SmallVec::new();
        let widths = || self.columns.iter().map(|column| column.plain_width().unwrap_or(0));
        let is_plain = plain_values(batch, call.device(), widths(), |address| addresses.push(address));
        let are_aligned = addresses.iter().zip(widths()).all(|(at, width)| is_aligned(*at, width));
        (is_plain && are_aligned).then_some(addresses)
    }

    fn tensors(&self, call: &Call<'_>, batch: Owned<abi::Batch>) -> Result<Vec<Capsule>> {
        if let Some(addresses) = self.in_place_addresses(call, &batch) {
            let (rows, device) = (batch.array.array.length as usize, to_dlpack(call.device())?);
            let owner = BatchOwner::new(batch);
            let mut tensors = Vec::with_capacity(self.columns.len());
            for (column, address) in self.columns.iter().zip(addresses) {
                let spec = TensorSpec::new(column, rows, device, address, false);
                tensors.push(spec.capsule(self.options.legacy, owner.clone())?);
            }
            return Ok(tensors);
        }
        let batch = import_batch(batch, &self.schema, &self.memory)?;
        let (rows, from) = (batch.len(), batch.device());
        if from != call.device() && rows > 0 && self.options.copy == Copy::Never {
            return Err(Error::unsupported(format!(
                "the batch is on {from}, expected {}: copy=never forbids the copy to the tensors' device",
                call.device()
            )));
        }
        let batch = batch.move_for_call(&self.memory, call, call.device())?;
        let device = if rows == 0 { call.device() } else { batch.device() };
        let export = BatchExport {
            options: self.options,
            device,
            is_copy: from != device,
            stream: call_stream(&self.memory, call, device)?,
        };
        let in_column = |i: usize, error: Error| {
            error.context(format_args!("column '{}'", self.schema.fields().get(i).map_or("", |f| f.name())))
        };
        export.check_nulls(batch.columns()).map_err(|(i, error)| in_column(i, error))?;
        let mut plan = StagingPlan::default();
        let tensors_per_column = self.options.tensors_per_column();
        let mut tensors = Vec::with_capacity(self.columns.len() * tensors_per_column);
        for (i, (column, array)) in self.columns.iter().zip(batch.columns()).enumerate() {
            tensors.push((i, export.values(column, array, &mut plan).map_err(|error| in_column(i, error))?));
            if self.options.has_masks {
                tensors.push((i, plan.mask(array)));
            }
        }
        let staged = plan.run(&export.stream)?;
        let mask = Column::mask();
        let mut capsules = Vec::with_capacity(tensors.len());
        for (t, (i, elements)) in tensors.into_iter().enumerate() {
            let column = self.columns.get(i).filter(|_| t % tensors_per_column == 0).unwrap_or(&mask);
            let capsule = staged.resolve(elements).and_then(|buffer| export.capsule(column, rows, buffer));
            capsules.push(capsule.map_err(|error| in_column(i, error))?);
        }
        Ok(capsules)
    }
}

/// The export of one batch.
struct BatchExport {
    options: ExportOptions,
    device: Device,
    /// Whether the batch was copied to `device` for this export.
    is_copy: bool,
    stream: Stream,
}

impl BatchExport {
    /// Creates a tensor that refers to `buffer`. `is_copy` is true if the buffer was allocated for
    /// this export.
    fn capsule(
        &self,
        column: &Column,
        rows: usize,
        (buffer, is_copy): (Option<Buffer>, bool),
    ) -> Result<Capsule> {
        let buffer = buffer.filter(|buffer| !buffer.is_empty());
        if let Some(buffer) = &buffer {
            prepare_export(buffer, self.device, &self.stream)?;
        }
        let address = buffer.as_ref().map_or(0, Buffer::address);
        let spec = TensorSpec::new(column, rows, to_dlpack(self.device)?, address, is_copy);
        spec.capsule(self.options.legacy, Box::new(BufferOwner(buffer)))
    }

    /// Returns an error if the export would lose nulls. It loses null values within a row, and
    /// without masks also null rows.
    ///
    /// # Errors
    /// Returns an error together with the index of the column in which it occurred.
    fn check_nulls(&self, columns: &[DeviceArray]) -> Result<(), (usize, Error)> {
        // For each array, the index of its column, and whether its values are parts of the column's
        // rows.
        let mut levels: Vec<(usize, DeviceArray, bool)> = Vec::new();
        for (i, array) in columns.iter().enumerate() {
            let mut array = array.clone();
            let mut is_within_row = false;
            loop {
                let child = used_child(&array).map_err(|error| (i, error))?;
                if is_within_row || !self.options.has_masks {
                    levels.push((i, array, is_within_row));
                }
                let Some(child) = child else { break };
                (array, is_within_row) = (child, true);
            }
        }
        let arrays: Vec<&DeviceArray> = levels.iter().map(|(_, array, _)| array).collect();
        let null_counts = count_nulls(&arrays, &self.stream).map_err(|error| (0, error))?;
        let Some(((i, array, is_within_row), nulls)) =
            levels.iter().zip(null_counts).find(|(_, nulls)| *nulls > 0)
        else {
            return Ok(());
        };
        let what = match is_within_row {
            true => format!(
                "{nulls} values within its rows are null, but DLPack has no nulls and a mask covers whole rows only: \
                 fill them, or leave the column out"
            ),
            false => format!(
                "{nulls} of {} rows are null, but DLPack has no nulls: fill them (Column.fill_null) or drop them, \
                 leave the column out, or ask for masks with the option nulls=mask",
                array.len()
            ),
        };
        Err((*i, Error::unsupported(what)))
    }

    /// Returns the elements of a column in the form of a tensor: contiguous, and with booleans as
    /// bytes.
    fn values(&self, column: &Column, array: &DeviceArray, plan: &mut StagingPlan) -> Result<Elements> {
        let mut array = array.clone();
        while let Some(child) = used_child(&array)? {
            array = child;
        }
        let (offset, len, width) = (array.offset(), array.len(), column.element.width());
        let Some(buffer) = array.buffers().get(1).and_then(Option::as_ref).filter(|_| len > 0) else {
            return Ok(Elements::None);
        };
        let range = (!column.bits).then(|| buffer.slice(offset * width, len * width)).transpose()?;
        let is_aligned = range.as_ref().is_some_and(|range| is_aligned(range.address(), width));
        let why = match column.bits {
            true => Some("bits become bytes"),
            false if !is_aligned => Some("the values are not aligned for their type"),
            false => self.options.must_copy(),
        };
        if let (Some(why), Copy::Never) = (why, self.options.copy) {
            return Err(Error::unsupported(format!("{why}, but copy=never forbids a copy")));
        }
        let Some(range) = range else { return Ok(plan.unpack(buffer.clone(), offset, len, false)) };
        if is_aligned && self.is_copy || why.is_none() {
            return Ok(Elements::InPlace(range, self.is_copy));
        }
        Ok(plan.copy(range))
    }
}

/// Whether a tensor may refer to the values at `address`. Arrow aligns numbers, but not the bytes
/// in which it stores numbers of the extension type.
fn is_aligned(address: u64, width: usize) -> bool {
    address.is_multiple_of(width as u64)
}

/// Returns the part of a fixed-size list's child that the rows of the list refer to.
fn used_child(array: &DeviceArray) -> Result<Option<DeviceArray>> {
    let (Some(child), ChildRule::Times(n)) = (array.children().first(), array.layout().child_rule) else {
        return Ok(None);
    };
    child.slice(array.offset() * n, array.len() * n).map(Some)
}
