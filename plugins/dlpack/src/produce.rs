//! Tensors of ours for strangers.

use std::ffi::c_void;
use std::ptr::NonNull;

use crossdock_memory::{Buffer, Stream};
use crossdock_plugin_api::door::Poison;
use crossdock_plugin_api::{Capsule, Device, Error, Result};
use dlpark::allocation::Initialized;
use dlpark::ffi::{DLManagedTensor, DLManagedTensorVersioned};
use dlpark::metadata::Dynamic;
use dlpark::{DlpackFlags, ManagedTensorBase};

use crate::column::Column;
use crate::tensor::{LEGACY, VERSIONED, to_dlpack};

/// A tensor's elements: its bytes, and whether they were made for it, so that nobody else sees what is written there.
pub(crate) struct Elements {
    pub(crate) buffer: Option<Buffer>,
    pub(crate) ours: bool,
}

/// A tensor in a capsule. What is in flight to its bytes is waited for by the stream; on the CPU, where no consumer waits
/// for a stream, it has ended.
pub(crate) fn capsule(
    column: &Column,
    rows: usize,
    elements: Elements,
    device: Device,
    stream: &Stream,
    legacy: bool,
) -> Result<Capsule> {
    if let Some(buffer) = &elements.buffer {
        buffer.mark_lent();
        stream.wait(buffer.ready())?;
        if device == Device::CPU && !buffer.ready().is_now() {
            stream.synchronize()?;
        }
    }
    let tensor = Dynamic::new(column.shape(rows), column.strides());
    if legacy {
        let tensor = tensor.initialize_as::<DLManagedTensor>(Box::new(Kept::of(&elements)));
        let tensor = finished(tensor.map_err(wrong)?, column, &elements, device)?;
        // SAFETY: a tensor that nobody else has; its deleter may run on any thread, for `Kept` may.
        return Ok(unsafe { Capsule::of_self_freeing(LEGACY, tensor, free) });
    }
    let tensor = tensor.initialize_as::<DLManagedTensorVersioned>(Box::new(Kept::of(&elements)));
    let mut tensor = tensor.map_err(wrong)?;
    let flags = if elements.ours { DlpackFlags::IS_COPIED } else { DlpackFlags::READ_ONLY };
    // SAFETY: what is called a copy is one that nobody else has.
    unsafe { tensor.set_flags_unchecked(flags) };
    let tensor = finished(tensor, column, &elements, device)?;
    // SAFETY: as above.
    Ok(unsafe { Capsule::of_self_freeing(VERSIONED, tensor, free) })
}

fn finished<M: ManagedTensorBase, S>(
    mut tensor: Initialized<M, S>,
    column: &Column,
    elements: &Elements,
    device: Device,
) -> Result<NonNull<M>> {
    let data = elements.buffer.as_ref().map_or(0, Buffer::address) as *mut c_void;
    tensor.set_data(data).set_dtype(column.element.dtype()).set_device(to_dlpack(device)?);
    // SAFETY: data, shape, strides, dtype and device are set, and `Kept` keeps the bytes until the deleter is called.
    let raw = unsafe { tensor.finish() }.into_raw();
    NonNull::new(raw).ok_or_else(|| Error::internal("a tensor that was made is NULL"))
}

fn wrong(error: dlpark::metadata::Error) -> Error {
    Error::internal(format!("a tensor could not be described: {error}"))
}

unsafe fn free<M: ManagedTensorBase>(tensor: NonNull<M>) {
    // SAFETY: the tensor is managed, and its deleter is called once, by the capsule that still holds it.
    unsafe { M::drop_raw(tensor.as_ptr()) }
}

/// What keeps a tensor's bytes; dropped by its deleter, behind the door.
struct Kept(Option<Buffer>);

impl Kept {
    fn of(elements: &Elements) -> Self {
        Self(elements.buffer.clone())
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let buffer = self.0.take();
        Poison::new().leave(move || drop(buffer));
    }
}
