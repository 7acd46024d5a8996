//! Tests the command in a directory without plugins.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod command_dir;
#[path = "../../../host/tests/common/mod.rs"]
mod common;
mod doctor;
mod example_plugin;
mod policy;
mod privileged;
mod quarantine;
mod trace;
mod usage;
mod warnings;
