//! Whether an array's contents keep Arrow's rules.

mod collect;
mod explain;

use crossdock_kernels::Checks;
use crossdock_memory::{Result, Stream};

use crate::{DeviceBatch, check_nullability};
use collect::Check;

/// How much is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// What the host can see: counts, lengths, missing buffers, devices.
    Layout,
    /// That and the contents, by kernels on the device.
    Full,
}

/// Checks a batch. The error names the column, down to the child, and the value: `flights.dest[3]`, counted in that
/// array.
///
/// [`Level::Layout`] finds nothing new: no batch exists that was not checked so when it was made. [`Level::Full`] looks
/// at null counts, nulls of fields that allow none, maps' entries and keys, which are not null, offsets, UTF-8 (each value by itself, so that slices begin on a character), views, list-views,
/// dictionary keys, type ids, dense offsets and run ends. Each kernel is
/// launched once for all columns, and one copy brings back what they found;
/// sizes that are unknown are resolved first.
pub fn validate(batch: &DeviceBatch, level: Level, stream: &Stream) -> Result<()> {
    if level == Level::Layout {
        return Ok(());
    }
    let stream = crate::nulls::stream_on(batch.device(), stream)?;
    let mut batch = batch.clone();
    batch.resolve_sizes(&stream)?;
    check_contents(&batch, &stream)?;
    check_nullability(&batch, &stream)
}

fn check_contents(batch: &DeviceBatch, stream: &Stream) -> Result<()> {
    let checks = Check::all(batch);
    if checks.is_empty() {
        return Ok(());
    }
    let mut questions = Checks::new();
    let mut cells = Vec::with_capacity(checks.len());
    for check in &checks {
        cells.push(check.ask(&mut questions, cells.last().copied().unwrap_or(0))?);
    }
    let found = questions.run(stream)?;
    checks.iter().zip(cells).try_for_each(|(check, cell)| check.verdict(&found, cell, stream))
}
