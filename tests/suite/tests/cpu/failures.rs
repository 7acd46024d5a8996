//! Makes the n-th occurrence of an operation fail in conversions with each plugin. The result must
//! be an error with a message, without leaks or files, and the next conversion must work. Tests
//! some occurrences, or with `CROSSDOCK_FAULTS=all` every occurrence.

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
use crossdock_tests::failing::{OPERATIONS, assert_settled, each_failure, error_chain, host, session};
use crossdock_tests::{assert_nothing_left, faults, sample, sample_tree};

/// A conversion through one or more plugins, and the devices that support it.
struct Route {
    name: &'static str,
    extension: &'static str,
    vias: &'static [&'static str],
    columns: &'static [&'static str],
    compression: Option<&'static str>,
    works_on_any_device: bool,
    from: Sample,
}

/// The input of a route.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sample {
    Ipc,
    Csv,
    /// The encoded sample array.
    Encodings,
}

const NUMBERS: &[&str] = &["year", "dep_delay", "distance", "cancelled", "speed_mph"];
const ROUTE: Route = Route {
    name: "",
    extension: "arrows",
    vias: &[],
    columns: &[],
    compression: None,
    works_on_any_device: true,
    from: Sample::Ipc,
};
const ROUTES: [Route; 9] = [
    Route { name: "arrow-ipc", extension: "arrow", compression: Some("lz4"), ..ROUTE },
    Route { name: "arrow-c-device", vias: &["arrow-c-device", "arrow-c-device-stream"], ..ROUTE },
    Route {
        name: "arrow-c-data",
        vias: &["arrow-c-data", "arrow-c-stream"],
        works_on_any_device: false,
        ..ROUTE
    },
    Route { name: "dlpack", vias: &["dlpack"], columns: NUMBERS, ..ROUTE },
    Route { name: "dlpack-legacy", vias: &["dlpack-legacy"], columns: NUMBERS, ..ROUTE },
    Route { name: "csv, written", extension: "csv", columns: NUMBERS, works_on_any_device: false, ..ROUTE },
    Route { name: "csv, read", from: Sample::Csv, works_on_any_device: false, ..ROUTE },
    Route { name: "encodings", from: Sample::Encodings, ..ROUTE },
    // A tree has one column without a name, so the column that is read back has no name either.
    Route { name: "encoded-array", vias: &["encoded-array"], from: Sample::Encodings, ..ROUTE },
];

/// The routes that this run of a test uses.
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
            conversion = conversion.columns(self.columns.iter().copied());
        }
        if let Some(codec) = self.compression {
            conversion = conversion.write_options(Options::new().with("compression", codec));
        }
        conversion
    }

    /// The path of the input file. Creates the file if necessary.
    fn input(&self, folder: &Path) -> std::path::PathBuf {
        let path = match self.from {
            Sample::Ipc => return sample(),
            Sample::Csv => folder.join("sample.csv"),
            Sample::Encodings => {
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
            let conversion = session.conversion().columns(NUMBERS.iter().copied());
            conversion.run(input.unwrap(), output.unwrap()).unwrap();
        }
        path
    }

    fn devices(&self) -> &'static [Device] {
        if self.works_on_any_device { &[Device::CPU, Device::UNTOUCHABLE] } else { &[Device::CPU] }
    }
}

fn chosen(occurrences: u64) -> BTreeSet<u64> {
    faults::chosen(occurrences, 12, 8)
}

#[test]
fn failed_memory_operations_are_errors_without_leaks() {
    let _replay = replay::on_failure();
    let folder = tempfile::tempdir().unwrap();
    for route in routes("failed_memory_operations_are_errors_without_leaks") {
        let input = route.input(folder.path());
        for device in route.devices() {
            for operation in OPERATIONS {
                let faults = Faults::new();
                let host = host(faults.clone());
                let session = session(&host, *device, &CancelFlag::new());
                let output = folder.path().join(format!("out.{}", route.extension));
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
                let (failed, occurrences) =
                    each_failure((&host, &faults, operation), &what, chosen, run, bytes);
                assert!(
                    failed > 0 || occurrences == 0,
                    "{what}: none of {occurrences} failures was an error"
                );
                drop(session);
                assert_settled(&host, &what);
            }
        }
    }
}

/// A sink that counts writes, and fails at the n-th write.
struct FailingSink {
    writes: Arc<AtomicU64>,
    nth: u64,
}

impl ByteSink for FailingSink {
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
fn failed_writes_are_errors_without_leaks() {
    let _replay = replay::on_failure();
    let folder = tempfile::tempdir().unwrap();
    for route in routes("failed_writes_are_errors_without_leaks") {
        let input = route.input(folder.path());
        let host = host(Faults::new());
        let session = session(&host, Device::CPU, &CancelFlag::new());
        let to = if route.extension == "csv" { "csv" } else { "arrow-ipc-stream" };
        let convert = |nth| {
            let writes = Arc::new(AtomicU64::new(0));
            let output = Output::to(FailingSink { writes: writes.clone(), nth });
            let input = Input::open(&input, session.cancel_flag()).unwrap();
            let result = route.conversion(&session).to(to).run(input, output);
            (result, writes.load(Ordering::Relaxed))
        };
        let (result, writes) = convert(0);
        result.expect(route.name);
        assert!(writes > 1, "{}", route.name);
        for nth in chosen(writes) {
            let error =
                convert(nth).0.err().unwrap_or_else(|| panic!("{}: write {nth} was ignored", route.name));
            let message = error_chain(&error);
            assert!(
                message.contains(&format!("write {nth} to the disk failed")),
                "{}: {message}",
                route.name
            );
            assert_settled(&host, route.name);
        }
        drop(session);
        assert_settled(&host, route.name);
    }
}

/// A source that counts reads, and fails at the n-th read.
struct FailingSource {
    bytes: Vec<u8>,
    reads: AtomicU64,
    nth: u64,
}

impl ByteSource for FailingSource {
    fn name(&self) -> &str {
        "a failing file"
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
fn failed_reads_are_errors_without_leaks() {
    let _replay = replay::on_failure();
    let folder = tempfile::tempdir().unwrap();
    for route in routes("failed_reads_are_errors_without_leaks") {
        let bytes = std::fs::read(route.input(folder.path())).unwrap();
        let host = host(Faults::new());
        let session = session(&host, Device::CPU, &CancelFlag::new());
        let output = folder.path().join(format!("read.{}", route.extension));
        let convert = |nth| {
            let source = Arc::new(FailingSource { bytes: bytes.clone(), reads: AtomicU64::new(0), nth });
            let mut conversion = route.conversion(&session);
            match route.from {
                Sample::Ipc => {}
                Sample::Csv => conversion = conversion.from("csv"),
                Sample::Encodings => conversion = conversion.from("encodings"),
            }
            let output = Output::create(&output, session.cancel_flag()).unwrap();
            let result = conversion.run(Input::Bytes(source.clone()), output);
            (result, source.reads.load(Ordering::Relaxed))
        };
        let (result, reads) = convert(0);
        result.expect(route.name);
        for nth in chosen(reads) {
            std::fs::remove_file(&output).unwrap();
            let error =
                convert(nth).0.err().unwrap_or_else(|| panic!("{}: read {nth} was ignored", route.name));
            let message = error_chain(&error);
            assert!(message.contains(&format!("read {nth} failed")), "{}: {message}", route.name);
            assert_nothing_left(&output);
            assert_settled(&host, route.name);
            convert(0).0.expect(route.name);
        }
        std::fs::remove_file(&output).unwrap();
        drop(session);
        assert_settled(&host, route.name);
    }
}

#[test]
fn cancellation_at_any_progress_report_leaves_no_file() {
    let _replay = replay::on_failure();
    let folder = tempfile::tempdir().unwrap();
    for route in routes("cancellation_at_any_progress_report_leaves_no_file") {
        let input = route.input(folder.path());
        let reports = |nth: u64| {
            let host = host(Faults::new());
            let cancel = CancelFlag::new();
            let session = session(&host, Device::CPU, &cancel);
            let count = Arc::new(AtomicU64::new(0));
            let listener = {
                let count = count.clone();
                move |_, _| {
                    if count.fetch_add(1, Ordering::Relaxed) + 1 == nth {
                        cancel.cancel();
                    }
                }
            };
            let output = folder.path().join(format!("cancelled.{}", route.extension));
            let (from, to) =
                (Input::open(&input, &CancelFlag::new()), Output::create(&output, &CancelFlag::new()));
            let conversion = route.conversion(&session).progress(Arc::new(listener));
            let result = conversion.run(from.unwrap(), to.unwrap());
            match (nth, &result) {
                (0, Ok(_)) => std::fs::remove_file(&output).unwrap(),
                (0, Err(error)) => panic!("{}: {}", route.name, error_chain(error)),
                (_, Ok(_)) => panic!("{}: cancelled at report {nth}, but succeeded", route.name),
                (_, Err(_)) => assert_nothing_left(&output),
            }
            drop(session);
            assert_settled(&host, route.name);
            count.load(Ordering::Relaxed)
        };
        let all = reports(0);
        assert!(all > 0, "{} reports no progress", route.name);
        // A cancellation at the last report may come after all work is done, so it need not cause
        // an error.
        for nth in chosen(all - 1) {
            reports(nth);
        }
    }
}

#[test]
fn panic_in_a_progress_listener_does_not_stop_the_conversion() {
    let host = host(Faults::new());
    let session = session(&host, Device::CPU, &CancelFlag::new());
    let sink = VecSink::new();
    let conversion = session
        .conversion()
        .to("arrow-ipc-stream")
        .progress(Arc::new(|_, _| panic!("in a progress listener")));
    conversion
        .run(Input::open(sample(), session.cancel_flag()).unwrap(), Output::Memory(sink.clone()))
        .unwrap();
    assert!(sink.take().len() > 100_000);
}
