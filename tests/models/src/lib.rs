//! Models of files of the host and the backend that synchronise by hand: the very files, where loom's types stand in the place
//! of the standard library's. Which those are, and how the others are tested, says ARCHITECTURE.md. Loom runs each model in
//! every order of its threads, and lets loads see every value that the memory orders allow, up to a bound of forced switches
//! between threads; what blocks for good is an error as well.
//!
//! Counts of references are plain atomics here: the standard library's `Arc`, whose count the host reads, has no twin that
//! shows a count as late as a machine may.
#![cfg(test)]
#![allow(clippy::unwrap_used)]

mod instances;
mod janitor;
mod lanes;
mod ledger;
mod reaper;
mod resource;

/// What the backend's files call by this path.
mod device {
    pub(crate) struct Stream;
}

/// Runs it in every order, with at most `switches` forced switches between threads in each.
fn model(switches: usize, of: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(switches);
    model.check(of);
}
