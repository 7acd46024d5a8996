//! What the codec gives with nothing around it: the plugin's own calls, on all cores at once.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::Instant;

use crossdock_arrow_ipc::Codec;
use crossdock_plugin_api::Result as Done;

use super::data::fill;
use crate::Result;

const BUFFER_BYTES: usize = 8 << 20;
/// Of unpacking; packing takes longer.
const BUFFERS_A_CORE: usize = 48;
const PREFIX_BYTES: usize = 8;

/// GB/s of unpacked bytes.
pub struct Bare {
    pub unpacking: f64,
    pub packing: f64,
}

/// `None` where there is no codec.
pub fn measure(name: &str) -> Result<Option<Bare>> {
    let codec = match name {
        "lz4" => Codec::Lz4,
        "zstd" => Codec::Zstd,
        _ => return Ok(None),
    };
    let mut plain = vec![0; BUFFER_BYTES];
    fill(&mut plain, 1);
    let packed = codec.compress(&plain)?;
    let packed = packed.get(PREFIX_BYTES..).ok_or("a compressed buffer has no prefix")?;
    let unpacking = on_all_cores(BUFFERS_A_CORE, |to| codec.decompress(packed, to))?;
    let packing = on_all_cores(BUFFERS_A_CORE / 4, |_| codec.compress(&plain).map(drop))?;
    Ok(Some(Bare { unpacking, packing }))
}

/// GB/s of `work`, each call on a buffer of [`BUFFER_BYTES`]: threads that have what they keep between calls, and take
/// what is next, so that all are done at the same time.
fn on_all_cores(buffers_a_core: usize, work: impl Fn(&mut [u8]) -> Done<()> + Sync) -> Result<f64> {
    let cores = std::thread::available_parallelism()?.get();
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let ready = Barrier::new(cores);
    let begin = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                let mut to = vec![0; BUFFER_BYTES];
                let mut once = || failed.fetch_or(work(&mut to).is_err(), Ordering::Relaxed);
                once();
                ready.wait();
                begin.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(Instant::now);
                while next.fetch_add(1, Ordering::Relaxed) < cores * buffers_a_core {
                    once();
                }
            });
        }
    });
    let time = begin.into_inner().unwrap_or_else(PoisonError::into_inner).map(|begin| begin.elapsed());
    let time = time.ok_or("no thread ran")?;
    if failed.into_inner() {
        return Err("the codec failed".into());
    }
    Ok((cores * buffers_a_core * BUFFER_BYTES) as f64 / time.as_nanos() as f64)
}
