//! Typed launchers of the host's kernels, which work on arrays on any device.
//!
//! The host owns the kernels, and callers find them by name (`crossdock.host.kernels/1`). This
//! crate declares their names and arguments in [`rows`]; `crossdock-kernel-library` has the images
//! and the CPU implementations. A kernel accesses only the ranges that its arguments describe,
//! whatever these ranges contain, and computes the same bits on every device. [`Checks`] and
//! [`Jobs`] collect the work of many columns and launch it together.

mod bits;
mod blocks;
mod bools;
mod cast;
mod cells;
mod checks;
mod codes;
mod compare;
mod concatenate;
mod fill_nulls;
mod gather;
mod hybrid;
mod indices;
mod jobs;
mod lanes;
mod launch_check;
pub mod limits;
mod list_views;
mod lists;
mod lz4;
mod map;
mod merge;
mod null_count;
mod numbers;
mod offsets;
mod parts;
mod rescale;
pub mod rows;
mod run_ends;
mod select;
mod shift;
mod steps;
mod strings;
pub mod table;
mod take;
mod unions;
mod unique;
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
pub use checks::{Checks, StartedChecks};
pub use codes::{CodeCells, Codes, Marks, TOKEN_BYTES};
pub use compare::{Accept, ByteValues, ComparedType};
pub use concatenate::BitRange;
pub use gather::{Dim, gather};
pub use hybrid::{HYBRID_PIECE_ROWS, Hybrid, HybridRun};
pub use jobs::Jobs;
pub use lanes::Deltas;
pub use lists::{ListCells, Lists};
pub use lz4::{Lz4Buffers, Lz4Content};
pub use map::Words;
pub use offsets::Offsets;
pub use parts::{Halves, LeftParts, Part};
pub use rescale::Rescale;
pub use select::{Selected, SelectedRows};
pub use steps::Step;
pub use strings::{ViewCells, Views};
pub use take::{Numbers, Patches, Source};
pub use unique::slots_for;
pub use unpack::Packed;
pub use widen::Integers;
pub use words::IntType;
