//! Decodes differences in the FastLanes layout. Each lane of a block has its own base, so the sums
//! of all lanes are computed in parallel.
//!
//! Blocks are transposed, so that the values of a lane are neighbours in the array: value `p` of
//! the transposed block is value `p % 16 * 64 + ORDER[p / 16 % 8] * 8 + p / 128` of the block.

use crossdock_plugin_api::{Error, Result};

use super::fastlanes::{BLOCK, ORDER, first_of_row};
use super::wide::{self, Work};
use super::words::{ROW_BYTES, Word, check_len};

/// Sums whole blocks of `deltas` and writes values `offset..offset + out.len()`. `bases` has one
/// value per lane and block.
pub fn decode<T: Word>(bases: &[T], deltas: &[T], offset: usize, out: &mut [T]) -> Result<()> {
    if offset >= BLOCK {
        return Err(Error::bad_data(format!("delta: expected an offset below {BLOCK}, got {offset}")));
    }
    if !deltas.len().is_multiple_of(BLOCK) || deltas.len() < offset.saturating_add(out.len()) {
        return Err(Error::bad_data(format!(
            "delta: expected whole blocks of {BLOCK} deltas for {} values after offset {offset}, got {} deltas",
            out.len(),
            deltas.len()
        )));
    }
    check_len("delta: bases, one per lane", deltas.len() / BLOCK * T::LANES, bases.len())?;
    wide::run(Sum { bases, offset }, deltas, out);
    Ok(())
}

struct Sum<'a, T> {
    bases: &'a [T],
    offset: usize,
}

impl<T: Word> Work<T, T> for Sum<'_, T> {
    #[inline(always)]
    fn run(self, deltas: &[T], out: &mut [T]) {
        let (mut rest, mut skip) = (out, self.offset);
        for (deltas, bases) in deltas.as_chunks().0.iter().zip(self.bases.chunks_exact(T::LANES)) {
            let (now, later) = rest.split_at_mut(rest.len().min(BLOCK - skip));
            if let Ok(block) = <&mut [T; BLOCK]>::try_from(&mut *now) {
                sum_block(deltas, bases, block);
            } else if !now.is_empty() {
                // The output covers only a part of the block.
                let mut block = [T::default(); BLOCK];
                sum_block(deltas, bases, &mut block);
                now.copy_from_slice(&block[skip..skip + now.len()]);
            }
            (rest, skip) = (later, 0);
        }
    }
}

#[inline(always)]
fn sum_block<T: Word>(deltas: &[T; BLOCK], bases: &[T], out: &mut [T; BLOCK]) {
    // The array has space for `ROW_BYTES` lanes, which is the number of lanes for one-byte words.
    let mut sums = [T::default(); ROW_BYTES];
    sums[..T::LANES].copy_from_slice(bases);
    let mut transposed = [T::default(); BLOCK];
    for row in 0..T::BITS as usize {
        let first = first_of_row(row);
        let (deltas, to) = (&deltas[first..first + T::LANES], &mut transposed[first..first + T::LANES]);
        for lane in 0..T::LANES {
            sums[lane] = sums[lane].plus(deltas[lane]);
            to[lane] = sums[lane];
        }
    }
    for (lane, out) in out.as_chunks_mut::<64>().0.iter_mut().enumerate() {
        for (eight, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            // Writing and reading blocks use the same transposition, because it is its own inverse.
            let from = ORDER[eight] * 16 + lane;
            *out = std::array::from_fn(|row| transposed[row * 128 + from]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Decodes value by value, exactly as the format defines it.
    fn model<T: Word>(bases: &[T], deltas: &[T]) -> Vec<T> {
        let order = [0, 4, 2, 6, 1, 5, 3, 7];
        let mut out = vec![T::default(); deltas.len()];
        for block in 0..deltas.len() / 1024 {
            for lane in 0..T::LANES {
                let mut sum = bases[block * T::LANES + lane];
                for row in 0..T::BITS as usize {
                    let p = order[row / 8] * 16 + row % 8 * 128 + lane;
                    sum = sum.plus(deltas[block * 1024 + p]);
                    out[block * 1024 + p % 16 * 64 + order[p / 16 % 8] * 8 + p / 128] = sum;
                }
            }
        }
        out
    }

    fn assert_matches_model<T: Word>(blocks: usize, seed: u64, cut: (u16, u16)) {
        let noise = |n: usize, salt: u64| -> Vec<T> {
            (0..n as u64).map(|i| T::low((i ^ salt).wrapping_mul(seed | 1).rotate_left(23))).collect()
        };
        let (bases, deltas) = (noise(blocks * T::LANES, 5), noise(blocks * 1024, 77));
        let offset = usize::from(cut.0) % 1024;
        let len = usize::from(cut.1) % (blocks * 1024 - offset + 1);
        let mut out = vec![T::default(); len];
        decode(&bases, &deltas, offset, &mut out).unwrap();
        assert_eq!(out, model(&bases, &deltas)[offset..offset + len]);
    }

    proptest! {
        #[test]
        fn delta_decoding_matches_a_simple_model(blocks in 1usize..4, seed: u64, cut in any::<(u16, u16)>()) {
            assert_matches_model::<u8>(blocks, seed, cut);
            assert_matches_model::<u16>(blocks, seed, cut);
            assert_matches_model::<u32>(blocks, seed, cut);
            assert_matches_model::<u64>(blocks, seed, cut);
        }
    }

    #[test]
    fn decodes_a_sequence_with_constant_differences() {
        // A lane of 64-bit words has 64 neighbouring values. The base of a lane is the lane's first
        // value minus 1, the constant difference.
        let bases: Vec<u64> = (0..16).map(|lane| 100 + lane * 64 - 1).collect();
        let mut out = vec![0; 1024];
        decode(&bases, &[1; 1024], 0, &mut out).unwrap();
        assert_eq!(out, (100..1124).collect::<Vec<u64>>());
    }

    #[test]
    fn rejects_invalid_offset_and_invalid_lengths_of_bases_and_deltas() {
        let error = |bases: usize, deltas: usize, offset, len: usize| {
            let mut out = vec![0u64; len];
            decode(&vec![0; bases], &vec![0; deltas], offset, &mut out).unwrap_err().message().to_owned()
        };
        assert_eq!(error(16, 1024, 1024, 0), "delta: expected an offset below 1024, got 1024");
        let blocks = "delta: expected whole blocks of 1024 deltas for";
        assert_eq!(error(16, 1023, 0, 1), format!("{blocks} 1 values after offset 0, got 1023 deltas"));
        assert_eq!(error(16, 1024, 1, 1024), format!("{blocks} 1024 values after offset 1, got 1024 deltas"));
        assert_eq!(error(15, 1024, 0, 1), "delta: bases, one per lane: expected 16, got 15");
    }
}
