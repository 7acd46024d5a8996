//! Tests programs with several devices or several threads.

use crate::common::*;
use crossdock_plugin_api::abi::{ARG_READ, Arg, Code};

const BYTES: usize = 512;

fn enter(device: i32) {
    let mut context = 0;
    ok!(cuDevicePrimaryCtxRetain(&mut context, device));
    ok!(cuCtxSetCurrent(context));
}

unsafe extern "C" fn nothing(_: *const Arg, _: usize) -> Code {
    0
}

/// Creates a memory pool on a device.
fn pool_on(device: i32) -> Handle {
    let mut props = [0i32; 22];
    (props[0], props[2], props[3]) = (1, 1, device);
    let mut pool = 0;
    ok!(cuMemPoolCreate(&mut pool, props.as_ptr().cast()));
    pool
}

/// In the child process of the test `case`, runs a kernel on device 1 that reads memory from a pool
/// of device 0. Returns the code of cuMemPoolSetAccess (-1 if `shares` is false) and the code of
/// the kernel. In any other process, returns `None`.
fn reach(case: &str, shares: bool) -> Option<(i32, i32)> {
    if !is_child(case) {
        return None;
    }
    let _gpu = Gpu::get();
    let (owner, pool) = (stream(), pool_on(0));
    let mut block = 0;
    ok!(cuMemAllocFromPoolAsync(&mut block, BYTES, pool, owner));
    sync(owner);
    // Location type 1, device 1, access flags 3: device 1 may read and write.
    let access = [1i32, 1, 3];
    let access_code = match shares {
        true => code!(cuMemPoolSetAccess(pool, access.as_ptr().cast(), 1)),
        false => -1,
    };
    enter(1);
    let (reader, kernel) = (stream(), function("kernel"));
    let params = Params::new(Some(nothing), &[(block, BYTES as u64, ARG_READ)]);
    assert_eq!(params.launch(kernel, reader), 0);
    let kernel_code = code!(cuStreamSynchronize(reader));
    enter(0);
    free(block, owner);
    Some((access_code, kernel_code))
}

const TWO: (&str, &str) = ("CROSSDOCK_SIM_CUDA_DEVICES", "2");
const PEERS: (&str, &str) = ("CROSSDOCK_SIM_CUDA_PEER", "1");

fn passes(case: &str, variables: &[(&str, &str)]) -> String {
    let (output, text) = in_child(case, variables);
    assert!(output.status.success(), "{text}");
    text
}

#[test]
fn kernel_with_permission_can_access_the_pool_of_a_peer_device() {
    let case = "devices::kernel_with_permission_can_access_the_pool_of_a_peer_device";
    match reach(case, true) {
        Some(codes) => assert_eq!(codes, (0, 0)),
        None => drop(passes(case, &[TWO, PEERS])),
    }
}

#[test]
fn reports_kernel_that_accesses_a_pool_of_another_device_without_permission() {
    let case = "devices::reports_kernel_that_accesses_a_pool_of_another_device_without_permission";
    match reach(case, false) {
        Some(codes) => assert_eq!(codes, (-1, 700)),
        None => assert!(passes(case, &[TWO, PEERS]).contains("not reachable")),
    }
}

#[test]
fn devices_that_are_not_peers_cannot_share_a_pool() {
    let case = "devices::devices_that_are_not_peers_cannot_share_a_pool";
    match reach(case, true) {
        Some(codes) => assert_eq!(codes, (217, 700)),
        None => drop(passes(case, &[TWO])),
    }
}

#[test]
fn events_order_copies_between_devices() {
    let case = "devices::events_order_copies_between_devices";
    if !is_child(case) {
        passes(case, &[TWO]);
        return;
    }
    let gpu = Gpu::get();
    let (first, event) = (stream(), event());
    let from = alloc(BYTES, first);
    fill(from, 5, BYTES, first);
    ok!(cuEventRecord(event, first));
    enter(1);
    let second = stream();
    let to = alloc(BYTES, second);
    ok!(cuStreamWaitEvent(second, event, 0));
    copy(to, from, BYTES, second);
    assert_eq!(read(to, BYTES, second), [5; BYTES]);
    assert_eq!(code!(cuEventRecord(event, second)), 400, "the event belongs to the other device");
    free(to, second);
    free(from, first);
    assert_eq!(gpu.violations(), 0);
    ok!(cuEventDestroy_v2(event));
}

#[test]
fn thread_local_destructors_can_call_the_driver() {
    struct AtTheEnd(Handle, u64);
    impl Drop for AtTheEnd {
        fn drop(&mut self) {
            free(self.1, self.0);
            ok!(cuCtxSynchronize());
        }
    }
    thread_local! {
        static LAST: std::cell::RefCell<Option<AtTheEnd>> = const { std::cell::RefCell::new(None) };
    }
    let _gpu = Gpu::get();
    let before = crossdock_sim_cuda_live_blocks();
    let thread = std::thread::spawn(|| {
        LAST.with(|last| {
            enter(0);
            let home = stream();
            *last.borrow_mut() = Some(AtTheEnd(home, alloc(BYTES, home)));
        });
    });
    assert!(thread.join().is_ok());
    assert_eq!(crossdock_sim_cuda_live_blocks(), before);
}

#[test]
fn threads_with_their_own_streams_do_not_interfere() {
    let gpu = Gpu::get();
    let mut context = 0;
    ok!(cuCtxGetCurrent(&mut context));
    let work = |value: u8| {
        ok!(cuCtxSetCurrent(context));
        let (home, other) = (stream(), stream());
        for round in 0..100u8 {
            let (from, to) = (alloc(BYTES, home), alloc(BYTES, other));
            let value = value.wrapping_mul(31).wrapping_add(round);
            fill(from, value, BYTES, home);
            order(home, other);
            copy(to, from, BYTES, other);
            assert_eq!(read(to, BYTES, other), [value; BYTES]);
            free(from, home);
            free(to, other);
        }
        ok!(cuStreamDestroy_v2(home));
        ok!(cuStreamDestroy_v2(other));
    };
    std::thread::scope(|scope| (0..4).for_each(|value| drop(scope.spawn(move || work(value)))));
    assert_eq!(gpu.violations(), 0);
}
