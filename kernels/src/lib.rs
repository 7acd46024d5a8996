//! What looks at the contents of arrays, on any device: each kernel with a twin that runs on host devices, behind typed
//! functions that collect jobs for it.
//!
//! Every kernel stays within the ranges that it is given, whatever the bytes in them say, and gives what its twin gives,
//! bit for bit. What is to be done to many columns is collected, in [`Checks`] or [`Jobs`], and launched together.

mod bits;
mod blocks;
mod bools;
mod cast;
mod cells;
mod checks;
mod codes;
mod concatenate;
mod door;
mod gather;
mod half;
mod images;
mod indices;
mod jobs;
mod lanes;
mod list_views;
mod lists;
mod map;
mod merge;
mod null_count;
mod numbers;
mod offsets;
mod parts;
mod run_ends;
mod shift;
mod steps;
mod strings;
pub mod table;
mod take;
mod unions;
mod unpack;
mod utf8;
mod views;
mod widen;
mod words;

pub use blocks::BlockCodes;
pub use bools::{pack_bytes, unpack_bits};
pub use cast::NumberType;
pub(crate) use cells::Cells;
pub use cells::Findings;
pub use checks::Checks;
pub use codes::{Codes, Marks, Measured, TOKEN_BYTES};
pub use concatenate::BitRange;
pub use gather::{Dim, gather};
pub use images::images;
pub use jobs::Jobs;
pub use lanes::Deltas;
pub use lists::{Lists, Placed};
pub use map::Words;
pub use offsets::Offsets;
pub use parts::{Halves, Lefts, Part};
pub use steps::Step;
pub use strings::{Viewed, Views};
pub use take::{Numbers, Patches, Source};
pub use unpack::Packed;
pub use widen::Integers;
pub use words::IntType;
