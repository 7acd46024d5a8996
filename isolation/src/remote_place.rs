//! Where an isolated plugin runs, as its instances, streams and writers ask it.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use crossdock_arrays::{DeviceBatch, Level, export_batch, validate};
use crossdock_memory::Memory;
use crossdock_plugin_api::{Call, Error, Owned, Result, abi};

use crate::child::Child;
use crate::freight::BatchParts;
use crate::outgoing::Outgoing;
use crate::rooms::Streams;
use crate::shared::Incoming;
use crate::wire::{Answer, CallParts, Order};

/// Where a plugin runs, and the host's memory for what comes from there.
#[derive(Clone)]
pub struct Place {
    pub child: Arc<Child>,
    pub memory: Memory,
    pub streams: Streams,
}

/// An answer that belongs to another question.
pub fn strange() -> Error {
    Error::bad_data("the process of an isolated plugin gave the answer to another question")
}

impl Place {
    /// Asks without arrays.
    pub fn ask(&self, order: Order, call: Option<(&Call<'_>, CallParts)>) -> Result<(Answer, Incoming)> {
        self.ask_with(order, &Outgoing::default(), call)
    }

    /// Asks with arrays, or for them.
    pub fn ask_with(
        &self,
        order: Order,
        files: &Outgoing,
        call: Option<(&Call<'_>, CallParts)>,
    ) -> Result<(Answer, Incoming)> {
        self.child.ask_with(order, files, call, self.streams.on_device())
    }

    /// A batch that came, for the rest of the host. What another process says of its arrays is looked at closely, for nobody here
    /// wrote them.
    pub fn landed(
        &self,
        parts: BatchParts,
        schema: &SchemaRef,
        files: &Incoming,
    ) -> Result<Owned<abi::Batch>> {
        let batch = looked_at(parts, schema, files, &self.streams)?;
        export_batch(&batch, false, self.streams.of(batch.device()))
    }
}

/// A batch that came, once it is sound.
pub fn looked_at(
    parts: BatchParts,
    schema: &SchemaRef,
    files: &Incoming,
    streams: &Streams,
) -> Result<DeviceBatch> {
    let batch = parts.read(schema, files)?;
    validate(&batch, Level::Full, streams.of(batch.device()))?;
    Ok(batch)
}
