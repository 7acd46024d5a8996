//! Arrow IPC with bytes changed at random, read and written again in process: nothing crashes, panics, hangs or takes
//! much more memory than it was given bytes. A fixed seed and a bounded number of cases; `CROSSDOCK_MUTATIONS` asks for
//! more cases, `CROSSDOCK_MUTATIONS_SEED` for others, `CROSSDOCK_MUTATIONS_FIRST` begins at a later case; where none of the
//! first and the last is given, a sample (`CROSSDOCK_TEST_SAMPLE`) has an eighth of the cases. Under AddressSanitizer, which
//! the step `asan` runs it with, an access out of bounds ends the run.
//!
//! It needs a process of its own: its allocator and its panic hook are the whole process's.
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
use work::Bench;

/// Cases that everybody runs.
const CASES: u64 = 2_500;
/// What reading may take besides ten times the input: the plugin's constant room, and threads.
const ROOM_BYTES: usize = 64 << 20;

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
fn changed_bytes_never_crash_panic_hang_or_take_much_memory() {
    let _replay = replay::on_failure();
    let panics = watch::count_panics();
    let seeds = seeds::all();
    let seed = setting("CROSSDOCK_MUTATIONS_SEED", 7);
    let cases = cases();
    let watch = watch::Watch::start();
    let (mut read, mut most, mut failures) = (0, 0.0, Vec::new());
    for case in cases.clone() {
        let mut mutator = Mutator::of_case(seed, case);
        let (name, whole) = mutator.pick(&seeds);
        let bytes = mutator.changed(whole, &seeds);
        watch.begin(case, name);
        let bench = Bench::new();
        heap::restart();
        read += u64::from(bench.case(&bytes, &mut mutator));
        let peak = heap::peak_bytes() + bench.peak_bytes();
        watch.end();
        let allowed = bytes.len() * 10 + ROOM_BYTES;
        most = f64::max(most, peak as f64 / allowed as f64);
        if peak > allowed {
            failures
                .push(format!("case {case} ({name}): {peak} bytes of memory for {} of input", bytes.len()));
        }
        if panics.swap(0, Ordering::Relaxed) > 0 {
            failures.push(format!("case {case} ({name}): it panicked"));
        }
        failures.extend(bench.leaks().map(|leak| format!("case {case} ({name}): {leak}")));
    }
    let count = cases.end - cases.start;
    println!(
        "{count} cases from {}, {read} still read, at most {most:.2} of the allowed memory, {}",
        cases.start,
        watch.slowest()
    );
    assert!(failures.is_empty(), "seed {seed}: {}", failures.join("; "));
    assert!(read > count / 50 && read < count, "changes of every kind: {read} of {count} inputs were read");
}
