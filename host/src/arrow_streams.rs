//! Tables and scans as readers of arrow-rs and as Arrow's C streams.

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use crossdock_arrays::{
    DeviceBatch, NextArray, check_last_offsets, export_batch_to_external, export_data_stream,
    export_device_stream,
};
use crossdock_plugin_api::{Device, Error as ApiError, Owned, abi};

use crate::error::Result;
use crate::scan::Scan;
use crate::session::Session;
use crate::table::{Table, to_record_batch};

/// Batches on any device.
type Batches = Box<dyn Iterator<Item = Result<DeviceBatch>> + Send>;

/// The batches of a table or a scan as record batches in host memory.
pub struct RecordBatches {
    session: Session,
    schema: SchemaRef,
    batches: Batches,
}

impl Table {
    /// Reads the table as record batches, each of which is converted when the reader returns it.
    /// Like [`Table::to_record_batches`] otherwise.
    pub fn record_batches(&self) -> RecordBatches {
        let (session, schema) = (self.session().clone(), self.schema().clone());
        RecordBatches { session, schema, batches: batches_of(self) }
    }

    /// The table as a stream of Arrow's C stream interface, with batches in host memory. Batches on
    /// a device are copied when the consumer asks for them. The stream may outlive the table, its
    /// session and its host.
    pub fn to_c_stream(&self) -> Owned<abi::ArrowArrayStream> {
        host_stream(self.session(), self.schema(), batches_of(self))
    }

    /// The table as a stream of Arrow's C device stream interface, with batches on the session's
    /// device. The stream may outlive the table, its session and its host.
    pub fn to_c_device_stream(&self) -> Owned<abi::ArrowDeviceArrayStream> {
        device_stream(self.session(), self.schema(), batches_of(self))
    }
}

impl Scan {
    /// Begins to read the table as record batches. Their contents are validated, because arrow-rs
    /// does not validate them. Batches on a device are copied to host memory; record batches share
    /// the buffers of batches that are already there.
    ///
    /// # Errors
    /// Like [`Scan::batches`].
    pub fn record_batches(&self) -> Result<RecordBatches> {
        let (session, schema) = (self.session().clone(), self.schema().clone());
        Ok(RecordBatches { session, schema, batches: Box::new(self.batches()?) })
    }

    /// Begins to read the table as a stream of Arrow's C stream interface, with batches in host
    /// memory. The stream may outlive the scan, its session and its host.
    ///
    /// # Errors
    /// Like [`Scan::batches`].
    pub fn to_c_stream(&self) -> Result<Owned<abi::ArrowArrayStream>> {
        Ok(host_stream(self.session(), self.schema(), Box::new(self.batches()?)))
    }

    /// Begins to read the table as a stream of Arrow's C device stream interface, with batches on
    /// the session's device. The stream may outlive the scan, its session and its host.
    ///
    /// # Errors
    /// Like [`Scan::batches`].
    pub fn to_c_device_stream(&self) -> Result<Owned<abi::ArrowDeviceArrayStream>> {
        Ok(device_stream(self.session(), self.schema(), Box::new(self.batches()?)))
    }
}

impl Iterator for RecordBatches {
    type Item = Result<RecordBatch, ArrowError>;

    /// An error is an [`ArrowError::ExternalError`] of a [`crate::Error`]. After an error of a
    /// scan, the next call returns `None`.
    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.batches.next()?;
        let batch = batch.and_then(|batch| to_record_batch(&self.session, &self.schema, &batch));
        Some(batch.map_err(|error| ArrowError::ExternalError(Box::new(error))))
    }
}

impl RecordBatchReader for RecordBatches {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

/// The batches of a table, each of which is moved to the session's device when it is needed.
fn batches_of(table: &Table) -> Batches {
    let (session, batches) = (table.session().clone(), table.batches().to_vec());
    Box::new(batches.into_iter().map(move |batch| crate::table::to_device(&session, batch)))
}

fn host_stream(session: &Session, schema: &SchemaRef, mut batches: Batches) -> Owned<abi::ArrowArrayStream> {
    let (session, of_batches) = (session.clone(), schema.clone());
    let next = move || next_array(&session, &of_batches, batches.next(), Some(Device::CPU));
    export_data_stream(schema.clone(), next)
}

fn device_stream(
    session: &Session,
    schema: &SchemaRef,
    mut batches: Batches,
) -> Owned<abi::ArrowDeviceArrayStream> {
    let (device, session, of_batches) = (session.device(), session.clone(), schema.clone());
    let next = move || next_array(&session, &of_batches, batches.next(), None);
    export_device_stream(schema.clone(), device, next)
}

/// Exports the next array of a stream. `device`: the device to move batches to; `None` to keep
/// theirs.
fn next_array(
    session: &Session,
    schema: &SchemaRef,
    batch: Option<Result<DeviceBatch>>,
    device: Option<Device>,
) -> NextArray {
    let Some(batch) = batch.transpose().map_err(ApiError::from)? else { return Ok(None) };
    let stream = session.stream();
    let batch = match device {
        Some(device) => {
            let batch = batch.move_to(stream, device)?;
            // Arrow's stream for host memory has no event, so the data must be ready now.
            stream.synchronize()?;
            batch
        }
        None => batch,
    };
    let stream = if batch.device() == stream.device() {
        stream.clone()
    } else {
        stream.memory().default_stream(batch.device())?
    };
    let raw = export_batch_to_external(&batch, false, &stream)?;
    check_last_offsets(&raw, schema, session.memory())?;
    let raw = raw.into_raw();
    // SAFETY: `into_raw` passed the ownership of the batch, which was exported without a schema, so
    // it owns only the array.
    Ok(Some(unsafe { Owned::new(raw.array) }))
}
