//! The skew matrix: fixtures from the sources of every release and of the working tree run under
//! the current host. A fixture that cannot be built on a machine is skipped, with the reason.
#![allow(clippy::panic, clippy::unwrap_used, clippy::expect_used)] // tests fail by panicking

pub mod build;
pub mod exercise;
pub mod header;
pub mod matrix;
pub mod sources;

/// The reason why a check was skipped.
pub type Skipped = String;

/// Reports a skipped check in the form that `cargo xtask test` counts.
pub fn skipped(name: &str, why: &str) {
    use std::io::Write;
    let mut to = std::io::stderr();
    writeln!(to, "skipped: {name}: {why}").unwrap();
}
