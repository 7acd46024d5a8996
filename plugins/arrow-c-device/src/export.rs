//! Exports batches as Arrow C structs.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use crossdock_arrays::{
    ArrayQueue, call_stream, check_last_offsets, export_batch_to_external, export_schema, import_batch,
};
use crossdock_memory::Memory;
use crossdock_plugin_api::{
    BatchWriter, Call, Capsule, ColumnPlan, Device, Error, Options, Owned, Result, Verdict, abi,
};

use crate::formats::Interface;
use crate::import::import_borrowed_schema;

pub(crate) fn plan(
    interface: Interface,
    call: &Call<'_>,
    schema: &abi::ArrowSchema,
    from: Device,
) -> Result<Vec<ColumnPlan>> {
    let to = interface.target(call.device());
    let (verdict, reason) = if from == to {
        (Verdict::ZeroCopy, "the array refers to the buffers".to_string())
    } else {
        (Verdict::Copied, format!("from {from} to {to}"))
    };
    Ok(import_borrowed_schema(schema)?
        .fields()
        .iter()
        .map(|field| ColumnPlan { name: field.name().clone(), verdict, to, reason: reason.clone() })
        .collect())
}

pub(crate) fn begin(
    memory: &Memory,
    interface: Interface,
    schema: &abi::ArrowSchema,
    options: &Options,
) -> Result<Box<dyn BatchWriter>> {
    let repeats_schema = match options.get("schema") {
        None | Some("each") => true,
        Some("first") => false,
        Some(other) => {
            return Err(Error::invalid_argument(format!(
                "option schema={other}: expected 'each' (the default) or 'first'"
            )));
        }
    };
    let schema: SchemaRef = Arc::new(import_borrowed_schema(schema)?);
    Ok(Box::new(Writer {
        memory: memory.clone(),
        interface,
        schema,
        repeats_schema,
        batches: 0,
        queue: ArrayQueue::default(),
    }))
}

struct Writer {
    memory: Memory,
    interface: Interface,
    schema: SchemaRef,
    /// Whether a schema capsule precedes each array, as in the capsule pairs of Python. Otherwise,
    /// only one schema capsule precedes the first array.
    repeats_schema: bool,
    batches: u64,
    /// The arrays of a stream that `finish` returns.
    queue: ArrayQueue,
}

impl BatchWriter for Writer {
    fn write(&mut self, call: &Call<'_>, batch: Owned<abi::Batch>) -> Result<Vec<Capsule>> {
        call.check_cancelled()?;
        let array = self.export_array(call, batch);
        let array = array.map_err(|error| error.context(format_args!("batch {}", self.batches)))?;
        self.batches += 1;
        let array = match self.interface {
            Interface::Device => Capsule::new(array),
            Interface::Data => Capsule::new(host_array(array)?),
            Interface::DeviceStream | Interface::DataStream => {
                self.queue.push(array)?;
                return Ok(Vec::new());
            }
        };
        if self.repeats_schema || self.batches == 1 {
            return Ok(vec![Capsule::new(export_schema(&self.schema)?), array]);
        }
        Ok(vec![array])
    }

    fn finish(&mut self, call: &Call<'_>) -> Result<Vec<Capsule>> {
        let queue = std::mem::take(&mut self.queue);
        Ok(match self.interface {
            Interface::DeviceStream => {
                let declared = self.interface.target(call.device());
                vec![Capsule::new(queue.into_device_stream(self.schema.clone(), declared))]
            }
            Interface::DataStream => vec![Capsule::new(queue.into_data_stream(self.schema.clone()))],
            // A table without batches is exported as its schema only.
            Interface::Device | Interface::Data if self.batches == 0 => {
                vec![Capsule::new(export_schema(&self.schema)?)]
            }
            Interface::Device | Interface::Data => Vec::new(),
        })
    }
}

impl Writer {
    /// Returns the batch's array on the device of the interface. The array is passed on unchanged
    /// if it is on this device and its null counts are known.
    fn export_array(
        &self,
        call: &Call<'_>,
        batch: Owned<abi::Batch>,
    ) -> Result<Owned<abi::ArrowDeviceArray>> {
        check_last_offsets(&batch, &self.schema, &self.memory)?;
        let target = self.interface.target(call.device());
        let is_on_target = Device::from_arrow(batch.array.device_type, batch.array.device_id) == target;
        // SAFETY: `Owned` holds a valid batch, whose arrays live until it is released.
        if is_on_target && unsafe { has_null_counts(&batch.array.array, crossdock_arrays::MAX_DEPTH) } {
            return Ok(into_array(batch));
        }
        let batch = import_batch(batch, &self.schema, &self.memory)?;
        let batch = batch.move_for_call(&self.memory, call, target)?;
        let stream = call_stream(&self.memory, call, batch.device())?;
        Ok(into_array(export_batch_to_external(&batch, false, &stream)?))
    }
}

fn into_array(batch: Owned<abi::Batch>) -> Owned<abi::ArrowDeviceArray> {
    let mut raw = batch.into_raw();
    // SAFETY: `into_raw` passed the ownership of the array and of the schema. `take` moves each
    // struct to one new owner. The owner of the schema is dropped here.
    unsafe {
        drop(Owned::<abi::ArrowSchema>::take(&mut raw.schema));
        Owned::take(&mut raw.array)
    }
}

/// Converts a device array whose buffers are in host memory to an `ArrowArray`.
fn host_array(array: Owned<abi::ArrowDeviceArray>) -> Result<Owned<abi::ArrowArray>> {
    let mut raw = array.into_raw();
    // SAFETY: `into_raw` passed the ownership of the array, and it is taken only here.
    let array = unsafe { Owned::<abi::ArrowArray>::take(&mut raw.array) };
    if raw.device_type != abi::DEVICE_CPU {
        return Err(Error::internal(format!(
            "an array is on device type {}, expected {}, which is host memory",
            raw.device_type,
            abi::DEVICE_CPU
        )));
    }
    Ok(array)
}

/// Whether the null counts of all nodes are known, which means that they are not -1. Returns false
/// for a tree deeper than `depth`, so that the caller imports the tree and the import rejects it.
///
/// # Safety
/// `array` is a valid array. Its children and dictionary live as long as the array.
unsafe fn has_null_counts(array: &abi::ArrowArray, depth: usize) -> bool {
    if array.null_count < 0 || depth == 0 {
        return false;
    }
    let n = usize::try_from(array.n_children).unwrap_or(0);
    let is_exact = |child: *mut abi::ArrowArray| {
        // SAFETY: the child is NULL, which becomes `None`, or a valid array. As this function
        // requires, it lives as long as its parent.
        unsafe { child.as_ref().is_some_and(|child| has_null_counts(child, depth - 1)) }
    };
    // SAFETY: `children` is not NULL, and the list of a valid array has `n_children` pointers.
    let children = (0..n).all(|i| !array.children.is_null() && is_exact(unsafe { *array.children.add(i) }));
    children && (array.dictionary.is_null() || is_exact(array.dictionary))
}
