//! Views: values of at most 12 bytes in place, longer ones as length, first 4 bytes, buffer and offset.

use crossdock_memory::{Arg, Buffer, Result, Stream};

use crate::door::{Args, grid, kernel};
use crate::{Cells, bits};

kernel!(CHECK_VIEWS, c"crossdock_check_views", check);

const BYTES: usize = 16;
const IN_PLACE: usize = 12;

/// Finds the first of `len` views, from view `first` on, that is not null (`validity`: bitmap and its first bit) and
/// breaks a rule: a negative length, a range outside its data buffer, a prefix that differs from the data, bytes after a
/// short value that are not zero, or, if `utf8`, text that is not UTF-8.
#[allow(clippy::too_many_arguments)]
pub fn check_views(
    stream: &Stream,
    views: &Buffer,
    first: usize,
    len: usize,
    validity: Option<(&Buffer, usize)>,
    data: &[Option<&Buffer>],
    utf8: bool,
    cells: &mut Cells,
    at: usize,
) -> Result<()> {
    let [bits, shift] = bits::optional_args(validity, len, views);
    let mut args = vec![
        Arg::Read { buffer: views, offset: first.saturating_mul(BYTES), bytes: len.saturating_mul(BYTES) },
        bits,
        shift,
        Arg::Value(utf8.into()),
        cells.arg(at)?,
    ];
    // A buffer that is missing keeps its place, with no bytes.
    args.extend(data.iter().map(|slot| {
        let buffer = slot.unwrap_or(views);
        Arg::Read { buffer, offset: 0, bytes: slot.and_then(Buffer::len).unwrap_or(0) }
    }));
    // SAFETY: views, validity, its first bit, whether text, cell, data buffers: as `check` reads them.
    unsafe { stream.launch(&CHECK_VIEWS, grid(len), &mut args) }
}

fn check(args: Args<'_>) -> Option<()> {
    const DATA: usize = 5;
    let (views, validity, first, utf8) = (args.read(0)?, args.read(1)?, args.index(2)?, args.value(3)? != 0);
    let data: Vec<&[u8]> = (DATA..args.len()).map(|i| args.read(i)).collect::<Option<_>>()?;
    let found = views
        .as_chunks::<BYTES>()
        .0
        .iter()
        .enumerate()
        .find(|(i, view)| bits::is_set(validity, first + i) && !is_right(view, &data, utf8))
        .map(|(i, _)| i);
    args.found(4, found)
}

fn is_right(view: &[u8; BYTES], data: &[&[u8]], utf8: bool) -> bool {
    value(view, data).is_some_and(|value| !utf8 || std::str::from_utf8(value).is_ok())
}

/// What a view stands for, or `None` if it breaks a rule.
fn value<'a>(view: &'a [u8; BYTES], data: &[&'a [u8]]) -> Option<&'a [u8]> {
    let (head, rest) = view.split_first_chunk::<4>()?;
    let len = usize::try_from(i32::from_ne_bytes(*head)).ok()?;
    if len <= IN_PLACE {
        let (value, padding) = rest.split_at_checked(len)?;
        return padding.iter().all(|byte| *byte == 0).then_some(value);
    }
    let (prefix, rest) = rest.split_first_chunk::<4>()?;
    let (buffer, offset) = rest.split_first_chunk::<4>()?;
    let buffer = usize::try_from(i32::from_ne_bytes(*buffer)).ok()?;
    let offset = usize::try_from(i32::from_ne_bytes(offset.try_into().ok()?)).ok()?;
    let value = data.get(buffer)?.get(offset..offset.checked_add(len)?)?;
    value.starts_with(prefix).then_some(value)
}
