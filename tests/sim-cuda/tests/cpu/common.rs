//! Short forms of driver calls. Only one test at a time uses the device.
#![allow(dead_code)] // some helpers may be unused

use std::ffi::{CStr, CString, c_void};
use std::process::{Command, Output};
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use crossdock_sim_cuda::exports::control::*;
pub use crossdock_sim_cuda::exports::device::*;
pub use crossdock_sim_cuda::exports::memory::*;
pub use crossdock_sim_cuda::exports::modules::*;
pub use crossdock_sim_cuda::exports::streams::*;

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Exclusive use of the device by one test. Violations are counted and do not end the process.
pub struct Gpu {
    before: u64,
    _guard: MutexGuard<'static, ()>,
}

/// Calls the driver. `ok!` asserts success, and `code!` returns the code.
macro_rules! ok {
    ($call:expr) => {{
        // SAFETY: the simulator checks handles and addresses. Tests pass pointers that are valid
        // for the called function.
        let code = unsafe { $call };
        assert_eq!(code, 0, "{}", stringify!($call));
    }};
}
macro_rules! code {
    ($call:expr) => {{
        // SAFETY: the simulator checks handles and addresses. Tests pass pointers that are valid
        // for the called function.
        unsafe { $call }
    }};
}
pub(crate) use {code, ok};

pub type Handle = usize;

impl Gpu {
    /// Locks the device, makes its context current, and sets violations to be counted.
    pub fn get() -> Self {
        let guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        crossdock_sim_cuda_on_violation(1);
        Self::start();
        Self { before: crossdock_sim_cuda_violations(), _guard: guard }
    }

    /// Starts the driver and makes a context current. Child processes call only this function if a
    /// violation must end the process.
    pub fn start() {
        let mut context = 0;
        ok!(cuInit(0));
        ok!(cuDevicePrimaryCtxRetain(&mut context, 0));
        ok!(cuCtxSetCurrent(context));
    }

    /// The number of violations since the call of [`Self::get`].
    pub fn violations(&self) -> u64 {
        crossdock_sim_cuda_violations() - self.before
    }

    /// Asserts that there was exactly one violation, and that `what` is its kind.
    pub fn expect(&self, what: &str) {
        assert_eq!(self.violations(), 1, "number of violations; expected one of the kind '{what}'");
        // SAFETY: the simulator returns a static C string after a violation.
        let last = unsafe { CStr::from_ptr(crossdock_sim_cuda_last_violation()) };
        assert_eq!(last.to_str(), Ok(what));
    }
}

pub fn stream() -> Handle {
    let mut stream = 0;
    ok!(cuStreamCreate(&mut stream, 1));
    stream
}

pub fn event() -> Handle {
    let mut event = 0;
    ok!(cuEventCreate(&mut event, 2));
    event
}

pub fn alloc(bytes: usize, stream: Handle) -> u64 {
    let mut address = 0;
    ok!(cuMemAllocAsync(&mut address, bytes, stream));
    address
}

pub fn pinned(bytes: usize) -> *mut u8 {
    let mut pointer = null_mut();
    ok!(cuMemHostAlloc(&mut pointer, bytes, 1));
    pointer
}

/// Orders later work on `to` after the work that is queued on `from` now.
pub fn order(from: Handle, to: Handle) {
    let event = event();
    ok!(cuEventRecord(event, from));
    ok!(cuStreamWaitEvent(to, event, 0));
    ok!(cuEventDestroy_v2(event));
}

pub fn fill(address: u64, value: u8, bytes: usize, stream: Handle) {
    ok!(cuMemsetD8Async(address, value, bytes, stream));
}

pub fn copy(to: u64, from: u64, bytes: usize, stream: Handle) {
    ok!(cuMemcpyAsync(to, from, bytes, stream));
}

pub fn free(address: u64, stream: Handle) {
    ok!(cuMemFreeAsync(address, stream));
}

pub fn sync(stream: Handle) {
    ok!(cuStreamSynchronize(stream));
}

/// Copies device memory into pageable memory. The copy waits for the stream.
pub fn read(address: u64, bytes: usize, stream: Handle) -> Vec<u8> {
    let mut host = vec![0u8; bytes];
    copy(host.as_mut_ptr() as u64, address, bytes, stream);
    host
}

pub fn fail(name: &str, code: i32, nth: u64) {
    let name = CString::new(name).unwrap();
    // SAFETY: a `CString` ends with a NUL.
    unsafe { crossdock_sim_cuda_fail(name.as_ptr(), code, nth) }
}

pub fn calls(name: &str) -> u64 {
    let name = CString::new(name).unwrap();
    // SAFETY: a `CString` ends with a NUL.
    unsafe { crossdock_sim_cuda_calls(name.as_ptr()) }
}

/// The environment variable with the name of the test that a child process of [`in_child`] runs.
const CASE: &str = "SIM_CUDA_TEST_CASE";

/// Whether this process is the child process of the test `case`. `case` includes the test's module.
pub fn is_child(case: &str) -> bool {
    std::env::var(CASE).is_ok_and(|value| value == case)
}

/// Runs the test `case` of this program in a child process. Returns the output of the process, and
/// its stderr as text.
pub fn in_child(case: &str, variables: &[(&str, &str)]) -> (Output, String) {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", case, "--nocapture", "--test-threads", "1"]).env(CASE, case);
    let output = child.envs(variables.iter().copied()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, text)
}

/// The only parameter of a kernel.
pub struct Params(Box<crossdock_plugin_api::abi::KernelArgs>);

pub type CpuImplementation =
    unsafe extern "C" fn(*const crossdock_plugin_api::abi::Arg, usize) -> crossdock_plugin_api::abi::Code;

impl Params {
    /// Creates the parameter of a launch. Each entry of `args` is the value, the number of bytes
    /// and the kind of one argument.
    pub fn new(cpu_implementation: Option<CpuImplementation>, args: &[(u64, u64, u32)]) -> Self {
        use crossdock_plugin_api::abi::{Arg, KernelArgs, MAX_KERNEL_ARGS};
        let none = Arg { value: 0, bytes: 0, kind: 0, reserved: 0 };
        let mut params = Box::new(KernelArgs {
            all_args: std::ptr::null(),
            host_args: std::ptr::null(),
            n_args: args.len() as u64,
            host_function: cpu_implementation,
            args: [none; MAX_KERNEL_ARGS],
        });
        for (to, (value, bytes, kind)) in params.args.iter_mut().zip(args) {
            *to = Arg { value: *value, bytes: *bytes, kind: *kind, reserved: 0 };
        }
        Self(params)
    }

    /// Launches a function with one block of 32 threads. Returns the code of the launch.
    pub fn launch(mut self, function: Handle, stream: Handle) -> i32 {
        let mut parameter: *mut c_void = (&raw mut *self.0).cast();
        code!(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, &mut parameter, null_mut()))
    }
}

/// Loads PTX that declares the function `name`. Returns the function's handle.
pub fn function(name: &str) -> Handle {
    let text = format!(".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry {name}(\n)\n{{}}\n");
    let text = CString::new(text).unwrap();
    let name = CString::new(name).unwrap();
    let (mut module, mut function) = (0, 0);
    ok!(cuModuleLoadData(&mut module, text.as_ptr().cast()));
    ok!(cuModuleGetFunction(&mut function, module, name.as_ptr()));
    function
}
