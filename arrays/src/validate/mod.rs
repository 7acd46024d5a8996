//! Validates the contents of arrays.

mod collect;
mod explain;
mod started;

use std::borrow::Cow;
use std::ops::Range;

use crossdock_kernels::Checks;
use crossdock_memory::{Result, Stream};

use crate::DeviceBatch;
use crate::nullability::check_nullability_of;
use collect::Check;
pub use started::StartedValidation;

/// The extent of a validation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// The checks that the host can make without reading contents: numbers of buffers and children,
    /// lengths, missing buffers, devices.
    Layout,
    /// Additionally checks the contents, with kernels on the device.
    Full,
}

/// Validates a batch.
///
/// With [`Level::Layout`], the function always succeeds, because the layout is checked when a
/// [`DeviceBatch`] is created. With [`Level::Full`], it checks null counts, nulls in fields that
/// are not nullable and in the entries and keys of maps, offsets, UTF-8, views, list-views,
/// dictionary keys, type ids, dense offsets and run ends. UTF-8 is checked value by value, because
/// each value must be valid text. Each kernel is launched once for all columns, and one copy reads
/// the results. Unknown buffer sizes are resolved first.
///
/// # Errors
///
/// Returns an error if a rule is violated. The error names the column, the child and the index in
/// the child, for example `flights.dest[3]`.
pub fn validate(batch: &DeviceBatch, level: Level, stream: &Stream) -> Result<()> {
    if level == Level::Layout {
        return Ok(());
    }
    let stream = crate::nulls::stream_on(batch.device(), stream)?;
    let mut batch = Cow::Borrowed(batch);
    if batch.has_unknown_sizes() {
        batch.to_mut().resolve_sizes(&stream)?;
    }
    validate_columns(&batch, 0..batch.columns().len(), &stream)
}

/// Validates columns whose sizes are known. `stream` is on the batch's device.
fn validate_columns(batch: &DeviceBatch, columns: Range<usize>, stream: &Stream) -> Result<()> {
    let checks: Vec<_> = columns.clone().flat_map(|i| Check::of_column(batch, i)).collect();
    if !checks.is_empty() {
        let (requests, cells) = request(&checks)?;
        let findings = requests.run(stream)?;
        checks.iter().zip(cells).try_for_each(|(check, cell)| check.result(&findings, cell, stream))?;
    }
    check_nullability_of(batch, columns, stream)
}

/// Requests all checks. Returns the index of the result cell of each.
fn request<'a>(checks: &[Check<'a>]) -> Result<(Checks<'a>, Vec<usize>)> {
    let mut requests = Checks::new();
    let mut cells = Vec::with_capacity(checks.len());
    for check in checks {
        cells.push(check.request(&mut requests, cells.last().copied().unwrap_or(0))?);
    }
    Ok((requests, cells))
}
