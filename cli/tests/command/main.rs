//! The command, in a directory where no plugin lies beside it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod alone;
#[path = "../../../host/tests/common/mod.rs"]
mod common;
mod policy;
mod privileged;
mod quarantine;
mod trace;
mod usage;
mod warnings;
mod work;
