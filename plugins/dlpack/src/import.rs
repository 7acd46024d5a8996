//! From tensors to batches.

use std::borrow::Cow;

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use crossdock_arrays::{
    DeviceArray, DeviceBatch, call_stream, count_nulls, export_batch, export_plain, export_schema,
    import_schema_ref,
};
use crossdock_memory::{Buffer, Device, Memory, Ready};
use crossdock_plugin_api::{BatchStream, Call, Capsules, Error, Owned, Result, abi};
use smallvec::SmallVec;

use crate::column::Column;
use crate::element::Element;
use crate::elements::{Wanted, buffers};
use crate::options::Reading;
use crate::tensor::Tensor;

pub(crate) fn open(
    memory: &Memory,
    call: &Call<'_>,
    reading: Reading,
    capsules: Capsules,
    expected: Option<&abi::ArrowSchema>,
) -> Result<Box<dyn BatchStream>> {
    // SAFETY: what crosses the boundary as a schema is a valid struct, alive for the call.
    let expected = expected.map(|schema| unsafe { import_schema_ref(schema) }).transpose()?;
    let tensors = tensors(memory, call, capsules)?;
    let each = if reading.masked { 2 } else { 1 };
    if !tensors.len().is_multiple_of(each) {
        return Err(Error::invalid_argument(format!(
            "{} tensors with nulls=mask, expected an even number: each with its mask after it",
            tensors.len()
        )));
    }
    let columns: Columns = match &expected {
        Some(_) if reading.names.is_some() => {
            return Err(Error::invalid_argument("names and a schema were given, expected one of them"));
        }
        Some(schema) => schema.fields().iter().map(|f| Column::of_field(f)).collect::<Result<_>>()?,
        None => {
            let mut columns = Columns::with_capacity(tensors.len() / each);
            for tensor in tensors.iter().step_by(each) {
                columns.push(Column::of_tensor(tensor.element, &tensor.strides, reading.bits));
            }
            columns
        }
    };
    let (n, given) = (columns.len(), tensors.len() / each);
    if n == 0 || !given.is_multiple_of(n) {
        return Err(Error::invalid_argument(format!(
            "{given} tensors for {n} columns: expected as many, or as many for each of several batches"
        )));
    }
    if let Some(names) = &reading.names
        && names.len() != n
    {
        return Err(Error::invalid_argument(format!("{} names for {n} columns", names.len())));
    }
    let mut imported = Imported {
        memory: memory.clone(),
        reading,
        schema: expected.map(SchemaRef::from),
        columns,
        each,
        batch: tensors,
        rest: Vec::new().into_iter(),
        given: 0,
    };
    // One tensor that nobody described is as it is.
    if imported.schema.is_some() || imported.batch.len() > 1 {
        imported.batch.chunks(n * each).try_for_each(|batch| imported.check(batch))?;
    }
    if given > n {
        imported.rest = std::mem::take(&mut imported.batch).into_vec().into_iter();
        imported.next_batch();
    }
    Ok(Box::new(imported))
}

type Columns = SmallVec<[Column; 1]>;
type Tensors = SmallVec<[Tensor; 1]>;

/// Takes every tensor out of its capsule; those of which one is refused are all freed.
fn tensors(memory: &Memory, call: &Call<'_>, capsules: Capsules) -> Result<Tensors> {
    let n = capsules.len();
    let mut tensors = SmallVec::with_capacity(n);
    for (i, capsule) in capsules.into_iter().enumerate() {
        // The driver may be asked about each.
        call.check_cancelled()?;
        let tensor = Tensor::take(capsule, memory);
        tensors.push(tensor.map_err(|error| error.context(format_args!("tensor {i} of {n}")))?);
    }
    Ok(tensors)
}

struct Imported {
    memory: Memory,
    reading: Reading,
    /// The caller's, or what the tensors are like, made when it is asked for.
    schema: Option<SchemaRef>,
    columns: Columns,
    /// How many tensors a column has: its values, and its mask where there are masks.
    each: usize,
    /// Those of the next batch, column by column.
    batch: Tensors,
    /// Those of the batches after it.
    rest: std::vec::IntoIter<Tensor>,
    given: u64,
}

impl BatchStream for Imported {
    fn schema(&mut self) -> Result<Owned<abi::ArrowSchema>> {
        export_schema(self.known_schema()?.as_ref())
    }

    fn next(&mut self, call: &Call<'_>) -> Result<Option<Owned<abi::Batch>>> {
        call.check_cancelled()?;
        if self.batch.is_empty() {
            return Ok(None);
        }
        let batch = match self.plain(call)? {
            Some(batch) => batch,
            None => self.any(call).map_err(|e| e.context(format_args!("batch {}", self.given)))?,
        };
        self.given += 1;
        Ok(Some(batch))
    }
}

impl Imported {
    fn name(&self, i: usize) -> Cow<'_, str> {
        let own = self.schema.as_ref().and_then(|schema| schema.fields().get(i)).map(|f| f.name().as_str());
        let told = || self.reading.names.as_ref().and_then(|names| names.get(i)).map(String::as_str);
        own.or_else(told).map_or_else(|| format!("col_{i}").into(), Cow::from)
    }

    fn known_schema(&mut self) -> Result<SchemaRef> {
        if let Some(schema) = &self.schema {
            return Ok(schema.clone());
        }
        let fields = self.columns.iter().enumerate();
        let fields = fields.map(|(i, column)| column.field(&self.name(i), self.reading.masked));
        let schema = SchemaRef::new(Schema::new(fields.collect::<Result<Vec<_>>>()?));
        self.schema = Some(schema.clone());
        Ok(schema)
    }

    /// Whether the tensors are those of the columns, and all of one length.
    fn check(&self, batch: &[Tensor]) -> Result<()> {
        let rows = rows(batch);
        for (i, (column, tensors)) in self.columns.iter().zip(batch.chunks(self.each)).enumerate() {
            let [tensor, mask @ ..] = tensors else { continue };
            let refuse =
                |what: String| Err(Error::invalid_argument(format!("column '{}' is {what}", self.name(i))));
            if tensor.rows() != rows {
                return refuse(format!("{} rows long, expected {rows} as the first column", tensor.rows()));
            }
            if tensor.element != column.element {
                let (got, wanted) = (tensor.element.name(), column.element.name());
                return refuse(format!("a tensor of {got}, expected {wanted} by the schema"));
            }
            if !column.is_of_shape(tensor.strides.row_shape()) {
                let (got, wanted): (Vec<_>, _) = (tensor.strides.shape().collect(), column.shape(rows));
                return refuse(format!("a tensor of shape {got:?}, expected {wanted:?} by the schema"));
            }
            if let [mask] = mask
                && (mask.element != Element::BOOL || !mask.strides.shape().eq([rows]))
            {
                let (got, shape): (_, Vec<_>) = (mask.element.name(), mask.strides.shape().collect());
                return refuse(format!(
                    "masked by a tensor of {got} of shape {shape:?}, expected bool of shape [{rows}]"
                ));
            }
        }
        Ok(())
    }

    /// The next batch's tensors, and after them come those of the one behind it.
    fn next_batch(&mut self) -> Tensors {
        let following = match self.rest.len() {
            0 => Tensors::new(),
            _ => self.rest.by_ref().take(self.columns.len() * self.each).collect(),
        };
        std::mem::replace(&mut self.batch, following)
    }

    /// The next batch, if its tensors are Arrow's buffers as they are: each one dimension of plain values, in place.
    fn plain(&mut self, call: &Call<'_>) -> Result<Option<Owned<abi::Batch>>> {
        let (rows, device) = (rows(&self.batch), call.device());
        let plain = self.each == 1
            && self.columns.iter().zip(&self.batch).all(|(column, tensor)| {
                column.plain_width().is_some() && tensor.device == device && tensor.is_in_place(&[])
            });
        if !plain {
            return Ok(None);
        }
        let ready = if device == Device::CPU {
            Ready::Now
        } else {
            call_stream(&self.memory, call, device)?.record()?
        };
        let kept = self.next_batch();
        // SAFETY: each tensor's producer vouches for what it spans, on its device after the call's stream, until it is freed;
        // its elements are of the column's type.
        Ok(Some(unsafe { export_plain(device, rows, kept, Tensor::span, ready) }))
    }

    fn any(&mut self, call: &Call<'_>) -> Result<Owned<abi::Batch>> {
        let schema = self.known_schema()?;
        let rows = rows(&self.batch);
        // Wherever a tensor lies, it is the call's stream that its producer has made wait.
        let ready = match self.batch.iter().all(Tensor::is_ready) {
            true => Ready::Now,
            false => call_stream(&self.memory, call, call.device())?.record()?,
        };
        let each = self.each;
        let tensors = self.next_batch().into_iter().enumerate();
        let wanted = tensors.map(|(i, tensor)| {
            let column = self.columns.get(i / each).filter(|_| i % each == 0);
            Wanted {
                tensor,
                order: column.map_or(Vec::new(), Column::order),
                bits: column.is_none_or(|column| column.bits),
                invert: column.is_none(),
            }
        });
        let named = |i: usize, error: Error| error.context(format_args!("column '{}'", self.name(i)));
        let made = buffers(wanted.collect(), &ready, |device| call_stream(&self.memory, call, device));
        let mut made = made.map_err(|(i, error)| named(i / each, error))?.into_iter();
        let mut arrays = Vec::with_capacity(self.columns.len());
        for (i, field) in schema.fields().iter().enumerate() {
            let values = made.next().flatten();
            let validity = if each == 2 { made.next().flatten() } else { None };
            arrays.push(array(field, values, validity, rows).map_err(|error| named(i, error))?);
        }
        let batch = DeviceBatch::try_new(schema, rows, arrays)?;
        self.check_strict(call, &batch)?;
        let batch = batch.move_for_call(&self.memory, call, call.device())?;
        let stream = call_stream(&self.memory, call, batch.device())?;
        export_batch(&batch, false, &stream)
    }

    /// Nulls where the schema allows none are refused.
    fn check_strict(&self, call: &Call<'_>, batch: &DeviceBatch) -> Result<()> {
        let (schema, arrays) = (batch.schema(), batch.columns());
        let strict =
            || schema.fields().iter().zip(arrays).enumerate().filter(|(_, (field, _))| !field.is_nullable());
        let of: Vec<&DeviceArray> = strict().map(|(_, (_, array))| array).collect();
        let counted = count_nulls(&of, &call_stream(&self.memory, call, batch.device())?)?;
        match strict().zip(counted).find(|(_, nulls)| *nulls > 0) {
            None => Ok(()),
            Some(((_, (field, _)), _)) => Err(Error::bad_data(format!(
                "column '{}': the mask says that rows are null, and the schema that none are",
                field.name()
            ))),
        }
    }
}

fn rows(batch: &[Tensor]) -> usize {
    batch.first().map_or(0, Tensor::rows)
}

/// One column over its elements, and over what tells which rows there are.
fn array(
    field: &Field,
    values: Option<Buffer>,
    validity: Option<Buffer>,
    rows: usize,
) -> Result<DeviceArray> {
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
    inner.ok_or_else(|| Error::internal("a type without levels"))
}
