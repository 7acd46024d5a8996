//! Measures reading and copying Arrow IPC files, and the whole command.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use crossdock::source::Input;
use crossdock::{ReadOptions, Session};
use crossdock_plugin_api::{CallSettings, Device, Options, ReadRequest, Validate};

use crate::table::Table;
use crate::{Bench, Result};

/// Runs Crossdock and the peer alternately. In each turn, the work runs twice and only the second
/// run is measured, so that the page cache is warm for both programs.
fn alternate(
    bench: &Bench,
    mut work: impl FnMut() -> Result<()>,
    peer: &[&std::ffi::OsStr],
) -> Result<(Vec<u64>, Vec<u64>)> {
    let (mut times, mut peer_times) = (Vec::new(), Vec::new());
    for _ in 0..bench.runs {
        work()?;
        let start = Instant::now();
        work()?;
        times.push(start.elapsed().as_nanos() as u64);
        peer_times.extend(bench.peer.times(peer)?.last());
    }
    Ok((times, peer_times))
}

fn session(validate: Validate) -> Result<Session> {
    let session = crate::load::host()?.session().validate(validate).open()?;
    // Loads the plugins before the measurement, because another benchmark measures loading.
    session.plugins();
    Ok(session)
}

/// Reads a mapped, uncompressed file of 1 GiB into C Device arrays.
pub fn mapped(bench: &Bench, table: &mut Table) -> Result<()> {
    let path = bench.data.join("mapped.arrow");
    let session = session(Validate::Layout)?;
    let plugins = session.plugins();
    let exporter = plugins
        .iter()
        .find(|p| p.name() == "arrow-c-device")
        .ok_or("the plugin arrow-c-device is missing")?;
    let importer =
        plugins.iter().find(|p| p.name() == "arrow-ipc").ok_or("the plugin arrow-ipc is missing")?;
    let call = CallSettings::new(Device::CPU);
    let mut batches = 0;
    let copied_before = session.host().ledger().copied().bytes();
    let work = || -> Result<()> {
        let input = Input::open(&path, session.cancel_flag())?;
        let source = crossdock_plugin_api::Source::new(input.shared());
        let input = crossdock_plugin_api::Input::Source(source);
        let mut reader = importer.importer()?.open(&call, input, &ReadRequest::new("arrow-ipc-file"))?;
        let schema = reader.schema()?;
        let first = Options::new().with("schema", "first");
        let mut writer = exporter.exporter()?.begin(&call, "arrow-c-device", &schema, &first, None)?;
        let mut capsules = Vec::new();
        batches = 0;
        while let Some(batch) = reader.next(&call)? {
            capsules.extend(writer.write(&call, batch)?);
            batches += 1;
        }
        Ok(())
    };
    let arguments = ["mapped".as_ref(), path.as_ref(), "2".as_ref()];
    let (times, peer) = alternate(bench, work, &arguments)?;
    let copied = session.host().ledger().copied().bytes() - copied_before;
    let goal_ns = 1_000_000 + 2_000 * batches;
    table.row(&format!("1 GiB file, mapped, {batches} batches, to C Device arrays; {copied} bytes copied; goal {goal_ns} ns"), &times, Some(&peer));
    Ok(())
}

/// Reads streams of the flights table with each compression into memory.
pub fn read(bench: &Bench, table: &mut Table) -> Result<()> {
    for codec in ["none", "lz4", "zstd"] {
        let path = bench.data.join(format!("flights.{codec}.arrows"));
        let session = session(Validate::Layout)?;
        let work = || -> Result<()> {
            let input = Input::open(&path, session.cancel_flag())?;
            let mut batches = Vec::new();
            for batch in session.read(input, &ReadOptions::default())? {
                batches.push(batch?);
            }
            Ok(())
        };
        let (times, peer) = alternate(bench, work, &["read".as_ref(), path.as_ref(), "2".as_ref()])?;
        table.row(&format!("flights, {codec}, stream to memory"), &times, Some(&peer));
    }
    Ok(())
}

/// Copies a stream. Crossdock's time is that of the whole process, pyarrow's time only that of the
/// copy.
pub fn copy(bench: &Bench, table: &mut Table) -> Result<()> {
    let command = crate::load::folder()?.join("crossdock");
    let path = bench.data.join("flights.none.arrows");
    let (to, peer_to) = (bench.data.join("copy.arrows"), bench.data.join("copy-peer.arrows"));
    let work = || convert(&command, &path, &to, &["--validate", "layout"]);
    let (times, peer) =
        alternate(bench, work, &["copy".as_ref(), path.as_ref(), peer_to.as_ref(), "2".as_ref()])?;
    table.row("flights, stream to stream, the whole command", &times, Some(&peer));
    for file in [to, peer_to] {
        std::fs::remove_file(file)?;
    }
    Ok(())
}

fn convert(command: &Path, from: &Path, to: &Path, options: &[&str]) -> Result<()> {
    let out = Command::new(command).arg("convert").args([from, to]).arg("--quiet").args(options).output()?;
    if out.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&out.stderr).into_owned().into()) }
}

/// Runs the command on the sample with full validation.
pub fn sample(bench: &Bench, table: &mut Table) -> Result<()> {
    let command = crate::load::folder()?.join("crossdock");
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/data/flights-january.arrow");
    let to = bench.data.join("sample.arrow");
    let mut times = Vec::new();
    for _ in 0..bench.runs.max(20) {
        let start = Instant::now();
        convert(&command, &sample, &to, &[])?;
        times.push(start.elapsed().as_nanos() as u64);
    }
    std::fs::remove_file(to)?;
    table.row("`crossdock convert` of the sample, start to end", &times, None);
    Ok(())
}
