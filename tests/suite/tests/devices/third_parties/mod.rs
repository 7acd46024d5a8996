//! Tests third-party plugins, which are built separately: `examples/rust-plugin`,
//! `examples/c-plugin`, and projects that `crossdock new` creates.

mod converted;
mod decoding;
mod dictionaries;
mod generated;
mod kernel;
mod malformed;
mod parts;
mod precedence;
mod programs;
mod slices;
mod trees;
