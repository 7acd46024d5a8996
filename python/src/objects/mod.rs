//! The classes of the package.

pub mod allocator;
pub mod bytes;
pub mod column;
pub mod column_state;
pub mod compute;
pub mod concat;
pub mod device;
pub mod encoded;
pub mod files;
pub mod fragments;
pub mod parts;
pub mod rebuild;
pub mod request;
pub mod scan;
pub mod schema;
pub mod session;
pub mod session_state;
pub mod shared;
pub mod show;
pub mod source;
pub mod table;
pub mod table_rows;
pub mod writer;
