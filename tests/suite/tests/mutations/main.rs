//! Arrow IPC with bytes changed at random, read and written again in process: nothing crashes, panics, hangs or takes
//! much more memory than it was given bytes. A fixed seed and a bounded number of cases; `CROSSDOCK_MUTATIONS` asks for
//! more cases, `CROSSDOCK_MUTATIONS_SEED` for others, `CROSSDOCK_MUTATIONS_FIRST` begins at a later case. Under
//! AddressSanitizer, which the step `asan` runs it with, an access out of bounds ends the run.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../../../plugins/arrow-ipc/tests/common/mod.rs"]
mod common;
mod heap;
mod mutate;
mod seeds;
mod watch;
mod work;

use std::sync::atomic::Ordering;

use mutate::Mutator;
use work::Bench;

/// Cases that everybody runs.
const CASES: u64 = 2_500;
/// What reading may take besides ten times the input: the plugin's constant room, and threads.
const ROOM_BYTES: usize = 64 << 20;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn changed_bytes_never_crash_panic_hang_or_take_much_memory() {
    let panics = watch::count_panics();
    let seeds = seeds::all();
    let (seed, first) = (setting("CROSSDOCK_MUTATIONS_SEED", 7), setting("CROSSDOCK_MUTATIONS_FIRST", 0));
    let cases = setting("CROSSDOCK_MUTATIONS", CASES);
    let watch = watch::Watch::start();
    let (mut read, mut most, mut failures) = (0, 0.0, Vec::new());
    for case in first..first + cases {
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
    println!(
        "{cases} cases, {read} still read, at most {most:.2} of the allowed memory, {}",
        watch.slowest()
    );
    assert!(failures.is_empty(), "seed {seed}: {}", failures.join("; "));
    assert!(read > cases / 50 && read < cases, "changes of every kind: {read} of {cases} inputs were read");
}
