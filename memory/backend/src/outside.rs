//! Memory that plugins did not take from the host: from the moment at which they hand it over, it counts against the budget too.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::forks;
use crate::resource::Budget;

/// Kept where there is a budget: without one there is nothing to hold anybody to.
pub(crate) struct Outside {
    budget: Arc<Budget>,
    /// Of the process that it was made in.
    forks: u32,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The host's own live blocks: where they begin, and how many bytes they have.
    blocks: BTreeMap<u64, u64>,
    /// Bytes that are charged now, by the account's name.
    charged: BTreeMap<String, u64>,
}

/// Bytes that somebody handed over and that are in no block of the host's, charged until this is dropped.
pub struct Charge {
    outside: Arc<Outside>,
    account: String,
    bytes: usize,
}

impl Outside {
    pub(crate) fn new(budget: Arc<Budget>) -> Self {
        Self { budget, forks: forks::count(), state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn took(&self, address: u64, bytes: u64) {
        self.state().blocks.insert(address, bytes);
    }

    pub(crate) fn gave_back(&self, address: u64) {
        self.state().blocks.remove(&address);
    }

    /// What is charged now, by name.
    pub(crate) fn charged(&self) -> Vec<(String, u64)> {
        self.state().charged.iter().map(|(name, bytes)| (name.clone(), *bytes)).collect()
    }

    /// How many of these bytes, of which none is there twice, lie in no block.
    pub(crate) fn bytes_outside(&self, ranges: impl Iterator<Item = (u64, u64)>) -> u64 {
        let state = self.state();
        let is_inside = |address: u64| {
            let block = state.blocks.range(..=address).next_back();
            block.is_some_and(|(start, bytes)| address - start < *bytes)
        };
        ranges
            .filter(|(address, _)| !is_inside(*address))
            .map(|(_, bytes)| bytes)
            .fold(0, u64::saturating_add)
    }

    /// Notes that so many bytes were taken out of the budget for an account of this name.
    pub(crate) fn charged_now(self: &Arc<Self>, account: &str, bytes: usize) -> Charge {
        *self.state().charged.entry(account.to_string()).or_default() += bytes as u64;
        Charge { outside: self.clone(), account: account.to_string(), bytes }
    }
}

impl Charge {
    /// How many bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        // A forked child has what others had locked, and gives nothing of its parent's back.
        if self.outside.forks != forks::count() {
            return;
        }
        self.outside.budget.give_back(self.bytes);
        let mut state = self.outside.state();
        let left =
            state.charged.get(&self.account).map_or(0, |bytes| bytes.saturating_sub(self.bytes as u64));
        match left {
            0 => drop(state.charged.remove(&self.account)),
            left => drop(state.charged.insert(self.account.clone(), left)),
        }
    }
}
