//! Every failure at its n-th occurrence, in a conversion through each plugin: an error with words, nothing held, no file,
//! and the next conversion works. At some occurrences; at each with `CROSSDOCK_FAULTS=all`.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossdock::Session;
use crossdock::convert::Conversion;
use crossdock::sink::{Output, VecSink};
use crossdock::source::Input;
use crossdock_memory_backend::Faults;
use crossdock_plugin_api::{ByteSink, ByteSource, CancelFlag, Device, Error, Options, Result};
use crossdock_test_support::replay;
use crossdock_tests::failing::{OPERATIONS, each_failure, host, session, settled, words};
use crossdock_tests::{assert_nothing_left, faults, sample, sample_tree};

/// A way through the plugins, and the devices that it works on.
struct Route {
    name: &'static str,
    ending: &'static str,
    vias: &'static [&'static str],
    columns: &'static [&'static str],
    compression: Option<&'static str>,
    on_any_device: bool,
    from: Given,
}

/// What the sample is read as.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Given {
    Ipc,
    Csv,
    /// Another sample.
    Encodings,
}

const NUMBERS: &[&str] = &["year", "dep_delay", "distance", "cancelled", "speed_mph"];
const ROUTE: Route = Route {
    name: "",
    ending: "arrows",
    vias: &[],
    columns: &[],
    compression: None,
    on_any_device: true,
    from: Given::Ipc,
};
const ROUTES: [Route; 9] = [
    Route { name: "arrow-ipc", ending: "arrow", compression: Some("lz4"), ..ROUTE },
    Route { name: "arrow-c-device", vias: &["arrow-c-device", "arrow-c-device-stream"], ..ROUTE },
    Route { name: "arrow-c-data", vias: &["arrow-c-data", "arrow-c-stream"], on_any_device: false, ..ROUTE },
    Route { name: "dlpack", vias: &["dlpack"], columns: NUMBERS, ..ROUTE },
    Route { name: "dlpack-legacy", vias: &["dlpack-legacy"], columns: NUMBERS, ..ROUTE },
    Route { name: "csv, written", ending: "csv", columns: NUMBERS, on_any_device: false, ..ROUTE },
    Route { name: "csv, read", from: Given::Csv, on_any_device: false, ..ROUTE },
    Route { name: "encodings", from: Given::Encodings, ..ROUTE },
    // The column of a tree is the only one, and without a name, which comes back so.
    Route { name: "encoded-array", vias: &["encoded-array"], from: Given::Encodings, ..ROUTE },
];

/// Those that a test takes in this run.
fn routes(test: &str) -> impl Iterator<Item = Route> {
    let part = faults::part(test, ROUTES.len(), 3);
    ROUTES.into_iter().enumerate().filter(move |(i, _)| part.contains(i)).map(|(_, route)| route)
}

impl Route {
    fn conversion(&self, session: &Session) -> Conversion {
        let mut conversion = session.conversion().nulls("mask");
        for via in self.vias {
            conversion = conversion.via(*via);
        }
        if !self.columns.is_empty() {
            conversion = conversion.columns(self.columns.iter().map(|name| name.to_string()).collect());
        }
        if let Some(codec) = self.compression {
            conversion = conversion.write_options(Options::new().with("compression", codec));
        }
        conversion
    }

    /// What it reads: the sample, as it is or as CSV, or an encoded one.
    fn input(&self, folder: &Path) -> std::path::PathBuf {
        let path = match self.from {
            Given::Ipc => return sample(),
            Given::Csv => folder.join("sample.csv"),
            Given::Encodings => {
                let path = folder.join("sample.cdenc");
                std::fs::write(&path, sample_tree()).unwrap();
                return path;
            }
        };
        if !path.exists() {
            let host = host(Faults::new());
            let session = session(&host, Device::CPU, &CancelFlag::new());
            let (input, output) =
                (Input::open(sample(), session.cancel_flag()), Output::create(&path, session.cancel_flag()));
            let conversion =
                session.conversion().columns(NUMBERS.iter().map(|name| name.to_string()).collect());
            conversion.run(input.unwrap(), output.unwrap()).unwrap();
        }
        path
    }

    fn devices(&self) -> &'static [Device] {
        if self.on_any_device { &[Device::CPU, Device::UNTOUCHABLE] } else { &[Device::CPU] }
    }
}

fn chosen(occurrences: u64) -> BTreeSet<u64> {
    faults::chosen(occurrences, 12, 8)
}

#[test]
fn memory_copies_and_kernels_that_fail() {
    let _replay = replay::on_failure();
    let folder = tempfile::tempdir().unwrap();
    for route in routes("memory_copies_and_kernels_that_fail") {
        let input = route.input(folder.path());
        for device in route.devices() {
            for operation in OPERATIONS {
                let faults = Faults::new();
                let host = host(faults.clone());
                let session = session(&host, *device, &CancelFlag::new());
                let output = folder.path().join(format!("out.{}", route.ending));
                let convert = || {
                    let input = Input::open(&input, session.cancel_flag())?;
                    let output = Output::create(&output, session.cancel_flag())?;
                    route.conversion(&session).run(input, output)
                };
                let run = || convert().map(drop).inspect_err(|_| assert_nothing_left(&output));
                let bytes = |()| {
                    let bytes = std::fs::read(&output).unwrap();
                    std::fs::remove_file(&output).unwrap();
                    bytes
                };
                let what = format!("{} on {device}, {operation:?}", route.name);
                let (failed, of) = each_failure((&host, &faults, operation), &what, chosen, run, bytes);
                assert!(failed > 0 || of == 0, "{what}: no failure of {of} came up");
                drop(session);
                settled(&host, &what);
            }
        }
    }
}

/// A sink that fails at its n-th write, and counts them.
struct Failing {
    writes: Arc<AtomicU64>,
    nth: u64,
}

impl ByteSink for Failing {
    fn name(&self) -> &str {
        "a disk"
    }

    fn write(&mut self, _: &[u8]) -> Result<()> {
        match self.writes.fetch_add(1, Ordering::Relaxed) + 1 {
            n if n == self.nth => Err(Error::io(format!("write {n} to the disk failed"))),
            _ => Ok(()),
        }
    }
}

#[test]
fn writes_that_fail() {
    let _replay = replay::on_failure();
    let folder = tempfile::tempdir().unwrap();
    for route in routes("writes_that_fail") {
        let input = route.input(folder.path());
        let host = host(Faults::new());
        let session = session(&host, Device::CPU, &CancelFlag::new());
        let to = if route.ending == "csv" { "csv" } else { "arrow-ipc-stream" };
        let convert = |nth| {
            let writes = Arc::new(AtomicU64::new(0));
            let output = Output::to(Failing { writes: writes.clone(), nth });
            let input = Input::open(&input, session.cancel_flag()).unwrap();
            let result = route.conversion(&session).to(to).run(input, output);
            (result, writes.load(Ordering::Relaxed))
        };
        let (result, writes) = convert(0);
        result.expect(route.name);
        assert!(writes > 1, "{}", route.name);
        for nth in chosen(writes) {
            let error =
                convert(nth).0.err().unwrap_or_else(|| panic!("{}: write {nth} was lost", route.name));
            let words = words(&error);
            assert!(words.contains(&format!("write {nth} to the disk failed")), "{}: {words}", route.name);
            settled(&host, route.name);
        }
        drop(session);
        settled(&host, route.name);
    }
}

/// A file that cannot be read at the n-th call, and counts them.
struct Broken {
    bytes: Vec<u8>,
    reads: AtomicU64,
    nth: u64,
}

impl ByteSource for Broken {
    fn name(&self) -> &str {
        "a broken file"
    }

    fn len(&self) -> Option<u64> {
        Some(self.bytes.len() as u64)
    }

    fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<usize> {
        match self.reads.fetch_add(1, Ordering::Relaxed) + 1 {
            n if n == self.nth => Err(Error::io(format!("read {n} failed"))),
            _ => {
                let rest = self.bytes.get(offset as usize..).unwrap_or_default();
                let n = rest.len().min(to.len());
                to[..n].copy_from_slice(&rest[..n]);
                Ok(n)
            }
        }
    }
}

#[test]
fn reads_that_fail() {
    let _replay = replay::on_failure();
    let folder = tempfile::tempdir().unwrap();
    for route in routes("reads_that_fail") {
        let bytes = std::fs::read(route.input(folder.path())).unwrap();
        let host = host(Faults::new());
        let session = session(&host, Device::CPU, &CancelFlag::new());
        let output = folder.path().join(format!("read.{}", route.ending));
        let convert = |nth| {
            let broken = Arc::new(Broken { bytes: bytes.clone(), reads: AtomicU64::new(0), nth });
            let mut conversion = route.conversion(&session);
            match route.from {
                Given::Ipc => {}
                Given::Csv => conversion = conversion.from("csv"),
                Given::Encodings => conversion = conversion.from("encodings"),
            }
            let output = Output::create(&output, session.cancel_flag()).unwrap();
            let result = conversion.run(Input::Bytes(broken.clone()), output);
            (result, broken.reads.load(Ordering::Relaxed))
        };
        let (result, reads) = convert(0);
        result.expect(route.name);
        for nth in chosen(reads) {
            std::fs::remove_file(&output).unwrap();
            let error = convert(nth).0.err().unwrap_or_else(|| panic!("{}: read {nth} was lost", route.name));
            let words = words(&error);
            assert!(words.contains(&format!("read {nth} failed")), "{}: {words}", route.name);
            assert_nothing_left(&output);
            settled(&host, route.name);
            convert(0).0.expect(route.name);
        }
        std::fs::remove_file(&output).unwrap();
        drop(session);
        settled(&host, route.name);
    }
}

#[test]
fn a_caller_that_cancels_at_any_report_of_progress() {
    let _replay = replay::on_failure();
    let folder = tempfile::tempdir().unwrap();
    for route in routes("a_caller_that_cancels_at_any_report_of_progress") {
        let input = route.input(folder.path());
        let reports = |nth: u64| {
            let host = host(Faults::new());
            let cancel = CancelFlag::new();
            let session = session(&host, Device::CPU, &cancel);
            let seen = Arc::new(AtomicU64::new(0));
            let listener = {
                let seen = seen.clone();
                move |_, _| {
                    if seen.fetch_add(1, Ordering::Relaxed) + 1 == nth {
                        cancel.cancel();
                    }
                }
            };
            let output = folder.path().join(format!("cancelled.{}", route.ending));
            let (from, to) =
                (Input::open(&input, &CancelFlag::new()), Output::create(&output, &CancelFlag::new()));
            let conversion = route.conversion(&session).progress(Arc::new(listener));
            let result = conversion.run(from.unwrap(), to.unwrap());
            match (nth, &result) {
                (0, Ok(_)) => std::fs::remove_file(&output).unwrap(),
                (0, Err(error)) => panic!("{}: {}", route.name, words(error)),
                (_, Ok(_)) => panic!("{}: cancelled at report {nth}, and went on", route.name),
                (_, Err(_)) => assert_nothing_left(&output),
            }
            drop(session);
            settled(&host, route.name);
            seen.load(Ordering::Relaxed)
        };
        let all = reports(0);
        assert!(all > 0, "{} reports no progress", route.name);
        // The last report may come when there is nothing left to cancel.
        for nth in chosen(all - 1) {
            reports(nth);
        }
    }
}

#[test]
fn a_progress_listener_that_panics_stops_nobody_but_itself() {
    let host = host(Faults::new());
    let session = session(&host, Device::CPU, &CancelFlag::new());
    let sink = VecSink::new();
    let conversion = session.conversion().to("arrow-ipc-stream").progress(Arc::new(|_, _| panic!("a bar")));
    conversion
        .run(Input::open(sample(), session.cancel_flag()).unwrap(), Output::Memory(sink.clone()))
        .unwrap();
    assert!(sink.take().len() > 100_000);
}
