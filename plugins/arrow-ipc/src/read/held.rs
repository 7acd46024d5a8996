//! Batches that come before their dictionaries, as in files that some writers make.

use std::collections::{HashSet, VecDeque};

use super::messages::Arrived;
use crate::wire::Header;

/// Batches of a file whose dictionaries come after them.
pub struct Held {
    /// Dictionaries that have not come.
    pub missing: HashSet<i64>,
    pub batches: VecDeque<Arrived>,
    pub bytes: u64,
    /// From so many bytes on batches are handed out nevertheless: they may need no dictionary.
    pub most_bytes: u64,
    pub has_ended: bool,
}

impl Held {
    /// Gives a message back unless it is to wait.
    pub fn add(&mut self, arrived: Arrived) -> Option<Arrived> {
        match arrived.message.header {
            Header::Dictionary { id, .. } => {
                self.missing.remove(&id);
                Some(arrived)
            }
            Header::Batch(_) if !self.missing.is_empty() => {
                self.bytes = self.bytes.saturating_add(arrived.body.len());
                self.batches.push_back(arrived);
                if self.bytes > self.most_bytes {
                    self.missing.clear();
                }
                None
            }
            _ => Some(arrived),
        }
    }
}
