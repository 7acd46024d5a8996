//! A session's instances of plugins, which are made when they are first needed and stand in for others that failed.

mod list;
mod sync;

pub(crate) use list::{Instances, List};
