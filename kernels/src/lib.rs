//! What looks at the contents of arrays, on any device: each kernel behind a typed launcher, with a twin that runs on
//! host devices.
//!
//! Every kernel stays within the ranges that it is given, whatever the bytes in them say. Results that the host needs go
//! into [`Cells`], so that those of many launches come back in one copy.

mod bits;
mod bools;
mod cells;
mod door;
mod gather;
mod indices;
mod list_views;
mod null_count;
mod offsets;
mod run_ends;
mod shift;
mod unions;
mod utf8;
mod views;
mod words;

pub use bools::{pack_bytes, unpack_bits};
pub use cells::{Cells, Findings};
pub use gather::{Dim, gather};
pub use indices::check_indices;
pub use list_views::check_list_views;
pub use null_count::null_count;
pub use offsets::{Offsets, check_offsets, rebase_offsets};
pub use run_ends::check_run_ends;
pub use shift::shift_bits;
pub use unions::check_union;
pub use utf8::check_utf8;
pub use views::check_views;
pub use words::IntType;
