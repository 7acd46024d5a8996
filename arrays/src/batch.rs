//! Columns of one length under one schema.

use arrow_schema::{Metadata, Schema, SchemaRef};
use crossdock_memory::{Device, Error, Result};
use std::sync::Arc;

use crate::DeviceArray;

/// A record batch whose buffers all lie on one device.
#[derive(Clone, Debug)]
pub struct DeviceBatch {
    schema: SchemaRef,
    len: usize,
    columns: Vec<DeviceArray>,
    device: Device,
    metadata: Metadata,
}

impl DeviceBatch {
    /// A batch of `len` rows, after checking that the columns are as many, of the types and of the length that the
    /// schema and `len` say, and on one device.
    pub fn try_new(schema: SchemaRef, len: usize, columns: Vec<DeviceArray>) -> Result<Self> {
        if schema.fields().len() != columns.len() {
            return Err(Error::invalid_argument(format!(
                "a batch has {} columns, its schema {} fields",
                columns.len(),
                schema.fields().len()
            )));
        }
        for (field, column) in schema.fields().iter().zip(&columns) {
            if !field.data_type().equals_datatype(column.data_type()) {
                return Err(Error::invalid_argument(format!(
                    "column '{}' is of type {}, expected {}",
                    field.name(),
                    column.data_type(),
                    field.data_type()
                )));
            }
        }
        Self::of_checked_types(schema, len, columns, Device::CPU)
    }

    /// The same where the columns were made after the schema. `bare` is where a batch without any buffer is said to lie.
    pub(crate) fn of_checked_types(
        schema: SchemaRef,
        len: usize,
        columns: Vec<DeviceArray>,
        bare: Device,
    ) -> Result<Self> {
        for (field, column) in schema.fields().iter().zip(&columns) {
            if column.len() != len {
                return Err(Error::bad_data(format!(
                    "column '{}' has {} values, expected {len} as the batch has rows",
                    field.name(),
                    column.len()
                )));
            }
        }
        let device = one_device(&schema, &columns)?.unwrap_or(bare);
        Ok(Self { schema, len, columns, device, metadata: Metadata::new() })
    }

    /// The schema.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// How many rows.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The key-value metadata of this batch alone, as Arrow IPC messages have it.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The same batch with other metadata of its own.
    pub fn with_metadata(mut self, metadata: Metadata) -> Self {
        self.metadata = metadata;
        self
    }

    /// The columns, in the schema's order.
    pub fn columns(&self) -> &[DeviceArray] {
        &self.columns
    }

    /// The `i`-th column.
    pub fn column(&self, i: usize) -> Option<&DeviceArray> {
        self.columns.get(i)
    }

    /// The columns by themselves.
    pub fn into_columns(self) -> Vec<DeviceArray> {
        self.columns
    }

    /// Where all of its buffers lie, or where it was said to lie if it has none.
    pub fn device(&self) -> Device {
        self.device
    }

    /// `len` rows from `offset` on, in the same buffers.
    pub fn slice(&self, offset: usize, len: usize) -> Result<Self> {
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(Error::invalid_argument(format!(
                "a slice of rows {offset}..+{len} lies outside a batch of {} rows",
                self.len
            )));
        }
        let columns = self.columns.iter().map(|column| column.slice(offset, len)).collect::<Result<_>>()?;
        Ok(Self {
            schema: self.schema.clone(),
            len,
            columns,
            device: self.device,
            metadata: self.metadata.clone(),
        })
    }

    /// The columns at `indices`, in that order; the schema's metadata and the batch's own stay.
    pub fn select(&self, indices: &[usize]) -> Result<Self> {
        let mut fields = Vec::new();
        let mut columns = Vec::new();
        for &i in indices {
            let (Some(field), Some(column)) = (self.schema.fields().get(i), self.columns.get(i)) else {
                return Err(Error::invalid_argument(format!(
                    "column {i} was asked for, of a batch with {} columns",
                    self.columns.len()
                )));
            };
            fields.push(field.clone());
            columns.push(column.clone());
        }
        let schema = Arc::new(Schema::new_with_metadata(fields, self.schema.metadata().clone()));
        Ok(Self::of_checked_types(schema, self.len, columns, self.device)?
            .with_metadata(self.metadata.clone()))
    }

    /// The same rows under another schema of the same types (other names, other metadata).
    pub fn with_schema(self, schema: SchemaRef) -> Result<Self> {
        let (device, metadata) = (self.device, self.metadata);
        Ok(Self::try_new(schema, self.len, self.columns)?.lying_on(device)?.with_metadata(metadata))
    }

    /// The same batch, where it has no buffer that tells, said to lie on `device`: rows that are all null by their type,
    /// or none, are on some device too, and a consumer of many batches expects one.
    pub fn lying_on(mut self, device: Device) -> Result<Self> {
        self.device = one_device(&self.schema, &self.columns)?.unwrap_or(device);
        Ok(self)
    }

    /// Bytes of its buffers, those of unknown length not counted. Buffers that a slice shares with the whole count
    /// whole.
    pub fn bytes(&self) -> u64 {
        self.columns.iter().map(known_bytes).fold(0, |sum, (bytes, _)| u64::saturating_add(sum, bytes))
    }

    /// Bytes of one column's buffers; `None` where there is no such column or a length is unknown.
    pub fn column_bytes(&self, i: usize) -> Option<u64> {
        let (bytes, all) = known_bytes(self.columns.get(i)?);
        all.then_some(bytes)
    }

    pub(crate) fn columns_mut(&mut self) -> &mut [DeviceArray] {
        &mut self.columns
    }
}

/// The bytes of known length, and whether that is all of them.
fn known_bytes(array: &DeviceArray) -> (u64, bool) {
    let (mut bytes, mut all) = (0u64, true);
    // The closure never fails.
    let _ = array.walk(&mut |node| {
        for buffer in node.buffers().iter().flatten() {
            match buffer.len() {
                Some(n) => bytes = bytes.saturating_add(n as u64),
                None => all = false,
            }
        }
        Ok(())
    });
    (bytes, all)
}

/// Where all buffers lie; `None` if there are none.
fn one_device(schema: &Schema, columns: &[DeviceArray]) -> Result<Option<Device>> {
    let mut device = None;
    for (column, field) in columns.iter().zip(schema.fields()) {
        let Some(own) = column.device else { continue };
        let expected = *device.get_or_insert(own);
        if own != expected {
            return Err(Error::invalid_argument(format!(
                "column '{}' lies on {own}, the columns before it on {expected}: move them to one device",
                field.name()
            )));
        }
    }
    Ok(device)
}
