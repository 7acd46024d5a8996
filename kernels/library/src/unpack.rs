//! Unpacks bit-packed integers in the FastLanes layout, optionally with patches or as codes of
//! values.

use crossdock_kernels::Step;
use crossdock_kernels::limits::{FASTLANES_BLOCK as BLOCK, FASTLANES_ROW_BYTES as ROW, blocks_of};

use crate::door::Args;
use crate::steps::{self, Stepped, with_word};
use crate::take::{numbers, put, take_each};

pub(crate) fn unpack(args: Args<'_>) -> Option<()> {
    let (packed, bits, first) = (args.read(0)?, args.index(1)?, args.index(2)?);
    let (to, width, steps) = (args.write(3)?, args.index(4)?, steps::from_args(&args, 5)?);
    with_word!(width, T => unpack_words::<T>(packed, bits, first, to, &steps))
}

pub(crate) fn unpack_patched<T: Stepped>(args: Args<'_>) -> Option<()> {
    let (packed, bits, first) = (args.read(0)?, args.index(1)?, args.index(2)?);
    let (to, steps) = (args.write(3)?, steps::from_args(&args, 10)?);
    let (indices, index_width, first_index) = (args.read(4)?, args.index(5)?, args.value(6)?);
    let values = args.read(7)?;
    let value_steps = if args.value(8)? != 0 { steps.as_slice() } else { &[] };
    unpack_words::<T>(packed, bits, first, to, &steps)?;
    args.report_wrong(9, put::<T>(numbers(indices, index_width)?, first_index, values, to, value_steps)?)
}

pub(crate) fn take_packed(args: Args<'_>) -> Option<()> {
    let (packed, bits, first, code_width) = (args.read(0)?, args.index(1)?, args.index(2)?, args.index(3)?);
    let (validity, first_bit, values) = (args.read(4)?, args.index(5)?, args.read(6)?);
    let (to, width, steps) = (args.write(7)?, args.index(8)?, steps::from_args(&args, 10)?);
    let mut codes = vec![0; to.len().checked_div(width)? * code_width];
    with_word!(code_width, T => unpack_words::<T>(packed, bits, first, &mut codes, &steps))?;
    args.report_wrong(9, take_each((&codes, code_width), validity, first_bit, values, to, width)?)
}

fn unpack_words<T: Stepped>(
    packed: &[u8],
    bits: usize,
    first: usize,
    to: &mut [u8],
    steps: &[Step],
) -> Option<()> {
    let (width, word_bits) = (size_of::<T>(), 8 * size_of::<T>());
    let lanes = ROW / width;
    let blocks = blocks_of(first, to.len() / width);
    if bits > word_bits || first >= BLOCK || packed.len() < blocks * ROW * bits {
        return None;
    }
    let word = |block: usize, row: usize, lane: usize| {
        let at = (block * bits + row) * ROW + lane * width;
        T::load(packed.get(at..at + width)?).map(T::wide)
    };
    for (i, out) in to.chunks_exact_mut(width).enumerate() {
        let (block, value) = ((first + i) / BLOCK, (first + i) % BLOCK);
        let (row, lane) = row_and_lane(value, lanes);
        let (begin, mut number) = (row * bits, 0u64);
        if bits > 0 {
            let shift = begin % word_bits;
            number = word(block, begin / word_bits, lane)? >> shift;
            if shift + bits > word_bits {
                number |= word(block, begin / word_bits + 1, lane)? << (word_bits - shift);
            }
            number &= u64::MAX >> (64 - bits);
        }
        out.copy_from_slice(T::low(number).steps(steps)?.store().as_ref());
    }
    Some(())
}

/// The row and lane of a value in its block.
fn row_and_lane(value: usize, lanes: usize) -> (usize, usize) {
    // Of each 128 values, `lanes` adjacent values belong to one group of eight rows. The position
    // of the first of these values, divided by 16, has the three bits of the group's index in
    // reverse order.
    let position = value % 128 / lanes * lanes / 16;
    let group = position.reverse_bits() >> (usize::BITS - 3);
    (group * 8 + value / 128, value % lanes)
}
