//! The connection of an instance, and of its streams and writers, to the plugin's process.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use crossdock_arrays::{DeviceBatch, Level, export_batch, validate};
use crossdock_memory::Memory;
use crossdock_plugin_api::{Call, Owned, Result, Tasks, abi};

use crate::host::child::Child;
use crate::host::read_only_segments::ReadOnlyMemory;
use crate::host::segment_pool::SegmentReuse;
use crate::host::writable_segments::WritableMemory;
use crate::wire::array_transfer::BatchParts;
use crate::wire::incoming::Incoming;
use crate::wire::messages::{CallParts, Request, Response};
use crate::wire::outgoing::Outgoing;
use crate::wire::segments::Streams;

/// A plugin's process, and the memory and streams with which the host receives arrays from it.
#[derive(Clone)]
pub struct Connection {
    pub child: Arc<Child>,
    pub memory: Memory,
    pub streams: Streams,
    /// The threads of the session.
    pub tasks: Tasks,
}

/// Keeps the segments of all kinds of memory.
pub type SegmentReuses = (SegmentReuse<WritableMemory>, SegmentReuse<ReadOnlyMemory>);

impl Connection {
    /// Sends a request without arrays.
    pub fn request(
        &self,
        request: Request,
        call: Option<(&Call<'_>, CallParts)>,
    ) -> Result<(Response, Incoming)> {
        self.request_with(request, &Outgoing::default(), call)
    }

    /// Sends a request. The request or the response contains arrays.
    pub fn request_with(
        &self,
        request: Request,
        files: &Outgoing,
        call: Option<(&Call<'_>, CallParts)>,
    ) -> Result<(Response, Incoming)> {
        self.child.request_on(request, files, call, Some(&self.streams))
    }

    /// Keeps the segments of messages for later messages until the result is dropped.
    pub fn reuse_segments(&self) -> SegmentReuses {
        let callbacks = &self.child.callbacks;
        (callbacks.writable_segments.reuse(), callbacks.read_only_segments.reuse())
    }

    /// Reads and validates a received batch, including the contents of its buffers.
    ///
    /// # Errors
    /// The batch is malformed.
    pub fn receive_batch(
        &self,
        parts: BatchParts,
        schema: &SchemaRef,
        files: &Incoming,
    ) -> Result<Owned<abi::Batch>> {
        let batch = validated_batch(parts, schema, files, &self.streams)?;
        export_batch(&batch, false, self.streams.for_device(batch.device()))
    }
}

/// Reads and validates a received batch.
pub fn validated_batch(
    parts: BatchParts,
    schema: &SchemaRef,
    files: &Incoming,
    streams: &Streams,
) -> Result<DeviceBatch> {
    let batch = parts.read(schema, files)?;
    validate(&batch, Level::Full, streams.for_device(batch.device()))?;
    Ok(batch)
}
