//! Arrow's C interfaces in capsules.

pub mod capsules;
pub mod export;
pub mod import;
pub mod xlog;
