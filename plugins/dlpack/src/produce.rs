//! Tensors of ours for strangers.

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

/// What a tensor is, whoever keeps its bytes.
pub(crate) struct Described {
    pub(crate) element: Element,
    pub(crate) shape: SmallVec<[i64; 4]>,
    /// In elements.
    pub(crate) strides: SmallVec<[i64; 4]>,
    pub(crate) device: DLDevice,
    /// Of the first element; 0 where there is none.
    pub(crate) address: u64,
    /// Whether the bytes were made for it, so that nobody else sees what is written there.
    pub(crate) ours: bool,
}

impl Described {
    /// So many rows of a column.
    pub(crate) fn new(column: &Column, rows: usize, device: DLDevice, address: u64, ours: bool) -> Self {
        let (shape, strides) = match column.plain_width() {
            Some(_) => (smallvec![rows as i64], smallvec![1]),
            None => (
                column.shape(rows).into_iter().map(|size| size as i64).collect(),
                column.strides().into_iter().map(|stride| stride as i64).collect(),
            ),
        };
        Self { element: column.element, shape, strides, device, address, ours }
    }

    /// In a capsule; `kept` is dropped by the deleter, which may run on any thread.
    pub(crate) fn capsule(&self, legacy: bool, kept: impl OpaqueContext) -> Result<Capsule> {
        // SAFETY: `managed` gives a tensor that nobody else has, whose deleter may run on any thread.
        unsafe {
            if legacy {
                let tensor = self.managed::<DLManagedTensor>(kept)?;
                return Ok(Capsule::of_self_freeing(LEGACY, tensor, free));
            }
            let tensor = self.managed::<DLManagedTensorVersioned>(kept)?;
            Ok(Capsule::of_self_freeing(VERSIONED, tensor, free))
        }
    }

    fn managed<M: ManagedTensorBase>(&self, kept: impl OpaqueContext) -> Result<NonNull<M>> {
        let tensor = Dynamic::new(self.shape.as_slice(), self.strides.as_slice()).initialize_as::<M>(kept);
        let mut tensor =
            tensor.map_err(|error| Error::internal(format!("a tensor could not be described: {error}")))?;
        tensor.set_data(self.address as *mut c_void).set_device(self.device).set_dtype(self.element.dtype());
        let flags = if self.ours { DlpackFlags::IS_COPIED } else { DlpackFlags::READ_ONLY };
        // SAFETY: what is called a copy is one that nobody else has; the legacy form has no flags and ignores them. Data,
        // shape, strides, dtype and device are set, and `kept` keeps the bytes until the deleter is called.
        let raw = unsafe {
            tensor.set_flags_unchecked(flags);
            tensor.finish().into_raw()
        };
        NonNull::new(raw).ok_or_else(|| Error::internal("a tensor that was made is NULL"))
    }
}

unsafe fn free<M: ManagedTensorBase>(tensor: NonNull<M>) {
    // SAFETY: the tensor is managed, and its deleter is called once, by the capsule that still holds it.
    unsafe { M::drop_raw(tensor.as_ptr()) }
}

/// Makes a buffer's bytes something that may be lent: what is in flight to them is waited for by the stream; on the CPU,
/// where no consumer waits for a stream, it has ended.
pub(crate) fn lend(buffer: &Buffer, device: Device, stream: &Stream) -> Result<()> {
    buffer.mark_lent();
    stream.wait(buffer.ready())?;
    if device == Device::CPU && !buffer.ready().is_now() {
        stream.synchronize()?;
    }
    Ok(())
}

/// One buffer that a tensor keeps, if it has elements.
pub(crate) struct KeptBuffer(pub(crate) Option<Buffer>);

impl Drop for KeptBuffer {
    fn drop(&mut self) {
        let buffer = self.0.take();
        Poison::new().leave(move || drop(buffer));
    }
}

/// A batch of which the tensors of several columns are parts.
pub(crate) struct KeptBatch {
    _batch: Owned<abi::Batch>,
}

// SAFETY: shared references to it do nothing; it is only dropped, on whichever thread comes last, as releases allow.
unsafe impl Sync for KeptBatch {}

impl KeptBatch {
    pub(crate) fn new(batch: Owned<abi::Batch>) -> Arc<Self> {
        Arc::new(Self { _batch: batch })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossdock_memory::{ForeignOwner, Ready};
    use crossdock_test_support::NotingHost;

    #[test]
    fn what_is_in_flight_is_waited_for_and_on_the_cpu_to_its_end() {
        let host = NotingHost::new();
        for (device, expected) in
            [(Device::CPU, &["stream_wait", "stream_synchronize"][..]), (Device::cuda(0), &["stream_wait"])]
        {
            let stream = host.stream(device);
            let owner = ForeignOwner::new(());
            // SAFETY: nobody looks at its bytes.
            let buffer = |ready| unsafe { Buffer::foreign(&owner, device, 64, Some(8), ready) };
            lend(&buffer(stream.record().unwrap()), device, &stream).unwrap();
            assert_eq!(host.waits(), expected, "{device}");
            lend(&buffer(Ready::Now), device, &stream).unwrap();
            assert!(host.waits().is_empty(), "{device}");
        }
    }
}
