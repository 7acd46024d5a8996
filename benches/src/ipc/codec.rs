//! Measures plain file reads and the plain codec on all cores, as bounds for the other figures.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::Instant;

use crossdock_arrow_ipc::Codec;
use crossdock_plugin_api::{Error, Result as ApiResult};

use super::data::fill;
use crate::Result;

/// The size of a column in one batch of the file's table.
const BUFFER_BYTES: usize = 8 << 20;
/// The number of buffers to decompress per core. Measurements of compression use a quarter of the
/// buffers, because compression is slower.
const BUFFERS_PER_CORE: usize = 32;
/// The number of distinct buffers. Their values differ, as the values of the file's columns do.
const CONTENTS: usize = 8;
const PREFIX_BYTES: usize = 8;

/// A codec and its input, which has buffers like those of the file. Each compressed buffer has its
/// own memory, and all compressed buffers together are larger than the caches.
pub struct PlainCodec {
    codec: Codec,
    uncompressed: Vec<Vec<u8>>,
    compressed: Vec<Vec<u8>>,
    cores: usize,
}

impl PlainCodec {
    /// Creates the buffers. Returns `None` if `name` is not the name of a codec.
    pub fn new(name: &str) -> Result<Option<Self>> {
        let codec = match name {
            "lz4" => Codec::Lz4,
            "zstd" => Codec::Zstd,
            _ => return Ok(None),
        };
        let cores = std::thread::available_parallelism()?.get();
        let (mut uncompressed, mut contents) = (Vec::new(), Vec::new());
        for seed in 0..CONTENTS {
            let mut column = vec![0; BUFFER_BYTES];
            fill(&mut column, seed as u64 + 1);
            contents.push(codec.compress(&column)?.get(PREFIX_BYTES..).ok_or("no prefix")?.to_vec());
            uncompressed.push(column);
        }
        let compressed = contents.iter().cycle().take(cores * BUFFERS_PER_CORE).cloned().collect();
        Ok(Some(Self { codec, uncompressed, compressed, cores }))
    }

    /// Decompression speed, in GB/s of uncompressed bytes.
    pub fn decompression_speed(&self) -> Result<f64> {
        on_all_cores(self.cores, &self.compressed, |compressed, to| self.codec.decompress(compressed, to))
    }

    /// Compression speed, in GB/s of uncompressed bytes.
    pub fn compression_speed(&self) -> Result<f64> {
        let uncompressed: Vec<_> = self.uncompressed.iter().cycle().take(self.compressed.len() / 4).collect();
        on_all_cores(self.cores, &uncompressed, |uncompressed, _| self.codec.compress(uncompressed).map(drop))
    }
}

/// Returns the speed, in GB/s, at which the threads of all cores together read a file into memory.
/// Each read has the size of a buffer.
pub fn read_speed(path: &Path) -> Result<f64> {
    let file = File::open(path)?;
    let pieces: Vec<_> =
        (0..file.metadata()?.len() / BUFFER_BYTES as u64).map(|i| i * BUFFER_BYTES as u64).collect();
    let read =
        |at: &u64, to: &mut [u8]| file.read_exact_at(to, *at).map_err(|error| Error::io(error.to_string()));
    on_all_cores(std::thread::available_parallelism()?.get(), &pieces, read)
}

/// Returns the speed, in GB/s, at which all cores together apply `work` to the buffers. Each thread
/// reuses one output buffer. A thread that is done takes the next buffer, so that all threads
/// finish at about the same time.
fn on_all_cores<T: Sync>(
    cores: usize,
    buffers: &[T],
    work: impl Fn(&T, &mut [u8]) -> ApiResult<()> + Sync,
) -> Result<f64> {
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let ready = Barrier::new(cores);
    let begin = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                let mut to = vec![0; BUFFER_BYTES];
                let mut once = |buffer| failed.fetch_or(work(buffer, &mut to).is_err(), Ordering::Relaxed);
                buffers.first().map(&mut once);
                ready.wait();
                begin.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(Instant::now);
                while let Some(buffer) = buffers.get(next.fetch_add(1, Ordering::Relaxed)) {
                    once(buffer);
                }
            });
        }
    });
    let time = begin.into_inner().unwrap_or_else(PoisonError::into_inner).map(|begin| begin.elapsed());
    let time = time.ok_or("no thread ran")?;
    if failed.into_inner() {
        return Err("reading or the codec failed".into());
    }
    Ok((buffers.len() * BUFFER_BYTES) as f64 / time.as_nanos() as f64)
}
