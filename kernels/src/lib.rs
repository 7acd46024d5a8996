//! What looks at the contents of arrays, on any device: each kernel behind a typed launcher, with a twin that runs on
//! host devices.
//!
//! Every kernel stays within the ranges that it is given, whatever the bytes in them say. Results that the host needs go
//! into [`Cells`], so that those of many launches come back in one copy.

mod bits;
mod cells;
mod door;
mod null_count;

pub use cells::{Cells, Findings};
pub use null_count::null_count;
