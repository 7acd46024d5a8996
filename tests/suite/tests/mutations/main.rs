//! Reads Arrow IPC files with random changes, and writes the tables again in this process. No case
//! may crash, panic, hang, or use much more memory than the size of its input. The seed is fixed,
//! and the number of cases is bounded. `CROSSDOCK_MUTATIONS` sets the number of cases,
//! `CROSSDOCK_MUTATIONS_SEED` the seed, and `CROSSDOCK_MUTATIONS_FIRST` the first case. If neither
//! the first case nor the number is set, a sample (`CROSSDOCK_TEST_SAMPLE`) runs an eighth of the
//! cases. With AddressSanitizer, as in the step `asan`, an access out of bounds ends the run.
//!
//! The test needs a process of its own, because it replaces the allocator and the panic hook.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../../../plugins/arrow-ipc/tests/common/mod.rs"]
mod common;
mod heap;
mod mutate;
mod seeds;
mod watch;
mod work;

use std::sync::atomic::Ordering;

use crossdock_test_support::{replay, sample};
use crossdock_tests::stress::setting;
use mutate::Mutator;
use work::Fixture;

/// The default number of cases.
const CASES: u64 = 2_500;
/// The bytes that a case may use in addition to ten times the size of its input, for constant
/// buffers of the plugin and for threads.
const FIXED_BYTES: usize = 64 << 20;

/// The cases of this run.
fn cases() -> std::ops::Range<u64> {
    let (from, count) = ("CROSSDOCK_MUTATIONS_FIRST", "CROSSDOCK_MUTATIONS");
    if [from, count].iter().all(|name| std::env::var_os(name).is_none()) {
        return sample::range(CASES, 8);
    }
    let first = setting(from, 0);
    first..first + setting(count, CASES)
}

#[test]
fn mutated_inputs_never_crash_panic_hang_or_exhaust_memory() {
    let _replay = replay::on_failure();
    let panics = watch::count_panics();
    let seeds = seeds::all();
    let seed = setting("CROSSDOCK_MUTATIONS_SEED", 7);
    let cases = cases();
    let watch = watch::Watch::start();
    let (mut read, mut max_ratio, mut failures) = (0, 0.0, Vec::new());
    for case in cases.clone() {
        let mut mutator = Mutator::for_case(seed, case);
        let (name, whole) = mutator.pick(&seeds);
        let bytes = mutator.changed(whole, &seeds);
        watch.begin(case, name);
        let fixture = Fixture::new();
        heap::restart();
        read += u64::from(fixture.case(&bytes, &mut mutator));
        let peak = heap::peak_bytes() + fixture.peak_bytes();
        watch.end();
        let allowed = bytes.len() * 10 + FIXED_BYTES;
        max_ratio = f64::max(max_ratio, peak as f64 / allowed as f64);
        if peak > allowed {
            failures
                .push(format!("case {case} ({name}): {peak} bytes of memory for {} of input", bytes.len()));
        }
        if panics.swap(0, Ordering::Relaxed) > 0 {
            failures.push(format!("case {case} ({name}): it panicked"));
        }
        failures.extend(fixture.leaks().map(|leak| format!("case {case} ({name}): {leak}")));
    }
    let count = cases.end - cases.start;
    println!(
        "{count} cases from {}, {read} were read, at most {max_ratio:.2} of the allowed memory, {}",
        cases.start,
        watch.slowest()
    );
    assert!(failures.is_empty(), "seed {seed}: {}", failures.join("; "));
    assert!(
        read > count / 50 && read < count,
        "expected between 2% and 100% to be read, got {read} of {count}"
    );
}
