//! Counts nulls.

use crossdock_kernels::Checks;
use crossdock_memory::{Device, Result, Stream};

use crate::{DeviceArray, DeviceBatch};

impl DeviceArray {
    /// Counts the null values, even if the null count is known already. Blocks until the count is
    /// read.
    pub fn recount_nulls(&self, stream: &Stream) -> Result<usize> {
        let uncounted = DeviceArray { null_count: None, ..self.clone() };
        Ok(count_nulls(&[&uncounted], stream)?.first().copied().unwrap_or(0))
    }

    /// Returns the null count. If the null count is unknown, a kernel counts the nulls, and the
    /// call blocks until the count is read.
    pub fn count_nulls(&self, stream: &Stream) -> Result<usize> {
        match self.null_count {
            Some(n) => Ok(n),
            None => Ok(count_nulls(&[self], stream)?.first().copied().unwrap_or(0)),
        }
    }
}

/// Returns the null counts of arrays on one device. One launch counts the nulls of all arrays whose
/// null count is unknown, and one copy reads the results. Blocks until the results are read.
pub fn count_nulls<'a>(arrays: &[&'a DeviceArray], stream: &Stream) -> Result<Vec<usize>> {
    if arrays.iter().all(|array| array.null_count().is_some()) {
        return Ok(arrays.iter().map(|array| array.null_count().unwrap_or(0)).collect());
    }
    let device = arrays.first().map_or(stream.device(), |array| array.device());
    let stream = &stream_on(device, stream)?;
    let mut checks = Checks::new();
    let request = |array: &'a DeviceArray| match array.validity() {
        _ if array.null_count().is_some() => Ok(None),
        Some(bits) => checks.null_count(bits, array.offset(), array.len()).map(Some),
        None => Ok(None),
    };
    let cells: Vec<Option<usize>> = arrays.iter().copied().map(request).collect::<Result<_>>()?;
    let findings = checks.run(stream)?;
    let known = arrays.iter().map(|array| array.null_count().unwrap_or(0));
    Ok(cells
        .into_iter()
        .zip(known)
        .map(|(cell, known)| cell.map_or(known, |cell| findings.count(cell) as usize))
        .collect())
}

/// Counts the nulls of all arrays of batches on one device whose null count is unknown, with one
/// launch and one copy. Blocks until the counts are read.
pub fn resolve_null_counts(batches: &mut [&mut DeviceBatch], stream: &Stream) -> Result<()> {
    let mut uncounted = Vec::new();
    for column in batches.iter().flat_map(|batch| batch.columns()) {
        column.walk(&mut |array| {
            uncounted.extend(array.null_count().is_none().then_some(array));
            Ok(())
        })?;
    }
    if uncounted.is_empty() {
        return Ok(());
    }
    let mut counts = count_nulls(&uncounted, stream)?.into_iter();
    for column in batches.iter_mut().flat_map(|batch| batch.columns_mut()) {
        set_null_counts(column, &mut counts);
    }
    Ok(())
}

/// Sets the unknown null counts, in the order of `walk`.
fn set_null_counts(array: &mut DeviceArray, counts: &mut std::vec::IntoIter<usize>) {
    if array.null_count.is_none() {
        array.null_count = counts.next();
    }
    array.children.iter_mut().for_each(|child| set_null_counts(child, counts));
    if let Some(dictionary) = &mut array.dictionary {
        set_null_counts(dictionary, counts);
    }
}

/// Returns `stream` if it belongs to `device`, else the default stream of `device`.
pub(crate) fn stream_on(device: Device, stream: &Stream) -> Result<Stream> {
    if stream.device() == device { Ok(stream.clone()) } else { stream.memory().default_stream(device) }
}
