//! Measures the rates of the host's loader from files and memory to a GPU, compared with the rate
//! of the link in the same run.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crossdock::Session;
use crossdock::source::BytesSource;
use crossdock_memory::{BufferMut, LoadRange, Loader, Stream};
use crossdock_plugin_api::{ByteSource, CallSettings, Device, Host, Source, Validate};

use crate::Result;
use crate::feed;
use crate::ipc::{Bench, Pinned, link, median, print};
use crate::test_file::TestFile;

/// Settings of the benchmarks of the loader.
pub struct Settings {
    /// Folders of the temporary files, each on another file system.
    pub folders: Vec<PathBuf>,
    /// The size of each source in bytes.
    pub bytes: u64,
    /// The number of runs, after one run to warm up.
    pub runs: usize,
    /// Whether to measure variants of the feed instead of the loader.
    pub sweeps: Option<feed::Sweep>,
}

/// The sizes of the loads in bytes, and the number of loads at the same time. The first size is
/// that of a batch.
const LOADS: [(usize, usize); 3] = [(64 << 20, 1), (64 << 20, 3), (1 << 30, 1)];

/// Prints the table of rates, if there is a GPU.
///
/// # Errors
/// A benchmark failed.
pub fn figures(settings: &Settings) -> Result<()> {
    let host = crate::load::host()?;
    if let Err(reason) = host.backend().cuda() {
        eprintln!("skipped: loader: {reason}");
        return Ok(());
    }
    let gpu = Device::cuda(0);
    let session = host.session().device(gpu).validate(Validate::Layout).open()?;
    let bench = Bench { session, gpu, runs: settings.runs };
    println!("{} cores, {} NUMA nodes", std::thread::available_parallelism()?, numa_nodes());
    let mut files = Vec::new();
    for folder in &settings.folders {
        std::fs::create_dir_all(folder)?;
        files.push(TestFile::write(folder, settings.bytes)?);
    }
    if let Some(sweep) = &settings.sweeps {
        return feed::figures(&bench, settings.bytes as usize, &files, sweep);
    }
    println!("| loader, {} MiB | GB/s | of the link |\n|---|---|---|", settings.bytes >> 20);
    for (load_bytes, at_once) in LOADS {
        let target = Target::new(&bench.session, settings.bytes as usize, load_bytes, at_once)?;
        let what = |source: &str| format!("{source}, {at_once} loads of {} MiB at once", load_bytes >> 20);
        let pinned: Arc<dyn ByteSource> = Arc::new(Pinned::read(&bench, files[0].open()?, target.bytes)?);
        measure(&bench, &target, &what("pinned memory"), || Ok(pinned.clone()))?;
        drop(pinned);
        let memory: Arc<dyn ByteSource> = Arc::new(BytesSource::new(std::fs::read(&files[0].path)?));
        measure(&bench, &target, &what("pageable memory"), || Ok(memory.clone()))?;
        drop(memory);
        for file in &files {
            let what = |way: &str| what(&format!("page cache, {}, {way}", file.folder));
            measure(&bench, &target, &what("mapped"), || Ok(Arc::new(file.source(true)?)))?;
            measure(&bench, &target, &what("read"), || Ok(Arc::new(file.source(false)?)))?;
        }
    }
    Ok(())
}

fn numa_nodes() -> usize {
    let entries = std::fs::read_dir("/sys/devices/system/node").into_iter().flatten().flatten();
    let is_node = |name: &str| name.strip_prefix("node").is_some_and(|n| n.parse::<u32>().is_ok());
    entries.filter(|entry| entry.file_name().to_str().is_some_and(is_node)).count().max(1)
}

/// The memory of the GPU that receives the bytes.
struct Target {
    loader: Loader,
    _host: Host,
    stream: Stream,
    bytes: usize,
    load_bytes: usize,
    at_once: usize,
    /// One block for each load.
    blocks: Vec<Mutex<BufferMut>>,
}

impl Target {
    fn new(session: &Session, bytes: usize, load_bytes: usize, at_once: usize) -> Result<Self> {
        let host = session.host_handle("loader benchmark")?;
        let stream = session.memory().create_stream(session.device())?;
        let size = |at: usize| load_bytes.min(bytes - at);
        let alloc = |at| session.memory().alloc(&stream, size(at)).map(Mutex::new);
        let blocks = (0..bytes).step_by(load_bytes).map(alloc).collect::<std::result::Result<_, _>>()?;
        Ok(Self {
            loader: Loader::from_host(&host)?,
            _host: host,
            stream,
            bytes,
            load_bytes,
            at_once,
            blocks,
        })
    }

    /// Loads all bytes of a source, and waits for the last copy.
    fn load(&self, source: &Source) -> Result<()> {
        let next = AtomicUsize::new(0);
        let run = || {
            while let Some((i, block)) = {
                let i = next.fetch_add(1, Ordering::Relaxed);
                self.blocks.get(i).map(|block| (i, block))
            } {
                let block = &mut *block.lock().unwrap_or_else(PoisonError::into_inner);
                let from = (i * self.load_bytes) as u64;
                let range = LoadRange { from, to: 0, bytes: block.len() };
                CallSettings::new(self.stream.device())
                    .enter(|call| self.loader.load(call, source, block, &[range], &self.stream))?;
            }
            Ok::<(), crossdock_plugin_api::Error>(())
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (1..self.at_once).map(|_| scope.spawn(run)).collect();
            let mut result = run();
            for thread in threads {
                result = result.and(thread.join().unwrap_or(Ok(())));
            }
            result
        })?;
        Ok(self.stream.synchronize()?)
    }
}

/// Measures a source. Each run opens the source again, as a program does, and measures the link
/// immediately before.
fn measure(
    bench: &Bench,
    target: &Target,
    what: &str,
    open: impl Fn() -> Result<Arc<dyn ByteSource>>,
) -> Result<()> {
    let (mut rates, mut ratios) = (Vec::new(), Vec::new());
    for run in 0..=bench.runs {
        let link = link::to_device(bench)?;
        let start = Instant::now();
        let source = Source::new(open()?);
        target.load(&source)?;
        let rate = target.bytes as f64 / start.elapsed().as_nanos().max(1) as f64;
        drop(source);
        if run > 0 {
            rates.push(rate);
            ratios.push(rate / link);
        }
    }
    print(what, median(&rates), Some(median(&ratios)));
    Ok(())
}
