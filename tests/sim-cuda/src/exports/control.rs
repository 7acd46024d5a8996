//! Functions with which a test controls the simulator in its own process.
#![allow(clippy::missing_safety_doc)] // pointers are null or C strings

use std::ffi::{CStr, c_char, c_int};

use crate::codes::{INVALID_HANDLE, SUCCESS};
use crate::door::{config, with};
use crate::random::Random;
use crate::{fault, leaks};

/// Injects a failure: the `nth` call of `name` from now returns `code`, which may be any number. If
/// `nth` is 0, every call of `name` returns `code`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crossdock_sim_cuda_fail(name: *const c_char, code: c_int, nth: u64) {
    // SAFETY: the caller passes null or a C string.
    if let Some(name) = unsafe { text(name) } {
        fault::add(name, code, nth, &config().fail);
    }
}

/// The number of calls of `name` since the last reset of the counts or, without a reset, since the
/// start of the process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crossdock_sim_cuda_calls(name: *const c_char) -> u64 {
    // SAFETY: the caller passes null or a C string.
    unsafe { text(name) }.map_or(0, |name| fault::calls(&name))
}

/// Resets the counts of calls, and removes all failures that have not been injected yet.
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

/// The number of violations since the start of the process.
#[unsafe(no_mangle)]
pub extern "C" fn crossdock_sim_cuda_violations() -> u64 {
    with(|sim| sim.findings.count)
}

/// The kind of the last violation, such as "read after write", as a static string. Null if there
/// was no violation.
#[unsafe(no_mangle)]
pub extern "C" fn crossdock_sim_cuda_last_violation() -> *const c_char {
    with(|sim| sim.findings.last.map_or(std::ptr::null(), |last| last.name().as_ptr()))
}

/// Sets what happens when a violation is reported. In mode 0, the default, the process ends. In
/// mode 1, the violation is only counted.
#[unsafe(no_mangle)]
pub extern "C" fn crossdock_sim_cuda_on_violation(mode: c_int) {
    with(|sim| sim.findings.only_count = mode != 0);
}

/// The number of allocated, pinned or registered blocks for which no free is queued. Blocks of a
/// broken device are not counted.
#[unsafe(no_mangle)]
pub extern "C" fn crossdock_sim_cuda_live_blocks() -> u64 {
    with(|sim| sim.blocks.values().filter(|block| leaks::counts(sim, block)).count() as u64)
}

/// Holds a stream, or ends the hold if `held` is 0. Only synchronizations run the work of a held
/// stream. Queries of this work, and of work that waits for it, return "not ready". Returns 0, or
/// 400 if the handle is not a stream.
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
