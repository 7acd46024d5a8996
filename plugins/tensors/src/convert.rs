//! Converts elements on the host: decompresses them, changes them to little-endian order, or
//! decodes them. The columns of a batch are converted at the same time.

use std::ops::Range;
use std::sync::Arc;

use crossdock_memory::{BufferMut, Device, Error, Result, StoredSource};

use crate::crc::Crc32;
use crate::element::Element;
use crate::jobs::{Check, Job, run};
use crate::target::{Elements, Loading, Target, in_tensor};
use crate::tensor::{Column, Data};
use crate::zip::{Inflater, Member, check_crc};
use crate::{days, text};

/// The number of bytes between two checks whether the call is cancelled.
const PIECE_BYTES: usize = 4 << 20;

/// The state of the decompression is kept for this many columns until the next batch. The other
/// columns are decompressed from their beginning again. This bounds the memory of files with many
/// columns, because a state has about 100 KiB.
const MAX_STATES: usize = 1024;

/// The memory that a column is converted to.
struct Blocks {
    host: BufferMut,
    /// The memory on the device. `None` if the elements stay in `host`.
    device: Option<BufferMut>,
}

/// Converts the columns `which` of some rows. All their memory is allocated before the first byte
/// is decompressed.
pub fn convert(
    target: &Target<'_>,
    columns: &mut [Loading],
    which: &[usize],
    rows: &Range<u64>,
) -> Result<Vec<(usize, Elements)>> {
    let (mut jobs, mut started, mut total) = (Vec::new(), Vec::new(), 0u64);
    for &i in which {
        let Some(Loading { column, inflater }) = columns.get_mut(i) else { continue };
        let bytes = target.len(rows)? * column.shape.row_bytes();
        let blocks = target.blocks(column, bytes);
        let Blocks { host, device } = blocks.map_err(|error| in_tensor(&error, column))?;
        let work = Work {
            column: column.clone(),
            file: target.file.clone(),
            inflater: inflater.take(),
            first: rows.start,
            to: host,
        };
        let job: Job<_> = Box::new(move |check| work.run(check));
        jobs.push(job);
        started.push((i, device));
        total = total.saturating_add(bytes as u64);
    }
    let done = run(target.tasks, target.call, jobs, total)?;
    let mut elements = Vec::with_capacity(started.len());
    for ((i, device), (host, inflater)) in started.into_iter().zip(done) {
        let Some(Loading { column, inflater: kept }) = columns.get_mut(i) else { continue };
        *kept = inflater.filter(|inflater| i < MAX_STATES && !inflater.is_at_end());
        let converted = target.finish(column, Blocks { host, device }, rows);
        elements.push((i, converted.map_err(|error| in_tensor(&error, column))?));
    }
    Ok(elements)
}

/// Checks the CRC-32 of members that are not compressed.
pub fn check_stored(target: &Target<'_>, columns: &[Loading]) -> Result<()> {
    let (mut jobs, mut total) = (Vec::new(), 0u64);
    for Loading { column, .. } in columns {
        let Data::Plain { member: Some(member), .. } = &column.data else { continue };
        let (file, member, column) = (target.file.clone(), member.clone(), column.clone());
        total = total.saturating_add(member.bytes);
        let job: Job<()> = Box::new(move |check| {
            check_member(check, &file, &member).map_err(|error| in_tensor(&error, &column))
        });
        jobs.push(job);
    }
    run(target.tasks, target.call, jobs, total).map(|_| ())
}

fn check_member(check: &Check<'_>, file: &StoredSource, member: &Member) -> Result<()> {
    let mut crc = Crc32::new();
    let bytes = usize::try_from(member.bytes).map_err(|_| Error::out_of_memory("a member is too long"))?;
    file.in_pieces(member.offset, bytes, PIECE_BYTES, &mut |bytes| {
        bytes.chunks(PIECE_BYTES).try_for_each(|piece| {
            check()?;
            crc.add(piece);
            Ok(())
        })
    })?;
    check_crc(crc, member).map_err(|error| error.or_offset(member.offset))
}

impl Target<'_> {
    /// Allocates the memory for `bytes` bytes of a column.
    fn blocks(&self, column: &Column, bytes: usize) -> Result<Blocks> {
        if column.element.is_decoded() {
            let stream = self.memory.default_stream(Device::CPU)?;
            return Ok(Blocks { host: self.memory.alloc(&stream, bytes)?, device: None });
        }
        let mut block = self.memory.alloc(self.stream, bytes)?;
        if block.host_slice_mut().is_some() {
            return Ok(Blocks { host: block, device: None });
        }
        Ok(Blocks { host: self.memory.alloc_pinned(bytes)?, device: Some(block) })
    }

    /// The elements of a column whose memory has been filled.
    fn finish(&self, column: &Column, blocks: Blocks, rows: &Range<u64>) -> Result<Elements> {
        let Blocks { mut host, device } = blocks;
        let place = (rows.start, column.shape.row_len());
        match (&column.element, device) {
            (Element::Text(_), _) => {
                let n = self.len(rows)? * column.shape.row_len();
                text::decode(host_bytes(&mut host)?, n, rows.start, self.memory, self.stream)
                    .map(Elements::Decoded)
            }
            (Element::Days, _) => {
                days::decode(host_bytes(&mut host)?, place, self.memory, self.stream).map(Elements::Decoded)
            }
            (_, None) => self.freeze(host).map(Elements::Plain),
            (_, Some(mut block)) => {
                let bytes = host.len();
                self.stream.copy(&mut block, 0, &host.freeze_now(), 0, bytes)?;
                self.freeze(block).map(Elements::Plain)
            }
        }
    }
}

fn host_bytes(buffer: &mut BufferMut) -> Result<&mut [u8]> {
    buffer.host_slice_mut().ok_or_else(|| Error::internal("host memory is not accessible"))
}

/// The conversion of a column.
struct Work {
    column: Arc<Column>,
    file: Arc<StoredSource>,
    inflater: Option<Inflater>,
    /// The first row.
    first: u64,
    to: BufferMut,
}

impl Work {
    /// Fills the memory with the elements, in the order of bytes of this machine.
    fn run(mut self, check: &Check<'_>) -> Result<(BufferMut, Option<Inflater>)> {
        let column = &self.column;
        self.to = fill(column, &self.file, &mut self.inflater, self.first, self.to, check)
            .map_err(|error| in_tensor(&error, column))?;
        Ok((self.to, self.inflater))
    }
}

fn fill(
    column: &Column,
    file: &StoredSource,
    inflater: &mut Option<Inflater>,
    first: u64,
    mut to: BufferMut,
    check: &Check<'_>,
) -> Result<BufferMut> {
    let bytes = host_bytes(&mut to)?;
    let begin = first * column.shape.row_bytes() as u64;
    match &column.data {
        Data::Plain { offset, .. } => {
            let mut at = offset + begin;
            for piece in bytes.chunks_mut(PIECE_BYTES) {
                check()?;
                file.read(at, piece)?;
                at += piece.len() as u64;
            }
        }
        Data::Deflated { member, skip } => {
            let begin = skip + begin;
            let inflater = inflater.get_or_insert_with(|| Inflater::new(member));
            if inflater.position() > begin {
                *inflater = Inflater::new(member);
            }
            let read = inflater.skip(check, file, begin - inflater.position());
            read.and_then(|()| inflater.read(check, file, bytes))
                .map_err(|error| error.or_offset(member.offset))?;
        }
    }
    if column.is_swapped() {
        swap(bytes, column.element.alignment());
    }
    Ok(to)
}

/// Reverses the bytes of each number.
fn swap(bytes: &mut [u8], width: usize) {
    match width {
        2 => bytes.as_chunks_mut::<2>().0.iter_mut().for_each(|number| number.reverse()),
        4 => bytes.as_chunks_mut::<4>().0.iter_mut().for_each(|number| number.reverse()),
        _ => bytes.as_chunks_mut::<8>().0.iter_mut().for_each(|number| number.reverse()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swap_reverses_each_number() {
        let swapped = |width| {
            let mut bytes = [1, 2, 3, 4, 5, 6, 7, 8];
            swap(&mut bytes, width);
            bytes
        };
        assert_eq!(swapped(2), [2, 1, 4, 3, 6, 5, 8, 7]);
        assert_eq!(swapped(4), [4, 3, 2, 1, 8, 7, 6, 5]);
        assert_eq!(swapped(8), [8, 7, 6, 5, 4, 3, 2, 1]);
    }
}
