//! The simulator's own functions, for tests in the same process.
#![allow(clippy::missing_safety_doc)] // their pointers are C strings, or null

use std::ffi::{CStr, c_char, c_int};

use crate::codes::{INVALID_HANDLE, SUCCESS};
use crate::door::{config, with};
use crate::random::Random;
use crate::{fault, leaks};

/// Makes the `nth` call of `name` from now fail with `code`, whichever number that is; every call, where `nth` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crossdock_sim_cuda_fail(name: *const c_char, code: c_int, nth: u64) {
    // SAFETY: the caller gives a C string, or null.
    if let Some(name) = unsafe { text(name) } {
        fault::add(name, code, nth, &config().fail);
    }
}

/// How often `name` was called since the process or the last reset began.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crossdock_sim_cuda_calls(name: *const c_char) -> u64 {
    // SAFETY: the caller gives a C string, or null.
    unsafe { text(name) }.map_or(0, |name| fault::calls(&name))
}

/// Forgets how often everything was called, and what was still to fail.
#[unsafe(no_mangle)]
pub extern "C" fn crossdock_sim_cuda_reset_counts() {
    fault::reset();
}

/// Begins another order of things.
#[unsafe(no_mangle)]
pub extern "C" fn crossdock_sim_cuda_seed(seed: u64) {
    with(|sim| {
        sim.random = Random::new(seed);
        sim.seed = seed;
    });
}

/// How many violations there were.
#[unsafe(no_mangle)]
pub extern "C" fn crossdock_sim_cuda_violations() -> u64 {
    with(|sim| sim.findings.count)
}

/// What the last violation was: "read after write"; null before the first. The text lives for ever.
#[unsafe(no_mangle)]
pub extern "C" fn crossdock_sim_cuda_last_violation() -> *const c_char {
    with(|sim| sim.findings.last.map_or(std::ptr::null(), |last| last.name().as_ptr()))
}

/// What a violation does after it was reported: 0 ends the process, as from the start; 1 is counted only.
#[unsafe(no_mangle)]
pub extern "C" fn crossdock_sim_cuda_on_violation(mode: c_int) {
    with(|sim| sim.findings.only_count = mode != 0);
}

/// How many blocks are allocated, pinned or registered, and not being freed.
#[unsafe(no_mangle)]
pub extern "C" fn crossdock_sim_cuda_live_blocks() -> u64 {
    with(|sim| sim.blocks.values().filter(|block| leaks::counts(sim, block)).count() as u64)
}

/// Holds a stream up, or lets it go with 0: what it was given, and what waits for that, is not ready for anybody who asks,
/// and runs only for those who wait. 0, or 400 for a handle that is no stream.
#[unsafe(no_mangle)]
pub extern "C" fn crossdock_sim_cuda_hold(stream: usize, held: c_int) -> c_int {
    with(|sim| match sim.stream_slots.get(&stream).copied() {
        Some(slot) => {
            sim.streams[slot].held = held != 0;
            SUCCESS
        }
        None => INVALID_HANDLE,
    })
}

/// # Safety
/// `name` is null, or a C string.
unsafe fn text(name: *const c_char) -> Option<String> {
    // SAFETY: by this function's own contract.
    (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
}
