//! Measures Arrow IPC files with a GPU: from the page cache, from pinned memory, and back.
//!
//! Each figure is compared to its bound, which is the speed of the link or of the plain codec. Each
//! ratio is the ratio of a figure to the bound that was measured immediately before. All speeds
//! count the bytes of the uncompressed table.

mod bench;
mod codec;
mod data;
pub mod link;
mod transfers;

use std::path::{Path, PathBuf};
use std::time::Instant;

use crossdock::Host;
use crossdock_plugin_api::{Device, Validate};

use crate::Result;
pub(crate) use bench::Bench;
use codec::PlainCodec;
use data::ReadMode;
pub use data::{Pinned, fill};
use link::Link;

/// Settings of the IPC benchmarks.
pub struct Settings {
    /// The folder of the temporary files.
    pub folder: PathBuf,
    /// The size of the table in bytes.
    pub bytes: u64,
    /// The number of runs, after one run to warm up.
    pub runs: usize,
}

const CODECS: [&str; 3] = ["none", "lz4", "zstd"];

/// Prints the table of figures, if there is a GPU.
///
/// # Errors
/// A benchmark failed.
pub fn figures(settings: &Settings) -> Result<()> {
    let host: Host = crate::load::host()?;
    if let Err(reason) = host.backend().cuda() {
        eprintln!("skipped: ipc: {reason}");
        return Ok(());
    }
    let gpu = Device::cuda(0);
    let session = host.session().device(gpu).validate(Validate::Layout).open()?;
    let bench = Bench { session, gpu, runs: settings.runs };
    println!("| Arrow IPC, {} MiB in memory | GB/s | of its bound |\n|---|---|---|", settings.bytes >> 20);
    let link = link::measure(&bench)?;
    print("link, pinned memory to device", link.to_device, None);
    print("link, device to pinned memory", link.to_host, None);
    let (to_device, to_host) = (link.pageable_to_device, link.pageable_to_host);
    print("one copy, pageable memory to device", to_device, Some(to_device / link.to_device));
    print("one copy, device to pageable memory", to_host, Some(to_host / link.to_host));
    for codec in CODECS {
        let file = TemporaryFile(settings.folder.join(format!("ipc-bench.{codec}.arrow")));
        let bytes = data::write(&bench, &file.0, settings.bytes, codec)?;
        of_codec(&bench, &link, codec, &file.0, bytes)?;
    }
    Ok(())
}

/// The measured speed that a case cannot exceed.
#[derive(Clone, Copy)]
enum Bound {
    ToDevice,
    ToHost,
    /// The speed of the link to the host. The case uses no codec.
    ArraysToHost,
}

/// One case of the table, with its results.
struct BenchCase<'a> {
    what: String,
    bound: Bound,
    run: Box<dyn Fn() -> Result<()> + 'a>,
    speeds: Vec<f64>,
    ratios: Vec<f64>,
}

impl<'a> BenchCase<'a> {
    fn new(what: String, bound: Bound, run: impl Fn() -> Result<()> + 'a) -> Self {
        Self { what, bound, run: Box::new(run), speeds: Vec::new(), ratios: Vec::new() }
    }
}

/// Measures all cases of files with this codec, alternately.
fn of_codec(bench: &Bench, link: &Link, codec: &str, path: &Path, bytes: u64) -> Result<()> {
    let plain = PlainCodec::new(codec)?;
    let Some(mapped) = data::source(bench, path, ReadMode::Mapped)? else { return Err("no file".into()) };
    let batches = transfers::batches(bench, &mapped)?;
    let mut cases = Vec::new();
    for mode in [ReadMode::Mapped, ReadMode::ReadAt, ReadMode::Pinned] {
        let what = format!("{codec}, {} to device arrays", mode.name());
        // Each run opens the file again, as a program does. A mapping of an earlier run would be
        // faster, because its pages are already mapped. Pinned memory is filled only once.
        let pinned = if mode == ReadMode::Pinned { data::source(bench, path, mode)? } else { None };
        if mode == ReadMode::Pinned && pinned.is_none() {
            continue;
        }
        let read = move || match &pinned {
            Some(pinned) => transfers::read(bench, pinned),
            None => transfers::read(bench, &data::source(bench, path, mode)?.ok_or("no file")?),
        };
        cases.push(BenchCase::new(what, Bound::ToDevice, read));
    }
    if plain.is_none() {
        let what = "device arrays to arrays in pageable memory".to_string();
        cases.push(BenchCase::new(what, Bound::ArraysToHost, || transfers::to_arrays(bench, &batches)));
    }
    let what = format!("{codec}, device arrays to a sink of IPC");
    cases.push(BenchCase::new(what, Bound::ToHost, || transfers::to_sink(bench, &batches, codec)));
    for case in &cases {
        (case.run)()?;
    }
    let (mut reads, mut decompression, mut compression) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..bench.runs {
        reads.push(codec::read_speed(path)?);
        for case in &mut cases {
            // The bound is measured immediately before the case, because other load on the machine
            // changes from second to second.
            let bound = match (case.bound, &plain) {
                (Bound::ToDevice, Some(plain)) => {
                    record(&mut decompression, plain.decompression_speed()?).min(link.to_device)
                }
                (Bound::ToHost, Some(plain)) => {
                    record(&mut compression, plain.compression_speed()?).min(link.to_host)
                }
                (Bound::ToDevice, None) => link.to_device,
                (Bound::ToHost | Bound::ArraysToHost, _) => link.to_host,
            };
            let start = Instant::now();
            (case.run)()?;
            let speed = bytes as f64 / start.elapsed().as_nanos().max(1) as f64;
            case.speeds.push(speed);
            case.ratios.push(speed / bound);
        }
    }
    print(&format!("{codec}, plain reads of the file on all cores, bytes of the file"), median(&reads), None);
    if plain.is_some() {
        print(&format!("{codec}, plain codec on all cores, decompression"), median(&decompression), None);
        print(&format!("{codec}, plain codec on all cores, compression"), median(&compression), None);
    }
    for case in &cases {
        print(&case.what, median(&case.speeds), Some(median(&case.ratios)));
    }
    Ok(())
}

fn record(figures: &mut Vec<f64>, figure: f64) -> f64 {
    figures.push(figure);
    figure
}

/// Returns the median.
pub fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

pub fn print(what: &str, speed: f64, ratio: Option<f64>) {
    let ratio = ratio.map_or("-".to_string(), |ratio| format!("{:.0}%", 100.0 * ratio));
    println!("| {what} | {speed:.1} | {ratio} |");
}

/// A file that is removed when dropped.
struct TemporaryFile(PathBuf);

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let path: &Path = &self.0;
        // An error is ignored because the file may not exist.
        drop(std::fs::remove_file(path));
    }
}
