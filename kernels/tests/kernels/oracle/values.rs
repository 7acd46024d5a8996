//! References for kernels that check text and views.

use crossdock_kernels::{Checks, Jobs, Offsets};

use super::Case;
use crate::common::bit;

const PIECES: [&str; 8] = ["a", "Zz", "ö", "ß", "日", "€", "🦀", "𝄞"];

/// Random text of about `n` bytes, in which about `ascii` of every 8 characters are ASCII.
pub(super) fn text(case: &Case<'_>, n: usize, ascii: usize) -> String {
    let mut text = String::new();
    while text.len() < n {
        text += if case.below(8) < ascii { PIECES[case.below(2)] } else { PIECES[case.below(8)] };
    }
    text
}

/// Checks values of many lengths. Then checks random bytes, and values that are cut within a
/// character.
pub fn utf8(case: &Case<'_>) {
    for (ascii, noise, any_cut) in [(8, 0, false), (0, 0, false), (7, 1, false), (4, 40, false), (3, 0, true)]
    {
        for width in [4, 8] {
            let mut data = text(case, case.n, ascii).into_bytes();
            let whole = String::from_utf8(data.clone()).unwrap();
            let lead = case.below(20).min(data.len());
            let mut cuts: Vec<usize> = (0..1 + case.n / 9).map(|_| case.below(data.len() + 1)).collect();
            if !any_cut {
                cuts.iter_mut().for_each(|cut| *cut = whole.floor_char_boundary(*cut));
            }
            cuts.extend([whole.floor_char_boundary(lead), data.len()]);
            cuts.sort_unstable();
            for _ in 0..noise.min(data.len()) {
                let i = case.below(data.len());
                data[i] = [0x80, 0xbf, 0xc0, 0xc3, 0xe0, 0xed, 0xf0, 0xf4, 0xf5, 0xff][case.below(10)];
            }
            if noise > 0 && data.len() > 8 {
                // Each sequence violates one rule: a surrogate, overlong forms, and a character
                // beyond the last one.
                let i = case.below(data.len() - 4);
                let wrong: [&[u8]; 5] =
                    [b"\xed\xa0\x80", b"\xe0\x9f\x80", b"\xf0\x8f\xbf\xbf", b"\xf4\x90\x80\x80", b"\xc1\xbf"];
                let wrong = wrong[case.below(5)];
                data[i..i + wrong.len()].copy_from_slice(wrong);
            }
            let len = cuts.len() - 1;
            let bytes: Vec<u8> = cuts.iter().flat_map(|cut| cut.to_le_bytes()[..width].to_vec()).collect();
            let first = case.below(20);
            let bits = case.bytes((first + len).div_ceil(8));
            let (buffer, data_buffer, validity) =
                (case.buffer(&bytes), case.buffer(&data), case.buffer(&bits));
            let optional_validity = (case.below(2) == 0).then_some((&validity, first));
            let offsets = Offsets { buffer: &buffer, width_bytes: width, first: 0, len };
            let mut checks = Checks::new();
            let checked = checks.offsets(offsets, data.len() as u64).unwrap();
            let cell = checks.utf8(offsets, checked, &data_buffer, optional_validity).unwrap();
            let findings = checks.run(case.s).unwrap();
            let wrong = |i: &usize| {
                (optional_validity.is_none() || bit(&bits, first + i))
                    && std::str::from_utf8(&data[cuts[*i]..cuts[*i + 1]]).is_err()
            };
            let expected = (0..len).find(wrong).map(|i| i as u64);
            assert_eq!(findings.first_wrong(checked), None);
            assert_eq!(findings.first_wrong(cell), expected, "n {} ascii {ascii} noise {noise}", case.n);
        }
    }
}

/// Checks views of many lengths. The views refer to more buffers than fit into one launch.
pub fn views(case: &Case<'_>) {
    for (n_data, noise, utf8) in [(0, 0, true), (3, 1, true), (400, 1, false), (400, 60, true)] {
        let case = &Case { n: case.n.min(5000), ..case.again() };
        let data: Vec<Vec<u8>> =
            (0..n_data).map(|i| text(case, 300, if i % 2 == 0 { 8 } else { 6 }).into_bytes()).collect();
        let mut data = data;
        let mut views: Vec<[u8; 16]> = (0..case.n).map(|_| view(case, &data)).collect();
        if noise > 0 {
            // Inserts an invalid byte far after the prefix that the view contains.
            let i = case.below(n_data);
            data[i][250] = 0xff;
        }
        for _ in 0..noise.min(case.n) {
            let (i, byte) = (case.below(case.n), case.below(16));
            views[i][byte] ^= 1 << case.below(8);
        }
        let first = case.below(20);
        let bits = case.bytes((first + case.n).div_ceil(8));
        let (buffer, validity) = (case.buffer(views.as_flattened()), case.buffer(&bits));
        let optional_validity = (case.below(2) == 0).then_some((&validity, first));
        // Every seventh buffer is missing.
        let buffers: Vec<_> =
            data.iter().enumerate().map(|(i, d)| (i % 7 != 6).then(|| case.buffer(d))).collect();
        let slots: Vec<_> = buffers.iter().map(Option::as_ref).collect();
        let mut checks = Checks::new();
        let cell = checks.views(&buffer, 0, case.n, optional_validity, &slots, utf8).unwrap();
        let findings = checks.run(case.s).unwrap();
        let wrong = |i: &usize| {
            let is_well_formed =
                value_of(&views[*i], &data).is_some_and(|value| !utf8 || std::str::from_utf8(value).is_ok());
            (optional_validity.is_none() || bit(&bits, first + i)) && !is_well_formed
        };
        let expected = (0..case.n).find(wrong).map(|i| i as u64);
        assert_eq!(findings.first_wrong(cell), expected, "n {} of {n_data} buffers, noise {noise}", case.n);
    }
}

/// Creates a valid view.
pub(super) fn view(case: &Case<'_>, data: &[Vec<u8>]) -> [u8; 16] {
    let mut view = [0; 16];
    let buffer = case.below(data.len().max(1));
    if data.is_empty() || buffer % 7 == 6 || case.below(2) == 0 {
        let mut value = text(case, case.below(12), 5);
        value.truncate(value.floor_char_boundary(12));
        view[0] = value.len() as u8;
        view[4..4 + value.len()].copy_from_slice(value.as_bytes());
        return view;
    }
    let text = std::str::from_utf8(&data[buffer]).unwrap();
    let begin = text.floor_char_boundary(case.below(200));
    let end = text.ceil_char_boundary(begin + 13 + case.below(text.len() - begin - 13));
    let value = &data[buffer][begin..end];
    view[..4].copy_from_slice(&(value.len() as u32).to_le_bytes());
    view[4..8].copy_from_slice(&value[..4]);
    view[8..12].copy_from_slice(&(buffer as u32).to_le_bytes());
    view[12..].copy_from_slice(&(begin as u32).to_le_bytes());
    view
}

/// The value of a well-formed view.
fn value_of<'a>(view: &'a [u8; 16], data: &'a [Vec<u8>]) -> Option<&'a [u8]> {
    let value = view_bytes(view, data)?;
    if value.len() <= 12 {
        return view[4 + value.len()..].iter().all(|byte| *byte == 0).then_some(value);
    }
    (value[..4] == view[4..8]).then_some(value)
}

/// The bytes to which a view refers. Every seventh buffer is missing.
pub(super) fn view_bytes<'a>(view: &'a [u8; 16], data: &'a [Vec<u8>]) -> Option<&'a [u8]> {
    let word = |i: usize| i32::from_le_bytes(view[i..i + 4].try_into().unwrap());
    let len = usize::try_from(word(0)).ok()?;
    if len <= 12 {
        return Some(&view[4..4 + len]);
    }
    let (buffer, begin) = (usize::try_from(word(8)).ok()?, usize::try_from(word(12)).ok()?);
    let bytes = if buffer % 7 == 6 { &[] } else { data.get(buffer)?.as_slice() };
    bytes.get(begin..begin + len)
}

pub fn renumber_views(case: &Case<'_>) {
    let mut views = case.bytes(case.n * 16);
    for view in views.chunks_exact_mut(16) {
        // Most lengths are near the maximum inline length. The other lengths are random.
        if case.below(3) > 0 {
            view[..4].copy_from_slice(&(case.below(26) as i32).to_le_bytes());
        }
    }
    let source = case.buffer(&views);
    let mut to = case.target(case.n * 16);
    case.s.copy(&mut to.buffer, to.at, &source, 0, views.len()).unwrap();
    let (mut jobs, more) = (Jobs::new(), case.word() as u32);
    jobs.renumber_views(&mut to.buffer, to.at, case.n, more).unwrap();
    jobs.launch(case.s).unwrap();
    for view in views.chunks_exact_mut(16) {
        let word = |i: usize| u32::from_le_bytes(view[i..i + 4].try_into().unwrap());
        if word(0) as i32 > 12 {
            let buffer = word(8).wrapping_add(more);
            view[8..12].copy_from_slice(&buffer.to_le_bytes());
        }
    }
    case.expect(to, &views, "views of other buffers");
}
