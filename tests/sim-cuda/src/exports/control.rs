//! The functions with which tests in the same process control the simulator.
#![allow(clippy::missing_safety_doc)] // pointers are null or C strings

use std::ffi::{CStr, c_char, c_int};

use crate::codes::{INVALID_HANDLE, SUCCESS};
use crate::door::{config, with};
use crate::random::Random;
use crate::{fault, leaks};

/// Makes the `nth` call of `name` from now fail with `code`, which may be any number; every call if
/// `nth` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crossdock_sim_cuda_fail(name: *const c_char, code: c_int, nth: u64) {
    // SAFETY: the caller passes null or a C string.
    if let Some(name) = unsafe { text(name) } {
        fault::add(name, code, nth, &config().fail);
    }
}

/// The number of calls of `name` since the last reset, or the start of the process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crossdock_sim_cuda_calls(name: *const c_char) -> u64 {
    // SAFETY: the caller passes null or a C string.
    unsafe { text(name) }.map_or(0, |name| fault::calls(&name))
}

/// Clears the counts of calls and the failures that have not occurred yet.
#[unsafe(no_mangle)]
pub extern "C" fn crossdock_sim_cuda_reset_counts() {
    fault::reset();
}

/// Sets the seed, which determines the order of work.
#[unsafe(no_mangle)]
pub extern "C" fn crossdock_sim_cuda_seed(seed: u64) {
    with(|sim| {
        sim.random = Random::new(seed);
        sim.seed = seed;
    });
}

/// The number of violations.
#[unsafe(no_mangle)]
pub extern "C" fn crossdock_sim_cuda_violations() -> u64 {
    with(|sim| sim.findings.count)
}

/// The kind of the last violation, such as "read after write"; null before the first. The text is
/// static.
#[unsafe(no_mangle)]
pub extern "C" fn crossdock_sim_cuda_last_violation() -> *const c_char {
    with(|sim| sim.findings.last.map_or(std::ptr::null(), |last| last.name().as_ptr()))
}

/// Sets what happens after the report of a violation: 0, the default, ends the process; 1 only
/// counts it.
#[unsafe(no_mangle)]
pub extern "C" fn crossdock_sim_cuda_on_violation(mode: c_int) {
    with(|sim| sim.findings.only_count = mode != 0);
}

/// The number of blocks that are allocated, pinned or registered, without a queued free.
#[unsafe(no_mangle)]
pub extern "C" fn crossdock_sim_cuda_live_blocks() -> u64 {
    with(|sim| sim.blocks.values().filter(|block| leaks::counts(sim, block)).count() as u64)
}

/// Holds a stream, or releases it if `held` is 0. Queries of a held stream's work, and of work that
/// waits for it, return "not ready"; only synchronizations run it. Returns 0, or 400 if the handle
/// is not a stream.
#[unsafe(no_mangle)]
pub extern "C" fn crossdock_sim_cuda_hold(stream: usize, held: c_int) -> c_int {
    with(|sim| match sim.stream_slots.get(&stream).copied() {
        Some(slot) => {
            sim.streams[slot].is_held = held != 0;
            SUCCESS
        }
        None => INVALID_HANDLE,
    })
}

/// # Safety
/// `name` is null or a C string.
unsafe fn text(name: *const c_char) -> Option<String> {
    // SAFETY: `name` is not null, so it is a C string by this function's contract.
    (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
}
