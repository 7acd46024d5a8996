//! A plugin that writes Vortex files with the crate `vortex`, whose compressor chooses the
//! encodings.
//!
//! The crate uses another version of Arrow's crates than Crossdock, and each of its releases may
//! change its interface. No Rust type of the crate therefore leaves this plugin: batches and
//! schemas arrive as Arrow's C structs, and bytes leave through the host's sink.
//!
//! The crate's writer is asynchronous. This plugin has no threads of its own: while a batch is
//! being written, the calling thread polls the writer's futures, and the session's threads run the
//! compression (`pipeline.rs`).

mod convert;
mod error;
mod executor;
mod pipeline;
mod settings;
mod sink;
mod strategy;
mod types;
mod writer;

use crossdock_arrays::import_schema_ref;
use crossdock_memory::Memory;
use crossdock_plugin_api::{
    BatchWriter, Call, ColumnPlan, Device, Error, Exporter, Format, Host, Options, Plugin, Result, Sink,
    Tasks, Verdict, abi, crossdock_plugin,
};

use settings::Settings;
use writer::Writer;

/// The name of the format.
const FORMAT: &str = "vortex";

crossdock_plugin!(
    VortexWriter,
    name: "vortex-writer",
    description: "writes Vortex files with the compressor of the crate vortex",
    interfaces: "crossdock.exporter/1",
    formats: "vortex",
    requires: "crossdock.host.memory/1 crossdock.host.kernels/1 crossdock.host.tasks/1",
);

/// An instance of the plugin.
pub struct VortexWriter {
    host: Host,
    memory: Memory,
    tasks: Tasks,
    formats: [Format; 1],
}

impl Plugin for VortexWriter {
    fn create(host: Host) -> Result<Self> {
        let format = Format {
            bytes: true,
            extensions: vec![".vortex".into()],
            device_types: vec![abi::DEVICE_CPU],
            ..Format::new(
                FORMAT,
                "Vortex file: a table without durations, intervals, unions and binaries of a fixed size",
            )
        };
        Ok(Self {
            memory: Memory::from_host(&host)?.with_host_kernels()?,
            tasks: Tasks::from_host(&host)?,
            formats: [settings::OPTIONS
                .iter()
                .fold(format, |format, (key, text)| format.with_option(key, text))],
            host,
        })
    }

    fn exporter(&self) -> Option<&dyn Exporter> {
        Some(self)
    }
}

impl Exporter for VortexWriter {
    fn formats(&self) -> &[Format] {
        &self.formats
    }

    fn plan(
        &self,
        _: &Call<'_>,
        _format: &str,
        schema: &abi::ArrowSchema,
        _from: Device,
        options: &Options,
    ) -> Result<Vec<ColumnPlan>> {
        let how = Settings::from_options(options)?.compression.description();
        // SAFETY: the trait passes a valid schema, which is borrowed for the call.
        let schema = unsafe { import_schema_ref(schema) }?;
        let column = |field: &arrow_schema::FieldRef| {
            let (verdict, reason) = match types::check(field) {
                Ok(()) => (Verdict::Converted, how.to_owned()),
                Err(error) => (Verdict::Unsupported, error.message().to_owned()),
            };
            ColumnPlan { name: field.name().clone(), verdict, to: Device::CPU, reason }
        };
        Ok(schema.fields().iter().map(column).collect())
    }

    fn begin(
        &self,
        call: &Call<'_>,
        _format: &str,
        schema: &abi::ArrowSchema,
        options: &Options,
        sink: Option<Sink>,
    ) -> Result<Box<dyn BatchWriter>> {
        let settings = Settings::from_options(options)?;
        let sink = sink.ok_or_else(|| Error::invalid_argument("a Vortex file needs a sink, got none"))?;
        // SAFETY: the trait passes a valid schema, which is borrowed for the call.
        let schema = unsafe { import_schema_ref(schema) }?;
        Ok(Box::new(Writer::begin(call, schema, settings, sink, &self.host, &self.memory, &self.tasks)?))
    }
}
