//! What reading and the codec give with nothing around them, on all cores at once.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::Instant;

use crossdock_arrow_ipc::Codec;
use crossdock_plugin_api::{Error, Result as Done};

use super::data::fill;
use crate::Result;

/// As a column of the file's table has in one batch.
const BUFFER_BYTES: usize = 8 << 20;
/// Of unpacking; packing takes longer.
const BUFFERS_A_CORE: usize = 32;
/// With other values each, as the columns have.
const CONTENTS: usize = 8;
const PREFIX_BYTES: usize = 8;

/// Buffers as a file has them: each packed one lies in memory of its own, and all of them in no cache.
pub struct Bare {
    codec: Codec,
    plain: Vec<Vec<u8>>,
    packed: Vec<Vec<u8>>,
    cores: usize,
}

impl Bare {
    /// `None` where there is no codec.
    pub fn new(name: &str) -> Result<Option<Self>> {
        let codec = match name {
            "lz4" => Codec::Lz4,
            "zstd" => Codec::Zstd,
            _ => return Ok(None),
        };
        let cores = std::thread::available_parallelism()?.get();
        let (mut plain, mut contents) = (Vec::new(), Vec::new());
        for seed in 0..CONTENTS {
            let mut column = vec![0; BUFFER_BYTES];
            fill(&mut column, seed as u64 + 1);
            contents.push(codec.compress(&column)?.get(PREFIX_BYTES..).ok_or("no prefix")?.to_vec());
            plain.push(column);
        }
        let packed = contents.iter().cycle().take(cores * BUFFERS_A_CORE).cloned().collect();
        Ok(Some(Self { codec, plain, packed, cores }))
    }

    /// GB/s of unpacked bytes.
    pub fn unpacking(&self) -> Result<f64> {
        on_all_cores(self.cores, &self.packed, |packed, to| self.codec.decompress(packed, to))
    }

    /// The same.
    pub fn packing(&self) -> Result<f64> {
        let plain: Vec<_> = self.plain.iter().cycle().take(self.packed.len() / 4).collect();
        on_all_cores(self.cores, &plain, |plain, _| self.codec.compress(plain).map(drop))
    }
}

/// GB/s of a file's bytes read into memory that each thread has, in pieces of a buffer's size.
pub fn reading(path: &Path) -> Result<f64> {
    let file = File::open(path)?;
    let pieces: Vec<_> =
        (0..file.metadata()?.len() / BUFFER_BYTES as u64).map(|i| i * BUFFER_BYTES as u64).collect();
    let read =
        |at: &u64, to: &mut [u8]| file.read_exact_at(to, *at).map_err(|error| Error::io(error.to_string()));
    on_all_cores(std::thread::available_parallelism()?.get(), &pieces, read)
}

/// GB/s of `work`, once for each of the buffers: threads that have what they keep between calls, and take what is next, so
/// that all are done at the same time.
fn on_all_cores<T: Sync>(
    cores: usize,
    buffers: &[T],
    work: impl Fn(&T, &mut [u8]) -> Done<()> + Sync,
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
