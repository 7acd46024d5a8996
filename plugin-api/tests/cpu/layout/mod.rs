//! Tests the layout of the C structs. Compares the Rust structs with the committed record, the
//! record with the header by means of a C compiler, and the constants of the header with the
//! constants in Rust.

mod compiler;
mod constants;
mod guard;
mod header;
mod record;
