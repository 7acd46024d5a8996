//! Tables whose number of rows is known only on their device.

use std::sync::OnceLock;

use arrow_schema::SchemaRef;
use crossdock_arrays::{Level, PendingBatch, validate};
use crossdock_plugin_api::{Device, Result as ApiResult, Validate};

use super::{Table, in_table};
use crate::error::{Error, Result};
use crate::session::Session;

/// A table of one batch whose number of rows is known only on its device, as in engines with
/// over-allocated buffers.
///
/// The columns have room for [`PendingTable::capacity`] rows, and a counter on the device states
/// the number of rows. [`PendingTable::table`] reads the counter once. All other functions do not
/// wait for the device.
pub struct PendingTable {
    session: Session,
    batch: PendingBatch,
    table: OnceLock<Table>,
}

impl PendingTable {
    /// Creates a table from a batch.
    pub fn new(session: &Session, batch: PendingBatch) -> Self {
        Self { session: session.clone(), batch, table: OnceLock::new() }
    }

    /// The session.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The schema.
    pub fn schema(&self) -> &SchemaRef {
        self.batch.schema()
    }

    /// The device of the columns and of the counter.
    pub fn device(&self) -> Device {
        self.batch.device()
    }

    /// The number of rows that the columns have room for.
    pub fn capacity(&self) -> u64 {
        self.batch.capacity() as u64
    }

    /// The batch, for [`crate::Writer::write_pending`].
    pub fn batch(&self) -> &PendingBatch {
        &self.batch
    }

    /// The number of rows, if the host knows it.
    pub fn known_rows(&self) -> Option<u64> {
        self.batch.known_rows().map(|rows| rows as u64)
    }

    /// Returns the table. The first call waits until the counter is ready, and reads it. Later
    /// calls return the same table.
    ///
    /// # Errors
    /// [`Error::Data`] if the counter is negative or above the capacity, if the session validates
    /// contents and the rows are malformed, if the device failed, or if the session's stream is
    /// under graph capture.
    pub fn table(&self) -> Result<&Table> {
        if let Some(table) = self.table.get() {
            return Ok(table);
        }
        let stream = self.session.stream();
        let rows = || -> ApiResult<_> {
            let batch = self.batch.settle(stream)?;
            if self.session.validate_structs() == Validate::Full {
                validate(&batch, Level::Full, stream)?;
            }
            Ok(batch)
        };
        let failed = |error| Error::data("cannot return the rows of the table", error);
        let batch = rows().map_err(failed)?;
        let table = Table::from_batches(&self.session, self.schema().clone(), vec![batch])?;
        Ok(self.table.get_or_init(|| table))
    }

    /// Returns a table of all rows of the capacity. The contents of the rows behind the counter are
    /// undefined. Reading the offsets of these rows may fail, so use it only for columns of a fixed
    /// width.
    ///
    /// # Errors
    /// [`Error::Usage`] if a column has no fixed width.
    pub fn padded(&self) -> Result<Table> {
        if !self.batch.has_fixed_width() {
            return Err(Error::usage(
                "the rows behind the counter have no offsets: expected only columns of a fixed width",
            ));
        }
        Table::from_batches(&self.session, self.schema().clone(), vec![self.batch.padded().clone()])
    }

    /// Returns the columns at `indices`, in the order of `indices`. The result shares the buffers
    /// and the counter.
    ///
    /// # Errors
    /// [`Error::Usage`] if an index is out of range.
    pub fn select(&self, indices: &[usize]) -> Result<Self> {
        let selected = self.batch.with_columns(|batch| batch.select(indices));
        let selected = selected.map_err(|error| Error::usage(error.message().to_string()))?;
        Ok(Self::new(&self.session, selected))
    }

    /// Replaces the schema by a schema with the same types.
    ///
    /// # Errors
    /// [`Error::Data`] if the types differ.
    pub fn with_schema(&self, schema: &SchemaRef) -> Result<Self> {
        let batch = self.batch.with_columns(|batch| batch.clone().with_schema(schema.clone()));
        Ok(Self::new(&self.session, batch.map_err(in_table)?))
    }
}
