//! The context of the IPC benchmarks.

use std::time::Instant;

use crossdock::Session;
use crossdock_plugin_api::Device;

use crate::Result;

/// The session, the GPU and the number of runs.
pub(crate) struct Bench {
    pub session: Session,
    pub gpu: Device,
    pub runs: usize,
}

/// Returns the median speed, in GB/s, of `runs` runs of `f`, which moves `bytes` bytes, after one
/// run to warm up.
pub fn speed(runs: usize, bytes: u64, mut f: impl FnMut() -> Result<()>) -> Result<f64> {
    f()?;
    let mut times = Vec::new();
    for _ in 0..runs.max(1) {
        let start = Instant::now();
        f()?;
        times.push(start.elapsed().as_nanos() as u64);
    }
    Ok(bytes as f64 / crate::table::median(&times).max(1) as f64)
}
