//! The plugin interface of Crossdock.
#![cfg_attr(feature = "stable-abi", allow(non_local_definitions))]

pub mod abi;
mod error;
mod host;
pub mod layout;
mod owned;
mod words;

pub use error::{Code, Error, Result};
pub use host::{Host, SessionSettings};
pub use owned::{Owned, Release};
pub use words::{Device, Options};
