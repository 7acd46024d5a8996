//! Allocates device memory with an allocator of the application, so that a process can have one
//! pool for all its libraries.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use super::context::Gpu;
use super::driver::{POINTER_DEVICE_ORDINAL, SUCCESS};
use super::event::CudaEvent;
use super::reaper::{Job, Reaper};
use crate::device::Stream;
use crate::resource::{AllocError, Region, Request, Resource, Uses};

/// The functions of an allocator, as C declares them:
///
/// ```c
/// struct crossdock_allocator {
///   uint32_t struct_size;  // sizeof(struct crossdock_allocator)
///   uint32_t reserved;     // 0
///   void* context;         // the first argument of the functions
///   // Allocates memory of the device that is usable in the order of a stream (a CUstream).
///   // Writes its address, a multiple of 256, and returns 0; or returns another number.
///   int32_t (*allocate)(void* context, uint64_t bytes, void* stream, uint64_t* address);
///   // Frees memory. Its uses precede the work that is later enqueued on the stream.
///   void (*deallocate)(void* context, uint64_t address, uint64_t bytes, void* stream);
///   // Releases the context, after the last block was freed. May be NULL.
///   void (*release)(void* context);
/// };
/// ```
///
/// The functions are called on any thread, also by several threads at the same time.
#[repr(C)]
pub struct AllocatorFunctions {
    /// The size of this struct in bytes.
    pub struct_size: u32,
    /// 0.
    pub reserved: u32,
    /// The first argument of the functions.
    pub context: *mut c_void,
    /// Allocates memory in the order of a stream.
    pub allocate: unsafe extern "C" fn(*mut c_void, u64, *mut c_void, *mut u64) -> i32,
    /// Frees memory in the order of a stream.
    pub deallocate: unsafe extern "C" fn(*mut c_void, u64, u64, *mut c_void),
    /// Releases the context.
    pub release: Option<unsafe extern "C" fn(*mut c_void)>,
}

/// An allocator of an application.
pub struct Allocator(AllocatorFunctions);

// SAFETY: the functions may be called on any thread, by the contract of `Allocator::new`.
unsafe impl Send for Allocator {}
// SAFETY: the functions may be called by several threads at the same time, by the same contract.
unsafe impl Sync for Allocator {}

impl Allocator {
    /// Takes over the functions. They are released when no block of the allocator is left.
    ///
    /// # Safety
    /// The functions satisfy the contract of [`AllocatorFunctions`] until `release` is called.
    pub unsafe fn new(functions: AllocatorFunctions) -> Self {
        Self(functions)
    }

    fn allocate(&self, bytes: usize, stream: *mut c_void) -> Result<u64, i32> {
        let mut address = 0;
        // SAFETY: by the contract of `new`, the function is valid. The pointer is to a local
        // variable.
        match unsafe { (self.0.allocate)(self.0.context, bytes as u64, stream, &mut address) } {
            0 => Ok(address),
            code => Err(code),
        }
    }

    /// # Safety
    /// [`Self::allocate`] returned the address for this number of bytes, the block is freed once,
    /// and its uses precede the later work on `stream`.
    unsafe fn deallocate(&self, address: u64, bytes: usize, stream: *mut c_void) {
        // SAFETY: by the contract of `new`, the function is valid; the block is live by this
        // function's contract.
        unsafe { (self.0.deallocate)(self.0.context, address, bytes as u64, stream) }
    }
}

impl Drop for Allocator {
    fn drop(&mut self) {
        if let Some(release) = self.0.release {
            // SAFETY: no block is left, because each block keeps this allocator, and this is the
            // only call.
            unsafe { release(self.0.context) }
        }
    }
}

/// Memory of a device that an application's allocator allocates.
pub(crate) struct CallerMemory {
    gpu: Arc<Gpu>,
    allocator: Arc<Allocator>,
    backend: usize,
    reaper: Arc<Reaper>,
}

/// Minimum alignment in bytes of the blocks of an allocator.
const NATURAL_ALIGNMENT: usize = 256;

impl CallerMemory {
    pub(crate) fn new(gpu: Arc<Gpu>, allocator: Arc<Allocator>, backend: usize, reaper: Arc<Reaper>) -> Self {
        Self { gpu, allocator, backend, reaper }
    }

    /// Whether an address is memory of this device.
    fn is_own(&self, address: u64) -> bool {
        let mut ordinal = -1i32;
        let mut which = [POINTER_DEVICE_ORDINAL];
        let mut values = [(&raw mut ordinal).cast::<c_void>()];
        let _relaxed = self.gpu.relaxed();
        // SAFETY: both lists have one entry, and `ordinal` has the type of the attribute.
        let code = unsafe {
            (self.gpu.driver.pointer_get_attributes)(1, which.as_mut_ptr(), values.as_mut_ptr(), address)
        };
        code == SUCCESS && ordinal == self.gpu.ordinal
    }
}

/// The bytes that are allocated for a request.
fn allocated_bytes(request: Request) -> Option<usize> {
    let slack = if request.alignment > NATURAL_ALIGNMENT { request.alignment } else { 0 };
    request.bytes.max(1).checked_add(slack)
}

impl Resource for CallerMemory {
    fn allocate(&self, request: Request, stream: &Stream) -> Result<Region, AllocError> {
        let bytes = allocated_bytes(request).ok_or(AllocError::TooLarge)?;
        let _entered = self.gpu.try_enter().map_err(AllocError::Device)?;
        let base =
            self.allocator.allocate(bytes, stream.raw).map_err(|code| AllocError::Allocator { code })?;
        let address = base.next_multiple_of(request.alignment.max(1) as u64);
        let is_aligned = address == base || request.alignment > NATURAL_ALIGNMENT;
        let pointer = |address: u64| NonNull::new(address as usize as *mut u8);
        match (pointer(address), pointer(base)) {
            (Some(address), Some(reachable)) if is_aligned && self.is_own(base) => {
                Ok(Region { address, reachable, request, home: stream.raw })
            }
            (_, reachable) => {
                if reachable.is_some() {
                    // SAFETY: the allocator returned the block, and nothing used it.
                    unsafe { self.allocator.deallocate(base, bytes, stream.raw) };
                }
                Err(AllocError::WrongAddress { address: base, ordinal: self.gpu.ordinal })
            }
        }
    }

    fn release(&self, region: Region, uses: Uses<'_>, exported: bool) {
        // SAFETY: by the contract of `free`, the events in `uses` are live.
        let uses =
            uses.iter().filter_map(|event| unsafe { CudaEvent::from_handle(self.backend, *event) }.ok());
        let events: Vec<_> = uses.filter(|event| event.stream() != region.home).collect();
        let Some(bytes) = allocated_bytes(region.request) else { return };
        let (base, home) = (region.reachable.as_ptr() as u64, region.home);
        // The stream of other code may have been destroyed. Then the legacy default stream, NULL,
        // is passed, and the host waits for the uses first.
        let is_live = self.gpu.has_stream(home);
        if events.is_empty() && !exported && is_live {
            let Ok(_entered) = self.gpu.enter() else { return };
            // SAFETY: the block was allocated on this stream, used on no other stream, and is freed
            // once.
            return unsafe { self.allocator.deallocate(base, bytes, home) };
        }
        let stream = Handle(if is_live { home } else { std::ptr::null_mut() });
        let everything_on = if exported || !is_live { vec![self.gpu.clone()] } else { Vec::new() };
        let (gpu, allocator) = (self.gpu.clone(), self.allocator.clone());
        let then = Box::new(move || {
            let Handle(stream) = { stream };
            if let Ok(_entered) = gpu.enter() {
                // SAFETY: all uses have run, and the block is freed once.
                unsafe { allocator.deallocate(base, bytes, stream) };
            }
        });
        self.reaper.add(Job { events, everything_on, then });
    }

    fn trim(&self, _bytes: usize) -> usize {
        self.reaper.flush();
        0
    }

    fn cached_bytes(&self) -> usize {
        0
    }
}

struct Handle(*mut c_void);

// SAFETY: the driver accepts streams on any thread.
unsafe impl Send for Handle {}
