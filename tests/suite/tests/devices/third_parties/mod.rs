//! Plugins of others, which none of ours was built with: `examples/rust-plugin`, `examples/c-plugin`, and what `crossdock new` makes.

mod converted;
mod decoding;
mod dictionaries;
mod kernel;
mod lies;
mod made;
mod parts;
mod programs;
mod shadows;
mod slices;
mod trees;
