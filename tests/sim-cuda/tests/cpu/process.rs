//! Tests effects on a whole process: faults, leaks, and configuration by environment variables.

use std::os::unix::process::ExitStatusExt;

use crate::common::*;

#[test]
fn host_access_of_device_memory_faults() {
    let case = "process::host_access_of_device_memory_faults";
    if is_child(case) {
        Gpu::start();
        let block = alloc(64, stream());
        assert_eq!(block % 512, 0);
        assert!(block < 1 << 47);
        println!("faulting");
        // SAFETY: none: the address is invalid on purpose, so that this child process faults.
        println!("got {}", unsafe { std::ptr::read_volatile(block as *const u8) });
        return;
    }
    let (output, text) = in_child(case, &[]);
    assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{text}");
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(stdout.contains("faulting") && !stdout.contains("got"), "{stdout}");
}

#[test]
fn host_access_of_freed_pinned_memory_faults() {
    let case = "process::host_access_of_freed_pinned_memory_faults";
    if is_child(case) {
        Gpu::start();
        let host = pinned(64);
        ok!(cuMemFreeHost(host));
        // SAFETY: none: the memory is freed on purpose, so that this child process faults.
        println!("got {}", unsafe { std::ptr::read_volatile(host) });
        return;
    }
    let (output, text) = in_child(case, &[]);
    assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{text}");
}

#[inline(never)]
fn leak_two_blocks() {
    let home = stream();
    for _ in 0..2 {
        alloc(1000, home);
    }
    let freed = alloc(50, home);
    free(freed, home);
}

#[test]
fn leaks_are_reported_at_exit_unless_ignored() {
    let case = "process::leaks_are_reported_at_exit_unless_ignored";
    if is_child(case) {
        Gpu::start();
        leak_two_blocks();
        pinned(64);
        return;
    }
    let (output, text) = in_child(case, &[]);
    assert_eq!(output.status.code(), Some(86), "{text}");
    let leaks: Vec<&str> = text.lines().filter(|line| line.contains("leak: ")).collect();
    assert_eq!(leaks.len(), 2, "{text}");
    assert!(leaks[0].contains("2000 bytes of device memory in 2 blocks, from cuMemAllocAsync"), "{text}");
    assert!(leaks[0].contains("leak_two_blocks"), "{text}");
    assert!(leaks[1].contains("64 bytes of pinned memory in 1 blocks, from cuMemHostAlloc"), "{text}");
    let (output, text) = in_child(case, &[("CROSSDOCK_SIM_CUDA_LEAKS", "ignore")]);
    assert!(output.status.success() && !text.contains("leak: "), "{text}");
}

#[test]
fn environment_variable_makes_the_nth_driver_call_fail_with_any_code() {
    let case = "process::environment_variable_makes_the_nth_driver_call_fail_with_any_code";
    if is_child(case) {
        Gpu::start();
        let (mut stream, mut event) = (0, 0);
        let codes = [(); 3].map(|()| code!(cuStreamCreate(&mut stream, 1)));
        assert_eq!(codes, [0, 4242, 0]);
        assert_eq!(code!(cuEventCreate(&mut event, 2)), -7);
        ok!(cuEventCreate(&mut event, 2));
        let mut name = std::ptr::dangling();
        assert_eq!((code!(cuGetErrorName(4242, &mut name)), name.is_null()), (1, true));
        return;
    }
    let fail = "cuStreamCreate:4242:2,cuEventCreate:-7:1";
    let (output, text) =
        in_child(case, &[("CROSSDOCK_SIM_CUDA_FAIL", fail), ("CROSSDOCK_SIM_CUDA_TRACE", "1")]);
    assert!(output.status.success(), "{text}");
    for line in ["cuInit = 0", "cuStreamCreate = 4242", "cuEventCreate = -7"] {
        assert!(text.lines().any(|l| l == format!("crossdock-sim-cuda: {line}")), "{line}: {text}");
    }
}

#[test]
fn control_functions_inject_failures_and_count_calls() {
    let _gpu = Gpu::get();
    crossdock_sim_cuda_reset_counts();
    let mut event = 0;
    fail("cuEventCreate", 2, 2);
    let codes = [(); 3].map(|()| code!(cuEventCreate(&mut event, 2)));
    assert_eq!((codes, calls("cuEventCreate"), calls("cuEventQuery")), ([0, 2, 0], 3, 0));
    fail("cuEventCreate", 719, 0);
    let codes = [(); 2].map(|()| code!(cuEventCreate(&mut event, 2)));
    assert_eq!(codes, [719, 719]);
    crossdock_sim_cuda_reset_counts();
    ok!(cuEventCreate(&mut event, 2));
    assert_eq!(calls("cuEventCreate"), 1);
}

#[test]
fn environment_configures_the_driver() {
    let case = "process::environment_configures_the_driver";
    if is_child(case) {
        let (mut version, mut count, mut can, mut major, mut minor, mut bytes) = (0, 0, 0, 0, 0, 0);
        assert_eq!(code!(cuDeviceGetCount(&mut count)), 3, "before cuInit");
        Gpu::start();
        ok!(cuDriverGetVersion(&mut version));
        ok!(cuDeviceGetCount(&mut count));
        ok!(cuDeviceCanAccessPeer(&mut can, 0, 1));
        ok!(cuDeviceGetAttribute(&mut major, 75, 2));
        ok!(cuDeviceGetAttribute(&mut minor, 76, 2));
        ok!(cuDeviceTotalMem_v2(&mut bytes, 2));
        assert_eq!((version, count, can, major, minor, bytes), (13010, 3, 1, 10, 3, 1 << 20));
        assert_eq!(code!(cuDeviceTotalMem_v2(&mut bytes, 3)), 101);
        return;
    }
    let variables =
        [("VERSION", "13010"), ("DEVICES", "3"), ("PEER", "1"), ("CAPABILITY", "103"), ("MEMORY", "1048576")]
            .map(|(name, value)| (format!("CROSSDOCK_SIM_CUDA_{name}"), value));
    let variables: Vec<_> = variables.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    let (output, text) = in_child(case, &variables);
    assert!(output.status.success(), "{text}");
}

#[test]
fn init_without_devices_returns_no_device() {
    let case = "process::init_without_devices_returns_no_device";
    if is_child(case) {
        assert_eq!(code!(cuInit(0)), 100);
        return;
    }
    let (output, text) = in_child(case, &[("CROSSDOCK_SIM_CUDA_DEVICES", "0")]);
    assert!(output.status.success(), "{text}");
}
