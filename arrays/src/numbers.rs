//! Reads a few integers, such as sizes and offsets, from buffers to the host.

use crossdock_kernels::{Checks, IntType};
use crossdock_memory::{Buffer, Device, Result, Stream};

use crate::host::integer;
use crate::nulls::stream_on;

/// A request for `n` signed integers of `width` bytes each (2, 4 or 8), which begin at byte `at` of
/// a buffer.
pub(crate) struct Numbers<'a> {
    pub source: &'a Buffer,
    pub at: usize,
    pub n: usize,
    pub width: usize,
}

/// The requests for integers on one device. Each request has the slice that receives its result.
type OnDevice<'a> = (Device, Vec<(&'a Numbers<'a>, &'a mut [i64])>);

/// Reads all requested integers, in order. The host reads host memory directly. If there are
/// several requests, one launch on each device collects the integers, and one copy reads them.
/// Blocks until all integers are read.
pub(crate) fn read(requests: &[Numbers<'_>], stream: &Stream) -> Result<Vec<i64>> {
    let mut all = vec![0; requests.iter().map(|numbers| numbers.n).sum()];
    let mut rest = all.as_mut_slice();
    let mut by_device: Vec<OnDevice<'_>> = Vec::new();
    for numbers in requests {
        let (to, remaining) = rest.split_at_mut(numbers.n);
        rest = remaining;
        let device = numbers.source.device();
        if device == Device::CPU || requests.len() == 1 {
            let view = numbers.source.host_view_of(numbers.at, numbers.n * numbers.width, stream)?;
            for (i, to) in to.iter_mut().enumerate() {
                *to = integer(&view, i, numbers.width, true).and_then(|n| n.try_into().ok()).unwrap_or(0);
            }
            continue;
        }
        match by_device.iter_mut().find(|(known, _)| *known == device) {
            Some((_, on_device)) => on_device.push((numbers, to)),
            None => by_device.push((device, vec![(numbers, to)])),
        }
    }
    for (device, on_device) in by_device {
        let mut checks = Checks::new();
        let mut cells = Vec::with_capacity(on_device.len());
        for (numbers, _) in &on_device {
            let of = IntType { width_bytes: numbers.width, signed: true };
            cells.push(checks.numbers(numbers.source, numbers.at, numbers.n, of)?);
        }
        let findings = checks.run(&stream_on(device, stream)?)?;
        for ((_, to), first) in on_device.into_iter().zip(cells) {
            to.iter_mut().enumerate().for_each(|(i, to)| *to = findings.number(first + i));
        }
    }
    Ok(all)
}
