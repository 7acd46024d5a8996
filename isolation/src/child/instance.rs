//! Instances of the plugin, and their open streams and writers.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use crossdock_arrays::export_batch;
use crossdock_parts::{ChildParts, NodeHead};
use crossdock_plugin_api::{
    ChildType, EncodedArray, EncodedNode, EncodingHandle, Error, Owned, Result, WriterHandle, abi,
};

use crate::child::host_client::HostClient;
use crate::child::library::PluginInstance;
use crate::child::received_segments::{ReceivedSegments, SegmentReuse};
use crate::child::sink::SinkBuffer;
use crate::wire::array_transfer::{TreeParts, column_schema};
use crate::wire::incoming::Incoming;
use crate::wire::messages::{CallParts, Callback, CallbackReply, WithSegments};
use crate::wire::outgoing::Outgoing;
use crate::wire::segments::{SegmentParts, Streams};

/// A plugin instance, with the streams and segments of its devices.
pub struct Instance {
    /// The memory limit of the session; 0 for no limit.
    pub memory_limit_bytes: u64,
    pub plugin: Box<dyn PluginInstance>,
    pub streams: Streams,
    pub segments: Arc<ReceivedSegments>,
}

/// The files and segments of a request.
pub struct Attachments {
    pub files: Vec<OwnedFd>,
    pub segments: Vec<SegmentParts>,
}

/// A writer that the plugin began.
pub struct OpenWriter {
    // Dropped before `instance`, because fields are dropped in the order of their declaration.
    // `None` once the writer is finished.
    pub writer: Option<WriterHandle>,
    pub sink: Arc<SinkBuffer>,
    pub schema: SchemaRef,
    pub _reuse: SegmentReuse,
    pub instance: Arc<Instance>,
}

impl Instance {
    /// Keeps mapped segments mapped until the result is dropped.
    pub fn reuse_segments(&self) -> SegmentReuse {
        self.segments.reuse()
    }

    /// Calls a function of the plugin, and records the call.
    pub fn call<T>(&self, what: &str, f: impl FnOnce() -> Result<T>) -> Result<T> {
        self.plugin.account().trace_host_call(what, f)
    }

    /// Creates an empty message that sends arrays on the device in segments.
    pub fn outgoing(&self) -> Outgoing {
        Outgoing::to_host(self.segments.sender())
    }

    /// Creates an empty message with batches of a stream. All small batches are sent in segments.
    pub fn outgoing_of_stream(&self) -> Outgoing {
        Outgoing::to_host(Some(self.segments.clone()))
    }

    pub fn incoming(&self, attachments: Attachments) -> Result<Incoming> {
        self.segments.incoming(attachments.files, &attachments.segments)
    }

    pub fn encoding(&self) -> Result<EncodingHandle<'_>> {
        self.plugin.encoding().ok_or_else(|| Error::unsupported("this plugin has no encodings"))
    }
}

/// Asks the host to decode an array in the host's session of `instance`.
pub fn decode_by_host(
    host: &HostClient,
    instance: u64,
    call: CallParts,
    (array, rows): (EncodedArray, Option<Range<u64>>),
    streams: &Streams,
    segments: &Arc<ReceivedSegments>,
) -> Result<Owned<abi::Batch>> {
    let mut to = Outgoing::to_host(segments.sender());
    let schema = column_schema(array.root()?)?;
    let tree = TreeParts::write(array.root()?, &mut to)?;
    let callback = Callback::Decode { instance, call, tree, rows, segments: to.segments().to_vec() };
    let reply = host.call_with(&callback, &[], &to);
    let (reply, _, files) = reply.inspect_err(|_| host.release_segments(to.segments()))?;
    let CallbackReply::Batch(WithSegments { message, segments: parts }) = reply else {
        return Err(Error::internal("the host replied without a batch"));
    };
    let files = segments.incoming(files, &parts)?;
    let batch = message.read(&schema, &files)?;
    export_batch(&batch, false, streams.for_device(batch.device()))
}

/// Asks the host for the types of a node's children, which the plugins of the host's session of
/// `instance` derive.
pub fn children_by_host(host: &HostClient, instance: u64, node: EncodedNode<'_>) -> Result<Vec<ChildType>> {
    match host.call(&Callback::Children { instance, node: NodeHead::write(node)? }, &[])? {
        (CallbackReply::Children(children), _) => ChildParts::read_all(children),
        _ => Err(Error::internal("the host replied without the types of children")),
    }
}
