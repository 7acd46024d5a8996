//! Whole numbers that lie in buffers, for the host: sizes and offsets, few of many.

use crossdock_kernels::{Checks, IntType};
use crossdock_memory::{Buffer, Device, Result, Stream};

use crate::host::integer;
use crate::nulls::stream_on;

/// `n` signed numbers of `width` (2, 4 or 8) bytes, from byte `at` of a buffer on.
pub(crate) struct Numbers<'a> {
    pub source: &'a Buffer,
    pub at: usize,
    pub n: usize,
    pub width: usize,
}

/// What is asked of one device, each with the place of its answer.
type OnDevice<'a> = (Device, Vec<(&'a Numbers<'a>, &'a mut [i64])>);

/// All of them, in order. The host looks itself where it may; elsewhere each device collects them by one launch, and one
/// copy brings them back. Blocks until they are there.
pub(crate) fn read(asked: &[Numbers<'_>], stream: &Stream) -> Result<Vec<i64>> {
    let mut all = vec![0; asked.iter().map(|numbers| numbers.n).sum()];
    let mut rest = all.as_mut_slice();
    let mut elsewhere: Vec<OnDevice<'_>> = Vec::new();
    for numbers in asked {
        let (to, left) = rest.split_at_mut(numbers.n);
        rest = left;
        let device = numbers.source.device();
        if device == Device::CPU || asked.len() == 1 {
            let view = numbers.source.host_view_of(numbers.at, numbers.n * numbers.width, stream)?;
            for (i, to) in to.iter_mut().enumerate() {
                *to = integer(&view, i, numbers.width, true).and_then(|n| n.try_into().ok()).unwrap_or(0);
            }
            continue;
        }
        match elsewhere.iter_mut().find(|(known, _)| *known == device) {
            Some((_, on_it)) => on_it.push((numbers, to)),
            None => elsewhere.push((device, vec![(numbers, to)])),
        }
    }
    for (device, on_it) in elsewhere {
        let mut checks = Checks::new();
        let mut cells = Vec::with_capacity(on_it.len());
        for (numbers, _) in &on_it {
            let of = IntType { width_bytes: numbers.width, signed: true };
            cells.push(checks.numbers(numbers.source, numbers.at, numbers.n, of)?);
        }
        let found = checks.run(&stream_on(device, stream)?)?;
        for ((_, to), first) in on_it.into_iter().zip(cells) {
            to.iter_mut().enumerate().for_each(|(i, to)| *to = found.number(first + i));
        }
    }
    Ok(all)
}
