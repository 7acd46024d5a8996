//! Out through a plugin as capsules, and back in.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_schema::{Metadata, SchemaRef};
use crossdock_arrays::DeviceBatch;
use crossdock_plugin_api::{Capsule, Format, Input, Options};

use crate::error::{Error, Result};
use crate::plugin::Plugin;
use crate::reader::Reader;
use crate::session::Session;
use crate::writer::{Writer, schema_difference};

/// One `--via`: an exporter's writer, and for all that it gives the same plugin's importer.
pub(super) struct Via {
    session: Session,
    plugin: Arc<Plugin>,
    format: Format,
    /// The same format as it is read back, and what it is told then.
    read: (Format, Options),
    schema: SchemaRef,
    writer: Writer,
    /// The own metadata of the batches that are out: few foreign structs have a place for it.
    metadata: VecDeque<Metadata>,
}

impl Via {
    pub(super) fn begin(
        session: &Session,
        wanted: &str,
        schema: &SchemaRef,
        options: &Options,
    ) -> Result<Self> {
        let device_type = session.device().r#type;
        let choice = session.choose(Some(wanted), |registry| registry.choose_via(wanted, device_type))?;
        let plugin = session.fresh(choice.plugin.name(), &format!("{} (via)", choice.plugin.name()))?;
        let format = choice.format;
        let what = format!("write batches as {}", format.name);
        let told = format.pick(options);
        let writer = Writer::begin(session, plugin.clone(), format.clone(), schema, &told, None, what)?;
        let back = plugin.importer_formats().iter().find(|f| f.name == format.name);
        let back = back.cloned().unwrap_or_default();
        let told = back.pick(options);
        let (session, schema) = (session.clone(), schema.clone());
        let read = (back, told);
        Ok(Self { session, plugin, format, read, schema, writer, metadata: VecDeque::new() })
    }

    pub(super) fn plugin(&self) -> &Arc<Plugin> {
        &self.plugin
    }

    pub(super) fn format(&self) -> &str {
        &self.format.name
    }

    /// Whether the format understands this option on either way.
    pub(super) fn understands(&self, key: &str) -> bool {
        self.format.understands(key) || self.read.0.understands(key)
    }

    /// The batch as it comes back: usually as one, perhaps only at the end.
    pub(super) fn pass(&mut self, batch: DeviceBatch) -> Result<Vec<DeviceBatch>> {
        self.metadata.push_back(batch.metadata().clone());
        let capsules = self.writer.write(batch)?;
        let batches = read_back(&self.session, &self.plugin, &self.read, &self.schema, capsules)?;
        Ok(with_metadata(batches, &mut self.metadata))
    }

    /// What comes back at the end.
    pub(super) fn finish(self) -> Result<Vec<DeviceBatch>> {
        let Self { session, plugin, read, schema, writer, mut metadata, .. } = self;
        let capsules = writer.finish()?.capsules;
        let batches = read_back(&session, &plugin, &read, &schema, capsules)?;
        Ok(with_metadata(batches, &mut metadata))
    }
}

/// Batches come back in the order in which they went out.
fn with_metadata(batches: Vec<DeviceBatch>, metadata: &mut VecDeque<Metadata>) -> Vec<DeviceBatch> {
    let own = |batch: DeviceBatch| match metadata.pop_front() {
        Some(metadata) => batch.with_metadata(metadata),
        None => batch,
    };
    batches.into_iter().map(own).collect()
}

fn read_back(
    session: &Session,
    plugin: &Arc<Plugin>,
    (format, options): &(Format, Options),
    schema: &SchemaRef,
    capsules: Vec<Capsule>,
) -> Result<Vec<DeviceBatch>> {
    if capsules.is_empty() {
        return Ok(Vec::new());
    }
    let format = format.name.as_str();
    let what = format!("read batches back as {format}");
    let input = Input::Capsules(capsules);
    let call = session.call_for_structs();
    let reader = Reader::open(session, plugin.clone(), call, format, input, Some(schema), options, what)?;
    if let Some(difference) = schema_difference(schema, reader.schema()) {
        let error = crossdock_plugin_api::Error::bad_data(difference);
        return Err(Error::data(format!("via {plugin}, the schema came back changed"), error));
    }
    // Under the schema that everybody holds already, so that nobody compares it again.
    let same = |batch: DeviceBatch| {
        batch
            .with_schema(schema.clone())
            .map_err(|error| Error::data(format!("{plugin} gave a wrong batch"), error))
    };
    reader.map(|batch| batch.and_then(same)).collect()
}
