//! Defines a `cpu` device whose launches run the CUDA sources, compiled as C++, so that tests of
//! these sources need no GPU.

use std::ffi::{CStr, c_char, c_void};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};

use crossdock_kernels::table::check_launch;
use crossdock_memory::{Device, Host, Memory, Stream};
use crossdock_plugin_api::abi;
use crossdock_test_support::{TestHost, find_kernel};
use libloading::Library;

type Emulate = unsafe extern "C" fn(*const c_char, *mut c_void, u32, *const abi::Arg, u64);

struct Emulator(Mutex<Library>);

/// The emulator's library, or the reason why it is missing.
fn emulator() -> &'static Result<Emulator, String> {
    static EMULATOR: OnceLock<Result<Emulator, String>> = OnceLock::new();
    EMULATOR.get_or_init(|| {
        let here = super::folder().ok_or("the CUDA sources are missing")?;
        let library = std::env::temp_dir().join(format!("crossdock-emulator-{}.so", std::process::id()));
        let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
        let mut command = Command::new(&compiler);
        command.args(["-std=c++17", "-O1", "-g", "-fPIC", "-shared", "-w"]);
        command.arg("-I").arg(here.join("cuda")).arg("-I").arg(here.join("tests/emulator"));
        command.arg("-o").arg(&library).arg(here.join("tests/emulator/emulator.cpp"));
        let output = command.output().map_err(|e| format!("no C++ compiler: {}: {e}", compiler.display()))?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        // SAFETY: the library was just compiled from this repository's sources, and has no
        // initializers.
        let opened = unsafe { Library::new(&library) }.map_err(|e| e.to_string());
        std::fs::remove_file(&library).ok();
        opened.map(|library| Emulator(Mutex::new(library)))
    })
}

/// A host that uses the test host's memory, except for launches.
#[repr(C)]
struct Object {
    table: abi::Host,
    memory: abi::Memory,
    kernels: abi::HostKernels,
}

/// A stream of the emulated device, or the reason why there is none.
pub fn stream(host: &TestHost) -> Result<Stream, String> {
    emulator().as_ref().map_err(String::clone)?;
    let inner = interface(host.raw());
    // SAFETY: `inner` is the test host's table, which outlives the copy.
    let mut memory = unsafe { std::ptr::read(inner) };
    memory.launch = Some(launch);
    let table = abi::Host {
        abi_major: abi::ABI_MAJOR,
        abi_minor: abi::ABI_MINOR,
        retain: Some(ignore_count),
        release: Some(ignore_count),
        get_interface: Some(get_interface),
        ..abi::Host::new()
    };
    let kernels = abi::HostKernels { find: Some(find_kernel), ..abi::HostKernels::new() };
    // The object is never freed, because streams and buffers point to it. The static keeps the
    // object reachable, so that leak checkers do not report it.
    static OBJECTS: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    let object: &'static Object = Box::leak(Box::new(Object { table, memory, kernels }));
    OBJECTS.lock().unwrap_or_else(PoisonError::into_inner).push(&raw const *object as usize);
    // SAFETY: `object` is leaked, so it lives forever, and its table has both counting functions.
    let host = unsafe { Host::retain((&raw const *object).cast()) }.unwrap();
    Ok(Memory::from_host(&host).unwrap().default_stream(Device::CPU).unwrap())
}

fn interface(host: *const abi::Host) -> *const abi::Memory {
    // SAFETY: `host` is alive for the length of the call and has this function.
    unsafe { (*host).get_interface.unwrap()(host, abi::HOST_MEMORY_ID.as_ptr()).cast() }
}

unsafe extern "C" fn ignore_count(_host: *const abi::Host) {}

unsafe extern "C" fn get_interface(host: *const abi::Host, id: *const c_char) -> *const c_void {
    // SAFETY: `host` is the leaked `Object`, whose first field is the table, and the caller passes
    // a NUL-terminated id.
    let (object, id) = unsafe { (&*host.cast::<Object>(), CStr::from_ptr(id)) };
    if id == abi::HOST_MEMORY_ID {
        (&raw const object.memory).cast()
    } else if id == abi::HOST_KERNELS_ID {
        (&raw const object.kernels).cast()
    } else {
        std::ptr::null()
    }
}

unsafe extern "C" fn launch(
    _memory: *const abi::Memory,
    _stream: *mut abi::Stream,
    kernel: *const abi::Kernel,
    size: *const abi::Launch,
    args: *const abi::Arg,
    n_args: usize,
    _err: *mut abi::Error,
) -> abi::Code {
    let Ok(emulator) = emulator() else { return abi::INTERNAL };
    let library = emulator.0.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the kernel is alive and has a name, the types are those of `emulator.cpp`, and the
    // addresses are in host memory because the device is `cpu`.
    unsafe {
        let name = CStr::from_ptr((*kernel).name);
        let entry = library.get::<unsafe extern "C" fn()>(name.to_bytes_with_nul());
        let entry = entry.unwrap_or_else(|e| panic!("the CUDA sources have no such kernel: {e}"));
        let emulate = library.get::<Emulate>(b"emulate\0").unwrap();
        let size = &*size;
        assert!(n_args <= abi::MAX_KERNEL_ARGS && size.threads == [256, 1, 1]);
        let list = std::slice::from_raw_parts(args, n_args);
        assert_eq!(check_launch(name, size.blocks[0], list), Some(Ok(())));
        emulate(name.as_ptr(), *entry as *mut c_void, size.blocks[0], args, n_args as u64);
    }
    abi::OK
}
