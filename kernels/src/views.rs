//! Views: values of at most 12 bytes in place, longer ones as length, first 4 bytes, buffer and offset.

use crossdock_memory::{Buffer, BufferMut, Result};
use crossdock_plugin_api::abi;

use crate::door::Args;
use crate::jobs::{JobArg, Jobs, blocks, long_blocks};
use crate::table::kernel;
use crate::{Checks, bits};

kernel!(
    CHECK_VIEWS,
    c"crossdock_check_views",
    (views: Read, validity: Read, first: Value, utf8: Value, n_data: Value, window: Value, cell: Write),
    [data: Read],
    check
);
kernel!(RENUMBER_VIEWS, c"crossdock_renumber_views", (views: Write, add: Value), renumber);

const BYTES: usize = 16;
const IN_PLACE: usize = 12;

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

fn renumber(args: Args<'_>) -> Option<()> {
    let (views, more) = (args.write(0)?, args.value(1)? as u32);
    for view in views.as_chunks_mut::<BYTES>().0 {
        let [len, _, buffer, _] = words(view);
        if usize::try_from(len.cast_signed()).is_ok_and(|len| len > IN_PLACE) {
            let [.., to, _] = view.as_chunks_mut::<4>().0 else { return None };
            *to = buffer.wrapping_add(more).to_ne_bytes();
        }
    }
    Some(())
}

/// The four words of a view.
fn words(view: &[u8; BYTES]) -> [u32; 4] {
    let mut words = [0; 4];
    words.iter_mut().zip(view.as_chunks::<4>().0).for_each(|(to, word)| *to = u32::from_ne_bytes(*word));
    words
}

fn check(args: Args<'_>) -> Option<()> {
    const DATA: usize = 7;
    let (views, validity, first, utf8) = (args.read(0)?, args.read(1)?, args.index(2)?, args.value(3)? != 0);
    let data: Vec<&[u8]> = (DATA..args.len()).map(|i| args.read(i)).collect::<Option<_>>()?;
    let window = Window { n_data: args.index(4)?, first: args.index(5)?, data: &data };
    let found = views
        .as_chunks::<BYTES>()
        .0
        .iter()
        .enumerate()
        .find(|(i, view)| bits::is_set(validity, first + i) && !is_right(view, &window, utf8))
        .map(|(i, _)| i);
    args.found(6, found)
}

/// Some of an array's data buffers.
struct Window<'a> {
    /// How many the array has.
    n_data: usize,
    /// The first that is here.
    first: usize,
    data: &'a [&'a [u8]],
}

/// Whether a view keeps the rules, as far as this window can tell.
fn is_right(view: &[u8; BYTES], window: &Window<'_>, utf8: bool) -> bool {
    match value(view, window) {
        Found::Value(value) => !utf8 || std::str::from_utf8(value).is_ok(),
        Found::Elsewhere => true,
        Found::Wrong => false,
    }
}

enum Found<'a> {
    Value(&'a [u8]),
    /// Another window's to look at.
    Elsewhere,
    Wrong,
}

fn value<'a>(view: &'a [u8; BYTES], window: &Window<'a>) -> Found<'a> {
    let word = |i: usize| {
        let bytes = view.get(i * 4..).and_then(|rest| rest.first_chunk::<4>());
        usize::try_from(bytes.map_or(-1, |bytes| i32::from_ne_bytes(*bytes)))
    };
    let (_, rest) = view.split_at(4);
    let Ok(len) = word(0) else { return window.of_first(Found::Wrong) };
    if let (0..=IN_PLACE, Some((value, padding))) = (len, rest.split_at_checked(len)) {
        let zeros = padding.iter().all(|byte| *byte == 0);
        return window.of_first(if zeros { Found::Value(value) } else { Found::Wrong });
    }
    let Some(buffer) = word(2).ok().filter(|buffer| *buffer < window.n_data) else {
        return window.of_first(Found::Wrong);
    };
    let Some(data) = buffer.checked_sub(window.first).and_then(|i| window.data.get(i)) else {
        return Found::Elsewhere;
    };
    let range = word(3).ok().and_then(|offset| data.get(offset..offset.checked_add(len)?));
    match (range, rest.first_chunk::<4>()) {
        (Some(value), Some(prefix)) if value.starts_with(prefix) => Found::Value(value),
        _ => Found::Wrong,
    }
}

impl Window<'_> {
    /// What needs no buffer is the first window's to look at.
    fn of_first<'a>(&self, found: Found<'a>) -> Found<'a> {
        if self.first == 0 { found } else { Found::Elsewhere }
    }
}
