//! Batches, schemas and encoded arrays as plain data, for other processes.
//!
//! The data contain no buffers. The caller chooses how it carries the buffers, and what represents
//! a buffer in the data: a range of a buffer in a list, or a place in shared memory. Readers do not
//! trust the data.

mod batch;
mod format;
mod header;
mod node;
mod own_rows;
mod schema;
mod shared;
mod tree;

pub use batch::{BatchParts, PartReader, buffers, has_other_rows, used_and_total_bytes};
pub use header::{Content, Header, MAGIC, Place, TableParts, VERSION};
pub use node::{ChildParts, DeviceParts, NodeHead, NodeRecord};
pub use own_rows::own_rows;
pub use schema::{read_schema, write_schema};
pub use shared::SharedObject;
pub use tree::{BufferRecord, TreeParts};
