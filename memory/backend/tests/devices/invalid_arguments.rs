//! Tests invalid arguments, and accesses that a plugin must not be able to make.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::ptr::{null, null_mut};

use crate::common::{SIZE, add_one, table};
use crossdock_memory_backend::{Backend, CudaMissing, cuda};
use crossdock_plugin_api::{Code, Device, Error, abi};

/// Calls `f` without and with an error struct. Both calls must fail. Returns the error.
fn error_of(f: impl Fn(*mut abi::Error) -> abi::Code) -> Error {
    let code = f(null_mut());
    let mut small = abi::Error { struct_size: 8, ..abi::Error::new() };
    assert_eq!(f(&mut small), code);
    assert!(
        small.message.is_null() && small.release.is_none(),
        "fields beyond an error struct of 8 bytes were written"
    );
    let error = Error::check(f).unwrap_err();
    assert_eq!(error.code(), Code(code));
    error
}

#[test]
fn rejects_null_and_short_memory_objects() {
    let account = Backend::builder().build().account("test");
    let functions = table(&account);
    let functions = functions.functions();
    let short = abi::Memory { struct_size: 8, ..abi::Memory::new() };
    let empty = abi::Memory::new();
    for memory in [null(), &short, &empty] {
        // SAFETY: the functions must reject NULL and short arguments without accessing anything
        // else.
        unsafe {
            let mut n = 0;
            let mut allocation = abi::Allocation::default();
            let (mut stream, mut event, mut pointer) = (null_mut(), null_mut(), abi::Pointer::new());
            let errors = [
                error_of(|e| functions.devices.unwrap()(memory, null_mut(), 0, &mut { n }, e)),
                error_of(|e| {
                    functions.alloc_pinned.unwrap()(memory, 1, &mut { abi::Allocation::default() }, e)
                }),
                error_of(|e| functions.copy.unwrap()(memory, null_mut(), null(), 0, e)),
                error_of(|e| functions.fill.unwrap()(memory, null_mut(), null_mut(), 0, 0, e)),
                error_of(|e| functions.launch.unwrap()(memory, null_mut(), &add_one(), &SIZE, null(), 0, e)),
                error_of(|e| functions.stream_synchronize.unwrap()(memory, null_mut(), e)),
                error_of(|e| functions.stream_wait.unwrap()(memory, null_mut(), null_mut(), e)),
                error_of(|e| functions.stream_wait_raw.unwrap()(memory, null_mut(), null_mut(), e)),
                error_of(|e| functions.event_synchronize.unwrap()(memory, null_mut(), e)),
            ];
            assert!(
                errors
                    .iter()
                    .all(|e| e.code() == Code::INVALID_ARGUMENT && e.message().contains("memory object"))
            );
            let err = null_mut();
            let codes = [
                functions.alloc.unwrap()(memory, Device::CPU, 1, 64, null_mut(), 0, &mut allocation, err),
                functions.stream_default.unwrap()(memory, Device::CPU, &mut stream, err),
                functions.stream_create.unwrap()(memory, Device::CPU, 0, 0, &mut stream, err),
                functions.stream_is_capturing.unwrap()(memory, null_mut(), &mut 0, err),
                functions.event_record.unwrap()(memory, null_mut(), &mut event, err),
                functions.event_query.unwrap()(memory, null_mut(), &mut 0, err),
                functions.pointer.unwrap()(memory, std::ptr::dangling(), &mut pointer, err),
                functions.devices.unwrap()(memory, null_mut(), 0, &mut n, err),
            ];
            assert_eq!(codes, [abi::INVALID_ARGUMENT; 8]);
            assert!(allocation.block.is_null() && stream.is_null() && event.is_null());
            functions.free.unwrap()(memory, null_mut(), null(), 0, 0);
            functions.stream_destroy.unwrap()(memory, null_mut());
            functions.event_destroy.unwrap()(memory, null_mut());
            assert!(functions.stream_raw.unwrap()(memory, null_mut()).is_null());
            assert!(functions.event_raw.unwrap()(memory, null_mut()).is_null());
            assert!(functions.host_address.unwrap()(memory, Device::CPU, 64 as *const _, 1).is_null());
        }
    }
}

#[test]
fn rejects_null_out_parameters_without_leaks() {
    let account = Backend::builder().build().account("test");
    let memory = table(&account);
    let (m, f) = (memory.raw(), memory.functions());
    // SAFETY: the functions must reject NULL out parameters without further access.
    unsafe {
        let errors = [
            error_of(|e| f.devices.unwrap()(m, null_mut(), 0, null_mut(), e)),
            error_of(|e| f.devices.unwrap()(m, null_mut(), 1, &mut 0, e)),
            error_of(|e| f.alloc.unwrap()(m, Device::CPU, 1, 64, null_mut(), 0, null_mut(), e)),
            error_of(|e| f.alloc_pinned.unwrap()(m, 1, null_mut(), e)),
            error_of(|e| f.stream_default.unwrap()(m, Device::CPU, null_mut(), e)),
            error_of(|e| f.stream_create.unwrap()(m, Device::CPU, 0, 0, null_mut(), e)),
            error_of(|e| f.stream_is_capturing.unwrap()(m, null_mut(), null_mut(), e)),
            error_of(|e| f.event_record.unwrap()(m, null_mut(), null_mut(), e)),
            error_of(|e| f.event_query.unwrap()(m, null_mut(), null_mut(), e)),
            error_of(|e| f.pointer.unwrap()(m, std::ptr::dangling(), null_mut(), e)),
        ];
        for error in errors {
            assert_eq!(error.code(), Code::INVALID_ARGUMENT);
            assert!(error.message().ends_with(" is NULL"), "{error}");
        }
    }
    assert_eq!(account.usage().devices[0].live_blocks, 0);
}

#[test]
fn rejects_malformed_lists_and_structs() {
    let account = Backend::builder().build().account("test");
    let memory = table(&account);
    let (m, f) = (memory.raw(), memory.functions());
    let short_kernel = abi::Kernel { struct_size: 8, ..abi::Kernel::new() };
    // SAFETY: the functions must reject short structs and NULL lists whose count is not 0, without
    // accessing anything else.
    unsafe {
        let lists = [
            error_of(|e| f.copy.unwrap()(m, null_mut(), null(), 3, e)),
            error_of(|e| f.copy.unwrap()(m, null_mut(), std::ptr::dangling(), usize::MAX, e)),
            error_of(|e| f.launch.unwrap()(m, null_mut(), &add_one(), &SIZE, null(), 3, e)),
        ];
        assert!(lists.iter().all(|e| e.message().contains("expected a list of")));
        let structs = [
            error_of(|e| f.launch.unwrap()(m, null_mut(), null(), &SIZE, null(), 0, e)),
            error_of(|e| f.launch.unwrap()(m, null_mut(), &short_kernel, &SIZE, null(), 0, e)),
            error_of(|e| f.pointer.unwrap()(m, std::ptr::dangling(), &mut abi::Pointer::default(), e)),
            error_of(|e| f.devices.unwrap()(m, &mut abi::DeviceInfo::default(), 1, &mut 0, e)),
            error_of(|e| f.stream_synchronize.unwrap()(m, std::ptr::dangling_mut(), e)),
        ];
        assert!(structs.iter().all(|e| e.code() == Code::INVALID_ARGUMENT));
    }
    let many = vec![abi::Arg { value: 0, bytes: 0, kind: abi::ARG_VALUE, reserved: 0 }; 100_000];
    let error = memory.launch(null_mut(), &add_one(), &many).unwrap_err();
    assert!(error.message().contains("got 100000 arguments"), "{error}");
}

#[test]
fn device_infos_may_be_larger_than_in_this_version() {
    #[repr(C)]
    struct Larger {
        info: abi::DeviceInfo,
        newer: [u64; 3],
    }
    let account = Backend::builder().untouchable(true).build().account("test");
    let memory = table(&account);
    let larger = || Larger {
        info: abi::DeviceInfo { struct_size: size_of::<Larger>(), ..abi::DeviceInfo::default() },
        newer: [7; 3],
    };
    let (mut infos, mut n) = ([larger(), larger()], 0);
    // SAFETY: the array has two elements of the size that the first one declares.
    let code = unsafe {
        memory.functions().devices.unwrap()(memory.raw(), infos.as_mut_ptr().cast(), 2, &mut n, null_mut())
    };
    // CUDA devices are counted but not listed, because the array has space for two devices.
    assert!(code == abi::OK && n >= 2);
    assert_eq!([infos[0].info.device, infos[1].info.device], [Device::CPU, Device::UNTOUCHABLE]);
    assert_eq!([infos[0].newer, infos[1].newer], [[7; 3]; 2]);
}

#[test]
fn rejects_copies_from_null_and_beyond_the_address_space() {
    let account = Backend::builder().build().account("test");
    let memory = table(&account);
    let mut local = [0u8; 8];
    let to = (Device::CPU, local.as_mut_ptr());
    for (from, bytes) in [(0usize, 8), (usize::MAX - 3, 8), (64, usize::MAX), (64, isize::MAX as usize + 1)] {
        let error = memory.copy(to, (Device::CPU, from as *const u8), bytes).unwrap_err();
        assert!(error.message().contains("source") || error.message().contains("target"), "{error}");
        assert_eq!(error.code(), Code::INVALID_ARGUMENT);
    }
    assert!(memory.fill(null_mut(), null_mut(), 1, 1).is_err());
    memory.copy(to, (Device::CPU, null()), 0).unwrap();
}

const CHILD: &str = "CROSSDOCK_TEST_TOUCH";

/// Runs in a child process. An environment variable selects how the test accesses an address of the
/// device.
#[test]
fn child_process_accesses_untouchable_memory() {
    let Ok(access) = std::env::var(CHILD) else { return };
    let account = Backend::builder().untouchable(true).build().account("test");
    let block = table(&account).upload(Device::UNTOUCHABLE, &[1, 2, 3]).unwrap();
    // SAFETY: the access is not sound. The device exists to detect such accesses.
    unsafe {
        match access.as_str() {
            "read" => assert_eq!(block.address.read_volatile(), 1),
            "write" => block.address.write_volatile(1),
            _ => assert_eq!(
                table(&account).download(Device::UNTOUCHABLE, block.address, 3).unwrap(),
                [1, 2, 3]
            ),
        }
    }
    table(&account).free(block);
}

#[test]
fn access_to_an_untouchable_address_is_a_segfault() {
    for (access, signal) in [("read", Some(libc::SIGSEGV)), ("write", Some(libc::SIGSEGV)), ("copy", None)] {
        let mut child = Command::new(std::env::current_exe().unwrap());
        let status = child
            .args(["--exact", "invalid_arguments::child_process_accesses_untouchable_memory"])
            .env(CHILD, access)
            .output()
            .unwrap()
            .status;
        assert_eq!((status.signal(), status.success()), (signal, signal.is_none()), "{access}: {status}");
    }
}

#[test]
fn probe_and_allocation_agree_on_missing_cuda() {
    let backend = Backend::builder().build();
    let account = backend.account("test");
    let memory = table(&account);
    let allocated = memory.alloc(Device::cuda(0), 64);
    match backend.cuda() {
        Err(missing) => {
            let error = allocated.err().unwrap();
            assert_eq!(cuda::probe().as_ref().unwrap_err(), missing);
            assert_eq!(
                (error.code(), error.message()),
                (Code::DEVICE, format!("cuda:0: {missing}").as_str())
            );
            if *missing == CudaMissing::Library {
                assert!(
                    error.message().contains("libcuda.so was not found; install the NVIDIA driver"),
                    "{error}"
                );
            }
        }
        Ok(presence) => {
            memory.free(allocated.unwrap());
            assert!(presence.driver_version.0 > 0 && !presence.devices.is_empty());
            assert!(presence.devices.iter().all(|d| d.memory_bytes > 0 && d.compute_capability.0 > 0));
        }
    }
}

#[test]
fn errors_about_missing_cuda_give_advice() {
    let cases = [
        (CudaMissing::Library, "install the NVIDIA driver"),
        (CudaMissing::Symbol { symbol: "cuInit" }, "lacks 'cuInit'; install a newer"),
        (
            CudaMissing::Driver { function: "cuInit", code: 803 },
            "returned 803 from cuInit: library and kernel module",
        ),
        (CudaMissing::Driver { function: "cuInit", code: -77 }, "returned -77 from cuInit: look the code up"),
        (CudaMissing::NoDevice, "check nvidia-smi"),
    ];
    for (missing, words) in cases {
        assert!(missing.to_string().contains(words), "{missing}");
    }
}
