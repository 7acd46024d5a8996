//! From tensors to batches.

use std::collections::VecDeque;

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use crossdock_arrays::{
    DeviceArray, DeviceBatch, call_stream, export_batch, export_schema, import_schema_ref,
};
use crossdock_kernels::{gather, pack_bytes};
use crossdock_memory::{Buffer, Memory, Stream};
use crossdock_plugin_api::{BatchStream, Call, Capsule, Error, Owned, Result, abi};

use crate::column::Column;
use crate::element::Element;
use crate::options::Reading;
use crate::tensor::Tensor;

/// A column's tensor, and that of its mask.
type Pair = (Tensor, Option<Tensor>);

pub(crate) fn open(
    memory: &Memory,
    reading: &Reading,
    capsules: Vec<Capsule>,
    expected: Option<&abi::ArrowSchema>,
) -> Result<Box<dyn BatchStream>> {
    // SAFETY: what crosses the boundary as a schema is a valid struct, alive for the call.
    let expected = expected.map(|schema| unsafe { import_schema_ref(schema) }).transpose()?;
    let mut pairs = pairs(memory, reading, capsules)?;
    let (schema, columns) = match expected {
        Some(schema) => {
            if reading.names.is_some() {
                return Err(Error::invalid_argument("names and a schema were given, expected one of them"));
            }
            let columns = schema.fields().iter().map(|f| Column::of_field(f)).collect::<Result<Vec<_>>>()?;
            (schema, columns)
        }
        None => inferred(reading, &pairs)?,
    };
    let n = columns.len();
    if n == 0 || !pairs.len().is_multiple_of(n) {
        return Err(Error::invalid_argument(format!(
            "{} tensors for {n} columns: expected as many, or as many for each of several batches",
            pairs.len()
        )));
    }
    let mut batches = VecDeque::new();
    while !pairs.is_empty() {
        let batch: Vec<Pair> = pairs.drain(..n).collect();
        check(&columns, &batch)?;
        batches.push_back(batch);
    }
    Ok(Box::new(Imported { memory: memory.clone(), schema: schema.into(), columns, batches, given: 0 }))
}

/// Takes every tensor out of its capsule; those of which one is refused are all freed.
fn pairs(memory: &Memory, reading: &Reading, capsules: Vec<Capsule>) -> Result<VecDeque<Pair>> {
    let n = capsules.len();
    let mut tensors = capsules.into_iter().enumerate().map(|(i, capsule)| {
        Tensor::take(capsule, memory).map_err(|error| error.context(format_args!("tensor {i} of {n}")))
    });
    let mut pairs = VecDeque::with_capacity(n);
    while let Some(values) = tensors.next() {
        let mask = if reading.masked {
            let missing = || {
                Error::invalid_argument(format!(
                    "{n} tensors with nulls=mask, expected an even number: each with its mask after it"
                ))
            };
            Some(tensors.next().ok_or_else(missing)??)
        } else {
            None
        };
        pairs.push_back((values?, mask));
    }
    Ok(pairs)
}

/// A schema for tensors that nobody described.
fn inferred(reading: &Reading, pairs: &VecDeque<Pair>) -> Result<(Schema, Vec<Column>)> {
    let n = pairs.len();
    if let Some(names) = &reading.names
        && names.len() != n
    {
        return Err(Error::invalid_argument(format!("{} names for {n} columns", names.len())));
    }
    let name = |i: usize| match reading.names.as_ref().and_then(|names| names.get(i)) {
        Some(name) => name.clone(),
        None => format!("col_{i}"),
    };
    let columns: Vec<Column> = pairs
        .iter()
        .enumerate()
        .map(|(i, (tensor, _))| Column::of_tensor(name(i), tensor.element, &tensor.strides, reading.bits))
        .collect();
    let fields = columns.iter().map(|column| column.field(reading.masked)).collect::<Result<Vec<_>>>()?;
    Ok((Schema::new(fields), columns))
}

/// Whether the tensors are those of the columns, and all of one length.
fn check(columns: &[Column], batch: &[Pair]) -> Result<()> {
    let rows = batch.first().map_or(0, |(tensor, _)| tensor.rows());
    for (column, (tensor, mask)) in columns.iter().zip(batch) {
        let name = &column.name;
        if tensor.rows() != rows {
            return Err(Error::invalid_argument(format!(
                "column '{name}' has {} rows, expected {rows} as the first column",
                tensor.rows()
            )));
        }
        if tensor.element != column.element {
            return Err(Error::invalid_argument(format!(
                "column '{name}' is a tensor of {}, expected {} by the schema",
                tensor.element.name(),
                column.element.name()
            )));
        }
        let (got, wanted): (Vec<_>, _) = (tensor.strides.shape().collect(), column.shape(rows));
        if got != wanted {
            return Err(Error::invalid_argument(format!(
                "column '{name}' is a tensor of shape {got:?}, expected {wanted:?} by the schema"
            )));
        }
        if let Some(mask) = mask {
            let shape: Vec<_> = mask.strides.shape().collect();
            if mask.element != Element::BOOL || shape != [rows] {
                return Err(Error::invalid_argument(format!(
                    "the mask of column '{name}' is a tensor of {} of shape {shape:?}, expected bool of shape [{rows}]",
                    mask.element.name()
                )));
            }
        }
    }
    Ok(())
}

struct Imported {
    memory: Memory,
    schema: SchemaRef,
    columns: Vec<Column>,
    batches: VecDeque<Vec<Pair>>,
    given: u64,
}

impl BatchStream for Imported {
    fn schema(&mut self) -> Result<Owned<abi::ArrowSchema>> {
        export_schema(&self.schema)
    }

    fn next(&mut self, call: &Call<'_>) -> Result<Option<Owned<abi::Batch>>> {
        call.check_cancelled()?;
        let Some(batch) = self.batches.pop_front() else { return Ok(None) };
        let batch = self.import(call, batch).map_err(|e| e.context(format_args!("batch {}", self.given)))?;
        self.given += 1;
        Ok(Some(batch))
    }
}

impl Imported {
    fn import(&self, call: &Call<'_>, batch: Vec<Pair>) -> Result<Owned<abi::Batch>> {
        let rows = batch.first().map_or(0, |(tensor, _)| tensor.rows());
        let mut arrays = Vec::with_capacity(batch.len());
        for ((column, field), pair) in self.columns.iter().zip(self.schema.fields()).zip(batch) {
            let named = |error: Error| error.context(format_args!("column '{}'", column.name));
            let stream = call_stream(&self.memory, call, pair.0.device).map_err(named)?;
            arrays.push(array(column, field, pair, rows, &stream).map_err(named)?);
        }
        let batch = DeviceBatch::try_new(self.schema.clone(), rows, arrays)?;
        let batch = batch.move_for_call(&self.memory, call, call.device())?;
        let stream = call_stream(&self.memory, call, batch.device())?;
        export_batch(&batch, false, &stream)
    }
}

/// One column. Its tensor is ready on the stream.
fn array(
    column: &Column,
    field: &Field,
    (tensor, mask): Pair,
    rows: usize,
    stream: &Stream,
) -> Result<DeviceArray> {
    let validity = mask.map(|mask| bits_of(mask, &[], true, stream)).transpose()?.flatten();
    let values = if column.bits {
        bits_of(tensor, &column.order(), false, stream)?
    } else {
        bytes_of(tensor, &column.order(), stream)?.map(|(buffer, _)| buffer)
    };
    // The types from the outermost list to the values, and how many of each there are.
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
    let array = inner.ok_or_else(|| Error::internal("a type without levels"))?;
    if !field.is_nullable() && array.count_nulls(stream)? > 0 {
        return Err(Error::bad_data("the mask says that rows are null, and the schema that none are"));
    }
    Ok(array)
}

/// The elements side by side, in this order of a row's dimensions, and where they begin: in place where that is so, else
/// gathered. `None` where there are none.
fn bytes_of(tensor: Tensor, order: &[usize], stream: &Stream) -> Result<Option<(Buffer, usize)>> {
    let (elements, width) = (tensor.strides.elements(), tensor.element.width());
    if elements == 0 {
        return Ok(None);
    }
    let in_place = tensor.is_in_place(order);
    let dims = tensor.strides.gathered(order);
    let (buffer, first) = tensor.into_buffer(stream.record()?);
    if in_place {
        return Ok(Some((buffer, first)));
    }
    let mut gathered = stream.memory().alloc(stream, elements * width)?;
    gather(stream, &buffer, first, width, &dims, &mut gathered, 0)?;
    Ok(Some((gathered.freeze(stream)?, 0)))
}

/// The same for booleans, as bits.
fn bits_of(tensor: Tensor, order: &[usize], invert: bool, stream: &Stream) -> Result<Option<Buffer>> {
    let elements = tensor.strides.elements();
    let Some((bytes, first)) = bytes_of(tensor, order, stream)? else { return Ok(None) };
    let mut bits = stream.memory().alloc(stream, elements.div_ceil(8))?;
    pack_bytes(stream, &bytes, first, elements, invert, &mut bits, 0)?;
    Ok(Some(bits.freeze(stream)?))
}
