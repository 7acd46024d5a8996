//! Decodes texts that are stored as codes.
//!
//! The codes of all values are contiguous, and the decoded bytes are contiguous too. For each
//! value, the input states where its codes end and to how many bytes they decode.
//!
//! Values are short, so codes are decoded in groups that may span several values. While a group is
//! decoded, the position of each code's output is recorded. Afterwards these positions determine
//! the decoded length of every value, which is compared with the declared length.

use crossdock_plugin_api::{Error, Result};

use super::words::{Index, check_len};

/// Maximum number of codes in a group.
pub(crate) const GROUP: usize = 1024;

/// Maximum number of bytes that a code decodes to.
pub(crate) const CODE_BYTES: usize = 16;

/// Size of a group's output. It has some spare bytes, because the decoder writes the maximum number
/// of bytes for every code.
pub(crate) const OUTPUT_BYTES: usize = GROUP * CODE_BYTES + 256;

/// The output position of each code of a group.
pub(crate) type Starts = [u16; GROUP];

/// Marks a code that no value may begin with, because it is the literal byte after an escape.
pub(crate) const NO_START: u16 = u16::MAX;

/// Decodes codes to bytes.
pub(crate) trait Coder {
    /// The type of a code.
    type Code;

    /// Decodes up to one group of codes, several at a time, and stops before an invalid code or the
    /// last few codes. Returns the number of codes and of decoded bytes.
    fn group(
        &self,
        codes: &[Self::Code],
        output: &mut [u8; OUTPUT_BYTES],
        starts: &mut Starts,
    ) -> (usize, usize);

    /// Decodes one code, or an escape with its byte. Returns the number of codes and of decoded
    /// bytes, or (0, 0) if the code is invalid.
    fn one(
        &self,
        codes: &[Self::Code],
        output: &mut [u8; OUTPUT_BYTES],
        starts: &mut Starts,
    ) -> (usize, usize);

    /// The error for the first code in `codes`, which belongs to value `value`.
    fn error_at(&self, codes: &[Self::Code], value: usize) -> Error;
}

/// A function that is called after each group, while the group's bytes are in the nearest cache.
/// Its arguments are all bytes decoded so far, and the number of complete values among them. The
/// lengths of these values have been checked.
pub type Progress<'a> = dyn FnMut(&[u8], usize) -> Result<()> + 'a;

/// Decodes values into `out`. The values must fill `out` exactly. Value `i` has the codes from
/// `offsets[i]` to `offsets[i + 1]` and `lengths[i]` bytes.
pub(crate) fn decode<C: Coder, O: Index, L: Index>(
    coder: &C,
    codes: &[C::Code],
    offsets: &[O],
    lengths: &[L],
    out: &mut [u8],
    progress: &mut Progress<'_>,
) -> Result<()> {
    let (mut ends, range) = Ends::new(offsets, lengths, codes.len())?;
    let codes = &codes[..range.end];
    let (mut code, mut byte) = (range.start, 0);
    let mut starts = [0; GROUP];
    let mut scratch = [0; OUTPUT_BYTES];
    while code < codes.len() {
        let rest = &codes[code..];
        // Near its end, `out` has no space for the maximum number of bytes per code.
        let output = out.get_mut(byte..).and_then(|out| out.first_chunk_mut());
        let mut is_in_scratch = output.is_none();
        let (mut taken, mut bytes) = coder.group(rest, output.unwrap_or(&mut scratch), &mut starts);
        if taken == 0 {
            (taken, bytes) = coder.one(rest, &mut scratch, &mut starts);
            is_in_scratch = true;
        }
        if taken == 0 {
            while ends.code() <= code {
                ends.end_value(byte)?;
            }
            return Err(coder.error_at(rest, ends.value));
        }
        ends.check(code, taken, byte, &starts)?;
        if is_in_scratch {
            let output = out.get_mut(byte..byte + bytes).ok_or_else(|| ends.wrong(byte + bytes))?;
            output.copy_from_slice(&scratch[..bytes]);
        }
        code += taken;
        byte += bytes;
        progress(out.get(..byte).ok_or_else(|| ends.wrong(byte))?, ends.value)?;
    }
    while ends.value < lengths.len() {
        ends.end_value(byte)?;
    }
    check_len("decoded bytes", out.len(), byte)?;
    progress(out, lengths.len())
}

/// The sum of the values' lengths, for the allocation of the output. Rejects a sum above
/// `max_bytes`, the maximum number of bytes that the codes can decode to.
pub fn decoded_bytes<L: Index>(lengths: &[L], max_bytes: usize) -> Result<usize> {
    let sum = sum(lengths);
    if sum > max_bytes {
        return Err(Error::bad_data(format!(
            "{} values declare {sum} decoded bytes, expected at most {max_bytes} for their codes",
            lengths.len()
        )));
    }
    Ok(sum)
}

fn sum<L: Index>(lengths: &[L]) -> usize {
    let numbers = lengths.iter().map(|length| length.index());
    match L::greatest(lengths).checked_mul(lengths.len()) {
        // The partial sums cannot overflow, so the compiler can vectorize the loop.
        Some(_) => numbers.fold(0, usize::wrapping_add),
        None => numbers.fold(0, usize::saturating_add),
    }
}

/// Compares the declared ends of values with the decoded positions.
struct Ends<'a, O, L> {
    /// Where the codes of each value end.
    codes: &'a [O],
    lengths: &'a [L],
    value: usize,
    /// The decoded byte with which the current value begins.
    begin: usize,
}

impl<'a, O: Index, L: Index> Ends<'a, O, L> {
    /// Checks that the offsets are ascending and at most `codes`, the number of codes. Also returns
    /// the range of the codes that the values use.
    fn new(offsets: &'a [O], lengths: &'a [L], codes: usize) -> Result<(Self, std::ops::Range<usize>)> {
        check_len("offsets, one per value and one more", lengths.len() + 1, offsets.len())?;
        let (first, last) = (offsets[0].index(), offsets[lengths.len()].index());
        if !offsets.is_sorted() || first > last || last > codes {
            return Err(invalid_offsets(offsets, codes));
        }
        Ok((Self { codes: &offsets[1..], lengths, value: 0, begin: 0 }, first..last))
    }

    /// The code with which the current value ends; `usize::MAX` after the last value.
    fn code(&self) -> usize {
        self.codes.get(self.value).map_or(usize::MAX, |code| code.index())
    }

    /// Checks the lengths of the values that end in a group of `n` codes, which begins at code
    /// `base`. The output of the group begins at byte `byte`.
    #[inline(always)]
    fn check(&mut self, base: usize, n: usize, byte: usize, starts: &Starts) -> Result<()> {
        let (mut value, mut end, mut wrong) = (self.value, self.begin, 0);
        let rest = self.codes.get(value..).unwrap_or_default().iter();
        for (code, length) in rest.zip(self.lengths.get(value..).unwrap_or_default()) {
            let code = code.index();
            if code >= base + n {
                break;
            }
            // All preceding values have their declared lengths. So this value has its declared
            // length if, and only if, its end is at the expected position.
            end = end.wrapping_add(length.index());
            wrong |= byte.wrapping_add(starts[(code - base) % GROUP].into()) ^ end;
            value += 1;
        }
        if wrong != 0 {
            return Err(self.explain(base, byte, starts));
        }
        (self.value, self.begin) = (value, end);
        Ok(())
    }

    /// Ends the current value at `byte` and checks its length.
    fn end_value(&mut self, byte: usize) -> Result<()> {
        if byte.checked_sub(self.begin) != Some(self.length()) {
            return Err(self.wrong(byte));
        }
        self.value += 1;
        self.begin = byte;
        Ok(())
    }

    fn length(&self) -> usize {
        self.lengths.get(self.value).map_or(0, |length| length.index())
    }

    /// The error for a value whose decoded length differs from the declared length.
    #[cold]
    fn wrong(&self, byte: usize) -> Error {
        let (got, expected) = (byte.saturating_sub(self.begin), self.length());
        Error::bad_data(format!("value {} decodes to {got} bytes, expected {expected}", self.value))
    }

    /// Finds the first value of a group with a wrong length.
    #[cold]
    fn explain(&mut self, base: usize, byte: usize, starts: &Starts) -> Error {
        while self.value < self.lengths.len() {
            let start = starts[(self.code() - base) % GROUP];
            if start == NO_START {
                return Error::bad_data(format!("value {} ends in the middle of a code", self.value));
            }
            if let Err(e) = self.end_value(byte + usize::from(start)) {
                return e;
            }
        }
        self.wrong(byte)
    }
}

#[cold]
fn invalid_offsets<O: Index>(offsets: &[O], codes: usize) -> Error {
    let falls = offsets.windows(2).position(|pair| pair[1] < pair[0]);
    if let Some(i) = falls {
        let (from, to) = (offsets[i], offsets[i + 1]);
        return Error::bad_data(format!(
            "value {i} has the codes from {from} to {to}, expected ascending offsets"
        ));
    }
    let (first, last) = (offsets[0], offsets[offsets.len() - 1]);
    Error::bad_data(format!("values have the codes from {first} to {last}, expected at most {codes}"))
}
