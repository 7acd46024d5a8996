//! Reads messages, loads their bodies to the device, and builds arrays over them.

mod build;
pub mod bytes;
mod decompression_streams;
mod decompressions;
mod deferred;
mod device_lz4;
mod dictionaries;
mod extents;
mod footer_check;
mod handoff;
mod in_flight;
mod loading;
pub mod messages;
pub mod pipe;
mod reader;
mod selection;
mod transport;
mod waiting;

pub use reader::Reader;
