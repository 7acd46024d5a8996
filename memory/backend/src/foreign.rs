//! Charges the budget for foreign memory, from the moment at which a plugin hands the memory over
//! until the memory is released.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::forks;
use crate::resource::Budget;

/// Tracks the blocks of the host and the charges for foreign memory. Exists only if there is a
/// budget.
pub(crate) struct ForeignMemory {
    budget: Arc<Budget>,
    /// Number of forks when this value was created.
    forks: u32,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Length in bytes of each live block of the host, by address.
    blocks: BTreeMap<u64, u64>,
    /// Bytes charged at present, by account name.
    charged: BTreeMap<String, u64>,
}

/// A charge against the budget for foreign memory. Dropping it returns the bytes to the budget.
pub struct Charge {
    foreign: Arc<ForeignMemory>,
    account: String,
    bytes: usize,
}

impl ForeignMemory {
    pub(crate) fn new(budget: Arc<Budget>) -> Self {
        Self { budget, forks: forks::count(), state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add_block(&self, address: u64, bytes: u64) {
        self.state().blocks.insert(address, bytes);
    }

    pub(crate) fn remove_block(&self, address: u64) {
        self.state().blocks.remove(&address);
    }

    /// Bytes charged at present, by account name.
    pub(crate) fn charged(&self) -> Vec<(String, u64)> {
        self.state().charged.iter().map(|(name, bytes)| (name.clone(), *bytes)).collect()
    }

    /// Total number of bytes in the ranges that are not in a block of the host. The ranges
    /// (address, length in bytes) are disjoint.
    pub(crate) fn foreign_bytes(&self, ranges: impl Iterator<Item = (u64, u64)>) -> u64 {
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

    /// Records that `bytes` bytes of the budget were charged for `account`.
    pub(crate) fn add_charge(self: &Arc<Self>, account: &str, bytes: usize) -> Charge {
        *self.state().charged.entry(account.to_string()).or_default() += bytes as u64;
        Charge { foreign: self.clone(), account: account.to_string(), bytes }
    }
}

impl Charge {
    /// The number of bytes charged.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        // A forked child must not lock `state`, because another thread may have held the lock at
        // the fork. It must not change the budget, which belongs to the parent.
        if self.foreign.forks != forks::count() {
            return;
        }
        self.foreign.budget.release(self.bytes);
        let mut state = self.foreign.state();
        let remaining =
            state.charged.get(&self.account).map_or(0, |bytes| bytes.saturating_sub(self.bytes as u64));
        match remaining {
            0 => drop(state.charged.remove(&self.account)),
            remaining => drop(state.charged.insert(self.account.clone(), remaining)),
        }
    }
}
