//! What a node's values are made of, in the words of a closed list of operators.

use crate::abi;
use crate::door::put;
use crate::error::{Error, Result};

/// One of the operators that crossdock.h lists. Children and buffers go by their numbers, words by their lowest bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operator {
    /// Source: the words of a buffer, from a byte on.
    Load {
        /// Which.
        buffer: u32,
        /// The byte.
        at: u64,
    },
    /// Source: words of some bits each, in the FastLanes layout.
    Unpack {
        /// Where they are packed.
        buffer: u32,
        /// Of each.
        bits: u64,
        /// The first value of the first block that is meant, below 1024.
        first: u64,
    },
    /// Source: a child's values, with its nulls.
    Child(u32),
    /// Source: `base + i * step`.
    Sequence {
        /// The first.
        base: u64,
        /// From each to the next.
        step: u64,
    },
    /// Source: of one child's values those that the other's number.
    Dictionary {
        /// The numbers.
        codes: u32,
        /// The values.
        values: u32,
    },
    /// Source: each of one child's values up to where its run ends.
    Runs {
        /// Where they end; they rise.
        ends: u32,
        /// One for each.
        values: u32,
        /// Values that are left out before the first.
        first: u64,
    },
    /// The sum with a word.
    Add(u64),
    /// The exclusive or with a word.
    Xor(u64),
    /// 0, 1, 2, 3, 4... become 0, -1, 1, -2, 2...
    ZigZag,
    /// A signed integer of 4 or 8 bytes becomes the nearest float of as many, ties to even.
    ToFloat,
    /// A float of 4 or 8 bytes is multiplied by that whose bits these are.
    Scale(u64),
    /// The values of one child in the places that the other names.
    Patch {
        /// The places; they rise.
        indices: u32,
        /// The values.
        values: u32,
        /// What is taken off each place.
        first: u64,
    },
    /// Null too where a child of truth values is false.
    Validity(u32),
    /// Source: a child's integers in words of another width, with its nulls.
    Cast(u32),
}

impl Operator {
    /// As it crosses.
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
        };
        abi::Operator { code, index, a, b }
    }

    /// `None` for one that this build does not know, or that says something where it has nothing to say: then a later one knows
    /// what.
    pub fn of(raw: abi::Operator) -> Option<Self> {
        let abi::Operator { index, a, b, .. } = raw;
        let values = u32::try_from(a).unwrap_or(u32::MAX);
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
        ];
        let fields = |raw: abi::Operator| (raw.code, raw.index, raw.a, raw.b);
        operators.into_iter().find(|operator| fields(operator.raw()) == fields(raw))
    }
}

/// Writes a plugin's program to a caller's room.
///
/// # Safety
/// `out` is null or has room for `capacity` operators, and `n_out` is null or valid for writes.
pub(crate) unsafe fn write(
    operators: &[Operator],
    out: *mut abi::Operator,
    capacity: usize,
    n_out: *mut usize,
) -> Result<()> {
    if out.is_null() || operators.len() > capacity {
        return Err(Error::invalid_argument(format!(
            "lower: there is room for {capacity} operators, the node's program has {}",
            operators.len()
        )));
    }
    for (i, operator) in operators.iter().enumerate() {
        // SAFETY: there is room for that many.
        unsafe { out.add(i).write(operator.raw()) };
    }
    // SAFETY: the caller's word.
    unsafe { put(n_out, "lower", || operators.len()) }
}

/// What a plugin wrote; `None` where an operator is one that this build does not know.
pub(crate) fn read(room: &[abi::Operator], n: usize) -> Result<Option<Vec<Operator>>> {
    match room.get(..n).filter(|program| !program.is_empty()) {
        Some(program) => Ok(program.iter().map(|operator| Operator::of(*operator)).collect()),
        None => {
            Err(Error::bad_data(format!("a program of {n} operators, expected 1 to {}", abi::MAX_OPERATORS)))
        }
    }
}
