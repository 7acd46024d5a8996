//! What the codec gives with nothing around it: the plugin's own calls, on all cores at once.

use std::sync::atomic::{AtomicUsize, Ordering};

use crossdock_arrow_ipc::Codec;

use super::speed;
use crate::Result;

const BUFFER_BYTES: usize = 8 << 20;
const BUFFERS_A_CORE: usize = 8;
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
    let cores = std::thread::available_parallelism()?.get();
    let mut plain = vec![0; BUFFER_BYTES];
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    for word in plain.chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&(state % 5_000).to_le_bytes());
    }
    let packed = codec.compress(&plain)?;
    let packed = packed.get(PREFIX_BYTES..).ok_or("a compressed buffer has no prefix")?;
    let bytes = (cores * BUFFERS_A_CORE * BUFFER_BYTES) as u64;
    let failed = AtomicUsize::new(0);
    let count = |result: crossdock_plugin_api::Result<()>| {
        failed.fetch_add(usize::from(result.is_err()), Ordering::Relaxed);
    };
    let mut targets = vec![vec![0; BUFFER_BYTES * BUFFERS_A_CORE]; cores];
    let unpacking = speed(3, bytes, || {
        std::thread::scope(|scope| {
            for target in &mut targets {
                let unpack = || {
                    target.chunks_exact_mut(BUFFER_BYTES).for_each(|to| count(codec.decompress(packed, to)))
                };
                scope.spawn(unpack);
            }
        });
        Ok(())
    })?;
    let packing = speed(3, bytes, || {
        std::thread::scope(|scope| {
            for _ in 0..cores {
                scope.spawn(|| (0..BUFFERS_A_CORE).for_each(|_| count(codec.compress(&plain).map(drop))));
            }
        });
        Ok(())
    })?;
    if failed.into_inner() > 0 {
        return Err(format!("the codec {name} failed").into());
    }
    Ok(Some(Bare { unpacking, packing }))
}
