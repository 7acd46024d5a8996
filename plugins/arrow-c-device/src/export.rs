//! From batches to structs for strangers.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use crossdock_arrays::{ArrayQueue, call_stream, check_ends, export_schema, import_batch, lend_batch};
use crossdock_memory::Memory;
use crossdock_plugin_api::{
    BatchWriter, Call, Capsule, ColumnPlan, Device, Error, Options, Owned, Result, Verdict, abi,
};

use crate::formats::Interface;
use crate::import::borrowed;

pub(crate) fn plan(
    interface: Interface,
    call: &Call<'_>,
    schema: &abi::ArrowSchema,
    from: Device,
) -> Result<Vec<ColumnPlan>> {
    let to = interface.target(call.device());
    let (verdict, reason) = if from == to {
        (Verdict::ZeroCopy, "the buffers are lent as they are".to_string())
    } else {
        (Verdict::Copied, format!("from {from} to {to}"))
    };
    Ok(borrowed(schema)?
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
    let every_time = match options.get("schema") {
        None | Some("each") => true,
        Some("first") => false,
        Some(other) => {
            return Err(Error::invalid_argument(format!(
                "option schema={other}: expected 'each' (the default) or 'first'"
            )));
        }
    };
    let schema: SchemaRef = Arc::new(borrowed(schema)?);
    Ok(Box::new(Exported {
        memory: memory.clone(),
        interface,
        schema,
        every_time,
        batches: 0,
        queue: ArrayQueue::default(),
    }))
}

struct Exported {
    memory: Memory,
    interface: Interface,
    schema: SchemaRef,
    /// Whether each array comes with its schema, as Python's pairs of capsules do, or only the first.
    every_time: bool,
    batches: u64,
    /// What a stream will give.
    queue: ArrayQueue,
}

impl BatchWriter for Exported {
    fn write(&mut self, call: &Call<'_>, batch: Owned<abi::Batch>) -> Result<Vec<Capsule>> {
        call.check_cancelled()?;
        let array = self.array(call, batch).map_err(|e| e.context(format_args!("batch {}", self.batches)))?;
        self.batches += 1;
        let array = match self.interface {
            Interface::Device => Capsule::new(array),
            Interface::Data => Capsule::new(host_array(array)?),
            Interface::DeviceStream | Interface::DataStream => {
                self.queue.push(array)?;
                return Ok(Vec::new());
            }
        };
        if self.every_time || self.batches == 1 {
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
            // A table without batches still has a schema to tell.
            Interface::Device | Interface::Data if self.batches == 0 => {
                vec![Capsule::new(export_schema(&self.schema)?)]
            }
            Interface::Device | Interface::Data => Vec::new(),
        })
    }
}

impl Exported {
    /// The batch's array where the interface wants it: handed on as it is if it lies there and tells its null counts.
    fn array(&self, call: &Call<'_>, batch: Owned<abi::Batch>) -> Result<Owned<abi::ArrowDeviceArray>> {
        check_ends(&batch, &self.schema, &self.memory)?;
        let target = self.interface.target(call.device());
        let here = Device::from_arrow(batch.array.device_type, batch.array.device_id) == target;
        // SAFETY: a batch that crossed the boundary is a valid array, whose tree lives until its release.
        if here && unsafe { counts_are_exact(&batch.array.array, crossdock_arrays::MAX_DEPTH) } {
            return Ok(array_of(batch));
        }
        let batch = import_batch(batch, &self.schema, &self.memory)?;
        let batch = batch.move_for_call(&self.memory, call, target)?;
        let stream = call_stream(&self.memory, call, batch.device())?;
        Ok(array_of(lend_batch(&batch, false, &stream)?))
    }
}

fn array_of(batch: Owned<abi::Batch>) -> Owned<abi::ArrowDeviceArray> {
    let mut raw = batch.into_raw();
    // SAFETY: both halves are ours; the schema, if there is one, is released here.
    unsafe {
        drop(Owned::<abi::ArrowSchema>::take(&mut raw.schema));
        Owned::take(&mut raw.array)
    }
}

/// A device array in host memory as a plain array.
fn host_array(array: Owned<abi::ArrowDeviceArray>) -> Result<Owned<abi::ArrowArray>> {
    let mut raw = array.into_raw();
    // SAFETY: the array is ours, and moves out whole.
    let array = unsafe { Owned::<abi::ArrowArray>::take(&mut raw.array) };
    if raw.device_type != abi::DEVICE_CPU {
        return Err(Error::internal(format!(
            "an array on device type {} was to become a host array",
            raw.device_type
        )));
    }
    Ok(array)
}

/// Whether no node leaves its null count open. A tree that is too deep is not walked to its end: import refuses it.
///
/// # Safety
/// `array` is a valid array whose children and dictionary live as long as it.
unsafe fn counts_are_exact(array: &abi::ArrowArray, depth: usize) -> bool {
    if array.null_count < 0 || depth == 0 {
        return false;
    }
    let n = usize::try_from(array.n_children).unwrap_or(0);
    let exact = |child: *mut abi::ArrowArray| {
        // SAFETY: the caller's word; null becomes None.
        unsafe { child.as_ref().is_some_and(|child| counts_are_exact(child, depth - 1)) }
    };
    // SAFETY: as above, and `n` children stand in the list.
    let children = (0..n).all(|i| !array.children.is_null() && exact(unsafe { *array.children.add(i) }));
    children && (array.dictionary.is_null() || exact(array.dictionary))
}
