//! Null counts that nobody told.

use crossdock_kernels::Checks;
use crossdock_memory::{Device, Result, Stream};

use crate::DeviceArray;

impl DeviceArray {
    /// How many values are null, counted whatever was told of it. Blocks until the number is there.
    pub fn recount_nulls(&self, stream: &Stream) -> Result<usize> {
        let silent = DeviceArray { null_count: None, ..self.clone() };
        Ok(count_nulls(&[&silent], stream)?.first().copied().unwrap_or(0))
    }

    /// How many values are null, counted by a kernel where that is unknown. Blocks then until the number is there.
    pub fn count_nulls(&self, stream: &Stream) -> Result<usize> {
        match self.null_count {
            Some(n) => Ok(n),
            None => Ok(count_nulls(&[self], stream)?.first().copied().unwrap_or(0)),
        }
    }
}

/// The null counts of several arrays of one device: those that nobody told counted in one launch, and read back in one copy.
/// Blocks then until the numbers are there.
pub fn count_nulls<'a>(arrays: &[&'a DeviceArray], stream: &Stream) -> Result<Vec<usize>> {
    if arrays.iter().all(|array| array.null_count().is_some()) {
        return Ok(arrays.iter().map(|array| array.null_count().unwrap_or(0)).collect());
    }
    let device = arrays.first().map_or(stream.device(), |array| array.device());
    let stream = &stream_on(device, stream)?;
    let mut checks = Checks::new();
    let ask = |array: &'a DeviceArray| match array.validity() {
        _ if array.null_count().is_some() => Ok(None),
        Some(bits) => checks.null_count(bits, array.offset(), array.len()).map(Some),
        None => Ok(None),
    };
    let cells: Vec<Option<usize>> = arrays.iter().copied().map(ask).collect::<Result<_>>()?;
    let found = checks.run(stream)?;
    let told = arrays.iter().map(|array| array.null_count().unwrap_or(0));
    Ok(cells
        .into_iter()
        .zip(told)
        .map(|(cell, told)| cell.map_or(told, |cell| found.count(cell) as usize))
        .collect())
}

/// The caller's stream if it works on `device`, else that device's default one.
pub(crate) fn stream_on(device: Device, stream: &Stream) -> Result<Stream> {
    if stream.device() == device { Ok(stream.clone()) } else { stream.memory().default_stream(device) }
}
