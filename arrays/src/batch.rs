//! A record batch: columns of one length under one schema.

use arrow_schema::{Metadata, Schema, SchemaRef};
use crossdock_memory::{Device, Error, Result};
use std::sync::Arc;

use crate::{DeviceArray, field_type_name, type_name};

/// A record batch whose buffers are all on the same device.
#[derive(Clone, Debug)]
pub struct DeviceBatch {
    schema: SchemaRef,
    len: usize,
    columns: Vec<DeviceArray>,
    device: Device,
    metadata: Metadata,
}

impl DeviceBatch {
    /// Creates a batch of `len` rows.
    ///
    /// # Errors
    ///
    /// Returns an error if the number of columns, their types or their lengths do not match
    /// `schema` and `len`, or if the columns are on different devices.
    pub fn try_new(schema: SchemaRef, len: usize, columns: Vec<DeviceArray>) -> Result<Self> {
        if schema.fields().len() != columns.len() {
            return Err(Error::invalid_argument(format!(
                "a batch has {} columns, but its schema has {} fields",
                columns.len(),
                schema.fields().len()
            )));
        }
        for (field, column) in schema.fields().iter().zip(&columns) {
            if !field.data_type().equals_datatype(column.data_type()) {
                return Err(Error::invalid_argument(format!(
                    "column '{}' is of type {}, expected {}",
                    field.name(),
                    type_name(column.data_type()),
                    field_type_name(field)
                )));
            }
        }
        Self::from_checked_columns(schema, len, columns, Device::CPU)
    }

    /// Like [`Self::try_new`], but does not compare the number and types of the columns with the
    /// schema. A batch without buffers is on `default_device`.
    pub(crate) fn from_checked_columns(
        schema: SchemaRef,
        len: usize,
        columns: Vec<DeviceArray>,
        default_device: Device,
    ) -> Result<Self> {
        for (field, column) in schema.fields().iter().zip(&columns) {
            if column.len() != len {
                return Err(Error::bad_data(format!(
                    "column '{}' has {} values, expected {len}, the number of rows",
                    field.name(),
                    column.len()
                )));
            }
        }
        let device = one_device(&schema, &columns)?.unwrap_or(default_device);
        Ok(Self { schema, len, columns, device, metadata: Metadata::new() })
    }

    /// The schema.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the batch has no rows.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The batch's own key-value metadata, as in an Arrow IPC message.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Replaces the batch's own metadata.
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

    /// Returns the columns.
    pub fn into_columns(self) -> Vec<DeviceArray> {
        self.columns
    }

    /// The device of all buffers. For a batch without buffers, the device that was set when the
    /// batch was created.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Returns rows `offset..offset + len`, without copying their buffers.
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

    /// Returns the columns at `indices`, in that order, with the schema's and the batch's metadata.
    pub fn select(&self, indices: &[usize]) -> Result<Self> {
        let mut fields = Vec::new();
        let mut columns = Vec::new();
        for &i in indices {
            let (Some(field), Some(column)) = (self.schema.fields().get(i), self.columns.get(i)) else {
                return Err(Error::invalid_argument(format!(
                    "column {i} does not exist: the batch has {} columns",
                    self.columns.len()
                )));
            };
            fields.push(field.clone());
            columns.push(column.clone());
        }
        let schema = Arc::new(Schema::new_with_metadata(fields, self.schema.metadata().clone()));
        Ok(Self::from_checked_columns(schema, self.len, columns, self.device)?
            .with_metadata(self.metadata.clone()))
    }

    /// Replaces the schema. The new schema must have the same types; its names and metadata may
    /// differ.
    pub fn with_schema(self, schema: SchemaRef) -> Result<Self> {
        let (device, metadata) = (self.device, self.metadata);
        Ok(Self::try_new(schema, self.len, self.columns)?
            .with_default_device(device)?
            .with_metadata(metadata))
    }

    /// Sets the device of a batch without buffers, such as a batch without rows. Consumers expect
    /// all batches of a stream to be on one device.
    pub fn with_default_device(mut self, device: Device) -> Result<Self> {
        self.device = one_device(&self.schema, &self.columns)?.unwrap_or(device);
        Ok(self)
    }

    /// The total size of all buffers of known length, in bytes. A slice of a batch has the size of
    /// the whole buffers.
    pub fn buffer_bytes(&self) -> u64 {
        self.columns.iter().map(known_bytes).fold(0, |sum, (bytes, _)| u64::saturating_add(sum, bytes))
    }

    /// The size of the buffers of column `i`, in bytes. `None` if the column does not exist or if
    /// the length of one of its buffers is unknown.
    pub fn column_bytes(&self, i: usize) -> Option<u64> {
        let (bytes, all) = known_bytes(self.columns.get(i)?);
        all.then_some(bytes)
    }

    pub(crate) fn columns_mut(&mut self) -> &mut [DeviceArray] {
        &mut self.columns
    }
}

/// The total size of the buffers of known length, and whether all lengths are known.
fn known_bytes(array: &DeviceArray) -> (u64, bool) {
    let (mut bytes, mut all) = (0u64, true);
    // `walk` fails only if the closure fails, and the closure always returns `Ok`.
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

/// The device of all buffers; `None` if there are none.
fn one_device(schema: &Schema, columns: &[DeviceArray]) -> Result<Option<Device>> {
    let mut device = None;
    for (column, field) in columns.iter().zip(schema.fields()) {
        let Some(actual) = column.device else { continue };
        let expected = *device.get_or_insert(actual);
        if actual != expected {
            return Err(Error::invalid_argument(format!(
                "column '{}' is on {actual}, but the columns before it are on {expected}: move all columns to one device",
                field.name()
            )));
        }
    }
    Ok(device)
}
