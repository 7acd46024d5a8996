//! Plugin that imports and exports the four C interfaces of Arrow: C Data, C Stream, C Device and C
//! Device Stream.
//!
//! Import and export copy nothing if the data is on the requested device. The import checks every
//! struct, and also the contents of the buffers if the call requests full validation. Exported
//! arrays have exact null counts, because consumers rely on them.

mod export;
mod formats;
mod import;

use crossdock_memory::Memory;
use crossdock_plugin_api::{
    BatchStream, BatchWriter, Call, ColumnPlan, Device, Error, Exporter, Format, Host, Importer, Input,
    Options, Plugin, ReadRequest, Result, Sink, abi,
};
use formats::Interface;

/// The plugin for the C interfaces of Arrow.
pub struct ArrowCDevice {
    memory: Memory,
    import_formats: Vec<Format>,
    export_formats: Vec<Format>,
}

impl Plugin for ArrowCDevice {
    fn create(host: Host) -> Result<Self> {
        let memory = Memory::from_host(&host)?.with_host_kernels()?;
        Ok(Self {
            memory,
            import_formats: formats::import_formats(),
            export_formats: formats::export_formats(),
        })
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
        &self.import_formats
    }

    fn open(
        &self,
        _call: &Call<'_>,
        input: Input,
        request: &ReadRequest<'_>,
    ) -> Result<Box<dyn BatchStream>> {
        let ReadRequest { format, schema, .. } = *request;
        let interface = Interface::from_name(format)?;
        let Input::Capsules(capsules) = input else {
            return Err(Error::invalid_argument(format!("{format}: the input is bytes, expected capsules")));
        };
        import::open(&self.memory, interface, capsules, schema)
    }
}

impl Exporter for ArrowCDevice {
    fn formats(&self) -> &[Format] {
        &self.export_formats
    }

    fn plan(
        &self,
        call: &Call<'_>,
        format: &str,
        schema: &abi::ArrowSchema,
        from: Device,
        _: &Options,
    ) -> Result<Vec<ColumnPlan>> {
        let interface = Interface::from_name(format)?;
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
        let interface = Interface::from_name(format)?;
        if sink.is_some() {
            return Err(Error::invalid_argument(format!(
                "{format}: a sink was given, expected none: the format exports capsules"
            )));
        }
        export::begin(&self.memory, interface, schema, options)
    }
}
