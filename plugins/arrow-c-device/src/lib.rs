//! Arrow's four C interfaces as a Crossdock plugin: C Data, C Stream, C Device and C Device Stream, both ways.
//!
//! Zero-copy where the device matches. On the way in every struct is checked as far as the host can see (and its
//! contents, if the call asks for that); on the way out null counts are exact, because consumers rely on it.

mod export;
mod formats;
mod import;

use crossdock_memory::Memory;
use crossdock_plugin_api::{
    BatchStream, BatchWriter, Call, ColumnPlan, Device, Error, Exporter, Format, Host, Importer, Input,
    Options, Plugin, Result, Sink, abi,
};
use formats::Interface;

/// The plugin.
pub struct ArrowCDevice {
    memory: Memory,
    imported: Vec<Format>,
    exported: Vec<Format>,
}

impl Plugin for ArrowCDevice {
    fn create(host: Host) -> Result<Self> {
        let memory = Memory::from_host(&host)?.with_host_kernels()?;
        Ok(Self { memory, imported: formats::imported(), exported: formats::exported() })
    }

    fn importer(&self) -> Option<&dyn Importer> {
        Some(self)
    }

    fn exporter(&self) -> Option<&dyn Exporter> {
        Some(self)
    }
}

impl Importer for ArrowCDevice {
    fn formats(&self) -> &[Format] {
        &self.imported
    }

    fn open(
        &self,
        _call: &Call<'_>,
        format: &str,
        input: Input,
        schema: Option<&abi::ArrowSchema>,
        _: &Options,
    ) -> Result<Box<dyn BatchStream>> {
        let interface = Interface::named(format)?;
        let Input::Capsules(capsules) = input else {
            return Err(Error::invalid_argument(format!("{format}: bytes were given, expected capsules")));
        };
        import::open(&self.memory, interface, capsules, schema)
    }
}

impl Exporter for ArrowCDevice {
    fn formats(&self) -> &[Format] {
        &self.exported
    }

    fn plan(
        &self,
        call: &Call<'_>,
        format: &str,
        schema: &abi::ArrowSchema,
        from: Device,
        _: &Options,
    ) -> Result<Vec<ColumnPlan>> {
        let interface = Interface::named(format)?;
        export::plan(interface, call, schema, from)
    }

    fn begin(
        &self,
        _call: &Call<'_>,
        format: &str,
        schema: &abi::ArrowSchema,
        options: &Options,
        sink: Option<Sink>,
    ) -> Result<Box<dyn BatchWriter>> {
        let interface = Interface::named(format)?;
        if sink.is_some() {
            return Err(Error::invalid_argument(format!(
                "{format}: a sink was given, but the format gives capsules"
            )));
        }
        export::begin(&self.memory, interface, schema, options)
    }
}
