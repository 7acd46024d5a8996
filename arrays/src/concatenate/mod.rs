//! Concatenates batches into one new allocation.

mod build;
mod dictionaries;
mod limits;
mod nested;
mod plan;

use crossdock_memory::{Error, Result, Stream};

use crate::nulls::stream_on;
use crate::{DeviceArray, DeviceBatch};
use limits::too_long;
use plan::{Plan, is_ordered};

impl DeviceBatch {
    /// Concatenates the rows of all batches, in order, in one new allocation. If only one batch has
    /// rows, that batch is returned without a copy. The result has the metadata of the first batch.
    /// The function reads first and last offsets. If the dictionaries differ, it also reads the
    /// keys and the values of the dictionaries. It blocks until all reads have ended.
    ///
    /// # Errors
    ///
    /// - There is no batch, or the batches differ in schema or device.
    /// - A type cannot be concatenated on the batches' device, such as dense unions on a CUDA
    ///   device.
    /// - 32-bit offsets, run ends or dictionary keys cannot represent the result.
    pub fn concatenate(batches: &[DeviceBatch], stream: &Stream) -> Result<DeviceBatch> {
        let (first, others) = match batches {
            [] => return Err(Error::invalid_argument("got no batches, expected at least one")),
            [only] => return Ok(only.clone()),
            [first, others @ ..] => (first, others),
        };
        for (i, batch) in others.iter().enumerate() {
            if batch.schema() != first.schema() {
                return Err(Error::invalid_argument(format!(
                    "the schema of batch {} differs from that of batch 0",
                    i + 1
                )));
            }
        }
        // Batches without rows are ignored, so they may be on any device.
        let non_empty: Vec<&DeviceBatch> = batches.iter().filter(|batch| !batch.is_empty()).collect();
        let (first, chunks) = match non_empty.as_slice() {
            [] => return Ok(first.clone()),
            [only] => return Ok((*only).clone()),
            [first, ..] => (*first, non_empty.as_slice()),
        };
        let device = first.device();
        if let Some(other) = chunks.iter().find(|batch| batch.device() != device) {
            return Err(Error::invalid_argument(format!(
                "the batches are on {device} and on {}, expected one device: move them to one device first",
                other.device()
            )));
        }
        let stream = stream_on(device, stream)?;
        let rows = chunks.iter().try_fold(0usize, |rows, batch| rows.checked_add(batch.len()));
        let rows = rows.filter(|rows| i64::try_from(*rows).is_ok()).ok_or_else(too_long)?;
        let mut plan = Plan::default();
        let mut roots = Vec::with_capacity(first.columns().len());
        for (i, field) in first.schema().fields().iter().enumerate() {
            let mut columns: Vec<DeviceArray> =
                chunks.iter().filter_map(|batch| batch.column(i).cloned()).collect();
            let resolved = crate::sizes::resolve(&mut columns.iter_mut().collect::<Vec<_>>(), &stream);
            let root = resolved
                .map_err(|(_, error)| error)
                .and_then(|()| plan.node(&columns, is_ordered(field), &stream));
            roots.push(root.map_err(|error| error.context(format_args!("column '{}'", field.name())))?);
        }
        let columns = build::build(plan, roots, &stream)?;
        let batch = DeviceBatch::from_checked_columns(first.schema().clone(), rows, columns, device)?;
        Ok(batch.with_metadata(first.metadata().clone()))
    }
}
