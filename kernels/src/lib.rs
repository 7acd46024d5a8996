//! Typed launchers of the host's kernels, which work on the contents of arrays on any device.
//!
//! The kernels belong to the host, which finds them by name (`crossdock.host.kernels/1`): the names and arguments
//! are here, in [`rows`], the images and CPU implementations in `crossdock-kernel-library`. Every kernel stays within the
//! ranges that it is given, whatever the bytes in them say, and gives the same result on every device, bit for bit. Work on
//! many columns is collected, in [`Checks`] or [`Jobs`], and launched together.

mod bits;
mod blocks;
mod bools;
mod cast;
mod cells;
mod checks;
mod codes;
mod concatenate;
mod gather;
mod indices;
mod jobs;
mod lanes;
mod launch_check;
pub mod limits;
mod list_views;
mod lists;
mod map;
mod merge;
mod null_count;
mod numbers;
mod offsets;
mod parts;
pub mod rows;
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
