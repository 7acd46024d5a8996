//! Tests launching the host's kernels by name.
use std::ffi::{CStr, c_char, c_void};
use std::sync::Mutex;

use crossdock_memory::{
    Arg, Code, Device, Host, HostKernel, Kernel, LaunchSize, Memory, Result, bytes_of_host_arg_mut,
};
use crossdock_plugin_api::abi;
use crossdock_test_support::{DEVICES, TestHost};

/// A host that offers the memory interface of a test host, and kernels of its own.
#[repr(C)]
struct KernelHost {
    table: abi::Host,
    memory: *const abi::Memory,
    kernels: Option<abi::HostKernels>,
    kernel: &'static Kernel,
    /// The devices, names and arguments of all lookups.
    lookups: Mutex<Vec<(Device, String, String)>>,
    /// Whether lookups fail.
    fails: Mutex<bool>,
}

impl KernelHost {
    fn new(inner: &TestHost, kernel: &'static Kernel) -> Box<Self> {
        let table = abi::Host {
            abi_major: abi::ABI_MAJOR,
            abi_minor: abi::ABI_MINOR,
            retain: Some(count_nothing),
            release: Some(count_nothing),
            get_interface: Some(get_interface),
            ..abi::Host::new()
        };
        // SAFETY: `inner` is a live host that has `get_interface`.
        let memory = unsafe {
            (*inner.raw()).get_interface.unwrap()(inner.raw(), abi::HOST_MEMORY_ID.as_ptr()).cast()
        };
        let (lookups, fails) = (Mutex::default(), Mutex::default());
        let mut host = Box::new(Self { table, memory, kernels: None, kernel, lookups, fails });
        let private_data = (&raw mut *host).cast();
        host.kernels = Some(abi::HostKernels { find: Some(find), private_data, ..abi::HostKernels::new() });
        host
    }

    fn memory(&self) -> Memory {
        // SAFETY: the host lives as long as the test, and has `retain` and `release`.
        let host = unsafe { Host::retain((&raw const *self).cast()) }.unwrap();
        Memory::from_host(&host).unwrap()
    }

    fn n_lookups(&self) -> usize {
        self.lookups.lock().unwrap().len()
    }
}

unsafe extern "C" fn count_nothing(_host: *const abi::Host) {}

unsafe extern "C" fn get_interface(host: *const abi::Host, id: *const c_char) -> *const c_void {
    // SAFETY: `host` is a live `KernelHost`, and `id` is NUL-terminated.
    let (host, id) = unsafe { (&*host.cast::<KernelHost>(), CStr::from_ptr(id)) };
    if id == abi::HOST_MEMORY_ID {
        host.memory.cast()
    } else if id == abi::HOST_KERNELS_ID {
        host.kernels.as_ref().map_or(std::ptr::null(), |kernels| std::ptr::from_ref(kernels).cast())
    } else {
        std::ptr::null()
    }
}

unsafe extern "C" fn find(
    kernels: *const abi::HostKernels,
    device: Device,
    name: *const c_char,
    arguments: *const c_char,
    out: *mut *const abi::Kernel,
    _err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: `private_data` points to the host; the strings are NUL-terminated; `out` is the
    // caller's out parameter.
    unsafe {
        let host = &*(*kernels).private_data.cast::<KernelHost>();
        let text = |text| CStr::from_ptr(text).to_str().unwrap().to_owned();
        host.lookups.lock().unwrap().push((device, text(name), text(arguments)));
        if *host.fails.lock().unwrap() {
            return abi::VERSION;
        }
        out.write(host.kernel.as_abi());
    }
    abi::OK
}

/// A kernel that fills all WRITE arguments with the byte `NUMBER`.
unsafe extern "C" fn write<const NUMBER: u8>(args: *const abi::Arg, n: usize) -> abi::Code {
    // SAFETY: `args` points to the `n` arguments of the launch.
    for arg in unsafe { std::slice::from_raw_parts(args, n) } {
        if arg.kind == abi::ARG_WRITE {
            // SAFETY: the launch is running this function, so that the argument is valid.
            unsafe { bytes_of_host_arg_mut(arg) }.fill(NUMBER);
        }
    }
    abi::OK
}

static ONE: Kernel = Kernel::host(c"write", write::<1>);
static TWO: Kernel = Kernel::host(c"write", write::<2>);
const SIZE: &LaunchSize = &LaunchSize::new(1, 256);

/// Launches `kernel` on `device` and returns the byte that it wrote.
fn written(memory: &Memory, device: Device, kernel: &'static HostKernel) -> Result<u8> {
    let stream = memory.default_stream(device)?;
    let mut to = memory.alloc(&stream, 1)?;
    let mut args = [Arg::Write { buffer: &mut to, offset: 0, bytes: 1 }];
    // SAFETY: the kernels of this file accept any arguments.
    unsafe { stream.launch_by_name(kernel, SIZE, &mut args) }?;
    Ok(to.freeze(&stream)?.host_view(&stream)?[0])
}

#[test]
fn looks_up_kernels_once_per_host_and_device_type() {
    static KERNEL: HostKernel = HostKernel::new(c"write", c"w");
    let inner = TestHost::new();
    let hosts = [KernelHost::new(&inner, &ONE), KernelHost::new(&inner, &TWO)];
    let memories = hosts.each_ref().map(|host| host.memory());
    for _ in 0..3 {
        for (memory, number) in memories.iter().zip([1, 2]) {
            for device in DEVICES {
                assert_eq!(written(memory, device, &KERNEL), Ok(number), "{device}");
            }
        }
    }
    for host in &hosts {
        let expected = DEVICES.map(|device| (device, "write".to_owned(), "w".to_owned()));
        assert_eq!(*host.lookups.lock().unwrap(), expected);
    }
}

#[test]
fn second_memory_object_of_a_host_repeats_the_kernel_lookup() {
    static KERNEL: HostKernel = HostKernel::new(c"write", c"w");
    let inner = TestHost::new();
    let host = KernelHost::new(&inner, &ONE);
    for lookups in 1..=2 {
        assert_eq!(written(&host.memory(), Device::CPU, &KERNEL), Ok(1));
        assert_eq!(host.n_lookups(), lookups);
    }
}

#[test]
fn retries_a_failed_lookup() {
    static KERNEL: HostKernel = HostKernel::new(c"write", c"w");
    let inner = TestHost::new();
    let host = KernelHost::new(&inner, &ONE);
    let memory = host.memory();
    *host.fails.lock().unwrap() = true;
    assert_eq!(written(&memory, Device::CPU, &KERNEL).unwrap_err().code(), Code::VERSION);
    *host.fails.lock().unwrap() = false;
    assert_eq!(written(&memory, Device::CPU, &KERNEL), Ok(1));
    assert_eq!(host.n_lookups(), 2);
}

#[test]
fn error_names_the_missing_interface() {
    static KERNEL: HostKernel = HostKernel::new(c"write", c"w");
    let inner = TestHost::new();
    for kernels in [None, Some(abi::HostKernels::new())] {
        let mut host = KernelHost::new(&inner, &ONE);
        host.kernels = kernels;
        let memory = host.memory();
        let error = written(&memory, Device::CPU, &KERNEL).unwrap_err();
        assert_eq!(error.code(), Code::VERSION);
        for words in ["'crossdock.host.kernels/1'", "'write'", "use a newer host"] {
            assert!(error.message().contains(words), "{error}");
        }
        let error = memory.with_host_kernels().err().unwrap();
        assert_eq!(error.code(), Code::VERSION);
        assert!(error.message().contains("'crossdock.host.kernels/1'"), "{error}");
    }
    assert!(KernelHost::new(&inner, &ONE).memory().with_host_kernels().is_ok());
}

#[test]
fn works_with_an_older_interface_without_its_last_field() {
    static KERNEL: HostKernel = HostKernel::new(c"write", c"w");
    let inner = TestHost::new();
    let mut host = KernelHost::new(&inner, &ONE);
    let kernels = host.kernels.as_mut().unwrap();
    kernels.struct_size = std::mem::offset_of!(abi::HostKernels, private_data);
    assert_eq!(written(&host.memory().with_host_kernels().unwrap(), Device::CPU, &KERNEL), Ok(1));
}

#[test]
fn rejects_unknown_kernel_names_and_mismatched_arguments() {
    static UNKNOWN: HostKernel = HostKernel::new(c"crossdock_unheard_of", c"w");
    static OTHER: HostKernel = HostKernel::new(c"crossdock_copy_ranges", c"w");
    let host = TestHost::new();
    for device in DEVICES {
        for (kernel, words) in [
            (&UNKNOWN, "test: this host has no kernel 'crossdock_unheard_of'"),
            (
                &OTHER,
                "test: the kernel 'crossdock_copy_ranges' takes the arguments 'rw', and the caller states 'w'",
            ),
        ] {
            let error = written(&host.memory(), device, kernel).unwrap_err();
            assert_eq!(error.code(), Code::VERSION);
            assert!(error.message().starts_with(words), "{error}");
        }
    }
    host.assert_nothing_leaked();
}
