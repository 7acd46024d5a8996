//! Tables for host applications: a schema and batches, in a session.

mod arrow;
mod build;
mod column;
mod conform;
mod decode;
mod device;
mod files;
mod show;

use arrow_schema::SchemaRef;
use crossdock_arrays::DeviceBatch;
use crossdock_plugin_api::{Device, Error as ApiError};

pub use column::{ColumnSlice, Native, Validity, Values};
pub use files::IpcForm;
pub use show::Shown;

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

    /// Bytes of all buffers' parts that its rows use, as far as lengths are known.
    pub fn bytes(&self) -> u64 {
        self.batches.iter().map(DeviceBatch::bytes).sum()
    }

    /// The columns at `indices`, in that order. No buffer is copied.
    ///
    /// # Errors
    /// [`Error::Usage`] where there is no such column.
    pub fn select(&self, indices: &[usize]) -> Result<Table> {
        let n = self.schema.fields().len();
        let schema = self.schema.project(indices).map_err(|_| {
            Error::usage(format!(
                "columns {indices:?} were asked for, and the table has columns 0 to {n} exclusive"
            ))
        })?;
        let schema = SchemaRef::new(schema);
        let batches = self.batches.iter().map(|batch| {
            batch.select(indices).and_then(|chosen| chosen.with_schema(schema.clone())).map_err(in_table)
        });
        Ok(Self { session: self.session.clone(), batches: batches.collect::<Result<_>>()?, schema })
    }

    /// `rows` rows from row `offset` on, fewer where the table ends. No buffer is copied.
    pub fn slice(&self, offset: u64, rows: u64) -> Result<Table> {
        let (mut skip, mut left) = (offset, rows);
        let mut batches = Vec::new();
        for batch in &self.batches {
            let len = batch.len() as u64;
            let from = skip.min(len);
            let take = left.min(len - from);
            (skip, left) = (skip - from, left - take);
            if take > 0 {
                batches.push(batch.slice(from as usize, take as usize).map_err(in_table)?);
            }
        }
        Ok(Self { session: self.session.clone(), schema: self.schema.clone(), batches })
    }

    /// The same columns under a schema of the same types.
    ///
    /// # Errors
    /// [`Error::Data`] where the types differ.
    pub fn with_schema(&self, schema: &SchemaRef) -> Result<Table> {
        let batches = self.batches.iter().map(|batch| batch.clone().with_schema(schema.clone()));
        let batches = batches.collect::<std::result::Result<_, _>>().map_err(in_table)?;
        Ok(Self { session: self.session.clone(), schema: schema.clone(), batches })
    }

    /// The table on a device: itself where it is there.
    ///
    /// # Errors
    /// The device does not exist, or has no memory left.
    pub fn move_to(&self, device: Device) -> Result<Table> {
        let moved = self.batches.iter().map(|batch| move_batch(&self.session, batch.clone(), device));
        Ok(Self {
            batches: moved.collect::<Result<_>>()?,
            session: self.session.clone(),
            schema: self.schema.clone(),
        })
    }
}

/// The batch on the session's device.
fn to_device(session: &Session, batch: DeviceBatch) -> Result<DeviceBatch> {
    move_batch(session, batch, session.device())
}

fn in_table(error: ApiError) -> Error {
    Error::data("cannot take the table", error)
}
