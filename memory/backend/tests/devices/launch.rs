//! Tests the sizes, flags and arguments of launches, and the flags of allocations and streams.

use std::ptr::null_mut;

use crate::common::{SIZE, add_one, range_arg, table};
use crossdock_memory_backend::Backend;
use crossdock_plugin_api::{Code, Device, Error, abi};

/// PTX code of the kernel `sum`, which writes the sum of the values of the arguments after the
/// first to the range of the first argument. It reads them from `all_args`.
const IMAGE: &str = "\
.version 7.0
.target sm_70
.address_size 64
.visible .entry sum(.param .align 8 .b8 launch[4064])
{
  .reg .pred %p<3>;
  .reg .b64 %rd<10>;
  ld.param.u64 %rd1, [launch];
  ld.param.u64 %rd2, [launch+16];
  ld.param.u64 %rd3, [launch+32];
  mov.u64 %rd4, 0;
  mov.u64 %rd5, 1;
  setp.eq.u64 %p1, %rd2, 0;
  @%p1 bra DONE;
LOOP:
  setp.ge.u64 %p2, %rd5, %rd1;
  @%p2 bra DONE;
  mad.lo.u64 %rd6, %rd5, 24, %rd2;
  ld.global.u64 %rd7, [%rd6];
  add.u64 %rd4, %rd4, %rd7;
  add.u64 %rd5, %rd5, 1;
  bra LOOP;
DONE:
  st.global.u64 [%rd3], %rd4;
  ret;
}
";

unsafe extern "C" fn sum_on_cpu(args: *const abi::Arg, n_args: usize) -> abi::Code {
    // SAFETY: a launch passes `n_args` arguments with valid host addresses.
    unsafe {
        let [to, values @ ..] = std::slice::from_raw_parts(args, n_args) else {
            return abi::INVALID_ARGUMENT;
        };
        (to.value as *mut u64).write(values.iter().map(|arg| arg.value).sum());
    }
    abi::OK
}

/// The kernel `sum`, which accepts any number of arguments.
pub fn sum() -> abi::Kernel {
    abi::Kernel {
        name: c"sum".as_ptr(),
        host_function: Some(sum_on_cpu),
        image: IMAGE.as_ptr().cast(),
        image_bytes: IMAGE.len(),
        flags: abi::KERNEL_MANY_ARGS,
        ..abi::Kernel::new()
    }
}

fn value_arg(value: u64) -> abi::Arg {
    abi::Arg { value, bytes: 0, kind: abi::ARG_VALUE, reserved: 0 }
}

fn backend() -> Backend {
    Backend::builder().untouchable(true).build()
}

fn devices(backend: &Backend) -> Vec<Device> {
    let gpu = backend.cuda().is_ok().then_some(Device::cuda(0));
    [Device::CPU, Device::UNTOUCHABLE].into_iter().chain(gpu).collect()
}

#[test]
fn a_kernel_that_accepts_many_arguments_receives_all_of_them() {
    let backend = backend();
    let account = backend.account("test");
    let t = table(&account);
    for device in devices(&backend) {
        let stream = t.stream_create(device).unwrap();
        for n in [abi::MAX_KERNEL_ARGS + 1, 1000, 20_000] {
            let to = t.alloc_aligned(device, 8, 64, stream).unwrap();
            let mut args = vec![range_arg(abi::ARG_WRITE, to.address, 8)];
            args.extend((1..n as u64).map(value_arg));
            t.launch(stream, &sum(), &args).unwrap();
            // The host has made its own copy of the arguments.
            args.fill(value_arg(u64::MAX));
            t.stream_synchronize(stream).unwrap();
            let result = t.download(device, to.address, 8).unwrap();
            let expected = (1..n as u64).sum::<u64>();
            assert_eq!(result, expected.to_le_bytes(), "{n} arguments on {device}");
            t.free(to);
        }
        t.stream_destroy(stream);
    }
    assert!(backend.leaks().is_empty(), "{:?}", backend.leaks());
}

#[test]
fn rejects_many_arguments_for_a_kernel_that_does_not_accept_them() {
    let backend = backend();
    let account = backend.account("test");
    let t = table(&account);
    let args = vec![value_arg(1); abi::MAX_KERNEL_ARGS + 1];
    let kernel = abi::Kernel { flags: 0, ..sum() };
    for device in devices(&backend) {
        let error = t.launch(t.stream_default(device).unwrap(), &kernel, &args).unwrap_err();
        assert_eq!(error.message(), "kernel 'sum': got 169 arguments; expected at most 168");
    }
}

#[test]
fn rejects_sizes_that_no_device_supports() {
    let backend = backend();
    let account = backend.account("test");
    let t = table(&account);
    let size = |blocks, threads, cluster| abi::Launch { blocks, threads, cluster, ..SIZE };
    let wrong = [
        (size([0, 1, 1], [1; 3], [0; 3]), "[0, 1, 1] blocks"),
        (size([1, 1 << 16, 1], [1; 3], [0; 3]), "[1, 65536, 1] blocks"),
        (size([1 << 31, 1, 1], [1; 3], [0; 3]), "[2147483648, 1, 1] blocks"),
        (size([1; 3], [1, 1, 0], [0; 3]), "[1, 1, 0] threads per block"),
        (size([1; 3], [1, 1, 65], [0; 3]), "[1, 1, 65] threads per block"),
        (size([1; 3], [32, 33, 1], [0; 3]), "[32, 33, 1] threads per block"),
        (size([4, 1, 1], [1; 3], [2, 0, 0]), "[2, 0, 0] blocks per cluster"),
        (size([3, 1, 1], [1; 3], [2, 1, 1]), "[2, 1, 1] blocks per cluster"),
        (size([16, 1, 1], [1; 3], [16, 1, 1]), "[16, 1, 1] blocks per cluster"),
    ];
    for device in devices(&backend) {
        let stream = t.stream_default(device).unwrap();
        for (size, what) in &wrong {
            let error = t.launch_sized(stream, &add_one(), size, &[]).unwrap_err();
            assert_eq!(error.code(), Code::INVALID_ARGUMENT, "{error}");
            let text = format!("kernel 'add_one': the launch has {what}, expected ");
            assert!(error.message().starts_with(&text), "{error}");
        }
    }
    // The largest sizes pass the check on host devices, which ignore them.
    let stream = t.stream_default(Device::CPU).unwrap();
    let largest = size([i32::MAX as u32, 65535, 65535], [1024, 1, 1], [1, 1, 5]);
    let to = t.alloc(Device::CPU, 8).unwrap();
    t.launch_sized(stream, &sum(), &largest, &[range_arg(abi::ARG_WRITE, to.address, 8)]).unwrap();
    t.free(to);
}

#[test]
fn rejects_unknown_flags_and_reserved_fields() {
    let backend = backend();
    let account = backend.account("test");
    let t = table(&account);
    let stream = t.stream_default(Device::CPU).unwrap();
    let launch = |kernel: abi::Kernel, size: abi::Launch, args: &[abi::Arg]| {
        t.launch_sized(stream, &kernel, &size, args).unwrap_err()
    };
    let unknown = [
        launch(add_one(), abi::Launch { flags: 4, ..SIZE }, &[]),
        launch(abi::Kernel { flags: 4, ..add_one() }, SIZE, &[]),
        // SAFETY: the functions must reject the flags without accessing anything else.
        Error::check(|e| unsafe {
            let mut out = abi::Allocation::default();
            t.functions().alloc.unwrap()(t.raw(), Device::CPU, 1, 64, null_mut(), 4, &mut out, e)
        })
        .unwrap_err(),
        // SAFETY: as above.
        Error::check(|e| unsafe {
            t.functions().stream_create.unwrap()(t.raw(), Device::CPU, 0, 4, &mut null_mut(), e)
        })
        .unwrap_err(),
    ];
    for error in unknown {
        assert_eq!(error.code(), Code::UNSUPPORTED, "{error}");
        assert!(error.message().contains("flag bit 2 of 0x4 is unknown"), "{error}");
    }
    let reserved = [
        launch(add_one(), abi::Launch { reserved: 1, ..SIZE }, &[]),
        launch(abi::Kernel { reserved: 1, ..add_one() }, SIZE, &[]),
        launch(add_one(), SIZE, &[abi::Arg { reserved: 1, ..value_arg(1) }]),
        t.alloc(Device { reserved: 1, ..Device::CPU }, 1).map(drop).unwrap_err(),
    ];
    for error in reserved {
        assert_eq!(error.code(), Code::INVALID_ARGUMENT, "{error}");
        assert!(error.message().contains("a reserved field is 0x1, expected 0"), "{error}");
    }
    assert!(backend.leaks().is_empty());
}
