//! Arrow IPC files and a GPU: from the page cache, from pinned memory and back, each beside what the link and the bare
//! codec give in the same run: bound and figure take turns, and their ratio is taken turn by turn. Bytes are those of the
//! table, unpacked.

mod bench;
mod codec;
mod data;
mod link;
mod sides;

use std::path::{Path, PathBuf};
use std::time::Instant;

use crossdock::Host;
use crossdock_plugin_api::{Device, Validate};

use crate::Result;
use bench::Bench;
use codec::Bare;
use data::Wish;
use link::Link;

/// How the figures are taken.
pub struct Settings {
    /// Where the files are made, and removed again.
    pub folder: PathBuf,
    /// The table's bytes.
    pub bytes: u64,
    /// How often each figure is taken, after once for nothing.
    pub runs: usize,
}

const CODECS: [&str; 3] = ["none", "lz4", "zstd"];

/// Prints the table.
///
/// # Errors
/// Whatever fails, in its own words. A machine without a GPU is none: it says so.
pub fn figures(settings: &Settings) -> Result<()> {
    let host: Host = crate::load::host()?;
    if let Err(missing) = host.backend().cuda() {
        eprintln!("skipped: ipc: {missing}");
        return Ok(());
    }
    let gpu = Device::cuda(0);
    let session = host.session().device(gpu).validate(Validate::Layout).open()?;
    let bench = Bench { session, gpu, runs: settings.runs };
    println!("| Arrow IPC, {} MiB in memory | GB/s | of its bound |\n|---|---|---|", settings.bytes >> 20);
    let link = link::measure(&bench)?;
    print("link, pinned memory to device", link.to_device, None);
    print("link, device to pinned memory", link.to_host, None);
    let (to_device, to_host) = (link.ordinary_to_device, link.ordinary_to_host);
    print("one copy, ordinary memory to device", to_device, Some(to_device / link.to_device));
    print("one copy, device to ordinary memory", to_host, Some(to_host / link.to_host));
    for codec in CODECS {
        let file = Removed(settings.folder.join(format!("ipc-bench.{codec}.arrow")));
        let bytes = data::write(&bench, &file.0, settings.bytes, codec)?;
        of_codec(&bench, &link, codec, &file.0, bytes)?;
    }
    Ok(())
}

/// What a way is held against.
#[derive(Clone, Copy)]
enum Bound {
    ToDevice,
    ToHost,
    /// The link, whatever the codec.
    ArraysToHost,
}

/// One way of the table, and what it gave.
struct Way<'a> {
    what: String,
    bound: Bound,
    run: Box<dyn Fn() -> Result<()> + 'a>,
    speeds: Vec<f64>,
    ratios: Vec<f64>,
}

impl<'a> Way<'a> {
    fn new(what: String, bound: Bound, run: impl Fn() -> Result<()> + 'a) -> Self {
        Self { what, bound, run: Box::new(run), speeds: Vec::new(), ratios: Vec::new() }
    }
}

/// All ways of files with this codec, in turns.
fn of_codec(bench: &Bench, link: &Link, codec: &str, path: &Path, bytes: u64) -> Result<()> {
    let bare = Bare::new(codec)?;
    let Some(mapped) = data::source(bench, path, Wish::Mapped)? else { return Err("no file".into()) };
    let batches = sides::batches(bench, &mapped)?;
    let mut ways = Vec::new();
    for wish in [Wish::Mapped, Wish::ReadAt, Wish::Pinned] {
        let what = format!("{codec}, {} to device arrays", wish.name());
        // Opened for each turn, as a program does: a mapping that has been read before has its pages. Memory is pinned once.
        let pinned = if wish == Wish::Pinned { data::source(bench, path, wish)? } else { None };
        if wish == Wish::Pinned && pinned.is_none() {
            continue;
        }
        let read = move || match &pinned {
            Some(pinned) => sides::read(bench, pinned),
            None => sides::read(bench, &data::source(bench, path, wish)?.ok_or("no file")?),
        };
        ways.push(Way::new(what, Bound::ToDevice, read));
    }
    if bare.is_none() {
        let what = "device arrays to arrays in ordinary memory".to_string();
        ways.push(Way::new(what, Bound::ArraysToHost, || sides::to_arrays(bench, &batches)));
    }
    let what = format!("{codec}, device arrays to a sink of IPC");
    ways.push(Way::new(what, Bound::ToHost, || sides::to_sink(bench, &batches, codec)));
    for way in &ways {
        (way.run)()?;
    }
    let (mut reading, mut unpacking, mut packing) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..bench.runs {
        reading.push(codec::reading(path)?);
        for way in &mut ways {
            // Just before: what else the machine does changes from second to second.
            let bound = match (way.bound, &bare) {
                (Bound::ToDevice, Some(bare)) => put(&mut unpacking, bare.unpacking()?).min(link.to_device),
                (Bound::ToHost, Some(bare)) => put(&mut packing, bare.packing()?).min(link.to_host),
                (Bound::ToDevice, None) => link.to_device,
                (Bound::ToHost | Bound::ArraysToHost, _) => link.to_host,
            };
            let start = Instant::now();
            (way.run)()?;
            let speed = bytes as f64 / start.elapsed().as_nanos().max(1) as f64;
            way.speeds.push(speed);
            way.ratios.push(speed / bound);
        }
    }
    print(&format!("{codec}, bare reads of the file on all cores, its own bytes"), median(&reading), None);
    if bare.is_some() {
        print(&format!("{codec}, bare codec on all cores, unpacking"), median(&unpacking), None);
        print(&format!("{codec}, bare codec on all cores, packing"), median(&packing), None);
    }
    for way in &ways {
        print(&way.what, median(&way.speeds), Some(median(&way.ratios)));
    }
    Ok(())
}

fn put(figures: &mut Vec<f64>, figure: f64) -> f64 {
    figures.push(figure);
    figure
}

/// The middle one.
fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

fn print(what: &str, speed: f64, ratio: Option<f64>) {
    let ratio = ratio.map_or("-".to_string(), |ratio| format!("{:.0}%", 100.0 * ratio));
    println!("| {what} | {speed:.1} | {ratio} |");
}

/// A file that is removed at the end.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let path: &Path = &self.0;
        // It may never have been made.
        drop(std::fs::remove_file(path));
    }
}
