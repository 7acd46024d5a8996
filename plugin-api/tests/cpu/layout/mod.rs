//! Tests the layout of the C structs: the Rust structs against the committed record, the record
//! against the header with a C compiler, and the constants of the header against those in Rust.

mod compiler;
mod constants;
mod guard;
mod header;
mod record;
