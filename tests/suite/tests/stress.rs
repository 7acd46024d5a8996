//! Runs eight threads on one host. The threads open and close sessions, cancel reads and
//! conversions at any time, end pipes early, drop batches on other threads, and drop hosts while
//! other hosts are in use. No thread may hang, and at the end nothing may have leaked.
//! `CROSSDOCK_STRESS` sets the number of rounds, and `CROSSDOCK_STRESS_SEED` the seed.
//!
//! The test needs a process of its own, because it aborts the process if no round ends for two
//! minutes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use crossdock::sink::{Output, VecSink};
use crossdock::source::{Input, PipeSource};
use crossdock::{Host, ReadOptions, Session};
use crossdock_arrays::DeviceBatch;
use crossdock_memory_backend::Backend;
use crossdock_plugin_api::{CancelFlag, Device, Options, Validate};
use crossdock_test_support::Random;
use crossdock_tests::stress::{Progress, setting};
use crossdock_tests::{built, sample};

const THREADS: u64 = 8;
const ROUNDS: u64 = 12;

fn host() -> Host {
    let backend = Backend::builder().untouchable(true).build();
    Host::builder().backend(backend).plugins(built()).threads(3).build().unwrap()
}

/// Sets the flag after an unpredictable time.
fn cancel_later(flag: CancelFlag, spins: u64) {
    std::thread::spawn(move || {
        (0..spins).for_each(|_| std::hint::spin_loop());
        flag.cancel();
    });
}

/// A pipe with the first `sent` bytes of the sample.
fn pipe(bytes: &Arc<Vec<u8>>, sent: usize, cancel: &CancelFlag) -> Input {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let bytes = bytes.clone();
    // The write fails if the reader is dropped early.
    std::thread::spawn(move || writer.write_all(&bytes[..sent]).is_ok());
    let file = File::from(OwnedFd::from(reader));
    Input::Pipe(Arc::new(PipeSource::new(file, "a pipe".into(), cancel.clone())))
}

fn round(
    host: &Host,
    bytes: &Arc<Vec<u8>>,
    dropped_batches: &Sender<Vec<DeviceBatch>>,
    c: &mut Random,
) -> bool {
    let temporary;
    // Some rounds use a host of their own, which is dropped at the end of the round.
    let host = if c.below(8) == 0 {
        temporary = self::host();
        &temporary
    } else {
        host
    };
    let cancel = CancelFlag::new();
    let device = if c.below(2) == 0 { Device::CPU } else { Device::UNTOUCHABLE };
    let validate = if c.below(2) == 0 { Validate::Full } else { Validate::Layout };
    let session =
        host.session().device(device).validate(validate).cancel_flag(cancel.clone()).open().unwrap();
    if c.below(2) == 0 {
        cancel_later(cancel.clone(), c.below(2_000_000) as u64);
    }
    let input = match c.below(4) {
        0 => Input::open(sample(), &cancel).unwrap(),
        1 => Input::bytes(bytes.to_vec()),
        2 => pipe(bytes, bytes.len(), &cancel),
        _ => pipe(bytes, c.below(bytes.len()), &cancel),
    };
    if c.below(2) == 0 { read(&session, input, dropped_batches, c) } else { convert(&session, input, c) }
}

fn read(session: &Session, input: Input, dropped_batches: &Sender<Vec<DeviceBatch>>, c: &mut Random) -> bool {
    let Ok(mut reader) = session.read(input, &ReadOptions::default()) else { return false };
    let (mut batches, mut is_complete) = (Vec::new(), false);
    // Some reads stop early.
    for _ in 0..c.below(12) {
        match reader.next() {
            Ok(Some(batch)) => batches.push(batch),
            end => {
                is_complete = end.is_ok();
                break;
            }
        }
    }
    match c.below(3) {
        0 => drop(reader),
        1 => drop(std::thread::spawn(move || drop(reader))),
        _ => {
            dropped_batches.send(std::mem::take(&mut batches)).unwrap();
            drop(reader);
        }
    }
    dropped_batches.send(batches).unwrap();
    is_complete
}

fn convert(session: &Session, input: Input, c: &mut Random) -> bool {
    let sink = VecSink::new();
    let compression = ["none", "lz4", "zstd"][c.below(3)];
    let to = ["arrow-ipc-file", "arrow-ipc-stream"][c.below(2)];
    let mut conversion = session.conversion().to(to);
    for via in ["arrow-c-device", "arrow-c-device-stream", "arrow-c-stream"] {
        if c.below(4) == 0 {
            conversion = conversion.via(via);
        }
    }
    let options = Options::new().with("compression", compression);
    conversion.write_options(options).run(input, Output::Memory(sink)).is_ok()
}

#[test]
fn concurrent_work_with_cancellation_neither_hangs_nor_leaks() {
    let (rounds, seed) = (setting("CROSSDOCK_STRESS", ROUNDS), setting("CROSSDOCK_STRESS_SEED", 1));
    let progress = Progress::start();
    let host = host();
    let bytes = Arc::new(std::fs::read(sample()).unwrap());
    let (dropped_batches, received) = channel::<Vec<DeviceBatch>>();
    let dropper =
        std::thread::spawn(move || received.into_iter().map(|batches| batches.len()).sum::<usize>());
    let worker = |thread: u64| {
        let (host, bytes, dropped_batches, progress) =
            (host.clone(), bytes.clone(), dropped_batches.clone(), progress.clone());
        std::thread::spawn(move || {
            let run_round = |number: u64| {
                let done = round(&host, &bytes, &dropped_batches, &mut Random::of(&[seed, thread, number]));
                progress.count_round();
                u64::from(done)
            };
            (0..rounds).map(run_round).sum::<u64>()
        })
    };
    let workers: Vec<_> = (0..THREADS).map(worker).collect();
    drop(dropped_batches);
    let completed: u64 = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
    assert!(dropper.join().unwrap() > 0);
    assert!(completed > 0 && completed < rounds * THREADS, "{completed} rounds were completed");
    // Waits until other threads have dropped their readers.
    while !host.settle().is_empty() {
        std::thread::sleep(Duration::from_millis(5));
    }
    progress.finish();
}
