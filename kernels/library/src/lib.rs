//! The kernels that a host owns: CPU implementations, and the images for CUDA devices.
//!
//! The crate `crossdock-kernels` declares the names and arguments, and its launchers request
//! kernels from a host by name. A module of `crossdock-kernels` launches kernels, and the module of
//! this crate with the same name contains their CPU implementations. A CPU implementation accesses
//! only the ranges that its arguments describe, whatever these ranges contain, and computes the
//! same bits as the CUDA function of the kernel. Long jobs run on the threads of [`with_threads`].

mod bits;
mod blocks;
mod bools;
mod cast;
mod codes;
mod compare;
mod concatenate;
mod door;
mod fill_nulls;
mod gather;
mod half;
mod hybrid;
mod images;
mod indices;
mod interface;
mod lanes;
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
mod run_ends;
mod select;
mod shift;
mod steps;
mod strings;
mod table;
mod take;
mod threads;
mod unions;
mod unique;
mod unpack;
mod utf8;
mod views;
mod widen;
mod words;

pub use images::images;
pub use interface::find_for;
pub use table::find;
pub use threads::{Threads, with_threads};
