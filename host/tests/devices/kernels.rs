//! Tests of the host's kernels, launched by name through a session's host object.
use crossdock::Host;
use crossdock::api::{
    Code, Device, Error, Host as HostHandle, Plugin, PluginDescription, Result, abi, entry,
};
use crossdock::discovery::Search;
use crossdock::load::LinkedPlugin;
use crossdock_kernels::Jobs;
use crossdock_memory::{Arg, HostKernel, LaunchSize, Memory};
use crossdock_test_support::devices;

fn host() -> Host {
    let backend = crossdock::memory::Backend::builder().untouchable(true).build();
    Host::builder().search(Search::nowhere()).backend(backend).build().unwrap()
}

/// Copies three bytes on a device with a kernel of the host.
fn copied(memory: &Memory, device: Device) -> Result<Vec<u8>> {
    let stream = memory.default_stream(device)?;
    let fill = |to: &mut [u8]| {
        to.copy_from_slice(b"abcde");
        Ok(())
    };
    let from = memory.alloc_with(&stream, 5, fill)?.freeze(&stream)?;
    let mut to = memory.alloc(&stream, 3)?;
    let mut jobs = Jobs::new();
    jobs.copy_range(&from, 1, 3, &mut to, 0)?;
    jobs.launch(&stream)?;
    Ok(to.freeze(&stream)?.host_view(&stream)?.to_vec())
}

/// Launches `kernel` without a job.
fn launch(memory: &Memory, kernel: &'static HostKernel) -> Result<()> {
    let stream = memory.default_stream(Device::CPU)?;
    let size = LaunchSize::new(1, abi::HOST_KERNEL_THREADS);
    // SAFETY: the launch has no jobs, so the kernel reads no arguments.
    unsafe { stream.launch_by_name(kernel, &size, &mut [] as &mut [Arg<'_>]) }
}

#[test]
fn kernels_of_two_hosts_run_on_every_device() {
    let hosts = [host(), host()];
    for device in devices().iter().copied() {
        let sessions = hosts.each_ref().map(|host| host.session().device(device).open().unwrap());
        for session in &sessions {
            let handle = session.host_handle("test").unwrap();
            assert_eq!(copied(&Memory::from_host(&handle).unwrap(), device).unwrap(), b"bcd", "{device}");
        }
    }
    hosts.iter().for_each(|host| assert_eq!(host.settle(), []));
}

#[test]
fn error_for_unknown_kernel_or_wrong_arguments_names_the_caller() {
    static UNKNOWN: HostKernel = HostKernel::new(c"crossdock_unheard_of", c"");
    static OTHER: HostKernel = HostKernel::new(c"crossdock_gather", c"rvvw");
    let session = host().session().open().unwrap();
    let memory = Memory::from_host(&session.host_handle("launcher").unwrap()).unwrap();
    let assert_rejected = |kernel, words: &str| {
        let error = launch(&memory, kernel).unwrap_err();
        assert_eq!(error.code(), Code::VERSION);
        assert!(error.message().starts_with(words), "{error}");
    };
    assert_rejected(
        &UNKNOWN,
        "plugin 'launcher': this host has no kernel 'crossdock_unheard_of': use a newer host",
    );
    assert_rejected(
        &OTHER,
        "plugin 'launcher': the kernel 'crossdock_gather' takes the arguments 'rvvw(vv)', and the caller states 'rvvw': ",
    );
}

#[test]
fn rejects_null_pointers() {
    let session = host().session().open().unwrap();
    let handle = session.host_handle("launcher").unwrap();
    // SAFETY: the header defines `HostKernels` as the struct of the interface with this id.
    let (object, table) = unsafe { handle.interface::<abi::HostKernels>(abi::HOST_KERNELS_ID) }.unwrap();
    let (name, arguments, mut out) = (c"crossdock_copy_ranges".as_ptr(), c"rw".as_ptr(), std::ptr::null());
    let null = std::ptr::null();
    let find = |object, name, arguments, out| {
        // SAFETY: each pointer is null, a NUL-terminated constant, or a local variable that
        // outlives the call.
        Error::check(|err| unsafe { table.find.unwrap()(object, Device::CPU, name, arguments, out, err) })
    };
    let object = object.as_ptr().cast_const();
    assert_eq!(find(object, name, arguments, &mut out), Ok(()));
    assert!(!out.is_null());
    for result in [
        find(std::ptr::null(), name, arguments, &mut out),
        find(object, null, arguments, &mut out),
        find(object, name, null, &mut out),
        find(object, name, arguments, std::ptr::null_mut()),
    ] {
        assert_eq!(result.unwrap_err().code(), Code::INVALID_ARGUMENT);
    }
}

/// A plugin that launches a kernel which no host has.
struct Newer;

impl Plugin for Newer {
    fn create(host: HostHandle) -> Result<Self> {
        static KERNEL: HostKernel = HostKernel::new(c"crossdock_of_a_later_release", c"rw");
        launch(&Memory::from_host(&host)?.with_host_kernels()?, &KERNEL).map(|()| Self)
    }
}

#[test]
fn error_names_the_kernel_that_only_a_newer_host_has() {
    static ENTRY: abi::PluginEntry = entry::<Newer>();
    let about = PluginDescription {
        name: "newer",
        version: "0.1.0",
        description: "",
        licence: "Apache-2.0",
        interfaces: "",
        formats: "",
        encodings: "",
        requires: "",
        api_range: abi::API_RANGE,
    };
    let search = Search::nowhere().linked(LinkedPlugin::new(&ENTRY, about.meta()));
    let session = Host::builder().search(search).build().unwrap().session().open().unwrap();
    let Err(error) = session.plugin("newer") else { panic!("an instance") };
    let line = error.one_line();
    let words = "plugin 'newer': this host has no kernel 'crossdock_of_a_later_release': use a newer host";
    assert!(line.contains(words), "{line}");
}
