//! Takes rows of arrays of any type, on any device.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema};
use crossdock_arrays::take::{row_width, take};
use crossdock_arrays::{DeviceArray, DeviceBatch};
use crossdock_memory::{Buffer, BufferMut};
use crossdock_plugin_api::Result;

use crate::job::Job;

/// An array of one null.
pub fn null(job: &Job<'_>, data_type: &DataType) -> Result<DeviceArray> {
    let buffers = vec![Some(job.copy(&[0])?), Some(job.copy(&[0; 4])?)];
    let code = DeviceArray::try_new(DataType::UInt32, 1, 0, Some(1), buffers, Vec::new(), None)?;
    let values_taken = take(job.stream, &DeviceArray::empty(data_type)?, &code);
    values_taken
        .map_err(|error| error.context(job.node.raw.path()))?
        .map_err(|_| job.node.wrong("a null code refers to a value"))
}

/// Concatenates arrays of one type.
pub fn concatenate(job: &Job<'_>, arrays: &[DeviceArray]) -> Result<DeviceArray> {
    // An array without buffers has no device.
    let part = |array: &DeviceArray| batch(array.clone())?.with_default_device(job.stream.device());
    let parts = arrays.iter().map(part).collect::<Result<Vec<_>>>()?;
    let whole = DeviceBatch::concatenate(&parts, job.stream);
    single_column(job, &whole.map_err(|error| error.context(job.node.raw.path()))?)
}

/// Returns a batch with `array` as its only column.
pub fn batch(array: DeviceArray) -> Result<DeviceBatch> {
    let field = Field::new("", array.data_type().clone(), true);
    DeviceBatch::try_new(Arc::new(Schema::new(vec![field])), array.len(), vec![array])
}

/// The only column of a batch.
pub fn single_column(job: &Job<'_>, batch: &DeviceBatch) -> Result<DeviceArray> {
    batch.column(0).cloned().ok_or_else(|| job.node.wrong("the values are a batch without columns"))
}

/// Row indices, one per value of the node.
pub struct Rows {
    indices: Buffer,
    /// Bytes per index: 4 or 8.
    width: usize,
}

impl Rows {
    pub fn new(indices: Buffer, width: usize) -> Self {
        Self { indices, width }
    }

    /// Row 0 for each value.
    pub fn first(job: &Job<'_>) -> Result<Self> {
        let width = row_width(1);
        let bytes = job.node.len.saturating_mul(width);
        let mut indices: BufferMut = job.memory.alloc(job.stream, bytes)?;
        job.stream.fill(&mut indices, 0, bytes, 0)?;
        Ok(Self { indices: indices.freeze(job.stream)?, width })
    }

    /// Returns the rows of `values` that the indices refer to.
    pub fn take(self, job: &Job<'_>, values: &DeviceArray) -> Result<DeviceArray> {
        let data_type = if self.width == 4 { DataType::UInt32 } else { DataType::UInt64 };
        let buffers = vec![None, Some(self.indices)];
        let codes = DeviceArray::try_new(data_type, job.node.len, 0, Some(0), buffers, Vec::new(), None)?;
        let values_taken =
            take(job.stream, values, &codes).map_err(|error| error.context(job.node.raw.path()))?;
        values_taken.map_err(|at| {
            job.node
                .wrong(format_args!("value {at} refers to a row beyond the last of {} rows", values.len()))
        })
    }
}
