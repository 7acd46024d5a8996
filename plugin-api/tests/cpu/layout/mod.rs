//! The layout of the boundary, held in three ways: Rust against the committed record, the record against what a C
//! compiler makes of the header, the header's constants against their Rust twins.

mod compiler;
mod constants;
mod guard;
mod header;
mod record;
