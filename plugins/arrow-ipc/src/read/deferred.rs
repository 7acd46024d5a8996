//! Defers batches until their dictionaries have been read: some writers put dictionaries last.

use std::collections::{HashSet, VecDeque};

use super::messages::ReceivedMessage;
use crate::wire::Header;

/// Batches of a file that wait for dictionaries.
pub struct DeferredBatches {
    /// Ids of dictionaries that have not been read.
    pub missing: HashSet<i64>,
    pub batches: VecDeque<ReceivedMessage>,
    pub bytes: u64,
    /// If the batches have more bytes, they are returned nevertheless: they may need no dictionary.
    pub max_bytes: u64,
    pub has_ended: bool,
}

impl DeferredBatches {
    /// Defers a batch, or returns the message.
    pub fn add(&mut self, received: ReceivedMessage) -> Option<ReceivedMessage> {
        match received.message.header {
            Header::Dictionary { id, .. } => {
                self.missing.remove(&id);
                Some(received)
            }
            Header::Batch(_) if !self.missing.is_empty() => {
                self.bytes = self.bytes.saturating_add(received.body.len());
                self.batches.push_back(received);
                if self.bytes > self.max_bytes {
                    self.missing.clear();
                }
                None
            }
            _ => Some(received),
        }
    }
}
