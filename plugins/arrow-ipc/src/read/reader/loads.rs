//! Loads messages before they are needed.

use crossdock_memory::{Result, Stream};
use crossdock_plugin_api::Call;

use super::super::messages::Next;
use super::{Pending, Reader};
use crate::limits::{max_bytes_ahead, max_bytes_ahead_of_decompression};

/// Maximum number of bodies that a device decompresses at the same time. A group of them takes
/// about 2 ms on an H200, even if it is small.
const MAX_DECOMPRESSING: usize = 256;

impl Reader {
    /// Whether another message may be loaded, if the budget allows it.
    fn has_room(&self) -> bool {
        let width = self.tasks.width();
        let max = if self.is_decompressing { MAX_DECOMPRESSING.max(width) } else { width };
        self.pending.len() <= max
    }

    /// Starts to load up to one message per thread, or more messages that the device decompresses,
    /// within the budget. If `may_wait`, waits for the first message.
    pub(super) fn read_ahead(&mut self, call: &Call<'_>, stream: &Stream, may_wait: bool) -> Result<()> {
        let limit = self.memory_limit_bytes;
        while !self.has_ended && self.has_room() {
            let budget = match self.is_decompressing {
                true => max_bytes_ahead_of_decompression(call.byte_budget(), limit),
                false => max_bytes_ahead(call.byte_budget(), self.device, limit),
            };
            let must_wait = may_wait && self.pending.is_empty();
            let pending: u64 = self.pending.iter().map(Pending::bytes).sum();
            // A copy of an assembled batch may be in flight.
            let ahead = self.in_flight.bytes()?.max(self.assembled_bytes()) + pending;
            if must_wait {
                self.in_flight.wait(budget)?;
            } else if ahead >= budget {
                break;
            }
            let next = match self.messages.next(must_wait.then(|| call.cancel())) {
                Ok(Next::Message(message)) => match self.start(*message, stream) {
                    // Nothing of the message is needed.
                    Ok(None) => {
                        call.check_cancelled()?;
                        self.has_ended = self.needed.has_all_rows();
                        continue;
                    }
                    Ok(Some(pending)) => Ok(pending),
                    Err(e) => Err(e),
                },
                Ok(Next::NotYet) if must_wait => {
                    call.check_cancelled()?;
                    continue;
                }
                Ok(Next::NotYet) => break,
                Ok(Next::End) => {
                    self.has_ended = true;
                    break;
                }
                Err(e) => Err(e),
            };
            // The batches before an error are still returned.
            self.has_ended = next.is_err() || self.needed.has_all_rows();
            let next = next.unwrap_or_else(Pending::Failed);
            let is_enough = match &next {
                Pending::Batch { body, .. } if body.is_in_place() => true,
                // `start` has read this batch completely, and its copy to the device is enqueued.
                // One more batch is started, so that a copy runs while the caller processes the
                // current batch.
                Pending::Batch { body, .. } if body.is_enqueued() => !self.pending.is_empty(),
                _ => false,
            };
            if let Pending::Batch { body, .. } = &next {
                self.is_decompressing = body.is_decompressing();
            }
            self.pending.push_back(next);
            if is_enough {
                break;
            }
        }
        if self.has_ended {
            self.decompressions.close();
        }
        Ok(())
    }
}
