//! Copies buffers into one block of memory.

use crossdock_kernels::Jobs;
use crossdock_memory::{Buffer, BufferMut, Copies, Result, Stream};
use crossdock_plugin_api::abi;

/// The minimum number of copies for a kernel. Enqueueing a launch takes as long as enqueueing a few
/// copies.
const MIN_LAUNCH_COPIES: usize = 4;

/// Copies each buffer to its offset in `block`. All are on the device of `stream`. A kernel copies
/// many buffers, because each copy would be a command of its own.
///
/// # Errors
///
/// A copy lies outside `block`, the length of a buffer is unknown, or the device fails.
pub fn copy_to_block(block: &mut BufferMut, buffers: &[(Buffer, usize)], stream: &Stream) -> Result<()> {
    if stream.device().r#type == abi::DEVICE_CUDA && buffers.len() >= MIN_LAUNCH_COPIES {
        let mut jobs = Jobs::new();
        for (buffer, offset) in buffers.iter().filter(|(buffer, _)| buffer.len() != Some(0)) {
            jobs.copy_range(buffer, 0, buffer.len().unwrap_or(0), block, *offset)?;
        }
        return jobs.launch(stream);
    }
    let mut copies = Copies::new();
    for (buffer, offset) in buffers {
        copies.push(block, *offset, buffer, 0, buffer.len().unwrap_or(0))?;
    }
    copies.submit(stream)
}
