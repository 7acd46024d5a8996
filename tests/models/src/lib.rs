//! Models of files of the host, the backend and the isolation crate that use atomics, locks or
//! condition variables directly. A model compiles the product's own file with loom's types instead
//! of the standard library's types. docs/testing.md lists the modelled files, and how other files
//! are tested. Loom runs each model in every order of its threads, and with every result of a load
//! that the memory orders allow. The number of forced switches between threads is bounded. A
//! deadlock is an error.
//!
//! The host reads the reference counts of `Arc`. The models use atomics instead, because a real
//! machine may return stale counts, but loom's `Arc` never returns a stale count.
#![cfg(test)]
#![allow(clippy::unwrap_used)]

mod channels;
mod instances;
mod ledger;
mod reaper;
mod reclaimer;
mod resource;

/// Types that files of the backend import by this path.
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
