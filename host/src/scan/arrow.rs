//! Scans as readers of arrow-rs.

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};

use super::{Batches, Scan};
use crate::error::Result;
use crate::session::Session;
use crate::table::to_record_batch;

/// The batches of a scan as record batches in host memory.
pub struct RecordBatches {
    session: Session,
    batches: Batches,
}

impl Scan {
    /// Begins to read the table as record batches. Their contents are validated, because arrow-rs
    /// does not validate them. Batches on a device are copied to host memory; record batches share
    /// the buffers of batches that are already there.
    ///
    /// # Errors
    /// Like [`Scan::batches`].
    pub fn record_batches(&self) -> Result<RecordBatches> {
        Ok(RecordBatches { session: self.session.clone(), batches: self.batches()? })
    }
}

impl Iterator for RecordBatches {
    type Item = Result<RecordBatch, ArrowError>;

    /// An error is an [`ArrowError::ExternalError`] of a [`crate::Error`]. After an error, the next
    /// call returns `None`.
    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.batches.next()?;
        let batch = batch.and_then(|batch| to_record_batch(&self.session, self.batches.schema(), &batch));
        Some(batch.map_err(|error| ArrowError::ExternalError(Box::new(error))))
    }
}

impl RecordBatchReader for RecordBatches {
    fn schema(&self) -> SchemaRef {
        self.batches.schema().clone()
    }
}
