//! Checks and renumbers views. A value of at most 12 bytes is stored in its view. The view of a
//! longer value has its length, its first 4 bytes, the index of its data buffer and its offset in
//! this buffer.

use crossdock_kernels::limits::VIEW_BYTES as BYTES;

use crate::bits;
use crate::door::Args;

const MAX_INLINE: usize = 12;

pub(crate) fn renumber(args: Args<'_>) -> Option<()> {
    let (views, more) = (args.write(0)?, args.value(1)? as u32);
    for view in views.as_chunks_mut::<BYTES>().0 {
        let [len, _, buffer, _] = words(view);
        if usize::try_from(len.cast_signed()).is_ok_and(|len| len > MAX_INLINE) {
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

pub(crate) fn check(args: Args<'_>) -> Option<()> {
    const DATA: usize = 7;
    let (views, validity, first, utf8) = (args.read(0)?, args.read(1)?, args.index(2)?, args.value(3)? != 0);
    let data: Vec<&[u8]> = (DATA..args.len()).map(|i| args.read(i)).collect::<Option<_>>()?;
    let window = Window { n_data: args.index(4)?, first: args.index(5)?, data: &data };
    let first_wrong = views
        .as_chunks::<BYTES>()
        .0
        .iter()
        .enumerate()
        .find(|(i, view)| bits::is_set(validity, first + i) && !is_valid(view, &window, utf8))
        .map(|(i, _)| i);
    args.report_wrong(6, first_wrong)
}

/// A range of the data buffers of an array. A job checks only the views that refer to a buffer in
/// the range of the job.
struct Window<'a> {
    /// Number of data buffers of the array.
    n_data: usize,
    /// Index, in the array, of the window's first buffer.
    first: usize,
    data: &'a [&'a [u8]],
}

/// Whether a view is valid. The result is true for a view that refers to a buffer outside of this
/// window, because another job checks that view.
fn is_valid(view: &[u8; BYTES], window: &Window<'_>, utf8: bool) -> bool {
    match value(view, window) {
        ViewValue::Value(value) => !utf8 || std::str::from_utf8(value).is_ok(),
        ViewValue::InOtherWindow => true,
        ViewValue::Malformed => false,
    }
}

enum ViewValue<'a> {
    Value(&'a [u8]),
    /// The job for another window checks this view.
    InOtherWindow,
    Malformed,
}

fn value<'a>(view: &'a [u8; BYTES], window: &Window<'a>) -> ViewValue<'a> {
    let word = |i: usize| {
        let bytes = view.get(i * 4..).and_then(|rest| rest.first_chunk::<4>());
        usize::try_from(bytes.map_or(-1, |bytes| i32::from_ne_bytes(*bytes)))
    };
    let (_, rest) = view.split_at(4);
    let Ok(len) = word(0) else { return window.in_first(ViewValue::Malformed) };
    if let (0..=MAX_INLINE, Some((value, padding))) = (len, rest.split_at_checked(len)) {
        let is_zero = padding.iter().all(|byte| *byte == 0);
        return window.in_first(if is_zero { ViewValue::Value(value) } else { ViewValue::Malformed });
    }
    let Some(buffer) = word(2).ok().filter(|buffer| *buffer < window.n_data) else {
        return window.in_first(ViewValue::Malformed);
    };
    let Some(data) = buffer.checked_sub(window.first).and_then(|i| window.data.get(i)) else {
        return ViewValue::InOtherWindow;
    };
    let range = word(3).ok().and_then(|offset| data.get(offset..offset.checked_add(len)?));
    match (range, rest.first_chunk::<4>()) {
        (Some(value), Some(prefix)) if value.starts_with(prefix) => ViewValue::Value(value),
        _ => ViewValue::Malformed,
    }
}

impl Window<'_> {
    /// The job for the first window also checks the views that refer to no buffer.
    fn in_first<'a>(&self, value: ViewValue<'a>) -> ViewValue<'a> {
        if self.first == 0 { value } else { ViewValue::InOtherWindow }
    }
}
