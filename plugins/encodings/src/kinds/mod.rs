//! Lists the host's decoders, one per encoding.

pub(crate) mod blocks;
pub(crate) mod chain;
mod compressed;
mod kind;
pub(crate) mod lists;
pub(crate) mod nested;
pub(crate) mod numbers;
pub(crate) mod parts;
mod plain;
pub(crate) mod repeat;
pub(crate) mod slots;
pub(crate) mod strings;

pub use kind::Kind;
use kind::{fixed_size, no_bytes, no_children, only_validity};

const KINDS: &[&[Kind]] = &[
    plain::KINDS,
    nested::KINDS,
    numbers::KINDS,
    repeat::KINDS,
    parts::KINDS,
    blocks::KINDS,
    strings::KINDS,
    lists::KINDS,
    compressed::KINDS,
];

/// All decoders.
pub fn all() -> impl Iterator<Item = &'static Kind> {
    KINDS.iter().copied().flatten()
}
