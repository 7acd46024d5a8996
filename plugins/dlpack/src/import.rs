//! Imports tensors as batches.

use std::borrow::Cow;

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use crossdock_arrays::{
    DeviceArray, DeviceBatch, call_stream, count_nulls, export_batch, export_plain, export_schema,
    import_schema_ref,
};
use crossdock_memory::{Buffer, Device, Memory, Ready};
use crossdock_plugin_api::{BatchStream, Call, Capsules, Error, Owned, Result, abi};
use smallvec::SmallVec;

use crate::arrow_buffers::{BufferRequest, buffers};
use crate::column::Column;
use crate::element::Element;
use crate::options::ImportOptions;
use crate::tensor::Tensor;

pub(crate) fn open(
    memory: &Memory,
    call: &Call<'_>,
    options: ImportOptions,
    capsules: Capsules,
    expected: Option<&abi::ArrowSchema>,
) -> Result<Box<dyn BatchStream>> {
    // SAFETY: the plugin interface requires that the caller passes a valid ArrowSchema that lives
    // until the call returns.
    let expected = expected.map(|schema| unsafe { import_schema_ref(schema) }).transpose()?;
    let tensors = tensors(memory, call, capsules)?;
    let tensors_per_column = if options.has_masks { 2 } else { 1 };
    if !tensors.len().is_multiple_of(tensors_per_column) {
        return Err(Error::invalid_argument(format!(
            "got {} tensors with nulls=mask, expected an even number, because a mask follows each tensor",
            tensors.len()
        )));
    }
    let columns = match &expected {
        Some(_) if options.names.is_some() => {
            return Err(Error::invalid_argument("names and a schema were given, expected one of the two"));
        }
        Some(schema) => schema.fields().iter().map(|f| Column::from_field(f)).collect::<Result<_>>()?,
        None => infer_columns(&tensors, tensors_per_column, options.packs_bools),
    };
    let (n, available) = (columns.len(), tensors.len() / tensors_per_column);
    if n == 0 || !available.is_multiple_of(n) {
        return Err(Error::invalid_argument(format!(
            "got {available} tensors for {n} columns, expected one tensor per column and batch"
        )));
    }
    if let Some(names) = &options.names
        && names.len() != n
    {
        return Err(Error::invalid_argument(format!("got {} names for {n} columns", names.len())));
    }
    let mut stream = TensorStream {
        memory: memory.clone(),
        options,
        schema: expected.map(SchemaRef::from),
        columns,
        tensors_per_column,
        batch: tensors,
        rest: Vec::new().into_iter(),
        batches: 0,
    };
    // A single tensor without a schema is not checked, because the column was derived from this
    // tensor.
    if stream.schema.is_some() || stream.batch.len() > 1 {
        stream.batch.chunks(n * tensors_per_column).try_for_each(|batch| stream.check(batch))?;
    }
    if available > n {
        stream.rest = std::mem::take(&mut stream.batch).into_vec().into_iter();
        stream.next_batch();
    }
    Ok(Box::new(stream))
}

type Columns = SmallVec<[Column; 1]>;
type Tensors = SmallVec<[Tensor; 1]>;

fn infer_columns(tensors: &Tensors, tensors_per_column: usize, packs_bools: bool) -> Columns {
    let mut columns = Columns::with_capacity(tensors.len() / tensors_per_column);
    for tensor in tensors.iter().step_by(tensors_per_column) {
        columns.push(Column::from_tensor(tensor.element, &tensor.strides, packs_bools));
    }
    columns
}

/// Takes every tensor out of its capsule. If one tensor is rejected, all tensors are freed.
fn tensors(memory: &Memory, call: &Call<'_>, capsules: Capsules) -> Result<Tensors> {
    let n = capsules.len();
    let mut tensors = SmallVec::with_capacity(n);
    for (i, capsule) in capsules.into_iter().enumerate() {
        // This loop can be long, because each tensor may need a call of the driver.
        call.check_cancelled()?;
        let tensor = Tensor::take(capsule, memory);
        tensors.push(tensor.map_err(|error| error.context(format_args!("tensor {i} of {n}")))?);
    }
    Ok(tensors)
}

struct TensorStream {
    memory: Memory,
    options: ImportOptions,
    /// The caller's schema. If the caller passed no schema, it is derived from the tensors when it
    /// is first needed; `None` until then.
    schema: Option<SchemaRef>,
    columns: Columns,
    /// The number of tensors for each column: 1 for values, or 2 for values and masks.
    tensors_per_column: usize,
    /// Tensors of the next batch, in the order of the columns.
    batch: Tensors,
    /// Tensors of all later batches.
    rest: std::vec::IntoIter<Tensor>,
    /// Number of batches that `next` has returned.
    batches: u64,
}

impl BatchStream for TensorStream {
    fn schema(&mut self) -> Result<Owned<abi::ArrowSchema>> {
        export_schema(self.known_schema()?.as_ref())
    }

    fn next(&mut self, call: &Call<'_>) -> Result<Option<Owned<abi::Batch>>> {
        call.check_cancelled()?;
        if self.batch.is_empty() {
            return Ok(None);
        }
        let batch = match self.next_in_place(call)? {
            Some(batch) => batch,
            None => {
                self.next_converted(call).map_err(|e| e.context(format_args!("batch {}", self.batches)))?
            }
        };
        self.batches += 1;
        Ok(Some(batch))
    }
}

impl TensorStream {
    fn name(&self, i: usize) -> Cow<'_, str> {
        let in_schema = self.schema.as_ref().and_then(|schema| schema.fields().get(i));
        let in_options = || self.options.names.as_ref().and_then(|names| names.get(i)).map(String::as_str);
        let name = in_schema.map(|field| field.name().as_str()).or_else(in_options);
        name.map_or_else(|| format!("col_{i}").into(), Cow::from)
    }

    fn known_schema(&mut self) -> Result<SchemaRef> {
        if let Some(schema) = &self.schema {
            return Ok(schema.clone());
        }
        let fields = self.columns.iter().enumerate();
        let fields = fields.map(|(i, column)| column.field(&self.name(i), self.options.has_masks));
        let schema = SchemaRef::new(Schema::new(fields.collect::<Result<Vec<_>>>()?));
        self.schema = Some(schema.clone());
        Ok(schema)
    }

    /// Compares the tensors of one batch with the columns, and returns an error unless all tensors
    /// have the same number of rows.
    fn check(&self, batch: &[Tensor]) -> Result<()> {
        let rows = rows(batch);
        for (i, (column, tensors)) in
            self.columns.iter().zip(batch.chunks(self.tensors_per_column)).enumerate()
        {
            let [tensor, mask @ ..] = tensors else { continue };
            let reject =
                |what: String| Err(Error::invalid_argument(format!("column '{}' is {what}", self.name(i))));
            if tensor.rows() != rows {
                return reject(format!("{} rows long, expected {rows} like the first column", tensor.rows()));
            }
            if tensor.element != column.element {
                let (got, expected) = (tensor.element.name(), column.element.name());
                return reject(format!("a tensor of {got}, expected {expected} by the schema"));
            }
            if !column.is_of_shape(tensor.strides.row_shape()) {
                let (got, expected): (Vec<_>, _) = (tensor.strides.shape().collect(), column.shape(rows));
                return reject(format!("a tensor of shape {got:?}, expected {expected:?} by the schema"));
            }
            if let [mask] = mask
                && (mask.element != Element::BOOL || !mask.strides.shape().eq([rows]))
            {
                let (got, shape): (_, Vec<_>) = (mask.element.name(), mask.strides.shape().collect());
                return reject(format!(
                    "masked by a tensor of {got} of shape {shape:?}, expected bool of shape [{rows}]"
                ));
            }
        }
        Ok(())
    }

    /// Returns the tensors of the next batch, and prepares the tensors of the batch after it.
    fn next_batch(&mut self) -> Tensors {
        let following = match self.rest.len() {
            0 => Tensors::new(),
            _ => self.rest.by_ref().take(self.columns.len() * self.tensors_per_column).collect(),
        };
        std::mem::replace(&mut self.batch, following)
    }

    /// Returns the next batch if an Arrow buffer can refer to every tensor, which requires that the
    /// tensor has one dimension of plain values. Returns `None` otherwise.
    fn next_in_place(&mut self, call: &Call<'_>) -> Result<Option<Owned<abi::Batch>>> {
        let (rows, device) = (rows(&self.batch), call.device());
        let is_in_place = self.tensors_per_column == 1
            && self.columns.iter().zip(&self.batch).all(|(column, tensor)| {
                column.plain_width().is_some() && tensor.device == device && tensor.is_in_place(&[])
            });
        if !is_in_place {
            return Ok(None);
        }
        let ready = if device == Device::CPU {
            Ready::Now
        } else {
            call_stream(&self.memory, call, device)?.record()?
        };
        let tensors = self.next_batch();
        // SAFETY: DLPack requires that the memory of a tensor is valid until its deleter is called,
        // and readable after the work on the call's stream. `is_in_place` checked the device and
        // the layout. `open` compared the element types with the columns, or derived the columns
        // from them.
        Ok(Some(unsafe { export_plain(device, rows, tensors, Tensor::span, ready) }))
    }

    fn next_converted(&mut self, call: &Call<'_>) -> Result<Owned<abi::Batch>> {
        let schema = self.known_schema()?;
        let rows = rows(&self.batch);
        // The producer has made the call's stream wait for the tensors on all devices.
        let ready = match self.batch.iter().all(Tensor::is_ready) {
            true => Ready::Now,
            false => call_stream(&self.memory, call, call.device())?.record()?,
        };
        let tensors_per_column = self.tensors_per_column;
        let tensors = self.next_batch().into_iter().enumerate();
        let requests = tensors.map(|(i, tensor)| {
            let column = self.columns.get(i / tensors_per_column).filter(|_| i % tensors_per_column == 0);
            BufferRequest {
                tensor,
                order: column.map_or(Vec::new(), Column::order),
                bits: column.is_none_or(|column| column.bits),
                invert: column.is_none(),
            }
        });
        let in_column = |i: usize, error: Error| error.context(format_args!("column '{}'", self.name(i)));
        let buffers = buffers(requests.collect(), &ready, |device| call_stream(&self.memory, call, device));
        let mut buffers = buffers.map_err(|(i, error)| in_column(i / tensors_per_column, error))?.into_iter();
        let mut arrays = Vec::with_capacity(self.columns.len());
        for (i, field) in schema.fields().iter().enumerate() {
            let values = buffers.next().flatten();
            let validity = if tensors_per_column == 2 { buffers.next().flatten() } else { None };
            arrays.push(array(field, values, validity, rows).map_err(|error| in_column(i, error))?);
        }
        let batch = DeviceBatch::try_new(schema, rows, arrays)?;
        self.check_non_nullable(call, &batch)?;
        let batch = batch.move_for_call(&self.memory, call, call.device())?;
        let stream = call_stream(&self.memory, call, batch.device())?;
        export_batch(&batch, false, &stream)
    }

    /// Returns an error if a column that the schema declares non-nullable has nulls.
    fn check_non_nullable(&self, call: &Call<'_>, batch: &DeviceBatch) -> Result<()> {
        let (schema, arrays) = (batch.schema(), batch.columns());
        let non_nullable = || schema.fields().iter().zip(arrays).filter(|(field, _)| !field.is_nullable());
        let checked: Vec<&DeviceArray> = non_nullable().map(|(_, array)| array).collect();
        let null_counts = count_nulls(&checked, &call_stream(&self.memory, call, batch.device())?)?;
        match non_nullable().zip(null_counts).find(|(_, nulls)| *nulls > 0) {
            None => Ok(()),
            Some(((field, _), nulls)) => Err(Error::bad_data(format!(
                "column '{}': the mask marks {nulls} rows as null, expected none by the schema",
                field.name()
            ))),
        }
    }
}

fn rows(batch: &[Tensor]) -> usize {
    batch.first().map_or(0, Tensor::rows)
}

/// Creates a column from the values of its innermost array and the validity bitmap of its rows.
fn array(
    field: &Field,
    values: Option<Buffer>,
    validity: Option<Buffer>,
    rows: usize,
) -> Result<DeviceArray> {
    // The type and length of each nesting level, from the outermost list to the values.
    let mut levels = vec![(field.data_type(), rows)];
    while let Some((DataType::FixedSizeList(child, n), len)) = levels.last() {
        let len = len.saturating_mul(usize::try_from(*n).unwrap_or(0));
        levels.push((child.data_type(), len));
    }
    let mut inner: Option<DeviceArray> = None;
    while let Some((data_type, len)) = levels.pop() {
        let validity = if levels.is_empty() { validity.clone() } else { None };
        let nulls = if validity.is_some() { None } else { Some(0) };
        let (buffers, children) = match inner.take() {
            None => (vec![validity, values.clone()], Vec::new()),
            Some(child) => (vec![validity], vec![child]),
        };
        inner = Some(DeviceArray::try_new(data_type.clone(), len, 0, nulls, buffers, children, None)?);
    }
    inner.ok_or_else(|| Error::internal("the column's type has no levels"))
}
