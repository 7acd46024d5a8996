//! Creates managed tensors for external consumers.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use crossdock_memory::{Buffer, Stream};
use crossdock_plugin_api::door::Poison;
use crossdock_plugin_api::{Capsule, Device, Error, Owned, Result, abi};
use dlpark::ffi::{DLDevice, DLManagedTensor, DLManagedTensorVersioned};
use dlpark::metadata::Dynamic;
use dlpark::{DlpackFlags, ManagedTensorBase, OpaqueContext};
use smallvec::{SmallVec, smallvec};

use crate::column::Column;
use crate::element::Element;
use crate::tensor::{LEGACY, VERSIONED};

/// The fields of an exported `DLTensor`.
pub(crate) struct TensorSpec {
    pub(crate) element: Element,
    pub(crate) shape: SmallVec<[i64; 4]>,
    /// The strides in elements.
    pub(crate) strides: SmallVec<[i64; 4]>,
    pub(crate) device: DLDevice,
    /// Address of the first element. It is 0 if there are no elements.
    pub(crate) address: u64,
    /// Whether the memory was allocated for this tensor. The consumer may then write to it.
    pub(crate) is_copy: bool,
}

impl TensorSpec {
    /// Describes a tensor with `rows` rows of a column.
    pub(crate) fn new(column: &Column, rows: usize, device: DLDevice, address: u64, is_copy: bool) -> Self {
        let (shape, strides) = match column.plain_width() {
            Some(_) => (smallvec![rows as i64], smallvec![1]),
            None => (
                column.shape(rows).into_iter().map(|size| size as i64).collect(),
                column.strides().into_iter().map(|stride| stride as i64).collect(),
            ),
        };
        Self { element: column.element, shape, strides, device, address, is_copy }
    }

    /// Creates a managed tensor in a capsule. The deleter of the tensor drops `owner`, on any
    /// thread.
    pub(crate) fn capsule(&self, legacy: bool, owner: impl OpaqueContext) -> Result<Capsule> {
        // SAFETY: `managed` returns a new tensor, so the capsule is its only owner. `OpaqueContext`
        // requires `Send`, so the deleter may run on any thread.
        unsafe {
            if legacy {
                let tensor = self.new_managed::<DLManagedTensor>(owner)?;
                return Ok(Capsule::from_self_freeing(LEGACY, tensor, delete));
            }
            let tensor = self.new_managed::<DLManagedTensorVersioned>(owner)?;
            Ok(Capsule::from_self_freeing(VERSIONED, tensor, delete))
        }
    }

    fn new_managed<M: ManagedTensorBase>(&self, owner: impl OpaqueContext) -> Result<NonNull<M>> {
        let tensor = Dynamic::new(self.shape.as_slice(), self.strides.as_slice()).initialize_as::<M>(owner);
        let mut tensor =
            tensor.map_err(|error| Error::internal(format!("cannot create a managed tensor: {error}")))?;
        tensor.set_data(self.address as *mut c_void).set_device(self.device).set_dtype(self.element.dtype());
        let flags = if self.is_copy { DlpackFlags::IS_COPIED } else { DlpackFlags::READ_ONLY };
        // SAFETY: a tensor gets the flag `IS_COPIED` only if its memory was allocated for this
        // tensor alone. The legacy struct has no flags. Data, shape, strides, dtype and device are
        // set, and `owner` keeps the memory alive until the deleter is called.
        let raw = unsafe {
            tensor.set_flags_unchecked(flags);
            tensor.finish().into_raw()
        };
        NonNull::new(raw).ok_or_else(|| Error::internal("the new managed tensor is NULL"))
    }
}

unsafe fn delete<M: ManagedTensorBase>(tensor: NonNull<M>) {
    // SAFETY: the capsule calls this function at most once, and only while it owns the managed
    // tensor.
    unsafe { M::drop_raw(tensor.as_ptr()) }
}

/// Marks a buffer as exported, and makes the stream wait for pending writes to the buffer.
///
/// On the CPU, consumers do not wait for a stream, so this function blocks until the writes have
/// run.
pub(crate) fn prepare_export(buffer: &Buffer, device: Device, stream: &Stream) -> Result<()> {
    buffer.mark_exported();
    stream.wait(buffer.ready())?;
    if device == Device::CPU && !buffer.ready().is_now() {
        stream.synchronize()?;
    }
    Ok(())
}

/// Keeps the buffer of a tensor alive; `None` if the tensor has no elements.
pub(crate) struct BufferOwner(pub(crate) Option<Buffer>);

impl Drop for BufferOwner {
    fn drop(&mut self) {
        let buffer = self.0.take();
        Poison::new().run_release(move || drop(buffer));
    }
}

/// Keeps a batch alive to which several tensors refer.
pub(crate) struct BatchOwner {
    _batch: Owned<abi::Batch>,
}

// SAFETY: the field is private and never read, so a shared reference gives no access to it.
// Dropping it releases the batch, which is allowed on any thread.
unsafe impl Sync for BatchOwner {}

impl BatchOwner {
    pub(crate) fn new(batch: Owned<abi::Batch>) -> Arc<Self> {
        Arc::new(Self { _batch: batch })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossdock_memory::{ForeignOwner, Ready};
    use crossdock_test_support::RecordingHost;

    #[test]
    fn waits_for_pending_work_and_synchronizes_on_the_cpu() {
        let host = RecordingHost::new();
        for (device, expected) in
            [(Device::CPU, &["stream_wait", "stream_synchronize"][..]), (Device::cuda(0), &["stream_wait"])]
        {
            let stream = host.stream(device);
            let owner = ForeignOwner::new(());
            // SAFETY: the test does not read the bytes.
            let buffer = |ready| unsafe { Buffer::foreign(&owner, device, 64, Some(8), ready) };
            prepare_export(&buffer(stream.record().unwrap()), device, &stream).unwrap();
            assert_eq!(host.waits(), expected, "{device}");
            prepare_export(&buffer(Ready::Now), device, &stream).unwrap();
            assert!(host.waits().is_empty(), "{device}");
        }
    }
}
