//! Loads the body of a message: uses it without a copy, or fills one allocation with several
//! threads.
//!
//! If the device is not the CPU, the host's loader loads an uncompressed body, and one with LZ4
//! that the device can decompress. Another compressed body is copied in parts. Each part is copied
//! while the next parts are being decompressed.

use std::sync::{Arc, Mutex, PoisonError};

use crossdock_memory::{Buffer, BufferMut, Device, Memory, Result, Stream};
use crossdock_plugin_api::{Error, TaskGroup, Tasks};

use super::bytes::Bytes;
use super::decompressions::{CompressedBody, Decompression, Decompressions};
use super::device_lz4::{self, CompressedBuffer, Portion};
use super::extents::{Extent, check_sum, lay_out, plan_loads, range, to_usize};
use super::transport::Transport;
use crate::codec::lz4::{FrameHeader, MAX_HEADER_BYTES};
use crate::codec::{Codec, PREFIX_BYTES, StoredBuffer};
use crate::limits::PIECE_BYTES;
use crate::partitioned_block::{PartitionedBlock, Piece};
use crate::upload::Upload;
use crate::wire::BatchMeta;

/// A body that is being loaded.
pub struct Loading {
    /// The offset and the length of each buffer in the block.
    ranges: Vec<Extent>,
    block: Block,
}

enum Block {
    InPlace(Option<Buffer>),
    /// The copy of the body is enqueued. Readers of the buffer wait for its event.
    Enqueued(Buffer),
    /// A task is loading the body.
    Loading {
        task: TaskGroup,
        loaded: Arc<Mutex<Option<BufferMut>>>,
        bytes: usize,
    },
    /// The device decompresses the body.
    Decompressing(Decompression<Loading>),
    /// The block is being filled, for the CPU.
    Filling(PartitionedBlock, TaskGroup),
    /// The block is being filled and copied in parts, for another device.
    Upload(Upload),
}

/// The buffers of a body, in order.
pub struct Slots {
    ranges: std::vec::IntoIter<Extent>,
    block: Option<Buffer>,
}

type Job = Box<dyn FnOnce() -> Result<()> + Send>;

/// A job, and the range of the block that it fills.
struct Task {
    at: usize,
    bytes: usize,
    job: Job,
}

/// Bodies of fewer bytes are loaded to a device by the calling thread. A task would take longer to
/// begin.
const MIN_TASK_BYTES: usize = 1 << 20;

impl Loading {
    /// Begins to load `body` to the device of the transport's stream. If `is_partial`, `meta` lacks
    /// the buffers that are not needed, and only the others are loaded.
    pub fn start(
        transport: &Transport<'_>,
        decompressions: &Decompressions<Self>,
        body: Bytes,
        meta: &BatchMeta,
        is_partial: bool,
    ) -> Result<Self> {
        if let Some(codec) = meta.codec {
            return Self::decompress(transport, decompressions, body, meta, codec, is_partial);
        }
        let device = transport.stream.device();
        let ranges = meta.spans.iter().map(range).collect::<Result<Vec<_>>>()?;
        if ranges.iter().all(|(_, bytes)| *bytes == 0) {
            return Ok(Self { ranges, block: Block::InPlace(None) });
        }
        // Arrow requires that the offsets of buffers are multiples of 8 bytes. Buffers with other
        // offsets are copied one by one.
        let is_aligned = ranges.iter().all(|(offset, _)| offset % 8 == 0);
        if is_aligned
            && let Some(block) = body.in_place(device)
            && (block.address() % 8 == 0 || device != Device::CPU)
        {
            return Ok(Self { ranges, block: Block::InPlace(Some(block)) });
        }
        let is_whole = is_aligned && !is_partial;
        match device == Device::CPU {
            true if is_whole => Self::copy_whole(transport, body, ranges),
            true => Self::copy_each(transport, body, ranges),
            false => Self::load_to_device(transport, body, ranges, is_whole),
        }
    }

    /// Loads the whole body, or only its buffers `from`.
    fn load_to_device(
        transport: &Transport<'_>,
        body: Bytes,
        from: Vec<Extent>,
        is_whole: bool,
    ) -> Result<Self> {
        let (ranges, loads, bytes) = plan_loads(&body, from, is_whole)?;
        let Transport { memory, stream, loader, tasks, cancel, .. } = *transport;
        let mut block = memory.alloc(stream, bytes)?;
        if bytes < MIN_TASK_BYTES || body.is_in_memory() {
            body.load(loader, cancel, &mut block, &loads, stream)?;
            return Ok(Self { ranges, block: Block::Enqueued(block.freeze(stream)?) });
        }
        let loaded = Arc::new(Mutex::new(None));
        let (result, loader, cancel, stream) =
            (loaded.clone(), loader.clone(), cancel.clone(), stream.clone());
        let task = tasks.start([move || {
            body.load(&loader, &cancel, &mut block, &loads, &stream)?;
            *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(block);
            Ok(())
        }])?;
        Ok(Self { ranges, block: Block::Loading { task, loaded, bytes } })
    }

    fn copy_whole(transport: &Transport<'_>, body: Bytes, ranges: Vec<Extent>) -> Result<Self> {
        let bytes = to_usize(body.len())?;
        let cuts: Vec<_> =
            (0..bytes).step_by(PIECE_BYTES).map(|at| (at, PIECE_BYTES.min(bytes - at))).collect();
        let (filling, pieces) = PartitionedBlock::new(transport.memory, transport.stream, bytes, &cuts)?;
        let tasks = cuts.iter().zip(pieces).map(|(&(at, bytes), piece)| {
            let job = read_into(body.clone(), at as u64, piece);
            Task { at, bytes, job }
        });
        let block = Block::start(transport.tasks, filling, tasks.collect())?;
        Ok(Self { ranges, block })
    }

    fn copy_each(transport: &Transport<'_>, body: Bytes, from: Vec<Extent>) -> Result<Self> {
        let lengths: Vec<usize> = from.iter().map(|(_, bytes)| *bytes).collect();
        check_sum(&lengths, body.len())?;
        let (ranges, bytes) = lay_out(&lengths)?;
        let (filling, pieces) = PartitionedBlock::new(transport.memory, transport.stream, bytes, &ranges)?;
        let tasks = from.iter().zip(&ranges).zip(pieces).map(|((&(from, bytes), &(at, _)), piece)| {
            let job = read_into(body.clone(), from as u64, piece);
            Task { at, bytes, job }
        });
        let block = Block::start(transport.tasks, filling, tasks.collect())?;
        Ok(Self { ranges, block })
    }

    fn decompress(
        transport: &Transport<'_>,
        decompressions: &Decompressions<Self>,
        body: Bytes,
        meta: &BatchMeta,
        codec: Codec,
        is_partial: bool,
    ) -> Result<Self> {
        let from = meta.spans.iter().map(range).collect::<Result<Vec<_>>>()?;
        // Rejects overlapping buffers, because they could decompress to more bytes than the codec's
        // maximum for a body of this size.
        check_sum(&from.iter().map(|(_, bytes)| *bytes).collect::<Vec<_>>(), body.len())?;
        let is_for_device = codec == Codec::Lz4 && transport.stream.device() != Device::CPU;
        let read = |(i, (offset, bytes)): (usize, &(usize, usize))| {
            if *bytes == 0 {
                return Ok((StoredBuffer::Plain(0), None));
            }
            let mut first = [0; PREFIX_BYTES + MAX_HEADER_BYTES];
            let known = if is_for_device { first.len() } else { PREFIX_BYTES }.min(*bytes);
            let first = first.get_mut(..known.max(PREFIX_BYTES)).unwrap_or_default();
            body.read(*offset as u64, first.get_mut(..known).unwrap_or_default())?;
            let (prefix, header) = first.split_first_chunk().unwrap_or((&[0; PREFIX_BYTES], &[]));
            let stored =
                codec.read_prefix(*prefix, *bytes).map_err(|e| e.context(format_args!("buffer {i}")))?;
            let header = if is_for_device { FrameHeader::read(header, stored.bytes()) } else { None };
            Ok((stored, header))
        };
        let (stored, headers): (Vec<_>, Vec<_>) =
            from.iter().enumerate().map(read).collect::<Result<Vec<_>>>()?.into_iter().unzip();
        let (ranges, bytes) = lay_out(&stored.iter().map(|s| s.bytes()).collect::<Vec<_>>())?;
        if bytes == 0 {
            return Ok(Self { ranges, block: Block::InPlace(None) });
        }
        if is_for_device
            && let Some(portions) = portions(&body, (&from, &stored, &headers), (&ranges, bytes), is_partial)?
        {
            let to_host = HostDecompression::new(transport, body.clone(), stored, from, codec);
            let same_ranges = ranges.clone();
            let on_host = Box::new(move || to_host.start(same_ranges, bytes));
            let body = CompressedBody { body, portions, bytes, on_host };
            let decompression = decompressions.add(transport, body)?;
            return Ok(Self { ranges, block: Block::Decompressing(decompression) });
        }
        HostDecompression::new(transport, body, stored, from, codec).start(ranges, bytes)
    }

    /// Whether the body is used without a copy.
    pub fn is_in_place(&self) -> bool {
        matches!(self.block, Block::InPlace(_))
    }

    /// Whether `start` itself has enqueued the copy of the body, without jobs. In this case, the
    /// call of `start` takes as long as reading the body.
    pub fn is_enqueued(&self) -> bool {
        matches!(self.block, Block::Enqueued(_))
    }

    /// Number of bytes that are allocated for the body.
    pub fn bytes(&self) -> u64 {
        match &self.block {
            Block::InPlace(_) => 0,
            Block::Enqueued(buffer) => buffer.len().unwrap_or(0) as u64,
            Block::Loading { bytes, .. } => *bytes as u64,
            Block::Decompressing(decompression) => decompression.bytes() as u64,
            Block::Filling(filling, _) => filling.len() as u64,
            Block::Upload(upload) => upload.len() as u64,
        }
    }

    /// Whether [`Self::finish`] waits for no task.
    pub fn is_loaded(&self) -> bool {
        match &self.block {
            Block::InPlace(_) | Block::Enqueued(_) => true,
            Block::Loading { task, .. } => task.is_done(),
            Block::Decompressing(decompression) => decompression.has_begun(),
            Block::Filling(_, group) => group.is_done(),
            Block::Upload(upload) => upload.is_filled(),
        }
    }

    /// Whether a task loads the body.
    pub fn is_loading(&self) -> bool {
        matches!(self.block, Block::Loading { .. } | Block::Decompressing(_))
    }

    /// Whether the device decompresses the body.
    pub fn is_decompressing(&self) -> bool {
        matches!(self.block, Block::Decompressing(_))
    }

    /// Waits until the buffers are filled and their copies are enqueued. If `check` returns an
    /// error, the wait ends.
    pub fn finish(self, stream: &Stream, check: impl Fn() -> Result<()>) -> Result<Slots> {
        let block = match self.block {
            Block::InPlace(block) => block,
            Block::Enqueued(block) => Some(block),
            Block::Loading { task, loaded, .. } => {
                task.wait(check)?;
                let block = loaded.lock().unwrap_or_else(PoisonError::into_inner).take();
                let block =
                    block.ok_or_else(|| Error::internal("the task that loads a body has no result"))?;
                Some(block.freeze(stream)?)
            }
            Block::Decompressing(decompression) => match decompression.finish(&check)? {
                Ok(block) => Some(block),
                Err(on_host) => return on_host.finish(stream, check),
            },
            Block::Filling(filling, group) => {
                group.wait(check)?;
                Some(filling.finish()?)
            }
            Block::Upload(upload) => Some(upload.finish(stream, check)?),
        };
        Ok(Slots { ranges: self.ranges.into_iter(), block })
    }
}

/// A compressed body that the host decompresses.
struct HostDecompression {
    memory: Memory,
    stream: Stream,
    tasks: Tasks,
    body: Bytes,
    stored: Vec<StoredBuffer>,
    /// The offset and the length of each stored buffer in the body.
    from: Vec<Extent>,
    codec: Codec,
}

impl HostDecompression {
    fn new(
        transport: &Transport<'_>,
        body: Bytes,
        stored: Vec<StoredBuffer>,
        from: Vec<Extent>,
        codec: Codec,
    ) -> Self {
        let Transport { memory, stream, tasks, .. } = *transport;
        let (memory, stream, tasks) = (memory.clone(), stream.clone(), tasks.clone());
        Self { memory, stream, tasks, body, stored, from, codec }
    }

    /// Starts jobs that decompress the buffers to `ranges` of a block of `bytes` bytes.
    fn start(self, ranges: Vec<Extent>, bytes: usize) -> Result<Loading> {
        let Self { memory, stream, tasks: runner, body, stored, from, codec } = self;
        let (filling, pieces) = PartitionedBlock::new(&memory, &stream, bytes, &ranges)?;
        let mut tasks = Vec::new();
        let offsets = ranges.iter().map(|(at, _)| *at);
        for (i, (((stored, (offset, length)), piece), offset_in_block)) in
            stored.into_iter().zip(from).zip(pieces).zip(offsets).enumerate()
        {
            let at = (offset + PREFIX_BYTES) as u64;
            let job: Job = match stored {
                StoredBuffer::Plain(0) | StoredBuffer::Frame(0) => continue,
                StoredBuffer::Plain(_) => read_into(body.clone(), at, piece),
                StoredBuffer::Frame(_) => {
                    let body = body.clone();
                    let mut piece = piece;
                    Box::new(move || {
                        let bytes = length - PREFIX_BYTES;
                        let read = |max_bytes: usize, next: &mut dyn FnMut(&[u8]) -> Result<()>| {
                            body.in_pieces(at, bytes, max_bytes, next)
                        };
                        let decompressed = codec.decompress_pieces(bytes, piece.bytes_mut(), read);
                        decompressed.map_err(|e| e.context(format_args!("buffer {i}")))
                    })
                }
            };
            tasks.push(Task { at: offset_in_block, bytes: stored.bytes(), job });
        }
        let block = Block::start(&runner, filling, tasks)?;
        Ok(Loading { ranges, block })
    }
}

impl Block {
    /// Starts `tasks` to fill the block. The tasks are ordered by offset.
    fn start(runner: &Tasks, filling: PartitionedBlock, mut tasks: Vec<Task>) -> Result<Self> {
        if filling.is_for_host() {
            // The longest task is started first, so that no long task is running alone at the end.
            tasks.sort_by_key(|task| std::cmp::Reverse(task.bytes));
            let jobs = bundle(tasks).into_iter().map(|(_, job)| job);
            return Ok(Self::Filling(filling, runner.start(jobs)?));
        }
        let bytes = filling.len();
        let (starts, jobs): (Vec<_>, Vec<_>) = bundle(tasks).into_iter().unzip();
        // A job's range ends where the next one begins, so it includes the padding between them.
        let ends = starts.into_iter().skip(1).chain([bytes]);
        let start = |(end, job)| Ok((runner.start([job])?, end));
        let parts = ends.zip(jobs).map(start).collect::<Result<Vec<_>>>()?;
        Ok(Self::Upload(Upload::new(filling, parts)))
    }
}

impl Slots {
    /// The block that contains all buffers; `None` if all buffers are empty.
    pub fn block(&self) -> Option<&Buffer> {
        self.block.as_ref()
    }

    /// Returns the next buffer; `None` if it is empty.
    pub fn next(&mut self) -> Result<Option<Buffer>> {
        let (offset, bytes) = self
            .ranges
            .next()
            .ok_or_else(|| Error::internal("the message has fewer buffers than its shape"))?;
        match &self.block {
            Some(block) if bytes > 0 => block.slice(offset, bytes).map(Some),
            _ => Ok(None),
        }
    }
}

fn read_into(body: Bytes, at: u64, mut piece: Piece) -> Job {
    Box::new(move || body.read(at, piece.bytes_mut()))
}

/// Combines small tasks to jobs, because queueing a job takes as long as decompressing some
/// kilobytes. Returns each job with the offset of its first range.
fn bundle(tasks: Vec<Task>) -> Vec<(usize, Job)> {
    const MIN_JOB_BYTES: usize = 256 << 10;
    let mut bundles: Vec<(usize, Job)> = Vec::new();
    let (mut open, mut first, mut bytes) = (Vec::new(), 0, 0);
    for task in tasks {
        if open.is_empty() {
            first = task.at;
        }
        open.push(task.job);
        bytes += task.bytes;
        if bytes >= MIN_JOB_BYTES {
            bundles.push((first, in_sequence(std::mem::take(&mut open))));
            bytes = 0;
        }
    }
    if !open.is_empty() {
        bundles.push((first, in_sequence(open)));
    }
    bundles
}

fn in_sequence(jobs: Vec<Job>) -> Job {
    Box::new(move || jobs.into_iter().try_for_each(|job| job()))
}

/// Divides a compressed body into portions for the device. `from` are the stored buffers in the
/// body, and `ranges` the uncompressed ones. Returns `None` if the host should decompress the body.
fn portions(
    body: &Bytes,
    (from, stored, headers): (&[Extent], &[StoredBuffer], &[Option<FrameHeader>]),
    (ranges, bytes): (&[Extent], usize),
    is_partial: bool,
) -> Result<Option<Vec<Portion>>> {
    let numbers = device_lz4::divide(ranges, bytes);
    let is_whole = !is_partial && numbers.len() == 1;
    let mut portions = Vec::with_capacity(numbers.len());
    for i in numbers {
        let start = ranges.get(i.start).map_or(0, |(at, _)| *at);
        let end = ranges.get(i.end).map_or(bytes, |(at, _)| *at);
        let of_portion = from.get(i.clone()).unwrap_or_default().to_vec();
        let (copied, loads, stored_bytes) = plan_loads(body, of_portion, is_whole)?;
        let buffers = i.zip(copied).filter_map(|(i, from)| {
            let (at, length) = *ranges.get(i)?;
            let (stored, header) = (*stored.get(i)?, *headers.get(i)?);
            Some(CompressedBuffer { from, to: (at - start, length), stored, header })
        });
        let Some(list) = device_lz4::list(&buffers.collect::<Vec<_>>()) else { return Ok(None) };
        portions.push(Portion { loads, stored_bytes, to: start..end, list });
    }
    Ok(Some(portions))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[test]
    fn bundle_combines_small_tasks_into_jobs_of_the_minimum_size() {
        let completed = Arc::new(Mutex::new(Vec::new()));
        let tasks = [(0, 100), (100, 100), (200, 56), (256, 255), (511, 300), (811, 1)].map(|(at, kib)| {
            let completed = completed.clone();
            let job: Job = Box::new(move || {
                completed.lock().unwrap().push(at);
                Ok(())
            });
            Task { at, bytes: kib << 10, job }
        });
        let bundles = bundle(tasks.into());
        assert_eq!(bundles.iter().map(|(first, _)| *first).collect::<Vec<_>>(), [0, 256, 811]);
        let mut n_completed = Vec::new();
        for (_, job) in bundles {
            job().unwrap();
            n_completed.push(completed.lock().unwrap().len());
        }
        assert_eq!(n_completed, [3, 5, 6]);
        assert_eq!(*completed.lock().unwrap(), [0, 100, 200, 256, 511, 811]);
    }
}
