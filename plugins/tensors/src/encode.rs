//! Converts elements of Arrow to the elements of a file.

use crossdock_memory::{Error, Result};

/// The number of bytes that are converted at once.
const PIECE_BYTES: usize = 64 << 10;
/// NumPy's NaT.
const NAT: i64 = i64::MIN;

/// Receives the bytes of a file, in order and in parts.
pub type Output<'a> = dyn FnMut(&[u8]) -> Result<()> + 'a;

/// A part of a bitmap.
#[derive(Clone, Copy)]
pub struct Bits<'a> {
    pub bytes: &'a [u8],
    /// The first bit, from the first byte on.
    pub first: usize,
}

impl Bits<'_> {
    fn get(&self, i: usize) -> bool {
        let i = self.first + i;
        self.bytes.get(i / 8).is_some_and(|byte| byte >> (i % 8) & 1 == 1)
    }
}

/// Converts `len` bits to bytes.
pub fn unpack(bits: Bits<'_>, len: usize, f: &mut Output<'_>) -> Result<()> {
    in_pieces((0..len).map(|i| [u8::from(bits.get(i))]), f)
}

/// Replaces bytes that are not 0 by 1, because other bytes are no booleans in a file.
pub fn normalise(bytes: &[u8], f: &mut Output<'_>) -> Result<()> {
    for piece in bytes.chunks(PIECE_BYTES) {
        if piece.iter().all(|byte| *byte <= 1) {
            f(piece)?;
        } else {
            f(&piece.iter().map(|byte| u8::from(*byte != 0)).collect::<Vec<_>>())?;
        }
    }
    Ok(())
}

/// Converts numbers of 8 bytes. Nulls become NaT.
pub fn times(values: &[u8], validity: Option<Bits<'_>>, f: &mut Output<'_>) -> Result<()> {
    let Some(validity) = validity else { return f(values) };
    let values = values.as_chunks::<8>().0.iter().enumerate();
    in_pieces(values.map(|(i, value)| if validity.get(i) { *value } else { NAT.to_le_bytes() }), f)
}

/// Converts numbers of days from 4 to 8 bytes. Nulls become NaT.
pub fn days(values: &[u8], validity: Option<Bits<'_>>, f: &mut Output<'_>) -> Result<()> {
    let values = values.as_chunks::<4>().0.iter().enumerate();
    let days = values.map(|(i, day)| match validity {
        Some(validity) if !validity.get(i) => NAT,
        _ => i64::from(i32::from_le_bytes(*day)),
    });
    in_pieces(days.map(i64::to_le_bytes), f)
}

/// Checks that no number of 8 bytes is NaT.
///
/// # Errors
/// Unsupported, with the position of the first such number, if one is NaT and not null.
pub fn check_times(values: &[u8], validity: Option<Bits<'_>>) -> Result<()> {
    let mut values = values.as_chunks::<8>().0.iter().enumerate();
    let is_nat = |(i, value): &(usize, &[u8; 8])| {
        i64::from_le_bytes(**value) == NAT && validity.is_none_or(|validity| validity.get(*i))
    };
    match values.find(is_nat) {
        None => Ok(()),
        Some((i, _)) => Err(Error::unsupported(format!(
            "value {i} is {NAT}, which NumPy reads as NaT: replace it by null or by another value"
        ))),
    }
}

/// Passes elements of `N` bytes in parts.
fn in_pieces<const N: usize>(elements: impl Iterator<Item = [u8; N]>, f: &mut Output<'_>) -> Result<()> {
    let mut piece = Vec::new();
    for element in elements {
        piece.extend_from_slice(&element);
        if piece.len() >= PIECE_BYTES {
            f(&piece)?;
            piece.clear();
        }
    }
    if piece.is_empty() { Ok(()) } else { f(&piece) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes that a conversion passes, and the number of parts.
    fn collect(convert: impl FnOnce(&mut Output<'_>) -> Result<()>) -> (Vec<u8>, usize) {
        let (mut bytes, mut n) = (Vec::new(), 0);
        convert(&mut |piece| {
            bytes.extend_from_slice(piece);
            n += 1;
            Ok(())
        })
        .unwrap();
        (bytes, n)
    }

    #[test]
    fn bits_become_bytes() {
        let unpacked = |bytes: &[u8], first, len| collect(|f| unpack(Bits { bytes, first }, len, f));
        assert_eq!(unpacked(&[0b1010_0110, 0b1], 1, 8), (vec![1, 1, 0, 0, 1, 0, 1, 1], 1));
        assert_eq!(unpacked(&[], 0, 0), (vec![], 0));
        assert_eq!(unpacked(&vec![0xff; 10_000], 3, 79_000), (vec![1; 79_000], 2));
    }

    #[test]
    fn booleans_become_0_and_1() {
        assert_eq!(collect(|f| normalise(&[0, 1, 2, 255, 0], f)), (vec![0, 1, 1, 1, 0], 1));
    }

    #[test]
    fn nulls_become_nat() {
        let validity = Some(Bits { bytes: &[0b1010_0000], first: 5 });
        let values = [1i64, 2, -3];
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let expected: Vec<u8> = [1, NAT, -3].iter().flat_map(|value: &i64| value.to_le_bytes()).collect();
        assert_eq!(collect(|f| times(&bytes, validity, f)), (expected.clone(), 1));
        assert_eq!(collect(|f| times(&bytes, None, f)), (bytes, 1));
        let short: Vec<u8> = values.iter().flat_map(|value| (*value as i32).to_le_bytes()).collect();
        assert_eq!(collect(|f| days(&short, validity, f)), (expected, 1));
        let expected: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        assert_eq!(collect(|f| days(&short, None, f)), (expected, 1));
    }

    #[test]
    fn nat_that_is_not_null_is_an_error() {
        let bytes: Vec<u8> = [NAT, 7, NAT].iter().flat_map(|value: &i64| value.to_le_bytes()).collect();
        let validity = |bits| Some(Bits { bytes: bits, first: 0 });
        assert!(check_times(&bytes, validity(&[0b010])).is_ok());
        assert!(check_times(&bytes, validity(&[0b110])).unwrap_err().message().contains("value 2 is -9223"));
        assert!(check_times(&bytes, None).unwrap_err().message().contains("value 0 is -9223"));
    }
}
