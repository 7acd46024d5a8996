//! Arrow IPC files: mapped, decompressed, copied, and the command from start to end.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use crossdock::source::Input;
use crossdock::{ReadOptions, Session};
use crossdock_plugin_api::{CallSettings, Device, Options, Validate};

use crate::table::Table;
use crate::{Bench, Result};

/// Ours and the peer's in turn: each twice, of which the second counts, so that both find what they use in the cache.
fn in_turn(
    bench: &Bench,
    mut ours: impl FnMut() -> Result<()>,
    peer: &[&std::ffi::OsStr],
) -> Result<(Vec<u64>, Vec<u64>)> {
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for _ in 0..bench.runs {
        ours()?;
        let start = Instant::now();
        ours()?;
        a.push(start.elapsed().as_nanos() as u64);
        b.extend(bench.peer.times(peer)?.last());
    }
    Ok((a, b))
}

fn session(validate: Validate) -> Result<Session> {
    let session = crate::load::host()?.session().validate(validate).open()?;
    // Loading is a figure of its own.
    session.plugins();
    Ok(session)
}

/// 1 GiB, uncompressed, mapped, to C Device arrays.
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
    let before = session.host().ledger().copied().bytes();
    let ours = || -> Result<()> {
        let input = Input::open(&path, session.cancel_flag())?;
        let source = crossdock_plugin_api::Source::new(input.shared());
        let input = crossdock_plugin_api::Input::Source(source);
        let mut reader = importer.importer()?.open(&call, "arrow-ipc-file", input, None, &Options::new())?;
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
    let (ours, peer) = in_turn(bench, ours, &arguments)?;
    let copied = session.host().ledger().copied().bytes() - before;
    let floor = 1_000_000 + 2_000 * batches;
    table.row(&format!("1 GiB file, mapped, {batches} batches, to C Device arrays; {copied} bytes copied; goal {floor} ns"), &ours, Some(&peer));
    Ok(())
}

/// Streams of the flights table, by compression, to batches in memory.
pub fn read(bench: &Bench, table: &mut Table) -> Result<()> {
    for codec in ["none", "lz4", "zstd"] {
        let path = bench.data.join(format!("flights.{codec}.arrows"));
        let session = session(Validate::Layout)?;
        let ours = || -> Result<()> {
            let input = Input::open(&path, session.cancel_flag())?;
            let mut batches = Vec::new();
            for batch in session.read(input, &ReadOptions::default())? {
                batches.push(batch?);
            }
            Ok(())
        };
        let (ours, peer) = in_turn(bench, ours, &["read".as_ref(), path.as_ref(), "2".as_ref()])?;
        table.row(&format!("flights, {codec}, stream to memory"), &ours, Some(&peer));
    }
    Ok(())
}

/// Streams to streams; ours is the whole process, the peer's only the work.
pub fn copy(bench: &Bench, table: &mut Table) -> Result<()> {
    let command = crate::load::folder()?.join("crossdock");
    let path = bench.data.join("flights.none.arrows");
    let (to, peers) = (bench.data.join("copy.arrows"), bench.data.join("copy-peer.arrows"));
    let ours = || convert(&command, &path, &to, &["--validate", "layout"]);
    let (ours, peer) = in_turn(bench, ours, &["copy".as_ref(), path.as_ref(), peers.as_ref(), "2".as_ref()])?;
    table.row("flights, stream to stream, the whole command", &ours, Some(&peer));
    for file in [to, peers] {
        std::fs::remove_file(file)?;
    }
    Ok(())
}

fn convert(command: &Path, from: &Path, to: &Path, more: &[&str]) -> Result<()> {
    let out = Command::new(command).arg("convert").args([from, to]).arg("--quiet").args(more).output()?;
    if out.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&out.stderr).into_owned().into()) }
}

/// The command on the sample, from start to end, with everything validated.
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
