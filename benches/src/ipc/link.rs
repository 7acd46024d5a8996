//! Measures large copies between host and device.

use crossdock_memory::{BufferMut, Copies, Stream};
use crossdock_plugin_api::Device;

use super::bench::{Bench, speed};
use crate::Result;

const BLOCK_BYTES: usize = 256 << 20;
const ROUNDS: usize = 8;

/// The measured speeds of copies between host and device, in GB/s.
pub struct Link {
    pub to_device: f64,
    pub to_host: f64,
    pub pageable_to_device: f64,
    pub pageable_to_host: f64,
}

/// Returns the speed of copies from pinned memory to the device.
pub fn to_device(bench: &Bench) -> Result<f64> {
    let memory = bench.session.memory();
    let stream = memory.default_stream(bench.gpu)?;
    let mut block = memory.alloc_pinned(BLOCK_BYTES)?;
    block.host_slice_mut().ok_or("the host cannot write host memory")?.fill(1);
    one_way(
        &Bench { runs: 1, session: bench.session.clone(), gpu: bench.gpu },
        &stream,
        block,
        memory.alloc(&stream, BLOCK_BYTES)?,
    )
}

pub fn measure(bench: &Bench) -> Result<Link> {
    let memory = bench.session.memory();
    let stream = memory.default_stream(bench.gpu)?;
    let on_host = memory.default_stream(Device::CPU)?;
    let fill = |mut block: BufferMut| -> Result<BufferMut> {
        block.host_slice_mut().ok_or("the host cannot write host memory")?.fill(1);
        Ok(block)
    };
    let pinned = || -> Result<BufferMut> { fill(memory.alloc_pinned(BLOCK_BYTES)?) };
    let pageable = || -> Result<BufferMut> { fill(memory.alloc(&on_host, BLOCK_BYTES)?) };
    Ok(Link {
        to_device: one_way(bench, &stream, pinned()?, memory.alloc(&stream, BLOCK_BYTES)?)?,
        to_host: one_way(bench, &stream, memory.alloc(&stream, BLOCK_BYTES)?, pinned()?)?,
        pageable_to_device: one_way(bench, &stream, pageable()?, memory.alloc(&stream, BLOCK_BYTES)?)?,
        pageable_to_host: one_way(bench, &stream, memory.alloc(&stream, BLOCK_BYTES)?, pageable()?)?,
    })
}

fn one_way(bench: &Bench, stream: &Stream, from: BufferMut, mut to: BufferMut) -> Result<f64> {
    let from = from.freeze(stream)?;
    speed(bench.runs, (BLOCK_BYTES * ROUNDS) as u64, || {
        for _ in 0..ROUNDS {
            let mut copies = Copies::new();
            copies.push(&mut to, 0, &from, 0, BLOCK_BYTES)?;
            copies.submit(stream)?;
        }
        Ok(stream.synchronize()?)
    })
}
