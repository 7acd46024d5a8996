//! From strangers' structs to batches.

use std::collections::VecDeque;

use arrow_schema::{Schema, SchemaRef};
use crossdock_arrays::{
    Arrays, DataStream, DeviceStream, Level, call_stream, check_batch_array, export_batch, export_schema,
    import_batch, import_schema, import_schema_ref, on_cpu, validate,
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
            let mut stream = DeviceStream::new(only(capsules, interface)?.take()?);
            (Some(import_schema(&stream.schema()?)?), Box::new(stream))
        }
        Interface::DataStream => {
            let mut stream = DataStream::new(only(capsules, interface)?.take()?);
            (Some(import_schema(&stream.schema()?)?), Box::new(stream))
        }
        Interface::Device | Interface::Data => {
            let (schema, arrays) = pairs(interface, capsules)?;
            (schema, Box::new(arrays))
        }
    };
    let expected = expected.map(borrowed).transpose()?;
    let schema = match (schema, expected) {
        (Some(own), Some(expected)) => {
            same_types(interface, &own, &expected)?;
            own
        }
        (Some(schema), None) | (None, Some(schema)) => schema,
        (None, None) => {
            return Err(Error::invalid_argument(format!(
                "{}: no schema: expected an 'arrow_schema' capsule or a schema from the caller",
                interface.name()
            )));
        }
    };
    Ok(Box::new(Imported { memory: memory.clone(), schema: schema.into(), arrays, batches: 0 }))
}

/// The schema that a caller lent.
pub(crate) fn borrowed(schema: &abi::ArrowSchema) -> Result<Schema> {
    // SAFETY: what crosses the boundary as a schema is a valid struct, alive for the call.
    unsafe { import_schema_ref(schema) }
}

fn only(capsules: Capsules, interface: Interface) -> Result<Capsule> {
    let n = capsules.len();
    let mut capsules = capsules.into_iter();
    match (capsules.next(), n) {
        (Some(capsule), 1) => Ok(capsule),
        _ => Err(Error::invalid_argument(format!(
            "{}: {n} capsules were given, expected one stream",
            interface.name()
        ))),
    }
}

/// Sorts schemas from arrays: one schema at least or a caller's, each later one the same as the first.
fn pairs(
    interface: Interface,
    capsules: Capsules,
) -> Result<(Option<Schema>, VecDeque<Owned<abi::ArrowDeviceArray>>)> {
    let mut schema: Option<Schema> = None;
    let mut arrays = VecDeque::new();
    for capsule in capsules {
        if capsule.name() == c"arrow_schema" {
            let next = import_schema(&capsule.take::<abi::ArrowSchema>()?)?;
            match &schema {
                Some(first) => same_types(interface, &next, first)?,
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

fn same_types(interface: Interface, got: &Schema, expected: &Schema) -> Result<()> {
    let refuse = |what: String| Err(Error::invalid_argument(format!("{}: {what}", interface.name())));
    if got.fields().len() != expected.fields().len() {
        return refuse(format!(
            "the schema has {} columns, expected {}",
            got.fields().len(),
            expected.fields().len()
        ));
    }
    for (got, expected) in got.fields().iter().zip(expected.fields()) {
        if got.name() != expected.name() || !got.data_type().equals_datatype(expected.data_type()) {
            return refuse(format!(
                "column '{}' is of type {}, expected '{}' of type {}",
                got.name(),
                got.data_type(),
                expected.name(),
                expected.data_type()
            ));
        }
    }
    Ok(())
}

struct Imported {
    memory: Memory,
    schema: SchemaRef,
    arrays: Box<dyn Arrays>,
    batches: u64,
}

impl BatchStream for Imported {
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

impl Imported {
    fn import(&self, call: &Call<'_>, array: Owned<abi::ArrowDeviceArray>) -> Result<Owned<abi::Batch>> {
        let here = Device::from_arrow(array.device_type, array.device_id) == call.device();
        if here
            && call.validate() == Validate::Layout
            && check_batch_array(&array, &self.schema, &self.memory)?
        {
            // It is as it should be and where it should be: handed on, its own release with it.
            return Ok(batch_of(array));
        }
        let batch = import_batch(batch_of(array), &self.schema, &self.memory)?;
        let batch = batch.move_for_call(&self.memory, call, call.device())?;
        let stream = call_stream(&self.memory, call, batch.device())?;
        if call.validate() == Validate::Full {
            validate(&batch, Level::Full, &stream)?;
        }
        export_batch(&batch, false, &stream)
    }
}

fn batch_of(array: Owned<abi::ArrowDeviceArray>) -> Owned<abi::Batch> {
    let raw = abi::Batch { array: array.into_raw(), ..abi::Batch::new() };
    // SAFETY: the array was ours, and is moved into a struct that has its release.
    unsafe { Owned::new(raw) }
}
