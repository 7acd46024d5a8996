//! Views: values of at most 12 bytes in place, longer ones as length, first 4 bytes, buffer and offset.

use crossdock_memory::{Buffer, BufferMut, Result};
use crossdock_plugin_api::abi;

use crate::jobs::{JobArg, Jobs, blocks, long_blocks};
use crate::limits::VIEW_BYTES as BYTES;
use crate::rows::{CHECK_VIEWS, RENUMBER_VIEWS};
use crate::{Checks, bits};

/// How many data buffers a job has room for, beside its head and its seven other arguments.
const WINDOW: usize = abi::MAX_KERNEL_ARGS - 8;

impl<'a> Checks<'a> {
    /// Finds the first of `len` views, from view `first` on, that is not null (`validity`: bitmap and its first bit) and
    /// breaks a rule: a negative length, a range outside its data buffer, a prefix that differs from the data, bytes after
    /// a short value that are not zero, or, if `utf8`, text that is not UTF-8.
    ///
    /// Where there are more data buffers than one job has room for, several share the cell, each of which looks at the
    /// views into its own window of them; the first looks at all that need no buffer, too.
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
        // Without data there is one window, of no buffers.
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
            // A buffer that is missing keeps its place, with no bytes.
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
    /// Adds `more` to the buffer of each of the `n` views at byte `at` that has one, in a buffer that is being filled.
    pub fn renumber_views(&mut self, buffer: &mut BufferMut, at: usize, n: usize, more: u32) -> Result<()> {
        let bytes = n.saturating_mul(BYTES);
        let args = [JobArg::write(buffer, at, bytes)?, JobArg::Value(more.into())];
        self.push(&RENUMBER_VIEWS, blocks(bytes), args)
    }
}
