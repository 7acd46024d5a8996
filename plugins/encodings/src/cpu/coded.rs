//! Texts that are stored as codes: all values' codes lie one after the other, and so do the decoded bytes; each value says
//! where its codes end, and how many bytes they decode to.
//!
//! Codes are decoded in groups, wherever values end, since values are short. What a group leaves behind is where each of its
//! codes began to write, so that every value's length can be held against it afterwards.

use crossdock_plugin_api::{Error, Result};

use super::words::{Index, same_len};

/// Most codes of a group.
pub(crate) const GROUP: usize = 1024;

/// Most bytes of a code.
pub(crate) const CODE_BYTES: usize = 16;

/// Room for a group's bytes, and for some more, since codes are written in pieces of one size.
pub(crate) const ROOM: usize = GROUP * CODE_BYTES + 256;

/// Where each code of a group began to write.
pub(crate) type Starts = [u16; GROUP];

/// Stands for a code with which no value may begin.
pub(crate) const NO_START: u16 = u16::MAX;

/// Something that turns codes into bytes.
pub(crate) trait Coder {
    /// A code.
    type Code;

    /// Decodes codes from the front, at most a group, while there are enough to take several at a time and all are right.
    /// Tells how many, and to how many bytes.
    fn group(&self, codes: &[Self::Code], room: &mut [u8; ROOM], starts: &mut Starts) -> (usize, usize);

    /// Decodes what can only be taken together, likewise; nothing, where that is wrong.
    fn one(&self, codes: &[Self::Code], room: &mut [u8; ROOM], starts: &mut Starts) -> (usize, usize);

    /// What is wrong with the first of these codes, which belongs to a value.
    fn refuse(&self, codes: &[Self::Code], value: usize) -> Error;
}

/// Whom decoders tell how far they are, group by group, while the group's bytes are still in the nearest cache: all bytes
/// decoded until then, and how many values have ended among them, all as long as they say.
pub type Told<'a> = dyn FnMut(&[u8], usize) -> Result<()> + 'a;

/// Decodes values into `out`, which they have to fill: value `i` has the codes from `offsets[i]` to `offsets[i + 1]`, and
/// `lengths[i]` bytes.
pub(crate) fn decode<C: Coder, O: Index, L: Index>(
    coder: &C,
    codes: &[C::Code],
    offsets: &[O],
    lengths: &[L],
    out: &mut [u8],
    told: &mut Told<'_>,
) -> Result<()> {
    let (mut ends, range) = Ends::new(offsets, lengths, codes.len())?;
    let codes = &codes[..range.end];
    let (mut code, mut byte) = (range.start, 0);
    let mut starts = [0; GROUP];
    let mut aside = [0; ROOM];
    while code < codes.len() {
        let rest = &codes[code..];
        // Towards the end there is no room for codes that are written in pieces of one size.
        let room = out.get_mut(byte..).and_then(|out| out.first_chunk_mut());
        let mut is_aside = room.is_none();
        let (mut taken, mut bytes) = coder.group(rest, room.unwrap_or(&mut aside), &mut starts);
        if taken == 0 {
            (taken, bytes) = coder.one(rest, &mut aside, &mut starts);
            is_aside = true;
        }
        if taken == 0 {
            while ends.code() <= code {
                ends.pass(byte)?;
            }
            return Err(coder.refuse(rest, ends.value));
        }
        ends.check(code, taken, byte, &starts)?;
        if is_aside {
            let room = out.get_mut(byte..byte + bytes).ok_or_else(|| ends.wrong(byte + bytes))?;
            room.copy_from_slice(&aside[..bytes]);
        }
        code += taken;
        byte += bytes;
        told(out.get(..byte).ok_or_else(|| ends.wrong(byte))?, ends.value)?;
    }
    while ends.value < lengths.len() {
        ends.pass(byte)?;
    }
    same_len("decoded bytes", out.len(), byte)?;
    told(out, lengths.len())
}

/// The sum of the values' lengths, for who makes room for them. More than `most`, which is what their codes can decode to,
/// is refused before anything is allocated.
pub fn decoded_bytes<L: Index>(lengths: &[L], most: usize) -> Result<usize> {
    let sum = sum(lengths);
    if sum > most {
        return Err(Error::bad_data(format!(
            "{} values of {sum} bytes, and their codes decode to at most {most}",
            lengths.len()
        )));
    }
    Ok(sum)
}

fn sum<L: Index>(lengths: &[L]) -> usize {
    let numbers = lengths.iter().map(|length| length.index());
    match L::greatest(lengths).checked_mul(lengths.len()) {
        // Of which the compiler takes many at once.
        Some(_) => numbers.fold(0, usize::wrapping_add),
        None => numbers.fold(0, usize::saturating_add),
    }
}

/// Where values end, in turn.
struct Ends<'a, O, L> {
    /// The codes with which they end.
    codes: &'a [O],
    lengths: &'a [L],
    value: usize,
    /// The decoded byte with which the value begins.
    begin: usize,
}

impl<'a, O: Index, L: Index> Ends<'a, O, L> {
    /// Checks that the offsets rise and end within `codes` codes. Answers what they hold, too.
    fn new(offsets: &'a [O], lengths: &'a [L], codes: usize) -> Result<(Self, std::ops::Range<usize>)> {
        same_len("offsets of values, and one more", lengths.len() + 1, offsets.len())?;
        let (first, last) = (offsets[0].index(), offsets[lengths.len()].index());
        if !offsets.is_sorted() || first > last || last > codes {
            return Err(misplaced(offsets, codes));
        }
        Ok((Self { codes: &offsets[1..], lengths, value: 0, begin: 0 }, first..last))
    }

    /// The code with which the value ends; the greatest number after the last value.
    fn code(&self) -> usize {
        self.codes.get(self.value).map_or(usize::MAX, |code| code.index())
    }

    /// Holds the values that end in a group of `n` codes from `base` on, which begins at `byte`, against their lengths.
    #[inline(always)]
    fn check(&mut self, base: usize, n: usize, byte: usize, starts: &Starts) -> Result<()> {
        let (mut value, mut end, mut wrong) = (self.value, self.begin, 0);
        let rest = self.codes.get(value..).unwrap_or_default().iter();
        for (code, length) in rest.zip(self.lengths.get(value..).unwrap_or_default()) {
            let code = code.index();
            if code >= base + n {
                break;
            }
            // All before it are right, so that only the right length leads to the right end.
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

    /// The value ends at this byte.
    fn pass(&mut self, byte: usize) -> Result<()> {
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

    /// A value does not decode to as many bytes as it says.
    #[cold]
    fn wrong(&self, byte: usize) -> Error {
        let (got, expected) = (byte.saturating_sub(self.begin), self.length());
        Error::bad_data(format!("value {} decodes to {got} bytes, expected {expected}", self.value))
    }

    /// Which of the values in a group is wrong.
    #[cold]
    fn explain(&mut self, base: usize, byte: usize, starts: &Starts) -> Error {
        while self.value < self.lengths.len() {
            let start = starts[(self.code() - base) % GROUP];
            if start == NO_START {
                return Error::bad_data(format!("value {} ends in the middle of a code", self.value));
            }
            if let Err(e) = self.pass(byte + usize::from(start)) {
                return e;
            }
        }
        self.wrong(byte)
    }
}

#[cold]
fn misplaced<O: Index>(offsets: &[O], codes: usize) -> Error {
    let falls = offsets.windows(2).position(|pair| pair[1] < pair[0]);
    if let Some(i) = falls {
        let (from, to) = (offsets[i], offsets[i + 1]);
        return Error::bad_data(format!(
            "value {i} has the codes from {from} to {to}, expected offsets that rise"
        ));
    }
    let (first, last) = (offsets[0], offsets[offsets.len() - 1]);
    Error::bad_data(format!("values have the codes from {first} to {last}, of {codes}"))
}
