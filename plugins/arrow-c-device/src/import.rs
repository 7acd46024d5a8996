//! Imports external Arrow C structs as batches.

use std::collections::VecDeque;

use arrow_schema::{Schema, SchemaRef};
use crossdock_arrays::{
    Arrays, DataStream, DeviceStream, Level, call_stream, check_batch_array, export_batch, export_schema,
    field_type_name, import_batch, import_schema, import_schema_ref, on_cpu, validate,
};
use crossdock_memory::Memory;
use crossdock_plugin_api::{
    BatchStream, Call, Capsule, Capsules, Device, Error, Owned, Result, Validate, abi,
};

use crate::formats::Interface;

pub(crate) fn open(
    memory: &Memory,
    interface: Interface,
    capsules: Capsules,
    expected: Option<&abi::ArrowSchema>,
) -> Result<Box<dyn BatchStream>> {
    let (schema, arrays): (Option<Schema>, Box<dyn Arrays>) = match interface {
        Interface::DeviceStream => {
            let mut stream = DeviceStream::new(single_capsule(capsules, interface)?.take()?);
            (Some(import_schema(&stream.schema()?)?), Box::new(stream))
        }
        Interface::DataStream => {
            let mut stream = DataStream::new(single_capsule(capsules, interface)?.take()?);
            (Some(import_schema(&stream.schema()?)?), Box::new(stream))
        }
        Interface::Device | Interface::Data => {
            let (schema, arrays) = split_capsules(interface, capsules)?;
            (schema, Box::new(arrays))
        }
    };
    let expected = expected.map(import_borrowed_schema).transpose()?;
    let schema = match (schema, expected) {
        (Some(actual), Some(expected)) => {
            check_same_types(interface, &actual, &expected)?;
            actual
        }
        (Some(schema), None) | (None, Some(schema)) => schema,
        (None, None) => {
            return Err(Error::invalid_argument(format!(
                "{}: got no schema, expected an 'arrow_schema' capsule or a schema argument",
                interface.name()
            )));
        }
    };
    Ok(Box::new(ImportStream { memory: memory.clone(), schema: schema.into(), arrays, batches: 0 }))
}

/// Reads a schema that the caller keeps.
pub(crate) fn import_borrowed_schema(schema: &abi::ArrowSchema) -> Result<Schema> {
    // SAFETY: the plugin interface requires that the caller passes a valid ArrowSchema that lives
    // until the call returns.
    unsafe { import_schema_ref(schema) }
}

fn single_capsule(capsules: Capsules, interface: Interface) -> Result<Capsule> {
    let n = capsules.len();
    let mut capsules = capsules.into_iter();
    match (capsules.next(), n) {
        (Some(capsule), 1) => Ok(capsule),
        _ => Err(Error::invalid_argument(format!(
            "{}: got {n} capsules, expected one stream",
            interface.name()
        ))),
    }
}

/// Separates schemas from arrays. Returns an error if the types of a schema differ from those of
/// the first schema.
fn split_capsules(
    interface: Interface,
    capsules: Capsules,
) -> Result<(Option<Schema>, VecDeque<Owned<abi::ArrowDeviceArray>>)> {
    let mut schema: Option<Schema> = None;
    let mut arrays = VecDeque::new();
    for capsule in capsules {
        if capsule.name() == c"arrow_schema" {
            let next = import_schema(&capsule.take::<abi::ArrowSchema>()?)?;
            match &schema {
                Some(first) => check_same_types(interface, &next, first)?,
                None => schema = Some(next),
            }
        } else if interface == Interface::Data {
            arrays.push_back(on_cpu(capsule.take::<abi::ArrowArray>()?));
        } else {
            arrays.push_back(capsule.take::<abi::ArrowDeviceArray>()?);
        }
    }
    Ok((schema, arrays))
}

fn check_same_types(interface: Interface, got: &Schema, expected: &Schema) -> Result<()> {
    let reject = |what: String| Err(Error::invalid_argument(format!("{}: {what}", interface.name())));
    if got.fields().len() != expected.fields().len() {
        return reject(format!(
            "the schema has {} columns, expected {}",
            got.fields().len(),
            expected.fields().len()
        ));
    }
    for (got, expected) in got.fields().iter().zip(expected.fields()) {
        if got.name() != expected.name() || !got.data_type().equals_datatype(expected.data_type()) {
            return reject(format!(
                "column '{}' is of type {}, expected '{}' of type {}",
                got.name(),
                field_type_name(got),
                expected.name(),
                field_type_name(expected)
            ));
        }
    }
    Ok(())
}

struct ImportStream {
    memory: Memory,
    schema: SchemaRef,
    arrays: Box<dyn Arrays>,
    batches: u64,
}

impl BatchStream for ImportStream {
    fn schema(&mut self) -> Result<Owned<abi::ArrowSchema>> {
        export_schema(&self.schema)
    }

    fn next(&mut self, call: &Call<'_>) -> Result<Option<Owned<abi::Batch>>> {
        call.check_cancelled()?;
        let Some(array) = self.arrays.next()? else { return Ok(None) };
        let batch =
            self.import(call, array).map_err(|e| e.context(format_args!("batch {}", self.batches)))?;
        self.batches += 1;
        Ok(Some(batch))
    }
}

impl ImportStream {
    fn import(&self, call: &Call<'_>, array: Owned<abi::ArrowDeviceArray>) -> Result<Owned<abi::Batch>> {
        let is_on_device = Device::from_arrow(array.device_type, array.device_id) == call.device();
        if is_on_device
            && call.validate() == Validate::Layout
            && check_batch_array(&array, &self.schema, &self.memory)?
        {
            // The array is passed on unchanged, together with its own release function.
            return Ok(into_batch(array));
        }
        let batch = import_batch(into_batch(array), &self.schema, &self.memory)?;
        let batch = batch.move_for_call(&self.memory, call, call.device())?;
        let stream = call_stream(&self.memory, call, batch.device())?;
        if call.validate() == Validate::Full {
            validate(&batch, Level::Full, &stream)?;
        }
        export_batch(&batch, false, &stream)
    }
}

fn into_batch(array: Owned<abi::ArrowDeviceArray>) -> Owned<abi::Batch> {
    let raw = abi::Batch { array: array.into_raw(), ..abi::Batch::new() };
    // SAFETY: `into_raw` passed the ownership of the array to the batch. Releasing the batch
    // releases the array.
    unsafe { Owned::new(raw) }
}
