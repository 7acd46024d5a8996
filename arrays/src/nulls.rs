//! Null counts that nobody told.

use crossdock_kernels::Checks;
use crossdock_memory::{Device, Result, Stream};

use crate::DeviceArray;

impl DeviceArray {
    /// How many values are null, counted by a kernel where that is unknown. Blocks then until the number is there.
    pub fn count_nulls(&self, stream: &Stream) -> Result<usize> {
        match self.null_count {
            Some(n) => Ok(n),
            None => Ok(count(&[self], stream)?.first().copied().unwrap_or(0)),
        }
    }
}

/// The null counts of several arrays on the stream's device, in one launch, read back in one copy.
pub(crate) fn count<'a>(arrays: &[&'a DeviceArray], stream: &Stream) -> Result<Vec<usize>> {
    let device = arrays.first().map_or(stream.device(), |array| array.device());
    let stream = &stream_on(device, stream)?;
    let mut checks = Checks::new();
    let ask = |array: &'a DeviceArray| match array.validity() {
        Some(bits) => checks.null_count(bits, array.offset(), array.len()).map(Some),
        None => Ok(None),
    };
    let cells: Vec<Option<usize>> = arrays.iter().copied().map(ask).collect::<Result<_>>()?;
    let found = checks.run(stream)?;
    Ok(cells.into_iter().map(|cell| cell.map_or(0, |cell| found.count(cell) as usize)).collect())
}

/// The caller's stream if it works on `device`, else that device's default one.
pub(crate) fn stream_on(device: Device, stream: &Stream) -> Result<Stream> {
    if stream.device() == device { Ok(stream.clone()) } else { stream.memory().default_stream(device) }
}
