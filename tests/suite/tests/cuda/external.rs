//! An external library in the same process that uses CUDA, with its own streams, memory and events.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;

use crossdock_plugin_api::abi;
use libloading::Library;

pub type Handle = *mut c_void;
const NOT_READY: c_int = 600;
/// The time that a late kernel waits, in nanoseconds.
pub const LATE_NS: u64 = 50_000_000;

/// Calls a function of the driver, and expects success.
macro_rules! cu {
    ($external:expr, $name:ident ( $($value:expr => $t:ty),* $(,)? )) => {{
        // SAFETY: the declared signature matches the driver's header; handles and memory belong to
        // `External`.
        let code = unsafe {
            let f = $external.library.get::<unsafe extern "C" fn($($t),*) -> c_int>(stringify!($name).as_bytes());
            (f.unwrap())($($value),*)
        };
        assert_eq!(code, 0, "{}", stringify!($name));
    }};
}

pub struct External {
    pub library: Library,
    context: Handle,
    late_copy: Handle,
}

// SAFETY: the driver accepts its handles on every thread.
unsafe impl Send for External {}
// SAFETY: the driver accepts its handles on several threads at the same time.
unsafe impl Sync for External {}

impl External {
    /// A library that uses the primary context of device 0.
    pub fn new() -> Self {
        Self::on(0)
    }

    /// A library that uses the primary context of a device.
    pub fn on(ordinal: c_int) -> Self {
        // SAFETY: the library is already loaded, so no initialiser runs.
        let library =
            unsafe { Library::new("libcuda.so.1").or_else(|_| Library::new("libcuda.so")) }.unwrap();
        let mut external = Self { library, context: null_mut(), late_copy: null_mut() };
        let mut context: Handle = null_mut();
        cu!(external, cuInit(0 => c_uint));
        cu!(external, cuDevicePrimaryCtxRetain(&mut context => *mut Handle, ordinal => c_int));
        external.context = context;
        external.enter();
        let image = concat!(include_str!("late_copy.ptx"), "\0");
        let (mut module, mut function): (Handle, Handle) = (null_mut(), null_mut());
        cu!(external, cuModuleLoadData(&mut module => *mut Handle, image.as_ptr() => *const u8));
        let name = c"crossdock_test_late_copy".as_ptr();
        cu!(external, cuModuleGetFunction(
            &mut function => *mut Handle, module => Handle, name => *const c_char
        ));
        external.late_copy = function;
        external
    }

    /// Makes the context current on this thread.
    pub fn enter(&self) {
        cu!(self, cuCtxSetCurrent(self.context => Handle));
    }

    /// The current context of this thread, or null.
    pub fn current(&self) -> Handle {
        let mut context: Handle = null_mut();
        cu!(self, cuCtxGetCurrent(&mut context => *mut Handle));
        context
    }

    /// Makes a context current on this thread. If it is null, the thread has no current context.
    pub fn make_current(&self, context: Handle) {
        cu!(self, cuCtxSetCurrent(context => Handle));
    }

    /// Runs `work` in the library's context, and restores the current context.
    pub fn within<R>(&self, work: impl FnOnce() -> R) -> R {
        let before = self.current();
        self.enter();
        let result = work();
        self.make_current(before);
        result
    }

    pub fn stream(&self) -> Handle {
        let mut stream: Handle = null_mut();
        cu!(self, cuStreamCreate(&mut stream => *mut Handle, 1 => c_uint));
        stream
    }

    /// Destroys a stream. The driver still runs its pending work.
    pub fn destroy_stream(&self, stream: Handle) {
        cu!(self, cuStreamDestroy_v2(stream => Handle));
    }

    pub fn destroy_event(&self, event: Handle) {
        cu!(self, cuEventDestroy_v2(event => Handle));
    }

    pub fn record(&self, stream: Handle) -> Handle {
        let mut event: Handle = null_mut();
        cu!(self, cuEventCreate(&mut event => *mut Handle, 2 => c_uint));
        cu!(self, cuEventRecord(event => Handle, stream => Handle));
        event
    }

    pub fn wait(&self, stream: Handle, event: Handle) {
        cu!(self, cuStreamWaitEvent(stream => Handle, event => Handle, 0 => c_uint));
    }

    /// Counts host waits from now on: see [`Watch::assert_host_did_not_wait_for`].
    pub fn watch(&self) -> Watch<'_> {
        Watch { external: self, waits: self.waits() }
    }

    /// The number of waits of the host; `None` with a real driver. With an older driver, a thread
    /// of the host waits for the whole device when exported blocks are released. These waits block
    /// no caller, so they are not counted.
    fn waits(&self) -> Option<u64> {
        let of_the_device = self.records_whole_contexts().then_some("cuCtxSynchronize");
        let waits = ["cuStreamSynchronize", "cuEventSynchronize"].into_iter().chain(of_the_device);
        waits.map(|name| self.calls(name)).sum()
    }

    /// Whether the driver has `cuCtxRecordEvent`, which the oldest supported driver lacks.
    pub fn records_whole_contexts(&self) -> bool {
        // SAFETY: the symbol is looked up, but not called.
        unsafe { self.library.get::<Handle>(b"cuCtxRecordEvent") }.is_ok()
    }

    /// The number of calls of a function; `None` with a real driver.
    pub fn calls(&self, name: &str) -> Option<u64> {
        let name = CString::new(name).unwrap();
        // SAFETY: the simulated driver's function has this signature, and the name ends with a NUL.
        unsafe {
            let calls =
                self.library.get::<unsafe extern "C" fn(*const c_char) -> u64>(b"crossdock_sim_cuda_calls");
            Some(calls.ok()?(name.as_ptr()))
        }
    }

    /// With the simulated driver, makes the next call of a function return an error code.
    pub fn fail_next(&self, name: &str, code: c_int) {
        let name = CString::new(name).unwrap();
        // SAFETY: the simulated driver's function has this signature, and the name ends with a NUL.
        unsafe {
            type Fail = unsafe extern "C" fn(*const c_char, c_int, u64);
            self.library.get::<Fail>(b"crossdock_sim_cuda_fail").unwrap()(name.as_ptr(), code, 1);
        }
    }

    /// Begins a capture: later work on `stream` becomes a graph instead of running.
    pub fn begin_capture(&self, stream: Handle, mode: c_int) {
        cu!(self, cuStreamBeginCapture_v2(stream => Handle, mode => c_int));
    }

    /// Ends a valid capture, and discards its graph.
    pub fn end_capture(&self, stream: Handle) {
        let mut graph: Handle = null_mut();
        cu!(self, cuStreamEndCapture(stream => Handle, &mut graph => *mut Handle));
    }

    /// Ends a capture. Returns whether it was invalidated.
    pub fn end_broken_capture(&self, stream: Handle) -> bool {
        let mut graph: Handle = null_mut();
        // SAFETY: the declared signature matches the driver's header, and `graph` is a valid local.
        unsafe {
            type End = unsafe extern "C" fn(Handle, *mut Handle) -> c_int;
            self.library.get::<End>(b"cuStreamEndCapture").unwrap()(stream, &mut graph) != 0
        }
    }

    /// With the simulated driver, holds or resumes a stream. While a stream is held, event queries
    /// do not run its work.
    pub fn hold(&self, stream: Handle, on: bool) {
        // SAFETY: the simulated driver's function has this signature, and checks the stream.
        unsafe {
            if let Ok(hold) =
                self.library.get::<unsafe extern "C" fn(Handle, c_int)>(b"crossdock_sim_cuda_hold")
            {
                hold(stream, on.into());
            }
        }
    }

    /// Runs `work`, and returns the number of violations that the simulated driver detects. They do
    /// not end the process. `None` with a real driver.
    pub fn violations(&self, work: impl FnOnce()) -> Option<u64> {
        // SAFETY: the simulated driver's functions have these signatures.
        unsafe {
            let on_violation =
                self.library.get::<unsafe extern "C" fn(c_int)>(b"crossdock_sim_cuda_on_violation").ok()?;
            let count =
                self.library.get::<unsafe extern "C" fn() -> u64>(b"crossdock_sim_cuda_violations").ok()?;
            on_violation(1);
            let before = count();
            work();
            on_violation(0);
            Some(count() - before)
        }
    }

    /// Whether an event has not passed yet.
    pub fn is_pending(&self, event: Handle) -> bool {
        // SAFETY: the declared signature matches the driver's header, and the event is alive.
        let code = unsafe {
            self.library.get::<unsafe extern "C" fn(Handle) -> c_int>(b"cuEventQuery").unwrap()(event)
        };
        assert!(code == 0 || code == NOT_READY, "{code}");
        code == NOT_READY
    }

    pub fn alloc(&self, bytes: usize) -> u64 {
        let mut address = 0;
        cu!(self, cuMemAlloc_v2(&mut address => *mut u64, bytes => usize));
        address
    }

    /// Managed memory, which every device can access.
    pub fn alloc_managed(&self, bytes: usize) -> u64 {
        let mut address = 0;
        cu!(self, cuMemAllocManaged(&mut address => *mut u64, bytes => usize, 1 => c_uint));
        address
    }

    /// Pinned host memory, which devices can access.
    pub fn alloc_pinned(&self, bytes: usize) -> u64 {
        let mut address = 0;
        cu!(self, cuMemHostAlloc(&mut address => *mut u64, bytes => usize, 1 => c_uint));
        address
    }

    pub fn free_pinned(&self, address: u64) {
        cu!(self, cuMemFreeHost(address => u64));
    }

    /// Free bytes of the device.
    pub fn free_bytes(&self) -> usize {
        let (mut free, mut total) = (0, 0);
        cu!(self, cuMemGetInfo_v2(&mut free => *mut usize, &mut total => *mut usize));
        free
    }

    pub fn free(&self, address: u64) {
        cu!(self, cuMemFree_v2(address => u64));
    }

    /// A new block with these bytes.
    pub fn upload(&self, bytes: &[u8]) -> u64 {
        let address = self.alloc(bytes.len());
        cu!(self, cuMemcpyHtoD_v2(address => u64, bytes.as_ptr() => *const u8, bytes.len() => usize));
        address
    }

    /// Reads memory after the pending work of `stream`.
    pub fn download(&self, stream: Handle, from: u64, bytes: usize) -> Vec<u8> {
        let mut to = vec![0xee; bytes];
        cu!(self, cuMemcpyDtoHAsync_v2(
            to.as_mut_ptr() => *mut u8, from => u64, bytes => usize, stream => Handle
        ));
        cu!(self, cuStreamSynchronize(stream => Handle));
        to
    }

    /// Launches a kernel that waits before it copies.
    pub fn late_copy(&self, stream: Handle, to: u64, from: u64, bytes: usize) {
        let range = |kind, value| abi::Arg { value, bytes: bytes as u64, kind, reserved: 0 };
        let mut args =
            Box::new(abi::KernelArgs { n_args: 3, host_function: Some(copy_on_cpu), ..Default::default() });
        args.args[0].value = LATE_NS;
        args.args[1] = range(abi::ARG_READ, from);
        args.args[2] = range(abi::ARG_WRITE, to);
        let mut params = [(&raw mut *args).cast::<c_void>()];
        cu!(self, cuLaunchKernel(
            self.late_copy => Handle, 1 => c_uint, 1 => c_uint, 1 => c_uint, 256 => c_uint, 1 => c_uint,
            1 => c_uint, 0 => c_uint, stream => Handle, params.as_mut_ptr() => *mut *mut c_void,
            null_mut() => *mut *mut c_void,
        ));
    }
}

/// The CPU implementation of the kernel, for the simulated driver. It does not wait, because the
/// simulated driver runs all work late.
unsafe extern "C" fn copy_on_cpu(args: *const abi::Arg, n_args: usize) -> abi::Code {
    // SAFETY: the simulated driver passes `n_args` arguments with accessible addresses of disjoint
    // blocks.
    unsafe {
        let [_, from, to] = std::slice::from_raw_parts(args, n_args) else { return abi::INVALID_ARGUMENT };
        std::ptr::copy_nonoverlapping(from.value as *const u8, to.value as *mut u8, to.bytes as usize);
    }
    abi::OK
}

/// Detects waits of the host for a late kernel.
pub struct Watch<'a> {
    external: &'a External,
    waits: Option<u64>,
}

impl Watch<'_> {
    /// Asserts that the host did not wait for the event. With a real driver, the event must still
    /// be pending. With the simulated driver, work is pending until a wait, so the number of waits
    /// must be unchanged.
    pub fn assert_host_did_not_wait_for(&self, event: Handle) {
        match self.waits {
            None => assert!(self.external.is_pending(event), "the host waited for a kernel"),
            Some(before) => assert_eq!(self.external.waits(), Some(before), "the host waited"),
        }
    }

    /// With the simulated driver, asserts that the host did not wait at all.
    pub fn assert_host_did_not_wait(&self) {
        assert_eq!(self.external.waits(), self.waits, "the host waited");
    }
}
