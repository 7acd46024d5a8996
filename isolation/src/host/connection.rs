//! The connection of an instance, and of its streams and writers, to the plugin's process.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use crossdock_arrays::{DeviceBatch, Level, export_batch, validate};
use crossdock_memory::Memory;
use crossdock_plugin_api::{Call, Error, Owned, Result, abi};

use crate::host::child::Child;
use crate::host::device_segments::DeviceMemory;
use crate::host::host_segments::HostMemory;
use crate::host::segment_pool::{SegmentPool, SegmentReuse};
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
}

/// Keeps the segments of all kinds of memory.
pub type SegmentReuses = (Option<SegmentReuse<DeviceMemory>>, SegmentReuse<HostMemory>);

/// The error for a response of the wrong kind.
pub fn unexpected_response() -> Error {
    Error::bad_data("the process of an isolated plugin sent the response to another request")
}

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
        self.child.request_on(request, files, call, self.streams.device_stream())
    }

    /// Keeps the segments of messages for later messages until the result is dropped.
    pub fn reuse_segments(&self) -> SegmentReuses {
        let callbacks = &self.child.callbacks;
        (callbacks.device_segments.as_ref().map(SegmentPool::reuse), callbacks.host_segments.reuse())
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
