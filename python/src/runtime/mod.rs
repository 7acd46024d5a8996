//! Exceptions, the process, and calls without the interpreter's lock.

pub mod errors;
pub mod host_capsule;
pub mod isolation;
pub mod path;
pub mod process;
pub mod progress;
pub mod progress_bar;
pub mod warnings;
pub mod work;
pub mod worker;
