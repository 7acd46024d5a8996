//! Instances of a plugin in its process, and what they opened.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use crossdock_arrays::export_batch;
use crossdock_plugin_api::{
    BatchStreamHandle, EncodedArray, EncodingHandle, Error, Owned, Result, WriterHandle, abi,
};

use crate::freight::{TreeParts, column_schema};
use crate::hosting::PluginInstance;
use crate::outgoing::Outgoing;
use crate::rooms::{Lender, RoomParts, Streams};
use crate::serve_ask::Ask;
use crate::serve_rooms::HostRooms;
use crate::shared::Incoming;
use crate::wire::{CallParts, Grant, Wish, With};

/// An instance, and where it works.
pub struct Instance {
    pub plugin: Box<dyn PluginInstance>,
    pub streams: Streams,
    pub rooms: Option<Arc<HostRooms>>,
}

/// What came with a question.
pub struct Came {
    pub files: Vec<OwnedFd>,
    pub rooms: Vec<RoomParts>,
}

/// A stream that the plugin opened.
pub struct OpenStream {
    // Before the instance that it belongs to.
    pub stream: BatchStreamHandle,
    pub schema: SchemaRef,
    pub at: Arc<Instance>,
}

/// A writer that it began; `None` once it is finished.
pub struct OpenWriter {
    // As above.
    pub writer: Option<WriterHandle>,
    pub schema: SchemaRef,
    pub at: Arc<Instance>,
}

impl Instance {
    /// A call of the plugin, recorded where calls are.
    pub fn call<T>(&self, what: &str, f: impl FnOnce() -> Result<T>) -> Result<T> {
        self.plugin.account().call(what, f)
    }

    /// A message in which arrays on the device stay there.
    pub fn outgoing(&self) -> Outgoing {
        Outgoing::to(self.rooms.clone().map(|rooms| rooms as Arc<dyn Lender>))
    }

    pub fn incoming(&self, came: Came) -> Result<Incoming> {
        match &self.rooms {
            Some(rooms) => rooms.incoming(came.files, &came.rooms),
            None => Incoming::of_the_host(came.files),
        }
    }

    pub fn encoding(&self) -> Result<EncodingHandle<'_>> {
        self.plugin.encoding().ok_or_else(|| Error::unsupported("this plugin has no encodings"))
    }
}

/// Has the session that an instance belongs to decode an array for a call.
pub fn decode_by_host(
    ask: &Ask,
    instance: u64,
    call: CallParts,
    array: EncodedArray,
    streams: &Streams,
    rooms: Option<&Arc<HostRooms>>,
) -> Result<Owned<abi::Batch>> {
    let mut files = Outgoing::to(rooms.map(|rooms| rooms.clone() as Arc<dyn Lender>));
    let schema = column_schema(array.root()?)?;
    let tree = TreeParts::write(array.root()?, &mut files)?;
    let told = files.rooms().to_vec();
    let wish = Wish::Decode { instance, call, tree, rooms: told };
    let granted = ask.ask_with(&wish, &[], &files);
    let (grant, _, files) = granted.inspect_err(|_| ask.end_rooms(files.rooms()))?;
    let Grant::Batch(With { message, rooms: told }) = grant else {
        return Err(Error::internal("the host gave no batch"));
    };
    let files = match rooms {
        Some(rooms) => rooms.incoming(files, &told)?,
        None => Incoming::of_the_host(files)?,
    };
    let batch = message.read(&schema, &files)?;
    export_batch(&batch, false, streams.of(batch.device()))
}
