//! Counts nulls.

use crossdock_kernels::Checks;
use crossdock_memory::{Device, Result, Stream};

use crate::DeviceArray;

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

/// Returns `stream` if it belongs to `device`, else the default stream of `device`.
pub(crate) fn stream_on(device: Device, stream: &Stream) -> Result<Stream> {
    if stream.device() == device { Ok(stream.clone()) } else { stream.memory().default_stream(device) }
}
