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
    /// In elements.
    pub(crate) strides: SmallVec<[i64; 4]>,
    pub(crate) device: DLDevice,
    /// Address of the first element; 0 if there are no elements.
    pub(crate) address: u64,
    /// Whether the bytes were allocated for this tensor: the consumer may write to them.
    pub(crate) is_copy: bool,
}

impl TensorSpec {
    /// Describes `rows` rows of a column.
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

    /// Puts a new managed tensor into a capsule. The tensor's deleter drops `owner`, on any thread.
    pub(crate) fn capsule(&self, legacy: bool, owner: impl OpaqueContext) -> Result<Capsule> {
        // SAFETY: `managed` returns a new tensor, so the capsule is its only owner; `OpaqueContext`
        // requires `Send`, so its deleter may run on any thread.
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
        // SAFETY: the bytes of a tensor that is flagged as copied were allocated for it alone; the
        // legacy form has no flags and ignores them. Data, shape, strides, dtype and device are
        // set, and `owner` keeps the bytes alive until the deleter is called.
        let raw = unsafe {
            tensor.set_flags_unchecked(flags);
            tensor.finish().into_raw()
        };
        NonNull::new(raw).ok_or_else(|| Error::internal("the new managed tensor is NULL"))
    }
}

unsafe fn delete<M: ManagedTensorBase>(tensor: NonNull<M>) {
    // SAFETY: the capsule calls this once, if it still owns the managed tensor.
    unsafe { M::drop_raw(tensor.as_ptr()) }
}

/// Marks a buffer as exported and makes the stream wait for pending writes to it.
///
/// On the CPU consumers do not wait for a stream, so the call waits itself.
pub(crate) fn prepare_export(buffer: &Buffer, device: Device, stream: &Stream) -> Result<()> {
    buffer.mark_exported();
    stream.wait(buffer.ready())?;
    if device == Device::CPU && !buffer.ready().is_now() {
        stream.synchronize()?;
    }
    Ok(())
}

/// Keeps a tensor's buffer alive; `None` if the tensor has no elements.
pub(crate) struct BufferOwner(pub(crate) Option<Buffer>);

impl Drop for BufferOwner {
    fn drop(&mut self) {
        let buffer = self.0.take();
        Poison::new().run_release(move || drop(buffer));
    }
}

/// Keeps a batch alive that several tensors refer to.
pub(crate) struct BatchOwner {
    _batch: Owned<abi::Batch>,
}

// SAFETY: the field is private and never read, so shared references cannot reach it; the drop, on
// any thread, is the batch's release, which any thread may call.
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
