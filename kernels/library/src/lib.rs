//! The kernels that a host owns: their CPU implementations, and the images that CUDA devices run.
//!
//! Names and arguments are those of `crossdock-kernels`, whose launchers ask a host for them by name. A module
//! here has the CPU implementations of the launchers in that crate's module of the same name. Each stays within the ranges
//! that it is given, whatever the bytes in them say, and gives what the CUDA function of its name gives, bit for bit.

mod bits;
mod blocks;
mod bools;
mod cast;
mod codes;
mod concatenate;
mod door;
mod gather;
mod half;
mod images;
mod indices;
mod interface;
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
mod table;
mod take;
mod unions;
mod unpack;
mod utf8;
mod views;
mod widen;
mod words;

pub use images::images;
pub use interface::find_for;
pub use table::find;
