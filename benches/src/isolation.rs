//! What a process of its own costs a plugin: to start, for each call, and for the arrays that cross.

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
    let search = Search::nowhere().given(folder.join("libcrossdock_arrow_ipc_plugin.so"));
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

fn row(what: &str, here: u64, there: u64, bytes: Option<u64>) {
    let cell = |ns: u64| match bytes {
        Some(bytes) => format!("{:.1} ms, {:.2} GB/s", ns as f64 / 1e6, bytes as f64 / ns as f64),
        None if ns < 10_000 => format!("{ns} ns"),
        None => format!("{:.1} us", ns as f64 / 1e3),
    };
    println!("| {what} | {} | {} | {:.2} |", cell(here), cell(there), there as f64 / here as f64);
}

/// To where the session has its arrays, and to the end of what is under way there.
fn read(session: &Session, path: &Path) -> Result<u64> {
    let mut bytes = 0;
    for batch in session.read(Input::open(path, session.cancel_flag())?, &ReadOptions::default())? {
        bytes += black_box(batch?).bytes();
    }
    session.stream().synchronize()?;
    Ok(bytes)
}

/// All figures, as tables: the same in this process, and in another one; on the CPU, and where there is one on a CUDA device.
pub fn costs(bench: &Bench) -> Result<()> {
    on(bench, Device::CPU)?;
    if devices().contains(&Device::cuda(0)) {
        println!();
        return on(bench, Device::cuda(0));
    }
    Ok(writeln!(std::io::stderr(), "skipped: isolation on a device: there is no CUDA device")?)
}

fn on(bench: &Bench, device: Device) -> Result<()> {
    println!("| Isolated plugin, {device} | in this process | in its own | ratio |\n|---|---|---|---|");
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
    row("a host, a session, an instance, and their end", start(false)?, start(true)?, None);

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
    let [here, there] = sessions(Validate::Layout)?;
    row("one call: `plan` of 19 columns", plan(&here)?, plan(&there)?, None);

    for (what, file) in
        [("mapped", "mapped.arrow"), ("lz4", "flights.lz4.arrows"), ("zstd", "flights.zstd.arrows")]
    {
        let path = bench.data.join(file);
        for (validate, how) in [(Validate::Layout, "layout"), (Validate::Full, "full")] {
            let [here, there] = sessions(validate)?;
            let bytes = read(&here, &path)?;
            let time = |session: &Session| times(runs, || read(session, &path).map(drop));
            let label = format!("read {file}, {what}, validated {how} in this process");
            row(&label, time(&here)?, time(&there)?, Some(bytes));
        }
    }

    let [here, there] = sessions(Validate::Layout)?;
    let path: PathBuf = bench.data.join("flights.none.arrows");
    let reader = here.read(Input::open(&path, here.cancel_flag())?, &ReadOptions::default())?;
    let schema = reader.schema().clone();
    let batches = reader.collect::<crossdock::Result<Vec<_>>>()?;
    let bytes = batches.iter().map(|batch| batch.bytes()).sum();
    let write = |session: &Session| {
        times(runs, || {
            let options = WriteOptions { to: Some("arrow-ipc-stream".into()), ..WriteOptions::default() };
            let mut writer =
                session.write(Output::create("/dev/null", session.cancel_flag())?, &schema, &options)?;
            for batch in &batches {
                writer.write_borrowed(batch)?;
            }
            writer.finish()?;
            Ok(())
        })
    };
    row("write a stream to /dev/null", write(&here)?, write(&there)?, Some(bytes));
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
