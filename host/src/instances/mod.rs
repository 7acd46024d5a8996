//! Holds a session's plugin instances, which are created at first use and replaced after a panic.

mod list;
mod sync;

pub(crate) use list::{Instances, List};
