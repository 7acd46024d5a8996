//! Assembles batches before they are requested, so that several are validated at the same time.

use std::sync::Arc;

use crossdock_arrays::StartedValidation;
use crossdock_memory::{Device, Result, Stream};
use crossdock_plugin_api::{Call, Validate};

use super::{Pending, Reader};

/// The maximum number of batches that are validated on a device at the same time.
const MAX_VALIDATING: usize = 16;

/// The maximum size of these batches, in bytes. All batches that are read ahead must not be among
/// them, because no other batch is loaded until they are validated.
const MAX_VALIDATING_BYTES: u64 = 256 << 20;

impl Reader {
    /// Assembles the next batch, and others whose bodies are loaded if they are validated, so that
    /// they are validated at the same time.
    pub(super) fn assemble_ahead(&mut self, call: &Call<'_>, stream: &Stream) -> Result<()> {
        let max = match call.validate() {
            Validate::Layout => 1,
            Validate::Full if self.device == Device::CPU => 2 * self.tasks.width(),
            Validate::Full => MAX_VALIDATING,
        };
        let before = self.assembled.len();
        // Validating several batches together takes less time.
        if before > 0 && (before > max / 2 || self.assembled_bytes() > MAX_VALIDATING_BYTES / 2) {
            return Ok(());
        }
        let mut result = Ok(());
        while self.assembled.len() < max && self.assembled_bytes() < MAX_VALIDATING_BYTES {
            match self.next_assembled(call, stream, self.assembled.is_empty()) {
                Ok(Some(next)) => self.assembled.push_back(next),
                Ok(None) => break,
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        if call.validate() == Validate::Full
            && let Err(error) = self.start_validation(before)
        {
            self.assembled.truncate(before);
            result = Err(error);
        }
        match result {
            // The batches before an error are still returned.
            Err(error) if !self.assembled.is_empty() => {
                self.has_ended = true;
                self.pending.push_front(Pending::Failed(error));
                Ok(())
            }
            result => result,
        }
    }

    pub(super) fn assembled_bytes(&self) -> u64 {
        self.assembled.iter().map(|batch| batch.bytes).sum()
    }

    /// Begins to validate the assembled batches from number `from` on.
    fn start_validation(&mut self, from: usize) -> Result<()> {
        if from == self.assembled.len() {
            return Ok(());
        }
        // The validation may end in a later call, which may have another stream.
        let stream = match &self.validations {
            Some(stream) => stream.clone(),
            None if self.device == Device::CPU => self.memory.default_stream(Device::CPU)?,
            None => self.memory.create_stream(self.device)?,
        };
        let batches = self.assembled.range(from..).map(|next| &next.batch);
        let validation = Arc::new(StartedValidation::start(batches, &self.tasks, &stream)?);
        self.validations = Some(stream);
        for (i, next) in self.assembled.range_mut(from..).enumerate() {
            next.validation = Some((validation.clone(), i));
        }
        Ok(())
    }
}
