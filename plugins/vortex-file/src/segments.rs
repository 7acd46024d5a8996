//! Loads segments of a file to a device, and reads the flatbuffers of their arrays.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crossdock_memory::{ALIGNMENT, Buffer, Device, LoadRange, Loader, Memory, Result, StoredSource, Stream};
use crossdock_plugin_api::{Call, Error};
use crossdock_vortex_types::flatbuffer::{Flatbuffer, Table};

use crate::footer::Segment;

/// The number of bytes at the end of a segment that are read first, because most flatbuffers of
/// arrays have fewer bytes.
const LIKELY_TAIL_BYTES: usize = 4 << 10;
/// The number of bytes at the end of a segment that contain the length of the flatbuffer.
const LENGTH_BYTES: usize = 4;

/// The loaded segments of some rows.
pub struct Segments {
    file: Arc<StoredSource>,
    /// The segments of the file.
    all: Arc<[Segment]>,
    loaded: HashMap<u32, Buffer>,
}

impl Segments {
    /// Loads the segments with these indices, in the order of `stream`.
    pub fn load(
        call: &Call<'_>,
        (file, all): (&Arc<StoredSource>, &Arc<[Segment]>),
        needed: &BTreeSet<u32>,
        (memory, loader): (&Memory, &Loader),
        stream: &Stream,
    ) -> Result<Self> {
        let mut segments = Self { file: file.clone(), all: all.clone(), loaded: HashMap::new() };
        let mut missing = Vec::new();
        for &index in needed {
            let segment = segments.get(index)?;
            let in_place = (stream.device() == Device::CPU)
                .then(|| file.in_place(segment.offset, u64::from(segment.bytes)));
            match in_place.flatten() {
                Some(buffer) => drop(segments.loaded.insert(index, buffer)),
                None => missing.push((index, segment)),
            }
        }
        if missing.is_empty() {
            return Ok(segments);
        }
        missing.sort_by_key(|(_, segment)| segment.offset);
        let mut end = 0usize;
        let mut loads = Vec::with_capacity(missing.len());
        for (_, segment) in &missing {
            let bytes = segment.bytes as usize;
            // The bytes up to the next segment in the block are loaded too. The segments are then
            // adjacent, and are copied to a device together.
            let padded = bytes.next_multiple_of(ALIGNMENT);
            let is_in_file = segment.offset.saturating_add(padded as u64) <= file.len();
            loads.push(LoadRange {
                from: segment.offset,
                to: end,
                bytes: if is_in_file { padded } else { bytes },
            });
            end = end
                .checked_add(padded)
                .ok_or_else(|| Error::out_of_memory("the segments exceed the address space"))?;
        }
        let mut block = memory.alloc(stream, end)?;
        loader.load(call, file.source(), &mut block, &loads, stream)?;
        let block = if stream.device() == Device::CPU { block.freeze_now() } else { block.freeze(stream)? };
        for ((index, segment), load) in missing.iter().zip(&loads) {
            segments.loaded.insert(*index, block.slice(load.to, segment.bytes as usize)?);
        }
        Ok(segments)
    }

    fn get(&self, index: u32) -> Result<Segment> {
        let segment = self.all.get(index as usize);
        segment.copied().ok_or_else(|| Error::internal(format!("there is no segment {index}")))
    }

    /// The bytes of a segment on the device.
    pub fn buffer(&self, index: u32) -> Result<&Buffer> {
        self.loaded.get(&index).ok_or_else(|| Error::internal(format!("segment {index} was not loaded")))
    }

    /// Runs `f` with the root of a segment's flatbuffer, and the number of bytes of the segment
    /// that precede the flatbuffer.
    pub fn with_array<T>(&self, index: u32, f: impl FnOnce(Table<'_, '_>, usize) -> Result<T>) -> Result<T> {
        let segment = self.get(index)?;
        let bytes = segment.bytes as usize;
        let parse = |tail: &[u8], data_bytes: usize| f(Flatbuffer::new(tail).root()?, data_bytes);
        let tail_bytes = bytes.min(LIKELY_TAIL_BYTES);
        let mut parse = Some(parse);
        let from = segment.end() - tail_bytes as u64;
        let (length, result) = self.file.with(from, tail_bytes, |tail| {
            let (rest, length) = tail.split_last_chunk::<LENGTH_BYTES>().ok_or_else(|| {
                Error::bad_data(format!("the segment has {bytes} bytes, expected at least {LENGTH_BYTES}"))
            })?;
            let length = u32::from_le_bytes(*length) as usize;
            let data_bytes = (bytes - LENGTH_BYTES).checked_sub(length).ok_or_else(|| {
                Error::bad_data(format!(
                    "the flatbuffer has {length} bytes, but the segment has only {bytes}"
                ))
            })?;
            let flatbuffer = rest.len().checked_sub(length).and_then(|at| rest.get(at..));
            let result = flatbuffer.zip(parse.take()).map(|(bytes, parse)| parse(bytes, data_bytes));
            Ok((length, result))
        })?;
        match (result, parse) {
            (Some(result), _) => result,
            (None, Some(parse)) => {
                let data_bytes = bytes - LENGTH_BYTES - length;
                self.file.with(segment.offset + data_bytes as u64, length, |bytes| parse(bytes, data_bytes))
            }
            (None, None) => Err(Error::internal("the flatbuffer of a segment was not parsed")),
        }
    }

    /// Runs `f` with bytes of a segment in host memory.
    pub fn with_bytes<T>(
        &self,
        index: u32,
        at: usize,
        bytes: usize,
        f: impl FnOnce(&[u8]) -> Result<T>,
    ) -> Result<T> {
        self.file.with(self.get(index)?.offset + at as u64, bytes, f)
    }

    /// The offset of a segment in the file; 0 if there is no such segment.
    pub fn offset(&self, index: u32) -> u64 {
        self.get(index).map_or(0, |segment| segment.offset)
    }

    /// The number of bytes of a segment.
    pub fn bytes(&self, index: u32) -> Result<usize> {
        Ok(self.get(index)?.bytes as usize)
    }
}
