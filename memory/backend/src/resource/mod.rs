//! Where memory comes from, in pieces that compose: each resource either owns memory (`HostMemory`, `AliasedMemory`)
//! or wraps another one and adds a single policy. From the outside in, a device's chain is
//! `Counted` (per account) over `Faulty` over `Limited` over `Published` over `Pool` over the memory itself, with
//! those left out that nobody asked for.

mod counted;
mod faulty;
mod host;
mod limited;
mod pool;
mod published;
mod sync;
mod untouchable;

#[cfg(test)]
mod tests;

use std::ptr::NonNull;

use thiserror::Error;

use crate::cuda::Answer;
use crate::device::Stream;

pub(crate) use counted::Counted;
pub(crate) use faulty::Faulty;
pub(crate) use host::HostMemory;
pub(crate) use limited::{Budget, Limited};
pub(crate) use pool::Pool;
pub(crate) use published::{Published, Ranges};
pub(crate) use untouchable::AliasedMemory;

/// What every block is aligned to at least, in bytes.
pub(crate) const MIN_ALIGNMENT: usize = 64;
/// What a block may be aligned to at most, in bytes.
pub(crate) const MAX_ALIGNMENT: usize = 2 << 20;
/// The pages of both platforms that we run on may be smaller, and never larger than this.
pub(crate) const PAGE_BYTES: usize = 64 << 10;

/// What is asked for. `alignment` is a power of two from [`MIN_ALIGNMENT`] to [`MAX_ALIGNMENT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub bytes: usize,
    pub alignment: usize,
}

/// A piece of memory, and the request that it answers: giving it back with the same numbers leads to the same place.
#[derive(Debug)]
pub(crate) struct Region {
    /// The address that others know it by.
    pub address: NonNull<u8>,
    /// Where this crate may dereference it, on `untouchable` another address; on CUDA, where the allocation begins.
    pub reachable: NonNull<u8>,
    pub request: Request,
    /// The device's own handle of the stream in whose order it was allocated; null on devices that have none.
    pub home: *mut std::ffi::c_void,
}

// SAFETY: a region is an owned range of memory; nothing about it is bound to the thread that asked for it.
unsafe impl Send for Region {}

/// Why there is no memory. What was asked for, and by whom, is added where it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum Refusal {
    #[error("no address space holds that many")]
    TooLarge,
    #[error("the limit of {limit_bytes} bytes leaves {left_bytes}")]
    OverLimit { limit_bytes: usize, left_bytes: usize },
    #[error("the system has no memory left (os error {errno})")]
    System { errno: i32 },
    #[error("{0}")]
    Device(Answer),
    #[error("allocation {occurrence} was set to fail by the fault plan")]
    Injected { occurrence: u64 },
}

/// A source of memory on one device.
pub(crate) trait Resource: Send + Sync {
    /// Uninitialised memory, usable in the order of `stream`. Zero bytes give an address of their own, too.
    fn allocate(&self, request: Request, stream: &Stream) -> Result<Region, Refusal>;

    /// Takes back what this very resource gave, after the events in `uses`; if `lent`, after everything in flight on
    /// the device.
    fn release(&self, region: Region, uses: Uses<'_>, lent: bool);

    /// Gives memory that is only kept for later back to the system, at least `bytes` bytes if there is as much.
    /// Returns how many bytes that were.
    fn trim(&self, bytes: usize) -> usize;

    /// Bytes that are kept for later.
    fn cached_bytes(&self) -> usize;
}

/// Events after which a block is no longer used.
pub(crate) type Uses<'a> = &'a [*mut crossdock_plugin_api::abi::Event];

/// The system's last word.
pub(crate) fn system_refusal() -> Refusal {
    Refusal::System { errno: std::io::Error::last_os_error().raw_os_error().unwrap_or(0) }
}

macro_rules! through_pointers {
    ($($pointer:ty),*) => { $(
        impl<R: Resource + ?Sized> Resource for $pointer {
            fn allocate(&self, request: Request, stream: &Stream) -> Result<Region, Refusal> {
                (**self).allocate(request, stream)
            }

            fn release(&self, region: Region, uses: Uses<'_>, lent: bool) {
                (**self).release(region, uses, lent);
            }

            fn trim(&self, bytes: usize) -> usize {
                (**self).trim(bytes)
            }

            fn cached_bytes(&self) -> usize {
                (**self).cached_bytes()
            }
        }
    )* };
}
through_pointers!(Box<R>, std::sync::Arc<R>, &R);
