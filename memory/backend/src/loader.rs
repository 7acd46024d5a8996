//! Implements `crossdock.host.loader/1`: moves ranges of sources to devices.
//!
//! A source in memory that the device copies itself, such as pinned memory, is copied as any other
//! host memory. Other sources, such as mapped files, are read at offsets: for a CUDA device into
//! pinned chunks, whose copies to the device run while other chunks are read (`cuda::staging`), and
//! for host devices into the target itself. Several threads of the session's pool read at the same
//! time, if the length of the source is known.

use std::ffi::c_void;
use std::sync::Arc;

use crossdock_plugin_api::door::Poison;
use crossdock_plugin_api::{BorrowedSource, Call, Device, Error, Map, Result, abi};

use crate::account::Account;
use crate::read_at::ReadAt;
use crate::tasks::InstanceTasks;
use crate::trace::note_bytes;

/// The interface of one instance. `table` is the first field, so that a pointer to this struct is a
/// pointer to a `crossdock_host_loader`.
#[repr(C)]
pub struct Loader {
    table: abi::HostLoader,
    account: Arc<Account>,
    tasks: InstanceTasks,
}

// SAFETY: the pointer in `table` is null, its function may be called on any thread, and the other
// fields are Send and Sync.
unsafe impl Send for Loader {}
// SAFETY: as for `Send`; nothing is written after construction.
unsafe impl Sync for Loader {}

impl Loader {
    /// Creates the interface of an instance that uses `account`. Reads run on the threads of
    /// `tasks`.
    pub fn new(account: Arc<Account>, tasks: InstanceTasks) -> Self {
        Self { table: abi::HostLoader { load: Some(load), ..abi::HostLoader::new() }, account, tasks }
    }

    /// The C object. It is valid as long as `self` stays at its address.
    pub fn as_ptr(&self) -> *const abi::HostLoader {
        std::ptr::from_ref(self).cast()
    }
}

struct SourceOfCall<'a> {
    source: BorrowedSource<'a>,
    /// The bytes of the source, if they are in memory.
    map: Option<Map>,
    call: &'a Call<'a>,
}

// SAFETY: `Call` only reads the cancel flag, which all threads access atomically, and its progress
// function is not used. `BorrowedSource` is Sync.
unsafe impl Sync for SourceOfCall<'_> {}

impl ReadAt for SourceOfCall<'_> {
    fn read(&self, offset: u64, to: &mut [u8]) -> Result<()> {
        self.call.check_cancelled()?;
        let Some(map) = &self.map else { return self.source.read_exact_at(offset, to) };
        let range = usize::try_from(offset).ok().and_then(|at| map.bytes().get(at..)?.get(..to.len()));
        let missing = || Error::bad_data(format!("'{}' has become shorter", self.source.name()));
        to.copy_from_slice(range.ok_or_else(missing)?);
        Ok(())
    }

    fn is_sequential(&self) -> bool {
        self.source.len().is_none()
    }
}

unsafe extern "C" fn load(
    this: *const abi::HostLoader,
    call: *const abi::Call,
    source: *mut abi::Source,
    loads: *const abi::Load,
    n_loads: usize,
    stream: *mut abi::Stream,
    err: *mut abi::Error,
) -> abi::Code {
    let body = || {
        // SAFETY: the contract of `load`: `this` is the object that contains the function.
        let this = unsafe { this.cast::<Loader>().as_ref() };
        let this = this.ok_or_else(|| Error::invalid_argument("load: the loader is NULL"))?;
        // SAFETY: the contract of `load`: the pointers are valid during the call, the list has
        // `n_loads` elements, and a source of unknown length is read by this call alone.
        unsafe {
            let loads = crate::vtable::list(loads, n_loads, "load")?;
            let source = BorrowedSource::read(source.cast_const()).map_err(|e| e.context("load"))?;
            let call = Call::read(call).map_err(|e| e.context("load"))?;
            this.account.trace_plugin_call("loader.load", || {
                note_bytes(loads.iter().fold(0, |sum: u64, load| sum.saturating_add(load.bytes as u64)));
                this.load(&call, source, loads, stream)
            })
        }
    };
    // SAFETY: the contract of `load`: `err` is null or a valid error struct.
    unsafe { Poison::for_host().enter(err, body) }
}

impl Loader {
    /// # Safety
    /// The contract of `crossdock_host_loader.load`.
    unsafe fn load(
        &self,
        call: &Call<'_>,
        source: BorrowedSource<'_>,
        loads: &[abi::Load],
        stream: *mut abi::Stream,
    ) -> Result<()> {
        call.check_cancelled()?;
        check_ranges(&source, loads)?;
        let stream = if stream.is_null() { call.stream() } else { stream };
        // SAFETY: `stream` is NULL or live by this function's contract.
        let (device, stream) = unsafe { self.account.stream_of_call(stream, call.device()) }?;
        // SAFETY: `stream` is live by this function's contract.
        let is_copied = |map: &Map| unsafe { self.account.copies_in_place(stream, map.address()) };
        let map = source.map();
        let Some(map) = map.as_ref().filter(|map| is_copied(map)).cloned() else {
            let source = SourceOfCall { source, map, call };
            // SAFETY: the ranges are memory of the stream's device by this function's contract.
            return unsafe { self.account.load(stream, &source, loads, &self.tasks) };
        };
        let address = map.address();
        let copies = loads.iter().filter(|load| load.bytes > 0).map(|load| abi::Copy {
            to: load.to,
            // `check_ranges` checked that the range is within the source.
            from: address.wrapping_add(load.offset) as *const c_void,
            bytes: load.bytes,
            to_device: device,
            from_device: Device::CPU,
        });
        // SAFETY: the source's memory is readable while `map` exists, and the targets are memory of
        // the stream's device by this function's contract. `map` is kept until the copies have run.
        unsafe {
            let result = self.account.copy(stream, &copies.collect::<Vec<_>>());
            self.account.keep_until_done(stream, address, map);
            result
        }
    }
}

/// Rejects ranges that end after the source, and ranges out of order if the source is sequential.
fn check_ranges(source: &BorrowedSource<'_>, loads: &[abi::Load]) -> Result<()> {
    let mut position = None;
    for (i, load) in loads.iter().enumerate().filter(|(_, load)| load.bytes > 0) {
        let end = load.offset.checked_add(load.bytes as u64);
        let Some(end) = end.filter(|end| source.len().is_none_or(|bytes| *end <= bytes)) else {
            let length = source.len().map_or("unknown".to_string(), |bytes| bytes.to_string());
            return Err(Error::bad_data(format!(
                "load {i}: '{}' is truncated: expected {} bytes at offset {}, but its length is {length}",
                source.name(),
                load.bytes,
                load.offset
            )));
        };
        if source.len().is_none() && position.is_some_and(|position| position != load.offset) {
            return Err(Error::invalid_argument(format!(
                "load {i} begins at byte {} of '{}', which can only be read in order: expected byte {}",
                load.offset,
                source.name(),
                position.unwrap_or(0)
            )));
        }
        position = Some(end);
    }
    Ok(())
}
