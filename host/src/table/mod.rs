//! Tables for host applications: a schema and batches, in a session.

mod arrow;
mod build;
mod column;
mod device;
mod files;

use arrow_schema::SchemaRef;
use crossdock_arrays::{DeviceBatch, format_batch};
use crossdock_plugin_api::Error as ApiError;

pub use column::{ColumnSlice, Native, Validity, Values};
pub use files::IpcForm;

use crate::error::{Error, Result};
use crate::session::Session;
use crate::writer::schema_difference;

/// Batches of one schema, on any device. Cloning shares the buffers.
#[derive(Clone)]
pub struct Table {
    session: Session,
    schema: SchemaRef,
    batches: Vec<DeviceBatch>,
}

impl Table {
    /// A table of batches that the session, or another one of its host, made.
    ///
    /// # Errors
    /// A batch is of another schema.
    pub fn from_batches(session: &Session, schema: SchemaRef, batches: Vec<DeviceBatch>) -> Result<Self> {
        for (i, batch) in batches.iter().enumerate() {
            if let Some(difference) = schema_difference(&schema, batch.schema()) {
                return Err(Error::usage(format!("batch {i} does not fit the table: {difference}")));
            }
        }
        Ok(Self { session: session.clone(), schema, batches })
    }

    /// The schema of every batch.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The batches, in order.
    pub fn batches(&self) -> &[DeviceBatch] {
        &self.batches
    }

    /// Rows of all batches.
    pub fn rows(&self) -> u64 {
        self.batches.iter().map(|batch| batch.len() as u64).sum()
    }

    /// The session that it is in.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The first `max_rows` rows as text. Only what is shown is copied to the host.
    pub fn format(&self, max_rows: usize) -> Result<String> {
        let mut text = String::new();
        let mut left = max_rows;
        for batch in &self.batches {
            if left == 0 {
                break;
            }
            let shown = format_batch(batch, left, self.session.stream());
            text += &shown.map_err(|error| Error::data("cannot show the table", error))?;
            left = left.saturating_sub(batch.len());
        }
        Ok(text)
    }

    fn moved_to_session(&self, batch: DeviceBatch) -> Result<DeviceBatch> {
        to_device(&self.session, batch)
    }
}

/// The batch on the session's device.
fn to_device(session: &Session, batch: DeviceBatch) -> Result<DeviceBatch> {
    let (from, to) = (batch.device(), session.device());
    if from == to {
        return Ok(batch);
    }
    batch
        .move_to(session.stream(), to)
        .map_err(|error| Error::data(format!("cannot move a batch from {from} to {to}"), error))
}

fn in_table(error: ApiError) -> Error {
    Error::data("cannot take the table", error)
}
