//! Batches whose number of rows is known only on their device.

use std::sync::{Arc, OnceLock};

use arrow_schema::SchemaRef;
use crossdock_kernels::{Checks, Integers, Words};
use crossdock_memory::{Buffer, Device, Error, Result, Stream};

pub use crossdock_kernels::IntType;

use crate::nulls::stream_on;
use crate::{DeviceArray, DeviceBatch, layout::layout};

/// A batch whose number of rows may be known only on its device.
///
/// The columns have room for [`PendingBatch::capacity`] rows. A counter on the device states how
/// many of them are rows; the contents of the others are undefined. [`PendingBatch::settle`] reads
/// the counter and returns the rows. The result of the read is shared by all clones and selections.
///
/// A batch without a counter has as many rows as its capacity.
#[derive(Clone, Debug)]
pub struct PendingBatch {
    padded: DeviceBatch,
    counter: Option<Counter>,
}

#[derive(Clone, Debug)]
struct Counter {
    /// 8 bytes on the device of the batch.
    buffer: Buffer,
    signed: bool,
    /// The number of rows, after it was read and compared with the capacity.
    rows: Arc<OnceLock<usize>>,
}

impl From<DeviceBatch> for PendingBatch {
    fn from(batch: DeviceBatch) -> Self {
        Self { padded: batch, counter: None }
    }
}

impl PendingBatch {
    /// Adds a counter to a batch, which has the capacity as its length. `counter` begins with the
    /// number of rows, an integer of type `of` with 4 or 8 bytes. An integer of 4 bytes is extended
    /// by a kernel on `stream`. The call does not wait for the device.
    ///
    /// # Errors
    ///
    /// Returns an error if the counter is on another device, is too short, or has another type.
    pub fn try_new(padded: DeviceBatch, counter: &Buffer, of: IntType, stream: &Stream) -> Result<Self> {
        let device = padded.device();
        if counter.device() != device {
            return Err(Error::invalid_argument(format!(
                "the counter of a batch's rows is on {}, but the batch is on {device}: expected the same device",
                counter.device()
            )));
        }
        if counter.len().is_none_or(|bytes| bytes < of.width_bytes) {
            return Err(Error::invalid_argument(format!(
                "the counter of a batch's rows has no value, expected one integer of {} bytes",
                of.width_bytes
            )));
        }
        let buffer = match of.width_bytes {
            8 => counter.slice(0, 8)?,
            4 => {
                let stream = stream_on(device, stream)?;
                let mut wide = stream.memory().alloc(&stream, 8)?;
                let mut checks = Checks::new();
                let from = Integers { buffer: counter, at: 0, len: 1, of };
                checks.widen(from, &mut wide, Words { at: 0, len: 1, width_bytes: 8 }, &[])?;
                checks.run(&stream)?;
                wide.freeze(&stream)?
            }
            other => {
                return Err(Error::invalid_argument(format!(
                    "the counter of a batch's rows is an integer of {other} bytes, expected 4 or 8"
                )));
            }
        };
        Ok(Self::with_counter(padded, buffer, of.signed))
    }

    /// `buffer` has 8 bytes on the device of the batch.
    pub(crate) fn with_counter(padded: DeviceBatch, buffer: Buffer, signed: bool) -> Self {
        Self { padded, counter: Some(Counter { buffer, signed, rows: Arc::default() }) }
    }

    /// The schema.
    pub fn schema(&self) -> &SchemaRef {
        self.padded.schema()
    }

    /// The device of all buffers and of the counter.
    pub fn device(&self) -> Device {
        self.padded.device()
    }

    /// The number of rows that the columns have room for.
    pub fn capacity(&self) -> usize {
        self.padded.len()
    }

    /// The number of rows, if the host knows it.
    pub fn known_rows(&self) -> Option<usize> {
        self.counter.as_ref().map_or(Some(self.capacity()), |counter| counter.rows.get().copied())
    }

    /// The counter on the device, an integer of 8 bytes; `None` if the batch has no counter.
    pub fn counter(&self) -> Option<&Buffer> {
        self.counter.as_ref().map(|counter| &counter.buffer)
    }

    /// The batch with all rows of the capacity. The contents of the rows behind the counter are
    /// undefined, including their offsets.
    pub fn padded(&self) -> &DeviceBatch {
        &self.padded
    }

    /// Replaces the columns by the columns that `change` returns, with the same capacity. The
    /// counter stays the same. `change` must not read contents.
    ///
    /// # Errors
    ///
    /// Returns the error of `change`, or an error if the capacity or the device changed.
    pub fn with_columns(&self, change: impl FnOnce(&DeviceBatch) -> Result<DeviceBatch>) -> Result<Self> {
        let padded = change(&self.padded)?.with_default_device(self.device())?;
        if padded.len() != self.capacity() || padded.device() != self.device() {
            return Err(Error::internal(
                "the columns of a batch with a counter changed their length or device",
            ));
        }
        Ok(Self { padded, counter: self.counter.clone() })
    }

    /// Whether each column consists of values of a fixed width, so that the rows behind the counter
    /// determine nothing about the other rows.
    pub fn has_fixed_width(&self) -> bool {
        let is_fixed = |column: &DeviceArray| {
            let layout = layout(column.data_type());
            layout.children.is_empty()
                && layout.dictionary.is_none()
                && !layout.variadic
                && layout
                    .buffers()
                    .iter()
                    .all(|kind| matches!(kind, crate::BufferKind::Fixed { .. } | crate::BufferKind::Bits))
        };
        self.padded.columns().iter().all(is_fixed)
    }

    /// Like [`PendingBatch::settle`], without cloning a batch that has no counter.
    pub fn into_settled(self, stream: &Stream) -> Result<DeviceBatch> {
        if self.counter.is_none() { Ok(self.padded) } else { self.settle(stream) }
    }

    /// Returns the rows, which share the buffers. If the host does not know the number of rows, a
    /// kernel on `stream` compares the counter with the capacity, and the call blocks until the
    /// counter is read.
    ///
    /// # Errors
    ///
    /// Bad data if the counter is negative or above the capacity. An error if the stream is under
    /// graph capture, because the read would break the capture.
    pub fn settle(&self, stream: &Stream) -> Result<DeviceBatch> {
        match self.counter {
            None => Ok(self.padded.clone()),
            Some(_) => self.padded.slice(0, self.rows(stream)?),
        }
    }

    /// The number of rows. Reads the counter like [`Self::settle`].
    ///
    /// # Errors
    ///
    /// The errors of [`Self::settle`].
    pub fn rows(&self, stream: &Stream) -> Result<usize> {
        let Some(counter) = &self.counter else { return Ok(self.capacity()) };
        if let Some(rows) = counter.rows.get() {
            return Ok(*rows);
        }
        let stream = stream_on(self.device(), stream)?;
        let rows = counter.read(self.capacity(), &stream)?;
        Ok(*counter.rows.get_or_init(|| rows))
    }
}

impl Counter {
    fn read(&self, capacity: usize, stream: &Stream) -> Result<usize> {
        let of = IntType { width_bytes: 8, signed: self.signed };
        let mut checks = Checks::new();
        let wrong = checks.number_within(&self.buffer, 0, of, 0, capacity as i64)?;
        let number = checks.numbers(&self.buffer, 0, 1, of)?;
        let findings = checks.run(stream).map_err(|error| {
            error.context(format!(
                "cannot read the number of a batch's rows, which is on {}",
                self.buffer.device()
            ))
        })?;
        let rows = findings.number(number);
        match usize::try_from(rows).ok().filter(|rows| *rows <= capacity) {
            Some(rows) if findings.first_wrong(wrong).is_none() => Ok(rows),
            _ => Err(Error::bad_data(format!(
                "the counter of a batch's rows on {} is {rows}, expected 0 to {capacity}, the batch's capacity",
                self.buffer.device()
            ))),
        }
    }
}
