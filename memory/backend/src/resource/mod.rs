//! Composes sources of memory. A resource either allocates memory itself (`HostMemory`,
//! `AliasedMemory`), or wraps another resource and adds one policy. From the outermost to the
//! innermost resource, the chain of a device is `Counted` (one per account), `Faulty`, `Limited`,
//! `Published`, `Pool`, and the source of the memory. Policies that are turned off are left out.

mod counted;
mod faulty;
mod host;
mod limited;
mod pool;
mod published;
mod shared_files;
mod sync;
mod untouchable;

#[cfg(test)]
mod tests;

use std::ptr::NonNull;

use thiserror::Error;

use crate::cuda::DriverError;
use crate::device::Stream;

pub(crate) use counted::Counted;
pub(crate) use faulty::Faulty;
pub(crate) use host::HostMemory;
pub(crate) use limited::{Budget, Limited};
pub(crate) use pool::Pool;
pub(crate) use published::{Published, Ranges};
pub(crate) use shared_files::SharedFiles;
pub use shared_files::SharedHostMemory;
pub(crate) use untouchable::AliasedMemory;

/// Minimum alignment of a block, in bytes.
pub(crate) const MIN_ALIGNMENT: usize = 64;
/// Maximum alignment of a block, in bytes.
pub(crate) const MAX_ALIGNMENT: usize = 2 << 20;
/// Upper bound of the page size on all supported platforms, in bytes.
pub(crate) const MAX_PAGE_BYTES: usize = 64 << 10;

/// The size and alignment of a block. `alignment` is a power of two from [`MIN_ALIGNMENT`] to
/// [`MAX_ALIGNMENT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub bytes: usize,
    pub alignment: usize,
}

/// An allocated range of memory. Its `request` selects the allocator that releases it.
#[derive(Debug)]
pub(crate) struct Region {
    /// The address that callers use.
    pub address: NonNull<u8>,
    /// The address that this crate uses itself. On the untouchable device it is an alias of
    /// `address`, and on CUDA devices it is the start of the allocation.
    pub reachable: NonNull<u8>,
    pub request: Request,
    /// The native handle of the stream on which the region was allocated; NULL on devices without
    /// streams.
    pub home: *mut std::ffi::c_void,
}

// SAFETY: a region owns its range of memory, which is not bound to a thread.
unsafe impl Send for Region {}

/// The reason for a failed allocation. `Inner::explain` adds the request and the account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum AllocError {
    #[error("the size exceeds the address space")]
    TooLarge,
    #[error("the limit of {limit_bytes} bytes leaves {left_bytes}")]
    OverLimit { limit_bytes: usize, left_bytes: usize },
    #[error("the system has no memory left (os error {errno})")]
    System { errno: i32 },
    #[error("{0}")]
    Device(DriverError),
    #[error("the allocator that was given for the device returned the code {code}")]
    Allocator { code: i32 },
    #[error(
        "the allocator that was given for the device returned the address {address:#x}, expected memory of device {ordinal} at a \
         multiple of 256"
    )]
    WrongAddress { address: u64, ordinal: i32 },
    #[error("allocation {occurrence} was set to fail by the fault plan")]
    Injected { occurrence: u64 },
}

/// A source of memory on one device.
pub(crate) trait Resource: Send + Sync {
    /// Allocates uninitialised memory, usable in the order of `stream`. A request of 0 bytes also
    /// returns a unique address.
    fn allocate(&self, request: Request, stream: &Stream) -> Result<Region, AllocError>;

    /// Releases a region that this resource allocated, once the events in `uses` have passed. If
    /// `exported` is set, all work in flight on the device must also have run.
    fn release(&self, region: Region, uses: Uses<'_>, exported: bool);

    /// Returns at least `bytes` bytes of cached memory to the system, or all cached memory if there
    /// is less. The result is the number of bytes that were returned.
    fn trim(&self, bytes: usize) -> usize;

    /// Number of cached bytes.
    fn cached_bytes(&self) -> usize;
}

/// Events that were recorded after the uses of a block.
pub(crate) type Uses<'a> = &'a [*mut crossdock_plugin_api::abi::Event];

/// The error of the last system call.
pub(crate) fn last_os_error() -> AllocError {
    AllocError::System { errno: std::io::Error::last_os_error().raw_os_error().unwrap_or(0) }
}

macro_rules! forward_through_pointers {
    ($($pointer:ty),*) => { $(
        impl<R: Resource + ?Sized> Resource for $pointer {
            fn allocate(&self, request: Request, stream: &Stream) -> Result<Region, AllocError> {
                (**self).allocate(request, stream)
            }

            fn release(&self, region: Region, uses: Uses<'_>, exported: bool) {
                (**self).release(region, uses, exported);
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
forward_through_pointers!(Box<R>, std::sync::Arc<R>, &R);
