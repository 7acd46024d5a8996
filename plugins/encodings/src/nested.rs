//! Arrays of any type, by the numbers of their rows, on any device.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema};
use crossdock_arrays::take::{row_width, take};
use crossdock_arrays::{DeviceArray, DeviceBatch};
use crossdock_memory::{Buffer, BufferMut};
use crossdock_plugin_api::Result;

use crate::job::Job;

/// The one value that is null.
pub fn null(job: &Job<'_>, data_type: &DataType) -> Result<DeviceArray> {
    let buffers = vec![Some(job.copy(&[0])?), Some(job.copy(&[0; 4])?)];
    let code = DeviceArray::try_new(DataType::UInt32, 1, 0, Some(1), buffers, Vec::new(), None)?;
    let taken = take(job.stream, &DeviceArray::empty(data_type)?, &code);
    taken
        .map_err(|error| error.context(job.node.raw.path()))?
        .map_err(|_| job.node.wrong("null names a value"))
}

/// The values of all arrays, one after another. They have one type.
pub fn concatenate(job: &Job<'_>, arrays: &[DeviceArray]) -> Result<DeviceArray> {
    // Arrays without buffers have no device of their own.
    let part = |array: &DeviceArray| batch(array.clone())?.lying_on(job.stream.device());
    let parts = arrays.iter().map(part).collect::<Result<Vec<_>>>()?;
    let whole = DeviceBatch::concatenate(&parts, job.stream);
    only(job, &whole.map_err(|error| error.context(job.node.raw.path()))?)
}

/// A batch of the array alone.
pub fn batch(array: DeviceArray) -> Result<DeviceBatch> {
    let field = Field::new("", array.data_type().clone(), true);
    DeviceBatch::try_new(Arc::new(Schema::new(vec![field])), array.len(), vec![array])
}

/// The array that is a batch's only column.
pub fn only(job: &Job<'_>, batch: &DeviceBatch) -> Result<DeviceArray> {
    batch.column(0).cloned().ok_or_else(|| job.node.wrong("its values came to nothing"))
}

/// Numbers of rows, one for each of the node's values.
pub struct Rows {
    numbers: Buffer,
    width: usize,
}

impl Rows {
    pub fn of(numbers: Buffer, width: usize) -> Self {
        Self { numbers, width }
    }

    /// The first row for each.
    pub fn first(job: &Job<'_>) -> Result<Self> {
        let width = row_width(1);
        let bytes = job.node.len.saturating_mul(width);
        let mut numbers: BufferMut = job.memory.alloc(job.stream, bytes)?;
        job.stream.fill(&mut numbers, 0, bytes, 0)?;
        Ok(Self { numbers: numbers.freeze(job.stream)?, width })
    }

    /// The values in these rows.
    pub fn take(self, job: &Job<'_>, values: &DeviceArray) -> Result<DeviceArray> {
        let data_type = if self.width == 4 { DataType::UInt32 } else { DataType::UInt64 };
        let buffers = vec![None, Some(self.numbers)];
        let codes = DeviceArray::try_new(data_type, job.node.len, 0, Some(0), buffers, Vec::new(), None)?;
        let taken = take(job.stream, values, &codes).map_err(|error| error.context(job.node.raw.path()))?;
        taken.map_err(|at| job.node.wrong(format_args!("value {at} is of none of {} rows", values.len())))
    }
}
