//! Finds the distinct values of an array.

use crate::bits;
use crate::door::Args;
use crate::words::with_offset_type;

/// Marks a slot without a row, and a row without a slot.
const EMPTY: u32 = u32::MAX;

pub(crate) fn find_equal(args: Args<'_>) -> Option<()> {
    let (offsets, width, size, len) = (args.read(0)?, args.index(1)?, args.index(2)?, args.index(3)?);
    let (data, validity, first, seed) = (args.read(4)?, args.read(5)?, args.index(6)?, args.value(7)?);
    let table = args.write(8)?.as_chunks_mut().0;
    let slots = args.write(9)?.as_chunks_mut().0.get_mut(..len)?;
    if !table.len().is_power_of_two() || table.len() <= len {
        return None;
    }
    let is_valid = |i: usize| bits::is_set(validity, first + i);
    let wrong = if width == 0 {
        let row = |i: usize| data.get(i.checked_mul(size)?..(i + 1).checked_mul(size)?);
        place(row, is_valid, seed, table, slots)
    } else {
        with_offset_type!(width, T => {
            let offsets = offsets.as_chunks().0.get(..=len)?;
            // A negative offset becomes a large one, which is outside of the data.
            let of = |i: usize| offsets.get(i).map_or(usize::MAX, |offset| T::from_ne_bytes(*offset) as usize);
            place(|i| data.get(of(i)..of(i + 1)), is_valid, seed, table, slots)
        })?
    };
    args.report_wrong(10, wrong)
}

/// Places each valid row. Returns the first that is outside of the data.
fn place<'a>(
    row: impl Fn(usize) -> Option<&'a [u8]>,
    is_valid: impl Fn(usize) -> bool,
    seed: u64,
    table: &mut [[u8; 4]],
    slots: &mut [[u8; 4]],
) -> Option<usize> {
    let (mask, mut wrong) = (table.len() - 1, None);
    for (i, to) in slots.iter_mut().enumerate() {
        *to = EMPTY.to_ne_bytes();
        if !is_valid(i) {
            continue;
        }
        let Some(value) = row(i) else {
            wrong = wrong.or(Some(i));
            continue;
        };
        let first = hash(value, seed) as usize;
        for probe in (0..table.len()).map(|tries| first.wrapping_add(tries) & mask) {
            let Some(slot) = table.get_mut(probe) else { break };
            match u32::from_ne_bytes(*slot) {
                EMPTY => *slot = (i as u32).to_ne_bytes(),
                other if row(other as usize) == Some(value) => {}
                _ => continue,
            }
            *to = (probe as u32).to_ne_bytes();
            break;
        }
    }
    wrong
}

fn hash(value: &[u8], seed: u64) -> u64 {
    let mut hash = seed ^ value.len() as u64;
    for piece in value.chunks(8) {
        let mut word = [0; 8];
        word.iter_mut().zip(piece).for_each(|(to, byte)| *to = *byte);
        hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash ^= hash >> 32;
    }
    hash = hash.wrapping_mul(0xd6e8_feb8_6659_fd93);
    hash ^ hash >> 32
}

fn word(bytes: &[[u8; 4]], i: u32) -> Option<u32> {
    bytes.get(i as usize).map(|word| u32::from_ne_bytes(*word))
}

pub(crate) fn mark_first(args: Args<'_>) -> Option<()> {
    let (table, slots) = (args.read(0)?.as_chunks().0, args.read(1)?.as_chunks().0);
    for (byte, to) in args.write(2)?.iter_mut().enumerate() {
        let is_first = |i: usize| {
            let row = slots.get(i).and_then(|slot| word(table, u32::from_ne_bytes(*slot)));
            row.is_some_and(|row| row as usize == i)
        };
        *to = (0..8).fold(0, |bits, bit| bits | u8::from(is_first(byte * 8 + bit)) << bit);
    }
    Some(())
}

pub(crate) fn number_slots(args: Args<'_>) -> Option<()> {
    let (rows, slots) = (args.read(0)?.as_chunks().0, args.read(1)?.as_chunks().0);
    let table = args.write(2)?.as_chunks_mut().0;
    for (i, row) in rows.iter().enumerate() {
        let slot = word(slots, u32::from_ne_bytes(*row));
        if let Some(to) = slot.and_then(|slot| table.get_mut(slot as usize)) {
            *to = (i as u32).to_ne_bytes();
        }
    }
    Some(())
}
