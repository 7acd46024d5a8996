//! A message's body on its way to the buffers of a batch: in place, or into one allocation filled by several threads.
//!
//! Towards another device than the host, a body that lies in host memory goes there by one copy, which the host's memory
//! does as fast as the link; one that is read or unpacked first is sent on part by part, while the rest is being made.

use crossdock_memory::{Buffer, Device, Memory, Result, Stream};
use crossdock_plugin_api::Error;

use super::bytes::Bytes;
use crate::codec::{Codec, PREFIX_BYTES, Stored};
use crate::filling::{Filling, Piece};
use crate::limits::PIECE_BYTES;
use crate::pool::{Group, Pool};
use crate::sending::Sending;
use crate::wire::message_write::aligned;
use crate::wire::{BatchMeta, Span};

/// A body on its way.
pub struct Loading {
    /// Where each buffer is in the block.
    ranges: Vec<(usize, usize)>,
    block: Block,
}

enum Block {
    There(Option<Buffer>),
    /// Enqueued; whoever reads it waits for its event.
    Sent(Buffer),
    /// Being made in the host's memory.
    Coming(Filling, Group),
    /// The same, for another device.
    Going(Sending),
}

/// The buffers of a body, in order.
pub struct Slots {
    ranges: std::vec::IntoIter<(usize, usize)>,
    block: Option<Buffer>,
}

type Job = Box<dyn FnOnce() -> Result<()> + Send>;

/// What a job makes: where it begins in the block, and how many bytes.
struct Task {
    at: usize,
    bytes: usize,
    job: Job,
}

impl Loading {
    /// Begins to bring `body` to the device of `stream`.
    pub fn start(
        memory: &Memory,
        stream: &Stream,
        pool: &Pool,
        body: Bytes,
        meta: &BatchMeta,
    ) -> Result<Self> {
        if let Some(codec) = meta.codec {
            return Self::decompress(memory, stream, pool, body, meta, codec);
        }
        let ranges = meta.spans.iter().map(range).collect::<Result<Vec<_>>>()?;
        if ranges.iter().all(|(_, bytes)| *bytes == 0) {
            return Ok(Self { ranges, block: Block::There(None) });
        }
        // Arrow wants buffers at multiples of 8 bytes; where a writer did not care, they are moved apart.
        let tidy = ranges.iter().all(|(offset, _)| offset % 8 == 0);
        if tidy
            && let Some(block) = body.in_place(stream.device())
            && (block.address() % 8 == 0 || stream.device() != Device::CPU)
        {
            return Ok(Self { ranges, block: Block::There(Some(block)) });
        }
        if tidy
            && stream.device() != Device::CPU
            && let Some(block) = body.in_place(Device::CPU)
        {
            let bytes = in_memory(body.len())?;
            let mut sent = memory.alloc(stream, bytes)?;
            stream.copy(&mut sent, 0, &block, 0, bytes)?;
            return Ok(Self { ranges, block: Block::Sent(sent.freeze(stream)?) });
        }
        if tidy {
            Self::copy_whole(memory, stream, pool, body, ranges)
        } else {
            Self::copy_each(memory, stream, pool, body, ranges)
        }
    }

    fn copy_whole(
        memory: &Memory,
        stream: &Stream,
        pool: &Pool,
        body: Bytes,
        ranges: Vec<(usize, usize)>,
    ) -> Result<Self> {
        let bytes = in_memory(body.len())?;
        // What goes on to a device is the sooner on its way, the smaller its first piece is.
        let most = if stream.device() == Device::CPU { PIECE_BYTES } else { PIECE_BYTES / 4 };
        let cuts: Vec<_> = (0..bytes).step_by(most).map(|at| (at, most.min(bytes - at))).collect();
        let (filling, pieces) = Filling::new(memory, stream, bytes, &cuts)?;
        let tasks = cuts.iter().zip(pieces).map(|(&(at, bytes), piece)| {
            let job = read_into(body.clone(), at as u64, piece);
            Task { at, bytes, job }
        });
        let block = Block::start(pool, filling, tasks.collect());
        Ok(Self { ranges, block })
    }

    fn copy_each(
        memory: &Memory,
        stream: &Stream,
        pool: &Pool,
        body: Bytes,
        from: Vec<(usize, usize)>,
    ) -> Result<Self> {
        let lengths: Vec<usize> = from.iter().map(|(_, bytes)| *bytes).collect();
        check_sum(&lengths, body.len())?;
        let (ranges, bytes) = lay_out(&lengths)?;
        let (filling, pieces) = Filling::new(memory, stream, bytes, &ranges)?;
        let tasks = from.iter().zip(&ranges).zip(pieces).map(|((&(from, bytes), &(at, _)), piece)| {
            let job = read_into(body.clone(), from as u64, piece);
            Task { at, bytes, job }
        });
        let block = Block::start(pool, filling, tasks.collect());
        Ok(Self { ranges, block })
    }

    fn decompress(
        memory: &Memory,
        stream: &Stream,
        pool: &Pool,
        body: Bytes,
        meta: &BatchMeta,
        codec: Codec,
    ) -> Result<Self> {
        let from = meta.spans.iter().map(range).collect::<Result<Vec<_>>>()?;
        // A body that is unpacked many times over would grow beyond what its codec allows.
        check_sum(&from.iter().map(|(_, bytes)| *bytes).collect::<Vec<_>>(), body.len())?;
        let stored = from
            .iter()
            .enumerate()
            .map(|(i, (offset, bytes))| {
                if *bytes == 0 {
                    return Ok(Stored::Plain(0));
                }
                let mut prefix = [0; PREFIX_BYTES];
                let known = PREFIX_BYTES.min(*bytes);
                body.read(*offset as u64, prefix.get_mut(..known).unwrap_or_default())?;
                codec.read_prefix(prefix, *bytes).map_err(|e| e.context(format_args!("buffer {i}")))
            })
            .collect::<Result<Vec<_>>>()?;
        let (ranges, bytes) = lay_out(&stored.iter().map(|s| s.bytes()).collect::<Vec<_>>())?;
        if bytes == 0 {
            return Ok(Self { ranges, block: Block::There(None) });
        }
        let (filling, pieces) = Filling::new(memory, stream, bytes, &ranges)?;
        let mut tasks = Vec::new();
        let places = ranges.iter().map(|(at, _)| *at);
        for (i, (((stored, (offset, length)), piece), place)) in
            stored.into_iter().zip(from).zip(pieces).zip(places).enumerate()
        {
            let at = (offset + PREFIX_BYTES) as u64;
            let job: Job = match stored {
                Stored::Plain(0) | Stored::Frame(0) => continue,
                Stored::Plain(_) => read_into(body.clone(), at, piece),
                Stored::Frame(_) => {
                    let body = body.clone();
                    let mut piece = piece;
                    Box::new(move || {
                        let bytes = length - PREFIX_BYTES;
                        let read = |most: usize, next: &mut dyn FnMut(&[u8]) -> Result<()>| {
                            body.in_pieces(at, bytes, most, next)
                        };
                        let unpacked = codec.decompress_pieces(bytes, piece.bytes_mut(), read);
                        unpacked.map_err(|e| e.context(format_args!("buffer {i}")))
                    })
                }
            };
            tasks.push(Task { at: place, bytes: stored.bytes(), job });
        }
        let block = Block::start(pool, filling, tasks);
        Ok(Self { ranges, block })
    }

    /// Whether there was nothing to do.
    pub fn is_in_place(&self) -> bool {
        matches!(self.block, Block::There(_))
    }

    /// Whether its copy was enqueued at once, which kept the caller busy for as long as reading it takes.
    pub fn is_sent(&self) -> bool {
        matches!(self.block, Block::Sent(_))
    }

    /// Bytes that were allocated for it.
    pub fn bytes(&self) -> u64 {
        match &self.block {
            Block::There(_) => 0,
            Block::Sent(buffer) => buffer.len().unwrap_or(0) as u64,
            Block::Coming(filling, _) => filling.len() as u64,
            Block::Going(sending) => sending.len() as u64,
        }
    }

    /// The buffers, on the device of `stream`, when they are made, or on their way there. `check` may end the waiting.
    pub fn finish(self, stream: &Stream, check: impl Fn() -> Result<()>) -> Result<Slots> {
        let block = match self.block {
            Block::There(block) => block,
            Block::Sent(block) => Some(block),
            Block::Coming(filling, group) => {
                group.wait(check)?;
                Some(filling.finish()?)
            }
            Block::Going(sending) => Some(sending.finish(stream, check)?),
        };
        Ok(Slots { ranges: self.ranges.into_iter(), block })
    }
}

impl Block {
    /// Has `tasks`, which are in order, fill what `filling` began.
    fn start(pool: &Pool, filling: Filling, mut tasks: Vec<Task>) -> Self {
        if filling.is_for_host() {
            // The longest first, so that none of them is begun when the others are done.
            tasks.sort_by_key(|task| std::cmp::Reverse(task.bytes));
            let jobs = bundle(tasks).into_iter().map(|(_, job)| job);
            return Self::Coming(filling, pool.start(jobs.collect()));
        }
        let bytes = filling.len();
        let (starts, jobs): (Vec<_>, Vec<_>) = bundle(tasks).into_iter().unzip();
        // What lies between two bundles is zeros, and goes with the first one.
        let ends = starts.into_iter().skip(1).chain([bytes]);
        let parts = ends.zip(jobs).map(|(end, job)| (pool.start(vec![job]), end)).collect();
        Self::Going(Sending::new(filling, parts))
    }
}

impl Slots {
    /// What they all lie in; `None` where none of them has bytes.
    pub fn block(&self) -> Option<&Buffer> {
        self.block.as_ref()
    }

    /// The next buffer; `None` inside where it has no bytes.
    pub fn next(&mut self) -> Result<Option<Buffer>> {
        let (offset, bytes) = self
            .ranges
            .next()
            .ok_or_else(|| Error::internal("more buffers were asked for than were counted"))?;
        match &self.block {
            Some(block) if bytes > 0 => block.slice(offset, bytes).map(Some),
            _ => Ok(None),
        }
    }
}

fn read_into(body: Bytes, at: u64, mut piece: Piece) -> Job {
    Box::new(move || body.read(at, piece.bytes_mut()))
}

/// Many small jobs are put together, for handing one over costs as much as unpacking a few kilobytes. With each, where its
/// first range begins.
fn bundle(tasks: Vec<Task>) -> Vec<(usize, Job)> {
    const WORTH_A_JOB: usize = 256 << 10;
    let mut bundles: Vec<(usize, Job)> = Vec::new();
    let (mut open, mut first, mut bytes) = (Vec::new(), 0, 0);
    for task in tasks {
        if open.is_empty() {
            first = task.at;
        }
        open.push(task.job);
        bytes += task.bytes;
        if bytes >= WORTH_A_JOB {
            bundles.push((first, in_turn(std::mem::take(&mut open))));
            bytes = 0;
        }
    }
    if !open.is_empty() {
        bundles.push((first, in_turn(open)));
    }
    bundles
}

fn in_turn(jobs: Vec<Job>) -> Job {
    Box::new(move || jobs.into_iter().try_for_each(|job| job()))
}

fn range(span: &Span) -> Result<(usize, usize)> {
    Ok((in_memory(span.offset)?, in_memory(span.bytes)?))
}

fn in_memory(n: u64) -> Result<usize> {
    usize::try_from(n)
        .map_err(|_| Error::out_of_memory(format!("{n} bytes are more than this machine can address")))
}

fn check_sum(lengths: &[usize], most: u64) -> Result<()> {
    let sum = lengths.iter().try_fold(0u64, |sum, n| sum.checked_add(*n as u64));
    match sum {
        Some(sum) if sum <= most => Ok(()),
        _ => Err(Error::bad_data(format!("the buffers of a body of {most} bytes overlap"))),
    }
}

/// Places for buffers of these lengths, each aligned, and the bytes that they take together.
fn lay_out(lengths: &[usize]) -> Result<(Vec<(usize, usize)>, usize)> {
    let mut ranges = Vec::with_capacity(lengths.len());
    let mut end = 0u64;
    for &length in lengths {
        let next = end.checked_add(length as u64).filter(|next| *next < i64::MAX as u64 - 64);
        let next = next
            .ok_or_else(|| Error::bad_data("the buffers of a message claim more bytes than there can be"))?;
        ranges.push((in_memory(end)?, length));
        end = aligned(next);
    }
    Ok((ranges, in_memory(end)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[test]
    fn small_jobs_are_put_together_until_they_are_worth_one() {
        let done = Arc::new(Mutex::new(Vec::new()));
        let tasks = [(0, 100), (100, 100), (200, 56), (256, 255), (511, 300), (811, 1)].map(|(at, kib)| {
            let done = done.clone();
            let job: Job = Box::new(move || {
                done.lock().unwrap().push(at);
                Ok(())
            });
            Task { at, bytes: kib << 10, job }
        });
        let bundles = bundle(tasks.into());
        assert_eq!(bundles.iter().map(|(first, _)| *first).collect::<Vec<_>>(), [0, 256, 811]);
        let mut after = Vec::new();
        for (_, job) in bundles {
            job().unwrap();
            after.push(done.lock().unwrap().len());
        }
        assert_eq!(after, [3, 5, 6]);
        assert_eq!(*done.lock().unwrap(), [0, 100, 200, 256, 511, 811]);
    }
}
