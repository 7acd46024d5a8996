//! Several batches as one: a fresh allocation, each buffer's parts one after the other.

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
    /// The rows of all batches, in order, as one batch in one allocation: itself where it is the only one. Metadata is the
    /// first one's. The batches are of one schema and on one device; the ends of offsets are read, and of dictionaries that differ
    /// the values and keys, which blocks.
    ///
    /// # Errors
    /// There is no batch, or they differ; a type cannot be put together (on devices dense unions); or 32-bit
    /// offsets, run ends of their width or keys of a dictionary do not reach over all.
    pub fn concatenate(batches: &[DeviceBatch], stream: &Stream) -> Result<DeviceBatch> {
        let (first, others) = match batches {
            [] => return Err(Error::invalid_argument("no batches were given, expected at least one")),
            [only] => return Ok(only.clone()),
            [first, others @ ..] => (first, others),
        };
        for (i, batch) in others.iter().enumerate() {
            if batch.schema() != first.schema() {
                return Err(Error::invalid_argument(format!("batch {} is of another schema", i + 1)));
            }
        }
        // Batches without rows are part of nothing, wherever they lie.
        let filled: Vec<&DeviceBatch> = batches.iter().filter(|batch| !batch.is_empty()).collect();
        let (first, several) = match filled.as_slice() {
            [] => return Ok(first.clone()),
            [only] => return Ok((*only).clone()),
            [first, ..] => (*first, filled.as_slice()),
        };
        let device = first.device();
        if let Some(other) = several.iter().find(|batch| batch.device() != device) {
            return Err(Error::invalid_argument(format!(
                "batches lie on {device} and on {}, expected one device: move them first",
                other.device()
            )));
        }
        let stream = stream_on(device, stream)?;
        let rows = several.iter().try_fold(0usize, |rows, batch| rows.checked_add(batch.len()));
        let rows = rows.filter(|rows| i64::try_from(*rows).is_ok()).ok_or_else(too_long)?;
        let mut plan = Plan::default();
        let mut roots = Vec::with_capacity(first.columns().len());
        for (i, field) in first.schema().fields().iter().enumerate() {
            let mut chunks: Vec<DeviceArray> =
                several.iter().filter_map(|batch| batch.column(i).cloned()).collect();
            let resolved = crate::sizes::resolve(&mut chunks.iter_mut().collect::<Vec<_>>(), &stream);
            let root = resolved
                .map_err(|(_, error)| error)
                .and_then(|()| plan.node(&chunks, is_ordered(field), &stream));
            roots.push(root.map_err(|error| error.context(format_args!("column '{}'", field.name())))?);
        }
        let columns = build::build(plan, roots, &stream)?;
        let batch = DeviceBatch::of_checked_types(first.schema().clone(), rows, columns, device)?;
        Ok(batch.with_metadata(first.metadata().clone()))
    }
}
