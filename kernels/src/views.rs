//! Checks and renumbers views. A value of at most 12 bytes is stored in its view. The view of a
//! longer value has its length, its first 4 bytes, the index of its data buffer and its offset in
//! this buffer.

use crossdock_memory::{Buffer, BufferMut, Result};
use crossdock_plugin_api::abi;

use crate::jobs::{JobArg, Jobs, blocks, long_blocks};
use crate::limits::VIEW_BYTES as BYTES;
use crate::rows::{CHECK_VIEWS, RENUMBER_VIEWS};
use crate::{Checks, bits};

/// Maximum number of data buffers of one job. A job also has a head and seven more arguments, which
/// count against the limit of arguments.
const WINDOW: usize = abi::MAX_KERNEL_ARGS - 8;

impl<'a> Checks<'a> {
    /// Finds the first of `len` views, from view `first` on, that is not null (`validity`: bitmap
    /// and its first bit) and malformed. A view is malformed if it has a negative length, a range
    /// outside of its data buffer, a prefix that differs from the data, nonzero bytes after an
    /// inline value or, if `utf8` is set, text that is not UTF-8.
    ///
    /// If the data buffers exceed the limit of one job, several jobs share the cell. Each job
    /// checks the views that refer to its window of buffers. The first job also checks the views
    /// that refer to no buffer.
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
        // An array without data buffers has one empty window.
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
            // An argument without bytes stands for a missing buffer.
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
    /// Adds `more` to the buffer index of each view that is not inline, among the `n` views at byte
    /// `at` of `buffer`.
    pub fn renumber_views(&mut self, buffer: &mut BufferMut, at: usize, n: usize, more: u32) -> Result<()> {
        let bytes = n.saturating_mul(BYTES);
        let args = [JobArg::write(buffer, at, bytes)?, JobArg::Value(more.into())];
        self.push(&RENUMBER_VIEWS, blocks(bytes), args)
    }
}
