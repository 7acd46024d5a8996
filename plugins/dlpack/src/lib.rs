//! DLPack as a Crossdock plugin: tensors of both kinds, legacy and versioned, both ways.
//!
//! A column is a tensor: of one dimension, or, where its rows are fixed-size lists or `arrow.fixed_shape_tensor`, of
//! several. Zero-copy where the elements lie as Arrow has them, in any order of a row's dimensions that the extension type
//! can tell; gathered where not. The tensors of a batch are one after the other, in the schema's order; with `nulls=mask`
//! each is followed by one of booleans, true where a row is null.
//!
//! DLPack has no events: a tensor that is read is ready on the call's stream, and one that is written is ready when that
//! stream has run.

mod column;
mod element;
mod elements;
mod export;
mod import;
mod making;
mod options;
mod produce;
mod strides;
mod tensor;

use crossdock_memory::Memory;
use crossdock_plugin_api::{
    BatchStream, BatchWriter, Call, ColumnPlan, Device, Error, Exporter, Format, Host, Importer, Input,
    Options, Plugin, Result, Sink, abi,
};
use options::{Reading, Writing};

/// The plugin.
pub struct DlPack {
    memory: Memory,
    imported: Vec<Format>,
    exported: Vec<Format>,
}

impl Plugin for DlPack {
    fn create(host: Host) -> Result<Self> {
        let memory = Memory::from_host(&host)?.with_host_kernels()?;
        Ok(Self { memory, imported: options::imported(), exported: options::exported() })
    }

    fn importer(&self) -> Option<&dyn Importer> {
        Some(self)
    }

    fn exporter(&self) -> Option<&dyn Exporter> {
        Some(self)
    }
}

impl Importer for DlPack {
    fn formats(&self) -> &[Format] {
        &self.imported
    }

    fn open(
        &self,
        call: &Call<'_>,
        format: &str,
        input: Input,
        schema: Option<&abi::ArrowSchema>,
        options: &Options,
    ) -> Result<Box<dyn BatchStream>> {
        let reading = Reading::new(format, options)?;
        let Input::Capsules(capsules) = input else {
            return Err(Error::invalid_argument(format!("{format}: bytes were given, expected capsules")));
        };
        import::open(&self.memory, call, reading, capsules, schema)
    }
}

impl Exporter for DlPack {
    fn formats(&self) -> &[Format] {
        &self.exported
    }

    fn plan(
        &self,
        call: &Call<'_>,
        format: &str,
        schema: &abi::ArrowSchema,
        from: Device,
        options: &Options,
    ) -> Result<Vec<ColumnPlan>> {
        let writing = Writing::new(format, options)?;
        export::plan(writing, call, schema, from)
    }

    fn begin(
        &self,
        _call: &Call<'_>,
        format: &str,
        schema: &abi::ArrowSchema,
        options: &Options,
        sink: Option<Sink>,
    ) -> Result<Box<dyn BatchWriter>> {
        let writing = Writing::new(format, options)?;
        if sink.is_some() {
            return Err(Error::invalid_argument(format!(
                "{format}: a sink was given, but the format gives capsules"
            )));
        }
        export::begin(&self.memory, writing, schema)
    }
}
