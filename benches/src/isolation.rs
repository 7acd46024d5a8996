//! Measures the costs of an isolated plugin process: startup, calls and array transfers.

use std::hint::black_box;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crossdock::api::{CallSettings, Device, Options, Validate};
use crossdock::discovery::Search;
use crossdock::isolation::{Isolation, Program, Which};
use crossdock::sink::Output;
use crossdock::source::Input;
use crossdock::{Host, Policy, ReadOptions, Session, WriteOptions};

use crossdock_test_support::devices;

use crate::table::median;
use crate::{Bench, Result, load};

type Error = Box<dyn std::error::Error>;

const PLUGIN: &str = "arrow-ipc";

fn session(isolated: bool, device: Device, validate: Validate) -> Result<Session> {
    let folder = load::folder()?;
    let isolation = Isolation {
        which: if isolated { Which::All } else { Which::None },
        program: Some(Program::command(folder.join("crossdock"))),
        ..Isolation::default()
    };
    let search = Search::nowhere().with_path(folder.join("libcrossdock_arrow_ipc_plugin.so"));
    let host = Host::builder().search(search).policy(Policy { isolation, ..Policy::default() }).build()?;
    Ok(host.session().device(device).validate(validate).open()?)
}

fn times(runs: usize, mut f: impl FnMut() -> Result<()>) -> Result<u64> {
    let mut times = Vec::new();
    f()?;
    for _ in 0..runs {
        let start = Instant::now();
        f()?;
        times.push(start.elapsed().as_nanos() as u64);
    }
    Ok(median(&times))
}

fn row(what: &str, in_process: u64, isolated: u64, bytes: Option<u64>) {
    let cell = |ns: u64| match bytes {
        Some(bytes) => format!("{:.1} ms, {:.2} GB/s", ns as f64 / 1e6, bytes as f64 / ns as f64),
        None if ns < 10_000 => format!("{ns} ns"),
        None => format!("{:.1} us", ns as f64 / 1e3),
    };
    println!(
        "| {what} | {} | {} | {:.2} |",
        cell(in_process),
        cell(isolated),
        isolated as f64 / in_process as f64
    );
}

/// Reads a file to the session's device, and waits until the data is ready. Returns the number of
/// bytes in the batches.
fn read(session: &Session, path: &Path) -> Result<u64> {
    let mut bytes = 0;
    for batch in session.read(Input::open(path, session.cancel_flag())?, &ReadOptions::default())? {
        bytes += black_box(batch?).buffer_bytes();
    }
    session.stream().synchronize()?;
    Ok(bytes)
}

/// Prints tables that compare the same work in this process and in an isolated process: on the CPU
/// and, if there is a CUDA device, on that device.
pub fn costs(bench: &Bench) -> Result<()> {
    costs_on(bench, Device::CPU)?;
    if devices().contains(&Device::cuda(0)) {
        println!();
        return costs_on(bench, Device::cuda(0));
    }
    Ok(writeln!(std::io::stderr(), "skipped: isolation on a device: there is no CUDA device")?)
}

fn costs_on(bench: &Bench, device: Device) -> Result<()> {
    println!(
        "| Isolated plugin, {device} | in this process | in a separate process | ratio |\n|---|---|---|---|"
    );
    let runs = bench.runs;
    let sessions =
        |validate| Ok::<_, Error>([session(false, device, validate)?, session(true, device, validate)?]);

    let start = |isolated| {
        times(runs.max(20), || {
            let session = session(isolated, device, Validate::Layout)?;
            black_box(session.plugin(PLUGIN)?);
            Ok(())
        })
    };
    row("create and destroy a host, a session and an instance", start(false)?, start(true)?, None);

    let create = |isolated| {
        let session = session(isolated, device, Validate::Layout)?;
        times(runs.max(20), || {
            black_box(session.plugin(PLUGIN)?);
            Ok(())
        })
    };
    row("create another instance in the same session", create(false)?, create(true)?, None);

    let call = CallSettings::new(device);
    let plan = |session: &Session| {
        let plugin = session.plugin(PLUGIN)?;
        let schema = read_schema(session, &bench.data)?;
        let options = Options::new();
        times(1000, || {
            black_box(plugin.exporter()?.plan(&call, "arrow-ipc-stream", &schema, device, &options)?);
            Ok(())
        })
    };
    let [in_process, isolated] = sessions(Validate::Layout)?;
    row("one call: `plan` of 19 columns", plan(&in_process)?, plan(&isolated)?, None);

    for (what, file) in
        [("mapped", "mapped.arrow"), ("lz4", "flights.lz4.arrows"), ("zstd", "flights.zstd.arrows")]
    {
        let path = bench.data.join(file);
        for (validate, level) in [(Validate::Layout, "layout"), (Validate::Full, "full")] {
            let [in_process, isolated] = sessions(validate)?;
            let bytes = read(&in_process, &path)?;
            let time = |session: &Session| times(runs, || read(session, &path).map(drop));
            let label = format!("read {file}, {what}, validated {level} in this process");
            row(&label, time(&in_process)?, time(&isolated)?, Some(bytes));
        }
    }

    let [in_process, isolated] = sessions(Validate::Layout)?;
    let path: PathBuf = bench.data.join("flights.none.arrows");
    let reader = in_process.read(Input::open(&path, in_process.cancel_flag())?, &ReadOptions::default())?;
    let schema = reader.schema().clone();
    let batches = reader.collect::<crossdock::Result<Vec<_>>>()?;
    let bytes = batches.iter().map(|batch| batch.buffer_bytes()).sum();
    let write = |session: &Session, path: &Path| {
        times(runs, || {
            let options = WriteOptions { to: Some("arrow-ipc-stream".into()), ..WriteOptions::default() };
            let mut writer =
                session.write(Output::create(path, session.cancel_flag())?, &schema, &options)?;
            writer.write_all(&batches, |_| ())?;
            writer.finish()?;
            Ok(())
        })
    };
    let both = |path: &Path| -> Result<_> { Ok((write(&in_process, path)?, write(&isolated, path)?)) };
    // Nothing reads the bytes that are written to /dev/null.
    let (in_host, in_child) = both(Path::new("/dev/null"))?;
    row("write a stream to /dev/null", in_host, in_child, Some(bytes));
    let path = PathBuf::from(format!("/dev/shm/crossdock-benches-{}.arrows", std::process::id()));
    let times = both(&path);
    // The file takes memory, also after an error.
    let removed = std::fs::remove_file(path);
    let (in_host, in_child) = times?;
    removed?;
    row("write a stream to a file in memory", in_host, in_child, Some(bytes));
    Ok(())
}

fn read_schema(
    session: &Session,
    data: &Path,
) -> Result<crossdock::api::Owned<crossdock::api::abi::ArrowSchema>> {
    let input = Input::open(data.join("flights.none.arrows"), session.cancel_flag())?;
    let reader = session.read(input, &ReadOptions::default())?;
    Ok(crossdock_arrays::export_schema(reader.schema())?)
}
