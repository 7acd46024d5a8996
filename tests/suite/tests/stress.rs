//! Eight threads on one host: sessions opened and closed, reads and conversions cancelled at any moment, pipes that end
//! early, batches that die on other threads, hosts that end while others work. At the end nothing is alive, nothing
//! hangs. `CROSSDOCK_STRESS` asks for more rounds, `CROSSDOCK_STRESS_SEED` for others.
//!
//! It needs a process of its own: it ends the process when nothing moves for two minutes.
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

/// Sets the flag after a moment that nobody knows.
fn cancel_some_time(flag: CancelFlag, spins: u64) {
    std::thread::spawn(move || {
        (0..spins).for_each(|_| std::hint::spin_loop());
        flag.cancel();
    });
}

/// The sample's bytes through a pipe, of which the last ones may never come.
fn pipe(bytes: &Arc<Vec<u8>>, sent: usize, cancel: &CancelFlag) -> Input {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let bytes = bytes.clone();
    // It fails when nobody reads on, which is one of the cases.
    std::thread::spawn(move || writer.write_all(&bytes[..sent]).is_ok());
    let file = File::from(OwnedFd::from(reader));
    Input::Pipe(Arc::new(PipeSource::new(file, "a pipe".into(), cancel.clone())))
}

fn round(host: &Host, bytes: &Arc<Vec<u8>>, graves: &Sender<Vec<DeviceBatch>>, c: &mut Random) -> bool {
    let own;
    // Some bring a host of their own, which ends with the round.
    let host = if c.below(8) == 0 {
        own = self::host();
        &own
    } else {
        host
    };
    let cancel = CancelFlag::new();
    let device = if c.below(2) == 0 { Device::CPU } else { Device::UNTOUCHABLE };
    let validate = if c.below(2) == 0 { Validate::Full } else { Validate::Layout };
    let session =
        host.session().device(device).validate(validate).cancel_flag(cancel.clone()).open().unwrap();
    if c.below(2) == 0 {
        cancel_some_time(cancel.clone(), c.below(2_000_000) as u64);
    }
    let input = match c.below(4) {
        0 => Input::open(sample(), &cancel).unwrap(),
        1 => Input::bytes(bytes.to_vec()),
        2 => pipe(bytes, bytes.len(), &cancel),
        _ => pipe(bytes, c.below(bytes.len()), &cancel),
    };
    if c.below(2) == 0 { read(&session, input, graves, c) } else { convert(&session, input, c) }
}

fn read(session: &Session, input: Input, graves: &Sender<Vec<DeviceBatch>>, c: &mut Random) -> bool {
    let Ok(mut reader) = session.read(input, &ReadOptions::default()) else { return false };
    let (mut batches, mut whole) = (Vec::new(), false);
    // Some leave off in the middle.
    for _ in 0..c.below(12) {
        match reader.next() {
            Ok(Some(batch)) => batches.push(batch),
            end => {
                whole = end.is_ok();
                break;
            }
        }
    }
    match c.below(3) {
        0 => drop(reader),
        1 => drop(std::thread::spawn(move || drop(reader))),
        _ => {
            graves.send(std::mem::take(&mut batches)).unwrap();
            drop(reader);
        }
    }
    graves.send(batches).unwrap();
    whole
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
fn nothing_hangs_and_nothing_is_left_whoever_cancels_and_wherever_things_die() {
    let (rounds, seed) = (setting("CROSSDOCK_STRESS", ROUNDS), setting("CROSSDOCK_STRESS_SEED", 1));
    let progress = Progress::watched();
    let host = host();
    let bytes = Arc::new(std::fs::read(sample()).unwrap());
    let (graves, buried) = channel::<Vec<DeviceBatch>>();
    let digger = std::thread::spawn(move || buried.into_iter().map(|batches| batches.len()).sum::<usize>());
    let worker = |thread: u64| {
        let (host, bytes, graves, progress) = (host.clone(), bytes.clone(), graves.clone(), progress.clone());
        std::thread::spawn(move || {
            let one = |n: u64| {
                let done = round(&host, &bytes, &graves, &mut Random::of(&[seed, thread, n]));
                progress.one_more();
                u64::from(done)
            };
            (0..rounds).map(one).sum::<u64>()
        })
    };
    let workers: Vec<_> = (0..THREADS).map(worker).collect();
    drop(graves);
    let whole: u64 = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
    assert!(digger.join().unwrap() > 0);
    assert!(whole > 0 && whole < rounds * THREADS, "{whole} rounds came to their end");
    // A reader that was dropped on a thread of its own may still be on its way out.
    while !host.settle().is_empty() {
        std::thread::sleep(Duration::from_millis(5));
    }
    progress.is_over();
}
