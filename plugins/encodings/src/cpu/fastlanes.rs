//! Unpacks bit-packed integers in the FastLanes layout and applies a step to each value in the same
//! pass.
//!
//! Values are packed in blocks of 1024. A block of `BITS`-bit words is `width` rows of 128 bytes,
//! with one word for each of `LANES = 1024 / BITS` lanes. The words of lane `l` are a stream of
//! bits, lowest first; its `r`-th value is value `ORDER[r / 8] * 16 + (r % 8) * 128 + l` of the
//! block. So the values of a row are contiguous in the output, and all lanes of a row need the same
//! two shifts. Therefore the loop over a row is as fast with a width that is known only at run time
//! as with a constant width.

use std::marker::PhantomData;

use crossdock_plugin_api::{Error, Result};

use super::wide::{self, Work};
use super::words::{ROW_BYTES, Word, check_len};

/// Values per block.
pub const BLOCK: usize = 1024;

/// The order of groups of eight rows.
pub(crate) const ORDER: [usize; 8] = [0, 4, 2, 6, 1, 5, 3, 7];

/// The index of a row's first value in the block. This value belongs to lane 0. The values of the
/// other lanes follow.
#[inline(always)]
pub(crate) fn first_of_row(row: usize) -> usize {
    ORDER[row / 8 % 8] * 16 + row % 8 * 128
}

/// Size in bytes of the blocks that contain `len` values of `width` bits, after `offset` preceding
/// values. Fails if the size overflows.
pub fn packed_bytes(width: u32, offset: usize, len: usize) -> Result<usize> {
    len.checked_add(offset)
        .map(|values| values.div_ceil(BLOCK))
        .and_then(|blocks| blocks.checked_mul(ROW_BYTES * width as usize))
        .ok_or_else(|| {
            Error::bad_data(format!("bit-packed: {len} values of {width} bits exceed the address space"))
        })
}

/// Unpacks `out.len()` values of `width` bits, from value `offset` of the first block on, and
/// applies `step` to each.
///
/// `packed` has all blocks, and may be misaligned.
///
/// # Errors
/// Returns an error if the width exceeds that of the type, if the offset is not in the first block,
/// or if the size of `packed` differs from the size of the values' blocks.
pub fn unpack<T: Word, U: Copy>(
    packed: &[u8],
    width: u32,
    offset: usize,
    out: &mut [U],
    step: impl Fn(T) -> U + Copy,
) -> Result<()> {
    check::<T>(packed, width, offset, out.len())?;
    if width == 0 {
        out.fill(step(T::default()));
    } else {
        wide::run(Unpack { width, offset, step, of: PhantomData::<T> }, packed.as_chunks().0, out);
    }
    Ok(())
}

/// Unpacks like [`unpack`], one block at a time. After each block, while the values of the block
/// are in the nearest cache, calls `make` with the index of the block's first value and runs the
/// work that `make` returns.
pub(crate) fn unpack_through<T: Word, U: Copy, W: Work<T, U, Result<()>>>(
    packed: &[u8],
    width: u32,
    offset: usize,
    out: &mut [U],
    make: impl Fn(usize) -> W,
) -> Result<()> {
    check::<T>(packed, width, offset, out.len())?;
    let work = UnpackThrough { width, offset, make, of: PhantomData::<T> };
    wide::run(work, packed.as_chunks().0, out)
}

struct UnpackThrough<T, M> {
    width: u32,
    offset: usize,
    make: M,
    of: PhantomData<T>,
}

impl<T: Word, U: Copy, W: Work<T, U, Result<()>>, M: Fn(usize) -> W> Work<[u8; ROW_BYTES], U, Result<()>>
    for UnpackThrough<T, M>
{
    #[inline(always)]
    fn run(self, rows: &[[u8; ROW_BYTES]], out: &mut [U]) -> Result<()> {
        let Self { width, offset, make, .. } = self;
        let (mut rest, mut skip, mut done) = (out, offset, 0);
        let mut block = [T::default(); BLOCK];
        let mut rows = rows.chunks_exact((width as usize).max(1));
        while !rest.is_empty() {
            // Values of width 0 have no rows and are 0.
            if let Some(rows) = rows.next() {
                unpack_block(rows, width, &mut block, |v| v);
            }
            let (now, later) = rest.split_at_mut(rest.len().min(BLOCK - skip));
            let n = now.len();
            make(done).run(&block[skip..skip + n], now)?;
            (rest, skip, done) = (later, 0, done + n);
        }
        Ok(())
    }
}

/// Checks the arguments like [`unpack`], without unpacking.
pub fn check<T: Word>(packed: &[u8], width: u32, offset: usize, len: usize) -> Result<()> {
    if width > T::BITS {
        return Err(Error::bad_data(format!(
            "bit-packed: expected a width of 0 to {} bits, got {width}",
            T::BITS
        )));
    }
    if offset >= BLOCK {
        return Err(Error::bad_data(format!("bit-packed: expected an offset below {BLOCK}, got {offset}")));
    }
    check_len("bit-packed: bytes of the blocks", packed_bytes(width, offset, len)?, packed.len())
}

struct Unpack<T, S> {
    width: u32,
    offset: usize,
    step: S,
    of: PhantomData<T>,
}

impl<T: Word, U: Copy, S: Fn(T) -> U + Copy> Work<[u8; ROW_BYTES], U> for Unpack<T, S> {
    #[inline(always)]
    fn run(self, rows: &[[u8; ROW_BYTES]], out: &mut [U]) {
        let Unpack { width, offset, step, .. } = self;
        let (mut rest, mut skip) = (out, offset);
        for rows in rows.chunks_exact(width as usize) {
            let (now, later) = rest.split_at_mut(rest.len().min(BLOCK - skip));
            if let Ok(block) = <&mut [U; BLOCK]>::try_from(&mut *now) {
                unpack_block(rows, width, block, step);
            } else {
                // The output covers only a part of the block.
                let mut block = [step(T::default()); BLOCK];
                unpack_block(rows, width, &mut block, step);
                now.copy_from_slice(&block[skip..skip + now.len()]);
            }
            (rest, skip) = (later, 0);
        }
    }
}

/// Unpacks one block of `width` rows. `width` is 1 to `T::BITS`.
#[inline(always)]
fn unpack_block<T: Word, U: Copy>(
    rows: &[[u8; ROW_BYTES]],
    width: u32,
    out: &mut [U; BLOCK],
    step: impl Fn(T) -> U + Copy,
) {
    let mask = T::mask(width);
    for row in 0..T::BITS {
        let (at, shift) = ((row * width / T::BITS) as usize, row * width % T::BITS);
        let first = first_of_row(row as usize);
        let out = &mut out[first..first + T::LANES];
        if shift + width <= T::BITS {
            T::each(&rows[at], |lane, low| out[lane] = step(low >> shift & mask));
        } else {
            T::each_pair(&rows[at], &rows[at + 1], |lane, low, high| {
                out[lane] = step((low >> shift | high << (T::BITS - shift)) & mask);
            });
        }
    }
}

/// Packs the `width` lowest bits of `value(i)` for each value `i` of the blocks that `out` has
/// space for. This is the inverse of [`unpack`]. `width` is at most that of the type.
pub fn pack<T: Word>(width: u32, out: &mut [u8], value: impl Fn(usize) -> T) {
    let (width, mask) = (width.min(T::BITS), T::mask(width));
    let mut words = vec![T::default(); T::LANES * width as usize];
    for (block, out) in out.chunks_exact_mut((ROW_BYTES * width as usize).max(1)).enumerate() {
        words.fill(T::default());
        for row in 0..if width == 0 { 0 } else { T::BITS } {
            let first = block * BLOCK + first_of_row(row as usize);
            let (at, shift) = ((row * width / T::BITS) as usize * T::LANES, row * width % T::BITS);
            for lane in 0..T::LANES {
                let value = value(first + lane) & mask;
                words[at + lane] = words[at + lane] | value << shift;
                if shift + width > T::BITS {
                    words[at + T::LANES + lane] = value >> (T::BITS - shift);
                }
            }
        }
        for (to, word) in out.chunks_exact_mut(size_of::<T>()).zip(&words) {
            to.copy_from_slice(&word.wide().to_le_bytes()[..size_of::<T>()]);
        }
    }
}

/// Packs values. The last block is padded with zeros.
#[cfg(test)]
pub fn packed<T: Word>(values: &[T], width: u32) -> Vec<u8> {
    let width = width.min(T::BITS);
    let mut out = vec![0; ROW_BYTES * width as usize * values.len().div_ceil(BLOCK)];
    pack(width, &mut out, |i| values.get(i).copied().unwrap_or_default());
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Reads a bit of value `i` at the position that the definition of the layout states.
    fn bit_of<T: Word>(packed: &[u8], width: u32, i: usize, bit: u32) -> u64 {
        let (block, i) = (i / BLOCK, i % BLOCK);
        let (lane, row) = (0..T::BITS as usize)
            .flat_map(|row| (0..T::LANES).map(move |lane| (lane, row)))
            .find(|(lane, row)| [0, 4, 2, 6, 1, 5, 3, 7][row / 8] * 16 + row % 8 * 128 + lane == i)
            .unwrap();
        let at = row * width as usize + bit as usize;
        let word = at / T::BITS as usize * T::LANES + lane;
        let at = (block * 128 * width as usize + word * size_of::<T>()) * 8 + at % T::BITS as usize;
        u64::from(packed[at / 8] >> (at % 8) & 1)
    }

    fn noise(n: usize, seed: u64) -> impl Iterator<Item = u64> {
        (0..n as u64).map(move |i| {
            let x = (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15 ^ seed.wrapping_mul(0xd134_2543_de82_ef95));
            x ^ x >> 29
        })
    }

    fn assert_every_width_follows_the_layout<T: Word>() {
        for width in 0..=T::BITS {
            let packed: Vec<u8> = noise(packed_bytes(width, 0, 1024).unwrap(), 3).map(|x| x as u8).collect();
            let mut out = [T::default(); 1024];
            unpack(&packed, width, 0, &mut out, |v: T| v).unwrap();
            for i in (0..1024).step_by(37).chain([1, 15, 16, 127, 128, 1023]) {
                let expected = (0..width).fold(0, |v, bit| v | bit_of::<T>(&packed, width, i, bit) << bit);
                assert_eq!(out[i].wide(), expected, "width {width}, value {i}");
            }
        }
    }

    #[test]
    fn unpacks_every_width_of_every_type() {
        assert_every_width_follows_the_layout::<u8>();
        assert_every_width_follows_the_layout::<u16>();
        assert_every_width_follows_the_layout::<u32>();
        assert_every_width_follows_the_layout::<u64>();
    }

    fn assert_round_trip<T: Word>(width: u32, offset: usize, len: usize, seed: u64) {
        let width = width % (T::BITS + 1);
        let values: Vec<T> = noise(offset + len, seed).map(|x| T::low(x) & T::mask(width)).collect();
        let bytes = packed(&values, width);
        let mut out = vec![T::default(); len];
        unpack(&bytes, width, offset, &mut out, |v: T| v.plus(T::ONE)).unwrap();
        let expected: Vec<T> = values[offset..].iter().map(|v| v.plus(T::ONE)).collect();
        assert_eq!(out, expected);
    }

    proptest! {
        #[test]
        fn unpacks_packed_values_from_any_offset(
            width in 0u32..=64, offset in 0usize..1024, len in 1usize..4000, seed: u64
        ) {
            assert_round_trip::<u8>(width, offset, len, seed);
            assert_round_trip::<u16>(width, offset, len, seed);
            assert_round_trip::<u32>(width, offset, len, seed);
            assert_round_trip::<u64>(width, offset, len, seed);
        }
    }

    #[test]
    fn unpacks_lengths_around_a_block() {
        for len in [1, 1023, 1024, 1025, 2048, 2049] {
            assert_round_trip::<u32>(7, 0, len, 1);
            assert_round_trip::<u32>(7, 1023, len, 1);
        }
    }

    #[test]
    fn accepts_misaligned_bytes() {
        let values: Vec<u64> = (0..1024).collect();
        let mut shifted = vec![0];
        shifted.extend(packed(&values, 10));
        let mut out = vec![0u64; 1024];
        unpack(&shifted[1..], 10, 0, &mut out, |v: u64| v).unwrap();
        assert_eq!(out, values);
    }

    #[test]
    fn rejects_invalid_widths_offsets_and_lengths() {
        let error = |bytes: usize, width, offset, len: usize| {
            let mut out = vec![0u32; len];
            unpack(&vec![0; bytes], width, offset, &mut out, |v: u32| v).unwrap_err().message().to_owned()
        };
        assert_eq!(error(33 * 128, 33, 0, 1024), "bit-packed: expected a width of 0 to 32 bits, got 33");
        assert_eq!(error(128, 1, 1024, 1), "bit-packed: expected an offset below 1024, got 1024");
        assert_eq!(error(127, 1, 0, 1), "bit-packed: bytes of the blocks: expected 128, got 127");
        assert_eq!(error(128, 1, 1, 1024), "bit-packed: bytes of the blocks: expected 256, got 128");
        assert_eq!(error(1, 0, 0, 5), "bit-packed: bytes of the blocks: expected 0, got 1");
        let most = check::<u64>(&[], 64, 0, usize::MAX).unwrap_err();
        assert_eq!(
            most.message(),
            format!("bit-packed: {} values of 64 bits exceed the address space", usize::MAX)
        );
        assert!(check::<u64>(&[], u32::MAX, 0, 0).is_err() && check::<u8>(&[], 8, usize::MAX, 1).is_err());
    }
}
