//! Enqueues many copies at once.

use std::ffi::c_void;
use std::sync::Arc;

use crossdock_plugin_api::{Device, Error, Result, abi};

use crate::memory::call;
use crate::owner::Owner;
use crate::{Buffer, BufferMut, Stream};

/// Collects copies between any devices and enqueues them together. Until [`Copies::submit`],
/// sources are borrowed, and targets are kept alive and must not be frozen.
#[derive(Default)]
pub struct Copies<'a> {
    copies: Vec<abi::Copy>,
    sources: Vec<&'a Buffer>,
    /// Owners of the targets, which keep the memory alive until the copies are enqueued.
    /// [`Copies::push`] borrows a target only for the duration of its call, so that one buffer can
    /// be the target of several copies.
    targets: Vec<Arc<Owner>>,
    to_host: bool,
}

impl<'a> Copies<'a> {
    /// Creates an empty list of copies.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a copy from one buffer to another. Target ranges must not overlap, because the copies
    /// run in no particular order.
    pub fn push(
        &mut self,
        to: &mut BufferMut,
        to_offset: usize,
        from: &'a Buffer,
        from_offset: usize,
        bytes: usize,
    ) -> Result<()> {
        from.check(from_offset, bytes)?;
        if to_offset.checked_add(bytes).is_none_or(|end| end > to.len()) {
            return Err(Error::internal(format!(
                "a copy to bytes {to_offset}..+{bytes} lies outside a buffer of {} bytes",
                to.len()
            )));
        }
        if bytes > 0 && self.targets.last().is_none_or(|last| !Arc::ptr_eq(last, to.owner())) {
            self.targets.push(to.owner().clone());
        }
        self.add(to.address() + to_offset as u64, to.device(), from, from_offset, bytes);
        Ok(())
    }

    /// Adds a copy to host memory. [`Copies::submit`] then blocks until all copies are complete.
    pub fn push_to_host(&mut self, to: &'a mut [u8], from: &'a Buffer, from_offset: usize) -> Result<()> {
        from.check(from_offset, to.len())?;
        self.to_host |= !to.is_empty();
        self.add(to.as_mut_ptr() as u64, Device::CPU, from, from_offset, to.len());
        Ok(())
    }

    fn add(&mut self, to: u64, to_device: Device, from: &'a Buffer, from_offset: usize, bytes: usize) {
        if bytes > 0 {
            self.copies.push(abi::Copy {
                to: to as *mut c_void,
                from: (from.address() + from_offset as u64) as *const c_void,
                bytes,
                to_device,
                from_device: from.device(),
            });
            self.sources.push(from);
        }
    }

    /// Enqueues all copies on `stream`, after the events of their sources. Blocks only if
    /// [`Copies::push_to_host`] added a copy.
    pub fn submit(self, stream: &Stream) -> Result<()> {
        if self.copies.is_empty() {
            return Ok(());
        }
        if self.targets.iter().any(|target| target.is_frozen()) {
            return Err(Error::internal("a copy was submitted after its target had been frozen"));
        }
        stream.reject_capture(if self.to_host { "a copy to the host" } else { "a copy" })?;
        stream.wait_each(self.sources.iter().map(|source| source.ready()))?;
        let enqueued = call!(stream.memory(), copy, stream.raw(), self.copies.as_ptr(), self.copies.len());
        let targets = self.targets.iter().map(|target| &**target);
        let owners = || self.sources.iter().map(|source| source.owner()).chain(targets.clone());
        if self.to_host {
            return enqueued
                .and_then(|()| stream.synchronize())
                .inspect_err(|_| stream.synchronize_or_leak(owners));
        }
        stream.note_uses(enqueued, owners)
    }
}
