//! Models of files of the host, the backend and the isolation crate that synchronise by hand. A
//! model compiles the product's own file with loom's types instead of the standard library's.
//! docs/testing.md lists the files, and how others are tested. Loom runs each model in every order
//! of its threads, with every value that the memory orders allow a load to see, up to a bound of
//! forced switches between threads. A deadlock is an error.
//!
//! Reference counts are plain atomics here: loom has no equivalent of the standard library's `Arc`,
//! whose count the host reads, that returns stale counts as a machine may.
#![cfg(test)]
#![allow(clippy::unwrap_used)]

mod channels;
mod instances;
mod ledger;
mod reaper;
mod reclaimer;
mod resource;

/// A type that the backend's files use by this path.
mod device {
    pub(crate) struct Stream;
}

/// Runs `f` in every order of its threads, with at most `max_switches` forced switches between
/// threads.
fn model(max_switches: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(max_switches);
    model.check(f);
}
