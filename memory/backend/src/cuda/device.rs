//! Implements `DeviceBackend` for CUDA devices.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crossdock_plugin_api::{Error, Result, abi};

use super::context::{Entered, Gpu};
use super::driver::{
    Function, LaunchAttribute, LaunchConfig, MEMORY_TYPE_HOST, POINTER_MEMORY_TYPE, RawStream,
    STREAM_PER_THREAD, SUCCESS,
};
use super::event::CudaEvent;
use super::modules::Modules;
use super::staging::Staging;
use crate::device::{
    Block, DeviceBackend, DeviceDescription, EventHandle, Stream, Transfer, check_range, kernel_name,
};
use crate::read_at::{LoadPiece, ReadAt};
use crate::resource::{Ranges, Resource};
use crate::tasks::InstanceTasks;

pub(crate) struct CudaDeviceBackend {
    description: DeviceDescription,
    gpu: Arc<Gpu>,
    memory: Box<dyn Resource>,
    shareable: Box<dyn Resource>,
    exportable: Box<dyn Resource>,
    shared: Box<dyn Resource>,
    modules: Modules,
    staging: Staging,
    /// The address ranges of this backend's pinned blocks.
    pinned: Arc<Ranges>,
    backend: usize,
    default_queries: QueryThrottle,
}

/// Skips queries of a default stream while they are slow. From the first kernel launch of a context
/// until the next wait for the whole context, a query of the legacy default stream takes 1.4 us
/// instead of 0.2 us. The caller can use an event instead, which takes 0.25 us. So after a slow
/// query, the next [`Self::SKIPPED`] queries are skipped, and the stream counts as busy.
#[derive(Default)]
struct QueryThrottle {
    count: AtomicU32,
    to_skip: AtomicU32,
}

impl QueryThrottle {
    const MAX_DURATION: Duration = Duration::from_nanos(1_000);
    const SKIPPED: u32 = 100;
    /// One of this many queries is timed, because reading the clock takes a fifth of the time of a
    /// query.
    const TIMING_INTERVAL: u32 = 32;

    // The counters may lose updates of concurrent calls, which only delays a query or a time
    // measurement.
    fn run(&self, query: impl FnOnce() -> Result<bool>) -> Result<bool> {
        let to_skip = self.to_skip.load(Relaxed);
        if to_skip > 0 {
            self.to_skip.store(to_skip - 1, Relaxed);
            return Ok(false);
        }
        let count = self.count.load(Relaxed);
        self.count.store(count.wrapping_add(1), Relaxed);
        if !count.is_multiple_of(Self::TIMING_INTERVAL) {
            return query();
        }
        let start = Instant::now();
        let is_idle = query();
        if start.elapsed() > Self::MAX_DURATION {
            self.count.store(0, Relaxed);
            self.to_skip.store(Self::SKIPPED, Relaxed);
        }
        is_idle
    }
}

/// Minimum size in bytes of a copy for which the driver is asked whether other code pinned the host
/// memory. Staging smaller copies is cheaper than the query.
const MIN_PINNED_QUERY_BYTES: usize = 64 << 10;

impl CudaDeviceBackend {
    #[allow(clippy::too_many_arguments)] // one resource for each kind of memory
    pub(crate) fn new(
        description: DeviceDescription,
        gpu: Arc<Gpu>,
        memory: Box<dyn Resource>,
        shareable: Box<dyn Resource>,
        exportable: Box<dyn Resource>,
        shared: Box<dyn Resource>,
        pinned: Arc<Ranges>,
        backend: usize,
    ) -> Self {
        let modules = Modules::new(gpu.clone());
        let staging = Staging::new(gpu.driver, gpu.context());
        let default_queries = QueryThrottle::default();
        Self {
            description,
            gpu,
            memory,
            shareable,
            exportable,
            shared,
            modules,
            staging,
            pinned,
            backend,
            default_queries,
        }
    }

    /// Returns an error if `stream` is under graph capture, which the operation `what` would break.
    /// Only a stream whose native handle was exposed can be under capture.
    fn reject_capture(&self, _entered: &Entered, stream: &Stream, what: &str) -> Result<()> {
        if !stream.exposed.load(Relaxed) || !self.gpu.is_capturing(stream.raw)? {
            return Ok(());
        }
        Err(Error::device(format!(
            "a stream of {} is under graph capture, which {what} would break; end the capture first",
            self.gpu.device
        )))
    }

    /// Whether the range of host memory is pinned. Devices access pinned memory at full speed and
    /// in stream order.
    fn is_pinned(&self, address: usize, bytes: usize) -> bool {
        if self.pinned.find(address).is_some_and(|range| range.translate(address, bytes).is_some()) {
            return true;
        }
        if bytes < MIN_PINNED_QUERY_BYTES {
            return false;
        }
        let mut kind = 0u32;
        let mut which = [POINTER_MEMORY_TYPE];
        let mut values = [(&raw mut kind).cast::<c_void>()];
        // SAFETY: both lists have one entry, and `kind` has the type of the attribute.
        let code = unsafe {
            (self.gpu.driver.pointer_get_attributes)(
                1,
                which.as_mut_ptr(),
                values.as_mut_ptr(),
                address as u64,
            )
        };
        code == SUCCESS && kind == MEMORY_TYPE_HOST as u32
    }

    /// # Safety
    /// `transfer` satisfies the requirements of [`DeviceBackend::copy`], and the context is
    /// current.
    unsafe fn copy_one(&self, stream: &Stream, transfer: &Transfer) -> Result<()> {
        let (to, from) = (transfer.to as u64, transfer.from as u64);
        // SAFETY: by this function's contract both ranges were resolved and stay allocated, and
        // `stream` is a stream of this context.
        let code = unsafe { (self.gpu.driver.memcpy_async)(to, from, transfer.bytes, stream.raw) };
        self.gpu.driver.check("cuMemcpyAsync", code)
    }
}

impl CudaDeviceBackend {
    /// Enqueues a launch with clusters.
    ///
    /// # Safety
    /// `function` belongs to the current context, and `params` are its parameters.
    unsafe fn launch_clusters(
        &self,
        function: Function,
        size: &abi::Launch,
        stream: RawStream,
        params: &mut [*mut c_void; 1],
    ) -> Result<()> {
        check_clusters(size, self.gpu.capability)?;
        let Some(launch) = self.gpu.driver.launch_kernel_ex else {
            return Err(Error::unsupported(
                "the launch has clusters, but the driver has no function cuLaunchKernelEx",
            ));
        };
        let mut cluster = LaunchAttribute::cluster(size.cluster);
        let config = LaunchConfig {
            blocks: size.blocks,
            threads: size.threads,
            shared_bytes: size.shared_bytes,
            stream,
            attributes: &mut cluster,
            n_attributes: 1,
        };
        // SAFETY: `config` and `cluster` are complete, and by this function's contract `params` are
        // the parameters of `function`.
        let code = unsafe { launch(&config, function, params.as_mut_ptr(), std::ptr::null_mut()) };
        self.gpu.driver.check("cuLaunchKernelEx", code)
    }
}

fn check_clusters(size: &abi::Launch, (major, minor): (u32, u32)) -> Result<()> {
    if major >= 9 {
        return Ok(());
    }
    Err(Error::unsupported(format!(
        "the launch has clusters of {:?} blocks, which need compute capability 9.0, but the device has {major}.{minor}",
        size.cluster
    )))
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

    fn shared(&self) -> Option<&dyn Resource> {
        Some(&*self.shared)
    }

    fn resolve(&self, address: *const c_void, bytes: usize) -> Result<*mut u8> {
        check_range(address, bytes, &self.description.name)
    }

    fn find_block(&self, _address: *const c_void) -> Option<Block> {
        // `Platform::locate` asks the driver instead, which can find the addresses of all devices.
        None
    }

    fn host_address(&self, _address: *const c_void, _bytes: usize) -> *mut c_void {
        std::ptr::null_mut()
    }

    unsafe fn copy(&self, stream: &Stream, transfers: &[Transfer]) -> Result<()> {
        let entered = self.gpu.enter()?;
        let (mut to_device, mut to_host) = (Vec::new(), Vec::new());
        for transfer in transfers.iter().filter(|transfer| transfer.bytes > 0) {
            let host = match (transfer.to_cuda, transfer.from_cuda) {
                (true, false) => Some(transfer.from as usize),
                (false, true) => Some(transfer.to as usize),
                _ => None,
            };
            if host.is_none_or(|host| self.is_pinned(host, transfer.bytes)) {
                // SAFETY: `transfer` meets the requirements of `copy` by this function's contract;
                // the context is current.
                unsafe { self.copy_one(stream, transfer) }?;
                continue;
            }
            self.reject_capture(&entered, stream, "a copy from or to memory that is not pinned")?;
            let Transfer { to, from, bytes, .. } = *transfer;
            if transfer.to_cuda {
                to_device.push((to as u64, from, bytes));
            } else {
                to_host.push((to, from as u64, bytes));
            }
        }
        if to_device.is_empty() && to_host.is_empty() {
            return Ok(());
        }
        // SAFETY: the ranges are valid by this function's contract, the context is current, and
        // `reject_capture` checked the stream.
        let stage = |on: RawStream| unsafe {
            if !to_device.is_empty() {
                self.staging.host_to_device(on, &to_device)?;
            }
            if !to_host.is_empty() {
                self.staging.device_to_host(on, &to_host)?;
            }
            Ok(())
        };
        // Staging uses several threads, and `STREAM_PER_THREAD` is a different stream on each
        // thread.
        if stream.raw == STREAM_PER_THREAD {
            self.gpu.run_on_cached_stream(&entered, stream.raw, stage)
        } else {
            stage(stream.raw)
        }
    }

    fn reads_later(&self, address: *const c_void) -> bool {
        self.gpu.enter().is_ok_and(|_entered| self.is_pinned(address as usize, MIN_PINNED_QUERY_BYTES))
    }

    unsafe fn load(
        &self,
        stream: &Stream,
        source: &dyn ReadAt,
        pieces: &[LoadPiece],
        tasks: &InstanceTasks,
    ) -> Result<()> {
        let entered = self.gpu.enter()?;
        self.reject_capture(&entered, stream, "a load")?;
        // SAFETY: the ranges are valid by this function's contract, the context is current, and
        // `reject_capture` checked the stream.
        let load = |on: RawStream| unsafe { self.staging.load(&self.gpu, on, source, pieces, tasks) };
        // The load uses several threads, and `STREAM_PER_THREAD` is a different stream on each
        // thread.
        if stream.raw == STREAM_PER_THREAD {
            self.gpu.run_on_cached_stream(&entered, stream.raw, load)
        } else {
            load(stream.raw)
        }
    }

    unsafe fn fill(&self, stream: &Stream, to: *mut u8, value: u8, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let _entered = self.gpu.enter()?;
        // SAFETY: by this function's contract the range was resolved and stays allocated, and
        // `stream` is a stream of this context.
        let code = unsafe { (self.gpu.driver.memset_d8_async)(to as u64, value, bytes, stream.raw) };
        self.gpu.driver.check("cuMemsetD8Async", code)
    }

    unsafe fn launch(
        &self,
        stream: &Stream,
        kernel: &abi::Kernel,
        size: &abi::Launch,
        args: &[abi::Arg],
        all_args: *const abi::Arg,
    ) -> Result<()> {
        let named = |e: Error| e.context(format_args!("{} on {}", kernel_name(kernel), self.gpu.device));
        let _entered = self.gpu.enter()?;
        let function = self.modules.function(kernel, size.shared_bytes).map_err(named)?;
        let mut block = MaybeUninit::<abi::KernelArgs>::uninit();
        let pointer = block.as_mut_ptr();
        let is_long = !all_args.is_null();
        let n_copied = args.len().min(abi::MAX_KERNEL_ARGS);
        // SAFETY: the pointers point to fields of the local `block`, and `n_copied` is at most the
        // number of elements of its list. The other elements stay uninitialised. The driver copies
        // them, but no kernel reads them.
        unsafe {
            (&raw mut (*pointer).n_args).write(args.len() as u64);
            (&raw mut (*pointer).host_function).write(kernel.host_function);
            let list = (&raw mut (*pointer).args).cast::<abi::Arg>();
            (&raw mut (*pointer).all_args).write(all_args);
            let host_args = if is_long { args.as_ptr() } else { std::ptr::null() };
            (&raw mut (*pointer).host_args).write(host_args);
            std::ptr::copy_nonoverlapping(args.as_ptr(), list, n_copied);
        }
        let mut params = [pointer.cast::<c_void>()];
        if size.cluster != [0; 3] {
            // SAFETY: `function` belongs to this context, and `block` is its only parameter. The
            // arguments match the kernel by this function's contract.
            return unsafe { self.launch_clusters(function, size, stream.raw, &mut params) }.map_err(named);
        }
        let ([x, y, z], [threads_x, threads_y, threads_z]) = (size.blocks, size.threads);
        // SAFETY: as above.
        let code = unsafe {
            (self.gpu.driver.launch_kernel)(
                function,
                x,
                y,
                z,
                threads_x,
                threads_y,
                threads_z,
                size.shared_bytes,
                stream.raw,
                params.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        };
        self.gpu.driver.check("cuLaunchKernel", code).map_err(named)
    }

    fn stream_create(&self, priority: i32) -> Result<*mut c_void> {
        let _entered = self.gpu.enter()?;
        self.gpu.take_stream_with_priority(priority)
    }

    unsafe fn stream_adopt(&self, raw: *mut c_void) -> Result<*mut c_void> {
        let device = self.gpu.device;
        if raw.is_null() {
            return Err(Error::invalid_argument(format!(
                "stream_adopt on {device}: the stream is NULL; the legacy default stream is 1, the per-thread default stream is 2"
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
        if is_default { self.default_queries.run(|| self.gpu.is_idle(raw)) } else { self.gpu.is_idle(raw) }
            .unwrap_or(false)
    }

    unsafe fn raw_stream_is_capturing(&self, raw: *mut c_void) -> bool {
        // An error counts as a capture, because the legacy default stream cannot be queried while
        // another stream of the context is under capture.
        self.gpu.enter().is_ok_and(|_entered| self.gpu.is_capturing(raw).unwrap_or(true))
    }

    fn stream_destroy(&self, stream: &Stream) {
        if !stream.adopted {
            self.gpu.return_stream(stream.raw);
        }
    }

    fn stream_synchronize(&self, stream: &Stream) -> Result<()> {
        let entered = self.gpu.enter()?;
        self.reject_capture(&entered, stream, "waiting for it")?;
        let _relaxed = self.gpu.relaxed();
        // SAFETY: `stream` is a live stream of this context.
        let code = unsafe { (self.gpu.driver.stream_synchronize)(stream.raw) };
        self.gpu.driver.check("cuStreamSynchronize", code)
    }

    fn stream_wait(&self, stream: &Stream, event: EventHandle) -> Result<()> {
        // SAFETY: `event` is live by the contract of `crossdock_memory.stream_wait`.
        let event = unsafe { CudaEvent::from_handle(self.backend, event) }?;
        if event.stream() == stream.raw || event.is_known_to_have_passed() {
            return Ok(());
        }
        let _entered = self.gpu.enter()?;
        self.gpu.wait(stream.raw, event.raw())
    }

    fn stream_wait_raw(&self, stream: &Stream, sync_event: *mut c_void) -> Result<()> {
        if !sync_event.cast::<*mut c_void>().is_aligned() {
            return Err(Error::invalid_argument(format!(
                "sync_event {sync_event:p} is misaligned; expected a pointer to an event's handle"
            )));
        }
        // SAFETY: `sync_event` is aligned, and points to an event's handle by the contract of
        // `crossdock_memory.stream_wait_raw`.
        let event = unsafe { *sync_event.cast::<*mut c_void>() };
        if event.is_null() {
            return Err(Error::invalid_argument(format!(
                "sync_event {sync_event:p} points to a NULL event; expected a pointer to the event's handle, not the handle"
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
        self.reject_capture(&entered, stream, "recording an event")?;
        Ok(CudaEvent::record(self.backend, &self.gpu, &entered, stream)?.into_handle())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_clusters_before_compute_capability_9() {
        let size = abi::Launch { cluster: [2, 1, 1], ..abi::Launch::new() };
        let error = check_clusters(&size, (8, 9)).unwrap_err();
        assert_eq!(error.code(), crossdock_plugin_api::Code::UNSUPPORTED);
        assert!(error.message().ends_with("compute capability 9.0, but the device has 8.9"), "{error}");
        assert_eq!(check_clusters(&size, (9, 0)), Ok(()));
        assert_eq!(check_clusters(&size, (12, 1)), Ok(()));
    }

    #[test]
    fn query_throttle_skips_queries_after_a_slow_query() {
        let throttle = QueryThrottle::default();
        let slow = || {
            std::thread::sleep(QueryThrottle::MAX_DURATION * 2);
            Ok(true)
        };
        assert!(throttle.run(slow).unwrap());
        for _ in 0..QueryThrottle::SKIPPED {
            assert!(!throttle.run(|| panic!("not skipped")).unwrap());
        }
        assert!(throttle.run(slow).unwrap());
    }
}
