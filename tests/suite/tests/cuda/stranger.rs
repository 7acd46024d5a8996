//! Somebody else in the process who uses CUDA: own streams, own memory, own events, and no word of ours.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;

use crossdock_plugin_api::abi;
use libloading::Library;

pub type Handle = *mut c_void;
const NOT_READY: c_int = 600;
/// How long a late kernel waits, in nanoseconds.
pub const LATE_NS: u64 = 50_000_000;

/// Calls a function of the driver, and expects success.
macro_rules! cu {
    ($stranger:expr, $name:ident ( $($value:expr => $t:ty),* $(,)? )) => {{
        // SAFETY: the driver's published signature; the arguments are the stranger's own.
        let code = unsafe {
            let f = $stranger.library.get::<unsafe extern "C" fn($($t),*) -> c_int>(stringify!($name).as_bytes());
            (f.unwrap())($($value),*)
        };
        assert_eq!(code, 0, "{}", stringify!($name));
    }};
}

pub struct Stranger {
    pub library: Library,
    context: Handle,
    late_copy: Handle,
}

// SAFETY: the driver takes its handles on every thread.
unsafe impl Send for Stranger {}
// SAFETY: as above.
unsafe impl Sync for Stranger {}

impl Stranger {
    /// In device 0's primary context.
    pub fn new() -> Self {
        Self::on(0)
    }

    /// In a device's primary context.
    pub fn on(ordinal: c_int) -> Self {
        // SAFETY: the driver's library, which is loaded already.
        let library =
            unsafe { Library::new("libcuda.so.1").or_else(|_| Library::new("libcuda.so")) }.unwrap();
        let mut stranger = Self { library, context: null_mut(), late_copy: null_mut() };
        let mut context: Handle = null_mut();
        cu!(stranger, cuInit(0 => c_uint));
        cu!(stranger, cuDevicePrimaryCtxRetain(&mut context => *mut Handle, ordinal => c_int));
        stranger.context = context;
        stranger.enter();
        let image = concat!(include_str!("late_copy.ptx"), "\0");
        let (mut module, mut function): (Handle, Handle) = (null_mut(), null_mut());
        cu!(stranger, cuModuleLoadData(&mut module => *mut Handle, image.as_ptr() => *const u8));
        let name = c"crossdock_test_late_copy".as_ptr();
        cu!(stranger, cuModuleGetFunction(
            &mut function => *mut Handle, module => Handle, name => *const c_char
        ));
        stranger.late_copy = function;
        stranger
    }

    /// Makes the context current on this thread, where it stays.
    pub fn enter(&self) {
        cu!(self, cuCtxSetCurrent(self.context => Handle));
    }

    /// What is current on this thread.
    pub fn current(&self) -> Handle {
        let mut context: Handle = null_mut();
        cu!(self, cuCtxGetCurrent(&mut context => *mut Handle));
        context
    }

    /// Makes this context current on this thread, or none.
    pub fn make_current(&self, context: Handle) {
        cu!(self, cuCtxSetCurrent(context => Handle));
    }

    /// In the stranger's context, and then back to whichever was current.
    pub fn within<R>(&self, work: impl FnOnce() -> R) -> R {
        let before = self.current();
        self.enter();
        let made = work();
        self.make_current(before);
        made
    }

    pub fn stream(&self) -> Handle {
        let mut stream: Handle = null_mut();
        cu!(self, cuStreamCreate(&mut stream => *mut Handle, 1 => c_uint));
        stream
    }

    /// What it was given still runs.
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

    /// From here on the host is watched: see [`Watch::nobody_waited_for`].
    pub fn watch(&self) -> Watch<'_> {
        Watch { stranger: self, waits: self.waits() }
    }

    /// How often the host has waited, which only a simulated driver tells. Under an older driver a thread waits for the whole
    /// device where blocks that were lent come back, and nobody waits for that thread.
    fn waits(&self) -> Option<u64> {
        let of_the_device = self.records_whole_contexts().then_some("cuCtxSynchronize");
        let waits = ["cuStreamSynchronize", "cuEventSynchronize"].into_iter().chain(of_the_device);
        waits.map(|name| self.calls(name)).sum()
    }

    /// Whether the driver has what came after the oldest that will do.
    pub fn records_whole_contexts(&self) -> bool {
        // SAFETY: the name is looked for, and nothing is called.
        unsafe { self.library.get::<Handle>(b"cuCtxRecordEvent") }.is_ok()
    }

    /// How often a function has been called, which only a simulated driver tells.
    pub fn calls(&self, name: &str) -> Option<u64> {
        let name = CString::new(name).unwrap();
        // SAFETY: the simulated driver's own function, which takes a name.
        unsafe {
            let calls =
                self.library.get::<unsafe extern "C" fn(*const c_char) -> u64>(b"crossdock_sim_cuda_calls");
            Some(calls.ok()?(name.as_ptr()))
        }
    }

    /// Whatever `stream` is given from here on becomes a graph instead of running.
    pub fn begin_capture(&self, stream: Handle, mode: c_int) {
        cu!(self, cuStreamBeginCapture_v2(stream => Handle, mode => c_int));
    }

    /// The capture has not been broken, and what it caught is thrown away.
    pub fn end_capture(&self, stream: Handle) {
        let mut graph: Handle = null_mut();
        cu!(self, cuStreamEndCapture(stream => Handle, &mut graph => *mut Handle));
    }

    /// Whether the capture was broken; it is over in any case.
    pub fn end_broken_capture(&self, stream: Handle) -> bool {
        let mut graph: Handle = null_mut();
        // SAFETY: the driver's published signature; a stream of the stranger's, and a local.
        unsafe {
            type End = unsafe extern "C" fn(Handle, *mut Handle) -> c_int;
            self.library.get::<End>(b"cuStreamEndCapture").unwrap()(stream, &mut graph) != 0
        }
    }

    /// On a simulated device: what is on the stream stays late even if somebody asks for it, until it is let go.
    pub fn hold(&self, stream: Handle, on: bool) {
        // SAFETY: the simulated driver's own function, on a stream of ours.
        unsafe {
            if let Ok(hold) =
                self.library.get::<unsafe extern "C" fn(Handle, c_int)>(b"crossdock_sim_cuda_hold")
            {
                hold(stream, on.into());
            }
        }
    }

    /// How many accesses out of order `work` had, which do not end the process meanwhile. Only a simulated driver tells.
    pub fn violations(&self, work: impl FnOnce()) -> Option<u64> {
        // SAFETY: the simulated driver's own functions, of these types.
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

    /// Whether what was recorded is still to come.
    pub fn is_pending(&self, event: Handle) -> bool {
        // SAFETY: an event of the stranger's.
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

    /// Memory that every device reaches.
    pub fn alloc_managed(&self, bytes: usize) -> u64 {
        let mut address = 0;
        cu!(self, cuMemAllocManaged(&mut address => *mut u64, bytes => usize, 1 => c_uint));
        address
    }

    /// Host memory that devices reach.
    pub fn alloc_pinned(&self, bytes: usize) -> u64 {
        let mut address = 0;
        cu!(self, cuMemHostAlloc(&mut address => *mut u64, bytes => usize, 1 => c_uint));
        address
    }

    pub fn free_pinned(&self, address: u64) {
        cu!(self, cuMemFreeHost(address => u64));
    }

    /// Of the device's memory, what nobody in any process has.
    pub fn free_bytes(&self) -> usize {
        let (mut free, mut total) = (0, 0);
        cu!(self, cuMemGetInfo_v2(&mut free => *mut usize, &mut total => *mut usize));
        free
    }

    pub fn free(&self, address: u64) {
        cu!(self, cuMemFree_v2(address => u64));
    }

    /// A new block with these bytes in it.
    pub fn upload(&self, bytes: &[u8]) -> u64 {
        let address = self.alloc(bytes.len());
        cu!(self, cuMemcpyHtoD_v2(address => u64, bytes.as_ptr() => *const u8, bytes.len() => usize));
        address
    }

    /// After what `stream` has been given.
    pub fn download(&self, stream: Handle, from: u64, bytes: usize) -> Vec<u8> {
        let mut to = vec![0xee; bytes];
        cu!(self, cuMemcpyDtoHAsync_v2(
            to.as_mut_ptr() => *mut u8, from => u64, bytes => usize, stream => Handle
        ));
        cu!(self, cuStreamSynchronize(stream => Handle));
        to
    }

    /// A kernel that waits and then copies.
    pub fn late_copy(&self, stream: Handle, to: u64, from: u64, bytes: usize) {
        let range = |kind, value| abi::Arg { value, bytes: bytes as u64, kind, reserved: 0 };
        let mut args = Box::new(abi::KernelArgs { n_args: 3, host_twin: Some(twin), ..Default::default() });
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

/// What the kernel does, for a driver without a device; it is late by itself.
unsafe extern "C" fn twin(args: *const abi::Arg, n_args: usize) -> abi::Code {
    // SAFETY: as many arguments as are told, with addresses that may be dereferenced.
    unsafe {
        let [_, from, to] = std::slice::from_raw_parts(args, n_args) else { return abi::INVALID_ARGUMENT };
        std::ptr::copy_nonoverlapping(from.value as *const u8, to.value as *mut u8, to.bytes as usize);
    }
    abi::OK
}

/// Tells whether the host has waited for a late kernel.
pub struct Watch<'a> {
    stranger: &'a Stranger,
    waits: Option<u64>,
}

impl Watch<'_> {
    /// A real device is still at it. A simulated one, where all is late until somebody waits, was not waited for.
    pub fn nobody_waited_for(&self, event: Handle) {
        match self.waits {
            None => assert!(self.stranger.is_pending(event), "the host has waited for a kernel"),
            Some(before) => assert_eq!(self.stranger.waits(), Some(before), "the host has waited"),
        }
    }

    /// For what only a simulated driver shows.
    pub fn nobody_waited(&self) {
        assert_eq!(self.stranger.waits(), self.waits, "the host has waited");
    }
}
