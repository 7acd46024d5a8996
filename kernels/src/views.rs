//! Checks and renumbers views. A value of at most 12 bytes is in the view; a longer one is length,
//! first 4 bytes, buffer and offset.

use crossdock_memory::{Buffer, BufferMut, Result};
use crossdock_plugin_api::abi;

use crate::jobs::{JobArg, Jobs, blocks, long_blocks};
use crate::limits::VIEW_BYTES as BYTES;
use crate::rows::{CHECK_VIEWS, RENUMBER_VIEWS};
use crate::{Checks, bits};

/// Maximum number of data buffers of a job, which also has a head and seven other arguments.
const WINDOW: usize = abi::MAX_KERNEL_ARGS - 8;

impl<'a> Checks<'a> {
    /// Finds the first of `len` views, from view `first` on, that is valid (`validity`: bitmap and
    /// its first bit) and malformed: a negative length, a range outside of its data buffer, a
    /// prefix that differs from the data, nonzero bytes after an inline value, or, if `utf8`, text
    /// that is not UTF-8.
    ///
    /// If one job cannot have all data buffers, several jobs share the cell. Each job checks the
    /// views into its own window of buffers, and the first one also the views that need no buffer.
    pub fn views(
        &mut self,
        views: &'a Buffer,
        first: usize,
        len: usize,
        validity: Option<(&'a Buffer, usize)>,
        data: &[Option<&'a Buffer>],
        utf8: bool,
    ) -> Result<usize> {
        let cell = self.cells(1);
        let bytes = len.saturating_mul(BYTES);
        // Without data buffers, there is one empty window.
        for window in 0..data.len().div_ceil(WINDOW).max(1) {
            let buffers = data.iter().skip(window * WINDOW).take(WINDOW);
            let [bits, shift] = bits::optional_args(validity, len, views);
            let args = [
                JobArg::Read(views, first.saturating_mul(BYTES), bytes),
                bits,
                shift,
                JobArg::Value(utf8.into()),
                JobArg::Value(data.len() as u64),
                JobArg::Value((window * WINDOW) as u64),
                JobArg::Cells(cell, 1),
            ];
            // A missing buffer is an argument without bytes.
            let buffers = buffers.map(|slot| {
                let bytes = slot.and_then(Buffer::len).unwrap_or(0);
                JobArg::Read(slot.unwrap_or(views), 0, bytes)
            });
            self.push(&CHECK_VIEWS, long_blocks(bytes), args.into_iter().chain(buffers))?;
        }
        Ok(cell)
    }
}

impl Jobs<'_> {
    /// Adds `more` to the buffer index of each of the `n` views at byte `at` of `buffer` that is
    /// not inline.
    pub fn renumber_views(&mut self, buffer: &mut BufferMut, at: usize, n: usize, more: u32) -> Result<()> {
        let bytes = n.saturating_mul(BYTES);
        let args = [JobArg::write(buffer, at, bytes)?, JobArg::Value(more.into())];
        self.push(&RENUMBER_VIEWS, blocks(bytes), args)
    }
}
