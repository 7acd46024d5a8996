//! Streams and writers of a plugin in another process.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use crossdock_arrays::{export_schema, import_batch};
use crossdock_memory_backend::Reserved;
use crossdock_plugin_api::{BatchStream, BatchWriter, Call, Capsule, Map, Owned, Result, Source, abi};

use crate::child::Child;
use crate::freight::{BatchParts, read_schema};
use crate::outgoing::Outgoing;
use crate::remote_place::{Place, strange};
use crate::wire::{Answer, InputParts, Order};

/// What is read there, for as long as it is: the mapping too, in which what comes back may lie.
pub struct Handed {
    child: Arc<Child>,
    number: u64,
    _map: Option<Map>,
}

impl Drop for Handed {
    fn drop(&mut self) {
        self.child.desk.remove_source(self.number);
    }
}

/// Lets the process read a source: itself where it is in memory, else by asking.
pub fn handed(child: &Arc<Child>, source: Source, files: &mut Outgoing) -> Result<(InputParts, Handed)> {
    let source = Arc::new(source);
    let map = source.map();
    files.only_input(map.as_ref().map_or(&[], |map| map.bytes()));
    let whole =
        map.as_ref().filter(|map| !map.is_empty()).map(|map| files.place(map.bytes(), 1)).transpose()?;
    let (name, bytes) = (source.name().to_owned(), source.len());
    let number = child.desk.add_source(source);
    let handed = Handed { child: child.clone(), number, _map: map };
    Ok((InputParts { number, name, bytes, whole }, handed))
}

/// A stream of batches.
pub struct RemoteStream {
    at: Place,
    number: u64,
    schema: SchemaRef,
    _source: Handed,
    /// For the schema.
    _counted: Option<Reserved>,
}

impl RemoteStream {
    pub fn new(
        at: Place,
        number: u64,
        schema: &[u8],
        source: Handed,
        counted: Option<Reserved>,
    ) -> Result<Self> {
        let (_, schema) = read_schema(schema)?;
        Ok(Self { at, number, schema, _source: source, _counted: counted })
    }
}

impl BatchStream for RemoteStream {
    fn schema(&mut self) -> Result<Owned<abi::ArrowSchema>> {
        export_schema(&self.schema)
    }

    fn next(&mut self, call: &Call<'_>) -> Result<Option<Owned<abi::Batch>>> {
        let parts = self.at.child.call(call);
        let order = Order::Next { stream: self.number, call: parts };
        match self.at.ask(order, Some((call, parts)))? {
            (Answer::Batch(batch), files) => {
                batch.map(|batch| self.at.landed(batch, &self.schema, &files)).transpose()
            }
            _ => Err(strange()),
        }
    }
}

impl Drop for RemoteStream {
    fn drop(&mut self) {
        self.at.child.release(&Order::EndStream(self.number));
    }
}

/// A writer of batches.
pub struct RemoteWriter {
    at: Place,
    number: u64,
    schema: SchemaRef,
    sink: u64,
}

impl RemoteWriter {
    pub fn new(at: Place, number: u64, schema: &[u8], sink: u64) -> Result<Self> {
        let (_, schema) = read_schema(schema)?;
        Ok(Self { at, number, schema, sink })
    }
}

impl BatchWriter for RemoteWriter {
    fn write(&mut self, call: &Call<'_>, batch: Owned<abi::Batch>) -> Result<Vec<Capsule>> {
        let mut files = self.at.child.outgoing();
        let batch = import_batch(batch, &self.schema, &self.at.memory)?;
        let batch = BatchParts::write(batch, &self.at.streams, &mut files)?;
        let parts = self.at.child.call(call);
        let order = Order::Write { writer: self.number, call: parts, batch };
        match self.at.child.ask(order, &files, Some((call, parts)))? {
            (Answer::Done, _) => Ok(Vec::new()),
            _ => Err(strange()),
        }
    }

    fn finish(&mut self, call: &Call<'_>) -> Result<Vec<Capsule>> {
        let parts = self.at.child.call(call);
        let order = Order::Finish { writer: self.number, call: parts };
        match self.at.ask(order, Some((call, parts)))? {
            (Answer::Done, _) => Ok(Vec::new()),
            _ => Err(strange()),
        }
    }
}

impl Drop for RemoteWriter {
    fn drop(&mut self) {
        self.at.child.release(&Order::EndWriter(self.number));
        self.at.child.desk.remove_sink(self.sink);
    }
}
