//! Reading: messages, their bodies brought to the device, arrays built over them.

mod build;
pub mod bytes;
mod dictionaries;
mod footer_check;
mod held;
mod in_flight;
mod loading;
pub mod messages;
pub mod pipe;
mod reader;

pub use reader::Reader;
