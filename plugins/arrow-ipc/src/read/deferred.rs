//! Defers batches until their dictionaries have been read, because some writers write dictionaries
//! after the batches.

use std::collections::{HashSet, VecDeque};

use super::messages::ReceivedMessage;
use crate::wire::Header;

/// Batches of a file that are returned after their dictionaries have been read.
pub struct DeferredBatches {
    /// The ids of the dictionaries that have not been read.
    pub missing: HashSet<i64>,
    pub batches: VecDeque<ReceivedMessage>,
    pub bytes: u64,
    /// Maximum size of the deferred batches, in bytes. If the batches become larger, they are
    /// returned although dictionaries are missing, because the batches may not use the missing
    /// dictionaries.
    pub max_bytes: u64,
    pub has_ended: bool,
}

impl DeferredBatches {
    /// Defers a batch. Returns the message if it need not be deferred.
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
