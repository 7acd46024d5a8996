//! Programs. A program is a list of operators that compute the values of a node.

use crate::abi;
use crate::door::put;
use crate::error::{Error, Result};

/// An operator. `crossdock.h` defines all operators. As in the header, `out[i]` is word `i` of the
/// result of a source, and `x` is the word that a step changes. The field `buffer` is the index of
/// a buffer of the node, and fields that name a child contain its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operator {
    /// Source: reads the words of a buffer.
    Load {
        /// The index of the buffer.
        buffer: u32,
        /// The offset of the first byte.
        at: u64,
    },
    /// Source: unpacks integers that are packed in the FastLanes layout.
    Unpack {
        /// The index of the buffer.
        buffer: u32,
        /// The width of a packed integer in bits.
        bits: u64,
        /// The position of the first value in the first block. It is less than 1024.
        first: u64,
    },
    /// Source: reads the values of a child, including its nulls.
    Child(u32),
    /// Source: `out[i] = base + i * step`.
    Sequence {
        /// The first value.
        base: u64,
        /// The difference between two adjacent values.
        step: u64,
    },
    /// Source: `out[i] = values[codes[i]]`.
    Dictionary {
        /// The index of the child that contains the codes.
        codes: u32,
        /// The index of the child that contains the values.
        values: u32,
    },
    /// Source: `out[i] = values[k]`, where `k` is the first index with `ends[k] > first + i`.
    Runs {
        /// The index of the child that contains the ends, which ascend.
        ends: u32,
        /// The index of the child that contains the values.
        values: u32,
        /// The number of values to skip.
        first: u64,
    },
    /// Step: `x + word`. The sum wraps around on overflow.
    Add(u64),
    /// Step: `x ^ word`.
    Xor(u64),
    /// Step: decodes zigzag integers. The words 0, 1, 2, 3, 4... become 0, -1, 1, -2, 2...
    ZigZag,
    /// Step: converts signed integers of 4 or 8 bytes to floats of the same width, with rounding to
    /// nearest, ties to even.
    ToFloat,
    /// Step: `x * f`, where `f` is the float with these bits.
    Scale(u64),
    /// Step: `out[indices[j] - first] = values[j]` for each `j`.
    Patch {
        /// The index of the child that contains the indices, which ascend.
        indices: u32,
        /// The index of the child that contains the values.
        values: u32,
        /// The number that is subtracted from each index.
        first: u64,
    },
    /// Step: makes values null where this child, which contains booleans, is false.
    Validity(u32),
    /// Source: reads the integers of a child, including its nulls, and converts them to the width
    /// of the node's values.
    Cast(u32),
    /// Source: a term of the sum `out[i] = child[i] * factor + ...`. The other terms follow it. The
    /// nulls are those of the first term.
    Term {
        /// The index of the child, which contains integers.
        child: u32,
        /// The factor, which is less than 2^60.
        factor: u64,
    },
    /// Source: `out[i] = lefts[codes[i]] << right_bits | rights[i]`, with only the lowest
    /// `right_bits` bits of `rights[i]`.
    Join {
        /// The index of the child that contains the codes, which have 2 bytes.
        codes: u8,
        /// The index of the child that contains the right parts.
        rights: u8,
        /// The number of bits of a right part.
        right_bits: u8,
        /// The number of left parts, at most 8.
        n_lefts: u8,
        /// The left parts. Those beyond their number are 0.
        lefts: [u16; 8],
    },
    /// Step after [`Join`](Self::Join): replaces the left part of `out[indices[j] - first]` by
    /// `lefts[j]` for each `j`.
    PatchLeft {
        /// The index of the child that contains the indices, which ascend.
        indices: u32,
        /// The index of the child that contains the left parts, which have 2 bytes.
        lefts: u32,
        /// The number that is subtracted from each index.
        first: u64,
    },
}

impl Operator {
    /// Converts to the C struct.
    pub fn raw(self) -> abi::Operator {
        let (code, index, a, b) = match self {
            Self::Load { buffer, at } => (abi::OP_LOAD, buffer, at, 0),
            Self::Unpack { buffer, bits, first } => (abi::OP_UNPACK, buffer, bits, first),
            Self::Child(child) => (abi::OP_CHILD, child, 0, 0),
            Self::Sequence { base, step } => (abi::OP_SEQUENCE, 0, base, step),
            Self::Dictionary { codes, values } => (abi::OP_DICTIONARY, codes, values.into(), 0),
            Self::Runs { ends, values, first } => (abi::OP_RUNS, ends, values.into(), first),
            Self::Add(word) => (abi::OP_ADD, 0, word, 0),
            Self::Xor(word) => (abi::OP_XOR, 0, word, 0),
            Self::ZigZag => (abi::OP_ZIGZAG, 0, 0, 0),
            Self::ToFloat => (abi::OP_TO_FLOAT, 0, 0, 0),
            Self::Scale(bits) => (abi::OP_SCALE, 0, bits, 0),
            Self::Patch { indices, values, first } => (abi::OP_PATCH, indices, values.into(), first),
            Self::Validity(child) => (abi::OP_VALIDITY, child, 0, 0),
            Self::Cast(child) => (abi::OP_CAST, child, 0, 0),
            Self::Term { child, factor } => (abi::OP_TERM, child, factor, 0),
            Self::Join { codes, rights, right_bits, n_lefts, lefts: [l0, l1, l2, l3, l4, l5, l6, l7] } => {
                let pack = |lefts: [u16; 4]| {
                    lefts.into_iter().rev().fold(0, |word, left| word << 16 | u64::from(left))
                };
                let index = u32::from_le_bytes([codes, rights, right_bits, n_lefts]);
                (abi::OP_JOIN, index, pack([l0, l1, l2, l3]), pack([l4, l5, l6, l7]))
            }
            Self::PatchLeft { indices, lefts, first } => (abi::OP_PATCH_LEFT, indices, lefts.into(), first),
        };
        abi::Operator { code, index, a, b }
    }

    /// Converts the C struct. Returns `None` if the code is unknown or an unused field is not 0,
    /// because a later version may define a meaning for the code or the field.
    pub fn from_raw(raw: abi::Operator) -> Option<Self> {
        let abi::Operator { index, a, b, .. } = raw;
        let values = u32::try_from(a).unwrap_or(u32::MAX);
        let [codes, rights, right_bits, n_lefts] = index.to_le_bytes();
        let words = u128::from(b) << 64 | u128::from(a);
        let lefts = std::array::from_fn(|i| (words >> (16 * i)) as u16);
        let operators = [
            Self::Load { buffer: index, at: a },
            Self::Unpack { buffer: index, bits: a, first: b },
            Self::Child(index),
            Self::Sequence { base: a, step: b },
            Self::Dictionary { codes: index, values },
            Self::Runs { ends: index, values, first: b },
            Self::Add(a),
            Self::Xor(a),
            Self::ZigZag,
            Self::ToFloat,
            Self::Scale(a),
            Self::Patch { indices: index, values, first: b },
            Self::Validity(index),
            Self::Cast(index),
            Self::Term { child: index, factor: a },
            Self::Join { codes, rights, right_bits, n_lefts, lefts },
            Self::PatchLeft { indices: index, lefts: values, first: b },
        ];
        let fields = |raw: abi::Operator| (raw.code, raw.index, raw.a, raw.b);
        operators.into_iter().find(|operator| fields(operator.raw()) == fields(raw))
    }
}

/// Writes a program to the out parameters of `lower`.
///
/// # Errors
/// Returns an error if `out` or `n_out` is null, or if the program has more than `capacity`
/// operators.
///
/// # Safety
/// `out` is null or has room for `capacity` operators. `n_out` is null or valid for writes.
pub(crate) unsafe fn write(
    operators: &[Operator],
    out: *mut abi::Operator,
    capacity: usize,
    n_out: *mut usize,
) -> Result<()> {
    if out.is_null() || operators.len() > capacity {
        return Err(Error::invalid_argument(format!(
            "lower: the capacity is {capacity} operators, expected at least {}",
            operators.len()
        )));
    }
    for (i, operator) in operators.iter().enumerate() {
        // SAFETY: `i` is less than `capacity`, and the caller guarantees room for `capacity`
        // operators.
        unsafe { out.add(i).write(operator.raw()) };
    }
    // SAFETY: the caller guarantees that `n_out` is null or valid for writes.
    unsafe { put(n_out, "lower", || operators.len()) }
}

/// Reads the first `n` operators. Returns `None` if this build does not support one of them.
///
/// # Errors
/// Returns a "bad data" error if `n` is 0 or exceeds the length of `operators`.
pub(crate) fn read(operators: &[abi::Operator], n: usize) -> Result<Option<Vec<Operator>>> {
    match operators.get(..n).filter(|program| !program.is_empty()) {
        Some(program) => Ok(program.iter().map(|operator| Operator::from_raw(*operator)).collect()),
        None => {
            Err(Error::bad_data(format!("a program has {n} operators, expected 1 to {}", abi::MAX_OPERATORS)))
        }
    }
}
