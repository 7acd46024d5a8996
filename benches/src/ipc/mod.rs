//! Arrow IPC files and a GPU: from the page cache, from pinned memory and back, each beside what the link and the bare
//! codec give in the same run. Bytes are those of the table, unpacked.

mod codec;
mod data;
mod link;
mod sides;

use std::path::{Path, PathBuf};
use std::time::Instant;

use crossdock::{Host, Session};
use crossdock_plugin_api::{Device, Validate};

use crate::Result;
use data::Wish;

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

/// What each figure is taken with.
pub(crate) struct Bench {
    pub session: Session,
    pub gpu: Device,
    pub runs: usize,
}

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
    for (to_host, bytes) in [(false, link.ordinary_to_device), (true, link.ordinary_to_host)] {
        let what = if to_host {
            "one copy, device to ordinary memory"
        } else {
            "one copy, ordinary memory to device"
        };
        print(what, bytes, Some(if to_host { link.to_host } else { link.to_device }));
    }
    for codec in CODECS {
        let file = Removed(settings.folder.join(format!("ipc-bench.{codec}.arrow")));
        let bytes = data::write(&bench, &file.0, settings.bytes, codec)?;
        let bare = codec::measure(codec)?;
        if let Some(bare) = &bare {
            print(&format!("{codec}, bare codec on all cores, unpacking"), bare.unpacking, None);
            print(&format!("{codec}, bare codec on all cores, packing"), bare.packing, None);
        }
        let bound = |link: f64, codec: Option<f64>| Some(codec.map_or(link, |codec| codec.min(link)));
        let unpacking = bound(link.to_device, bare.as_ref().map(|bare| bare.unpacking));
        let packing = bound(link.to_host, bare.as_ref().map(|bare| bare.packing));
        for wish in [Wish::Mapped, Wish::ReadAt, Wish::Pinned] {
            let Some(speed) = sides::read(&bench, &file.0, bytes, wish)? else { continue };
            print(&format!("{codec}, {} to device arrays", wish.name()), speed, unpacking);
        }
        let (arrays, ipc) = sides::back(&bench, &file.0, bytes, codec)?;
        if codec == "none" {
            print("device arrays to arrays in ordinary memory", arrays, Some(link.to_host));
        }
        print(&format!("{codec}, device arrays to a sink of IPC"), ipc, packing);
    }
    Ok(())
}

fn print(what: &str, speed: f64, bound: Option<f64>) {
    let ratio = bound.map_or("-".to_string(), |bound| format!("{:.0}%", 100.0 * speed / bound));
    println!("| {what} | {speed:.1} | {ratio} |");
}

/// The middle speed in GB/s of `runs` runs of `f`, which moves `bytes` bytes; once more before them, for nothing.
fn speed(runs: usize, bytes: u64, mut f: impl FnMut() -> Result<()>) -> Result<f64> {
    f()?;
    let mut times = Vec::new();
    for _ in 0..runs.max(1) {
        let start = Instant::now();
        f()?;
        times.push(start.elapsed().as_nanos() as u64);
    }
    Ok(bytes as f64 / crate::table::median(&times).max(1) as f64)
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
