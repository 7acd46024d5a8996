//! The skew matrix: runs fixtures, which are built from the sources of every release and of the
//! working tree, under the current host. If a fixture cannot be built on this machine, it is
//! skipped and the reason is reported.
#![allow(clippy::panic, clippy::unwrap_used, clippy::expect_used)] // tests fail by panicking

pub mod build;
pub mod exercise;
pub mod header;
pub mod matrix;
pub mod sources;

/// The reason why a check was skipped.
pub type Skipped = String;

/// Reports a skipped check in the format that `cargo xtask test` counts.
pub fn skipped(name: &str, why: &str) {
    use std::io::Write;
    let mut to = std::io::stderr();
    writeln!(to, "skipped: {name}: {why}").unwrap();
}
