//! CSV: records of fields, with delimiters.

mod columns;
mod ends;
mod fields;
mod infer;
mod read;
mod specials;
mod write;

pub use fields::MAX_BYTES;
pub use infer::Kinds;
pub use read::open;
pub use write::CsvFormat;
