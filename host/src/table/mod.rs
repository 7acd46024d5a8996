//! Tables for host applications. A table has a schema and batches.

mod arrow;
mod build;
mod column;
mod compute;
mod conform;
mod decode;
mod device;
mod files;
mod pending;
mod show;
mod tensor;

use arrow_schema::SchemaRef;
use crossdock_arrays::DeviceBatch;
use crossdock_plugin_api::{Device, Error as ApiError};

pub(crate) use arrow::to_record_batch;
pub use column::{ColumnSlice, Native, Validity, Values};
pub use files::IpcForm;
pub use pending::PendingTable;
pub use show::Shown;
pub use tensor::TensorNulls;

use crate::error::{Error, Result};
use crate::place::move_batch;
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
    /// Creates a table from batches of the session or of another session of the same host.
    ///
    /// # Errors
    /// [`Error::Usage`] if the schema of a batch differs from `schema`.
    pub fn from_batches(session: &Session, schema: SchemaRef, batches: Vec<DeviceBatch>) -> Result<Self> {
        for (i, batch) in batches.iter().enumerate() {
            if let Some(difference) = schema_difference(&schema, batch.schema()) {
                return Err(Error::usage(format!(
                    "batch {i} does not have the table's schema: {difference}"
                )));
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

    /// The number of rows in all batches.
    pub fn rows(&self) -> u64 {
        self.batches.iter().map(|batch| batch.len() as u64).sum()
    }

    /// The table's session.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The number of bytes that the table's rows use in all buffers of known length.
    pub fn bytes(&self) -> u64 {
        self.batches.iter().map(DeviceBatch::buffer_bytes).sum()
    }

    /// Returns the columns at `indices`, in the order of `indices`. The result shares the buffers.
    ///
    /// # Errors
    /// [`Error::Usage`] if an index is out of range.
    pub fn select(&self, indices: &[usize]) -> Result<Table> {
        let n = self.schema.fields().len();
        let schema = self.schema.project(indices).map_err(|_| {
            Error::usage(format!(
                "columns {indices:?}: the table has {n} columns, expected indices below {n}"
            ))
        })?;
        let schema = SchemaRef::new(schema);
        let batches = self.batches.iter().map(|batch| {
            batch.select(indices).and_then(|batch| batch.with_schema(schema.clone())).map_err(in_table)
        });
        Ok(Self { session: self.session.clone(), batches: batches.collect::<Result<_>>()?, schema })
    }

    /// Returns up to `rows` rows, starting at row `offset`. The result ends at the end of the table
    /// and shares the buffers.
    pub fn slice(&self, offset: u64, rows: u64) -> Result<Table> {
        let (mut skip, mut remaining) = (offset, rows);
        let mut batches = Vec::new();
        for batch in &self.batches {
            let len = batch.len() as u64;
            let from = skip.min(len);
            let take = remaining.min(len - from);
            (skip, remaining) = (skip - from, remaining - take);
            if take > 0 {
                batches.push(batch.slice(from as usize, take as usize).map_err(in_table)?);
            }
        }
        Ok(Self { session: self.session.clone(), schema: self.schema.clone(), batches })
    }

    /// Replaces the table's schema by a schema with the same types.
    ///
    /// # Errors
    /// [`Error::Data`] if the types differ.
    pub fn with_schema(&self, schema: &SchemaRef) -> Result<Table> {
        let batches = self.batches.iter().map(|batch| batch.clone().with_schema(schema.clone()));
        let batches = batches.collect::<std::result::Result<_, _>>().map_err(in_table)?;
        Ok(Self { session: self.session.clone(), schema: schema.clone(), batches })
    }

    /// Moves the table to another device. Batches that are already on this device are not copied.
    ///
    /// # Errors
    /// [`Error::Device`] if the device does not exist or has too little memory.
    pub fn move_to(&self, device: Device) -> Result<Table> {
        // The device of a table without batches is that of its session.
        let none = self.batches.is_empty() && device != self.session.device();
        let none = none.then(|| self.empty_batch()).transpose()?;
        let batches = self.batches.iter().chain(&none);
        let moved = batches.map(|batch| move_batch(&self.session, batch.clone(), device));
        Ok(Self {
            batches: moved.collect::<Result<_>>()?,
            session: self.session.clone(),
            schema: self.schema.clone(),
        })
    }
}

/// Moves the batch to the session's device.
pub(crate) fn to_device(session: &Session, batch: DeviceBatch) -> Result<DeviceBatch> {
    move_batch(session, batch, session.device())
}

fn in_table(error: ApiError) -> Error {
    Error::data("cannot create the table", error)
}
