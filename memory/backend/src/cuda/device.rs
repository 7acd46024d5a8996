//! A CUDA device, behind the one vtable.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crossdock_plugin_api::{Error, Result, abi};

use super::context::{Entered, Gpu};
use super::driver::{MEMORY_TYPE_HOST, POINTER_MEMORY_TYPE, RawStream, STREAM_PER_THREAD, SUCCESS};
use super::event::CudaEvent;
use super::modules::Modules;
use super::staging::Staging;
use crate::device::{
    DeviceBackend, DeviceDescription, EventHandle, Found, Stream, Transfer, kernel_name, whole_range,
};
use crate::resource::{Ranges, Resource};

pub(crate) struct CudaDeviceBackend {
    description: DeviceDescription,
    gpu: Arc<Gpu>,
    memory: Box<dyn Resource>,
    shareable: Box<dyn Resource>,
    exportable: Box<dyn Resource>,
    modules: Modules,
    staging: Staging,
    /// Our own pinned blocks.
    pinned: Arc<Ranges>,
    backend: usize,
    default_queries: Queries,
}

/// Questions about a default stream. From the first kernel in the context on, until somebody waits for the whole context, the driver
/// takes 1.4 us for the legacy one, where it otherwise takes 0.2, and an event 0.25: then the answer counts as unknown, and is
/// asked for again later.
#[derive(Default)]
struct Queries {
    asked: AtomicU32,
    to_leave_out: AtomicU32,
}

impl Queries {
    const TOO_LONG: Duration = Duration::from_nanos(1_000);
    const LEFT_OUT: u32 = 100;
    /// Looking at a clock takes a fifth of a question's time.
    const TIMED_ONE_IN: u32 = 32;

    // Where two threads count as one, it is a little later that one of them asks or looks at the clock.
    fn ask(&self, query: impl FnOnce() -> Result<bool>) -> Result<bool> {
        let left = self.to_leave_out.load(Relaxed);
        if left > 0 {
            self.to_leave_out.store(left - 1, Relaxed);
            return Ok(false);
        }
        let asked = self.asked.load(Relaxed);
        self.asked.store(asked.wrapping_add(1), Relaxed);
        if !asked.is_multiple_of(Self::TIMED_ONE_IN) {
            return query();
        }
        let start = Instant::now();
        let answer = query();
        if start.elapsed() > Self::TOO_LONG {
            self.asked.store(0, Relaxed);
            self.to_leave_out.store(Self::LEFT_OUT, Relaxed);
        }
        answer
    }
}

/// From here on the driver is asked whether somebody else has pinned a host address: staging what is less costs less than
/// the answer.
const ASK_FROM_BYTES: usize = 64 << 10;

impl CudaDeviceBackend {
    pub(crate) fn new(
        description: DeviceDescription,
        gpu: Arc<Gpu>,
        memory: Box<dyn Resource>,
        shareable: Box<dyn Resource>,
        exportable: Box<dyn Resource>,
        pinned: Arc<Ranges>,
        backend: usize,
    ) -> Self {
        let modules = Modules::new(gpu.clone());
        let staging = Staging::new(gpu.driver, gpu.context());
        let default_queries = Queries::default();
        Self {
            description,
            gpu,
            memory,
            shareable,
            exportable,
            modules,
            staging,
            pinned,
            backend,
            default_queries,
        }
    }

    /// Refuses what would break a capture or be broken by it. Only a stream whose own handle others have can be captured.
    fn refuse_capture(&self, _entered: &Entered, stream: &Stream, what: &str) -> Result<()> {
        if !stream.exposed.load(Relaxed) || !self.gpu.is_capturing(stream.raw)? {
            return Ok(());
        }
        Err(Error::device(format!(
            "a stream of {} is under graph capture, which {what} would break; end the capture first",
            self.gpu.device
        )))
    }

    /// Whether the devices reach the range at full speed and in stream order.
    fn is_pinned(&self, address: usize, bytes: usize) -> bool {
        if self.pinned.find(address).is_some_and(|range| range.reach(address, bytes).is_some()) {
            return true;
        }
        if bytes < ASK_FROM_BYTES {
            return false;
        }
        let mut kind = 0u32;
        let mut which = [POINTER_MEMORY_TYPE];
        let mut place = [(&raw mut kind).cast::<c_void>()];
        // SAFETY: one attribute, and a local of its type.
        let code = unsafe {
            (self.gpu.driver.pointer_get_attributes)(
                1,
                which.as_mut_ptr(),
                place.as_mut_ptr(),
                address as u64,
            )
        };
        code == SUCCESS && kind == MEMORY_TYPE_HOST as u32
    }

    /// # Safety
    /// As [`DeviceBackend::copy`]; the context is current.
    unsafe fn copy_one(&self, stream: &Stream, transfer: &Transfer) -> Result<()> {
        let (to, from) = (transfer.to as u64, transfer.from as u64);
        // SAFETY: by this function's own contract.
        let code = unsafe { (self.gpu.driver.memcpy_async)(to, from, transfer.bytes, stream.raw) };
        self.gpu.driver.check("cuMemcpyAsync", code)
    }
}

impl DeviceBackend for CudaDeviceBackend {
    fn describe(&self) -> &DeviceDescription {
        &self.description
    }

    fn memory(&self) -> &dyn Resource {
        &*self.memory
    }

    fn shareable(&self) -> Option<&dyn Resource> {
        Some(&*self.shareable)
    }

    fn exportable(&self) -> Option<&dyn Resource> {
        Some(&*self.exportable)
    }

    fn resolve(&self, address: *const c_void, bytes: usize) -> Result<*mut u8> {
        whole_range(address, bytes, &self.description.name)
    }

    fn find(&self, _address: *const c_void) -> Found {
        // The driver knows every address of every device: the platform asks it once for all.
        Found::No
    }

    fn host_address(&self, _address: *const c_void, _bytes: usize) -> *mut c_void {
        std::ptr::null_mut()
    }

    unsafe fn copy(&self, stream: &Stream, transfers: &[Transfer]) -> Result<()> {
        let entered = self.gpu.enter()?;
        let (mut sent, mut fetched) = (Vec::new(), Vec::new());
        for transfer in transfers.iter().filter(|transfer| transfer.bytes > 0) {
            let host = match (transfer.to_cuda, transfer.from_cuda) {
                (true, false) => Some(transfer.from as usize),
                (false, true) => Some(transfer.to as usize),
                _ => None,
            };
            if host.is_none_or(|host| self.is_pinned(host, transfer.bytes)) {
                // SAFETY: by this function's own contract.
                unsafe { self.copy_one(stream, transfer) }?;
                continue;
            }
            self.refuse_capture(&entered, stream, "a copy from or to memory that is not pinned")?;
            let Transfer { to, from, bytes, .. } = *transfer;
            if transfer.to_cuda {
                sent.push((to as u64, from, bytes));
            } else {
                fetched.push((to, from as u64, bytes));
            }
        }
        if sent.is_empty() && fetched.is_empty() {
            return Ok(());
        }
        // SAFETY: by this function's own contract; the context is current, and the stream was asked about captures.
        let stage = |on: RawStream| unsafe {
            if !sent.is_empty() {
                self.staging.host_to_device(on, &sent)?;
            }
            if !fetched.is_empty() {
                self.staging.device_to_host(on, &fetched)?;
            }
            Ok(())
        };
        // Other threads help with it, to each of whom this handle is another stream.
        if stream.raw == STREAM_PER_THREAD {
            self.gpu.beside(&entered, stream.raw, stage)
        } else {
            stage(stream.raw)
        }
    }

    unsafe fn fill(&self, stream: &Stream, to: *mut u8, value: u8, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let _entered = self.gpu.enter()?;
        // SAFETY: by this function's own contract.
        let code = unsafe { (self.gpu.driver.memset_d8_async)(to as u64, value, bytes, stream.raw) };
        self.gpu.driver.check("cuMemsetD8Async", code)
    }

    unsafe fn launch(
        &self,
        stream: &Stream,
        kernel: &abi::Kernel,
        grid: abi::Grid,
        args: &[abi::Arg],
    ) -> Result<()> {
        let named = |e: Error| e.context(format_args!("{} on {}", kernel_name(kernel), self.gpu.device));
        let _entered = self.gpu.enter()?;
        let function = self.modules.function(kernel, grid.shared_bytes).map_err(named)?;
        let mut block = MaybeUninit::<abi::KernelArgs>::uninit();
        let at = block.as_mut_ptr();
        // SAFETY: fields of a local, written in place; `args` fit, by this function's own contract. What lies behind them is copied by the
        // driver and read by no kernel.
        unsafe {
            (&raw mut (*at).n_args).write(args.len() as u64);
            (&raw mut (*at).host_twin).write(kernel.host_twin);
            let list = (&raw mut (*at).args).cast::<abi::Arg>();
            std::ptr::copy_nonoverlapping(args.as_ptr(), list, args.len());
        }
        let mut params = [at.cast::<c_void>()];
        // SAFETY: a function of this context whose one parameter is such a block; that the arguments are those which it
        // declares is the word of `launch`'s caller.
        let code = unsafe {
            (self.gpu.driver.launch_kernel)(
                function,
                grid.blocks,
                1,
                1,
                grid.threads,
                1,
                1,
                grid.shared_bytes,
                stream.raw,
                params.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        };
        self.gpu.driver.check("cuLaunchKernel", code).map_err(named)
    }

    fn stream_create(&self) -> Result<*mut c_void> {
        let _entered = self.gpu.enter()?;
        self.gpu.take_stream()
    }

    unsafe fn stream_adopt(&self, raw: *mut c_void) -> Result<*mut c_void> {
        let device = self.gpu.device;
        if raw.is_null() {
            return Err(Error::invalid_argument(format!(
                "stream_adopt on {device}: the stream is NULL; the legacy default stream is 1, the per-thread one 2"
            )));
        }
        let entered = self.gpu.enter()?;
        let context = self.gpu.context_of(&entered, raw).map_err(|e| e.context("stream_adopt"))?;
        if context != self.gpu.context() {
            return Err(Error::invalid_argument(format!(
                "stream_adopt on {device}: stream {raw:p} is of another device, or of another context than this device's \
                 primary one; expected one of {device}"
            )));
        }
        Ok(raw)
    }

    unsafe fn stream_is_idle(&self, raw: *mut c_void) -> bool {
        let is_default = raw.addr() <= STREAM_PER_THREAD.addr();
        if is_default { self.default_queries.ask(|| self.gpu.is_idle(raw)) } else { self.gpu.is_idle(raw) }
            .unwrap_or(false)
    }

    unsafe fn raw_stream_is_capturing(&self, raw: *mut c_void) -> bool {
        // The legacy default stream cannot be asked while another one's capture is open, which counts as one.
        self.gpu.enter().is_ok_and(|_entered| self.gpu.is_capturing(raw).unwrap_or(true))
    }

    fn stream_destroy(&self, stream: &Stream) {
        if !stream.adopted {
            self.gpu.give_stream(stream.raw);
        }
    }

    fn stream_synchronize(&self, stream: &Stream) -> Result<()> {
        let entered = self.gpu.enter()?;
        self.refuse_capture(&entered, stream, "waiting for it")?;
        let _relaxed = self.gpu.relaxed();
        // SAFETY: a live stream of this context.
        let code = unsafe { (self.gpu.driver.stream_synchronize)(stream.raw) };
        self.gpu.driver.check("cuStreamSynchronize", code)
    }

    fn stream_wait(&self, stream: &Stream, event: EventHandle) -> Result<()> {
        // SAFETY: a live handle by the word of the vtable's caller.
        let event = unsafe { CudaEvent::of(self.backend, event) }?;
        if event.stream() == stream.raw {
            return Ok(());
        }
        let _entered = self.gpu.enter()?;
        self.gpu.wait(stream.raw, event.raw())
    }

    fn stream_wait_raw(&self, stream: &Stream, sync_event: *mut c_void) -> Result<()> {
        if !sync_event.cast::<*mut c_void>().is_aligned() {
            return Err(Error::invalid_argument(format!(
                "sync_event {sync_event:p} points at no event's handle"
            )));
        }
        // SAFETY: a pointer to an event's handle by the word of the vtable's caller.
        let event = unsafe { *sync_event.cast::<*mut c_void>() };
        if event.is_null() {
            return Err(Error::invalid_argument(format!(
                "sync_event {sync_event:p} points at a NULL event; it is a pointer to the event's handle, not the handle"
            )));
        }
        let _entered = self.gpu.enter()?;
        self.gpu.wait(stream.raw, event)
    }

    fn stream_follow(&self, stream: &Stream, earlier: &Stream) -> Result<()> {
        let entered = self.gpu.enter()?;
        self.gpu.follow(&entered, stream.raw, earlier.raw)
    }

    fn stream_is_capturing(&self, stream: &Stream) -> Result<bool> {
        if !stream.exposed.load(Relaxed) {
            return Ok(false);
        }
        let _entered = self.gpu.enter()?;
        self.gpu.is_capturing(stream.raw)
    }

    fn note_exposed(&self) {
        self.gpu.note_exposed();
    }

    fn event_record(&self, stream: &Stream) -> Result<EventHandle> {
        let entered = self.gpu.enter()?;
        self.refuse_capture(&entered, stream, "an event for later")?;
        Ok(CudaEvent::record(self.backend, &self.gpu, &entered, stream)?.into_handle())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_that_took_long_is_left_out_for_a_while() {
        let queries = Queries::default();
        let slow = || {
            std::thread::sleep(Queries::TOO_LONG * 2);
            Ok(true)
        };
        assert!(queries.ask(slow).unwrap());
        for _ in 0..Queries::LEFT_OUT {
            assert!(!queries.ask(|| panic!("asked")).unwrap());
        }
        assert!(queries.ask(slow).unwrap());
    }
}
