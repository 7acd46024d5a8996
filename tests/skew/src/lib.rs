//! The skew matrix: fixtures built from the sources of every release (and of today) are run under today's host. What
//! cannot be built on a machine is skipped, with the reason.
#![allow(clippy::panic, clippy::unwrap_used, clippy::expect_used)] // a test's way to fail

pub mod build;
pub mod exercise;
pub mod header;
pub mod matrix;
pub mod sources;

/// Why something was not done.
pub type Skipped = String;

/// Says so, as `cargo xtask test` counts it.
pub fn skipped(name: &str, why: &str) {
    use std::io::Write;
    let mut to = std::io::stderr();
    writeln!(to, "skipped: {name}: {why}").unwrap();
}
