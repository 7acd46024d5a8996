//! Compresses and writes one message.

use std::sync::{Arc, Mutex, PoisonError};

use arrow_schema::Metadata;
use crossdock_memory::{Result, Stream};
use crossdock_plugin_api::{BufferedSink, Error, TaskGroup, Tasks};

use super::chunk::Chunk;
use crate::codec::Codec;
use crate::wire::Block;
use crate::wire::message::{Node, Span};
use crate::wire::message_write::{self, aligned};

/// A flattened batch.
#[derive(Debug, Default)]
pub struct Flat {
    /// Number of rows.
    pub rows: usize,
    /// The nodes of the arrays, in pre-order.
    pub nodes: Vec<Node>,
    /// The buffers, in order.
    pub chunks: Vec<Chunk>,
    /// Number of data buffers of each view array.
    pub variadic: Vec<usize>,
    /// The batch's key-value metadata.
    pub metadata: Metadata,
}

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Kind {
    Batch,
    Dictionary { id: i64, is_delta: bool },
}

/// The compressed buffers. The thread that compresses a buffer stores it here.
type Compressed = Arc<Vec<Mutex<Vec<u8>>>>;

/// A message whose buffers may still be being compressed.
pub struct Outgoing {
    /// The kind of the message.
    pub kind: Kind,
    flat: Flat,
    codec: Option<Codec>,
    compressing: Option<(TaskGroup, Compressed)>,
}

impl Outgoing {
    /// Begins to compress the buffers of `flat` if `codec` is set.
    pub fn start(
        kind: Kind,
        flat: Flat,
        codec: Option<Codec>,
        tasks: &Tasks,
        stream: &Stream,
    ) -> Result<Self> {
        let compress = |codec: Codec| -> Result<(TaskGroup, Compressed)> {
            let results: Compressed = Arc::new(flat.chunks.iter().map(|_| Mutex::default()).collect());
            let mut jobs: Vec<_> =
                flat.chunks.iter().cloned().enumerate().filter(|(_, c)| c.len() > 0).collect();
            jobs.sort_by_key(|(_, chunk)| std::cmp::Reverse(chunk.len()));
            let jobs = jobs.into_iter().map(|(i, chunk)| {
                let (results, stream) = (results.clone(), stream.clone());
                move || {
                    let compressed = chunk.with(&stream, |bytes| codec.compress(bytes))?;
                    if let Some(result) = results.get(i) {
                        *result.lock().unwrap_or_else(PoisonError::into_inner) = compressed;
                    }
                    Ok(())
                }
            });
            Ok((tasks.start(jobs)?, results))
        };
        let compressing = codec.map(compress).transpose()?;
        Ok(Self { kind, flat, codec, compressing })
    }

    /// Size of the uncompressed buffers in bytes.
    pub fn bytes(&self) -> u64 {
        self.flat.chunks.iter().map(|chunk| chunk.len() as u64).sum()
    }

    /// Waits for the compression and writes the message. If `check` returns an error, the wait
    /// ends.
    pub fn write(
        mut self,
        out: &mut BufferedSink,
        stream: &Stream,
        check: impl Fn() -> Result<()>,
    ) -> Result<Block> {
        if let Some((group, results)) = self.compressing.take() {
            group.wait(&check)?;
            for (chunk, result) in self.flat.chunks.iter_mut().zip(results.iter()) {
                *chunk =
                    Chunk::Owned(std::mem::take(&mut *result.lock().unwrap_or_else(PoisonError::into_inner)));
            }
        }
        let mut spans = Vec::with_capacity(self.flat.chunks.len());
        let mut end = 0u64;
        for chunk in &self.flat.chunks {
            let bytes = chunk.len() as u64;
            spans.push(Span { offset: end, bytes });
            end = end
                .checked_add(bytes)
                .map(aligned)
                .ok_or_else(|| Error::unsupported("the size of a batch overflows an address"))?;
        }
        let batch = message_write::Batch {
            rows: self.flat.rows,
            nodes: &self.flat.nodes,
            spans: &spans,
            variadic: &self.flat.variadic,
            codec: self.codec,
            body_bytes: end,
            metadata: std::mem::take(&mut self.flat.metadata),
        };
        let offset = out.position();
        let head = match self.kind {
            Kind::Batch => message_write::batch(&batch, offset),
            Kind::Dictionary { id, is_delta } => message_write::dictionary(id, is_delta, &batch, offset),
        }?;
        out.write(&head)?;
        for (chunk, span) in self.flat.chunks.iter().zip(&spans) {
            check()?;
            chunk.with(stream, |bytes| out.write(bytes))?;
            out.pad(aligned(span.bytes) - span.bytes)?;
        }
        Ok(Block { offset, metadata_bytes: head.len(), body_bytes: end })
    }
}
