//! Plugin that imports and exports DLPack tensors, legacy and versioned.
//!
//! Each column is one tensor. The tensor has several dimensions if the rows of the column are
//! fixed-size lists or `arrow.fixed_shape_tensor`, and one dimension otherwise. The import copies
//! nothing if the elements are contiguous in an order of dimensions that the extension type can
//! express. Otherwise, it gathers the elements. The tensors of a batch have the order of the
//! schema. With `nulls=mask`, each tensor is followed by a boolean tensor that is true where a row
//! is null.
//!
//! Numbers that Arrow has no type for, such as bfloat16, have the extension type
//! `crossdock.number`.
//!
//! DLPack has no events. An imported tensor must be ready on the call's stream. An exported tensor
//! is ready as soon as the pending work of the call's stream has run.

mod arrow_buffers;
mod column;
mod element;
mod export;
mod import;
mod managed_tensor;
mod options;
mod staging;
mod strides;
mod tensor;

use crossdock_memory::Memory;
use crossdock_plugin_api::{
    BatchStream, BatchWriter, Call, ColumnPlan, Device, Error, Exporter, Format, Host, Importer, Input,
    Options, Plugin, ReadRequest, Result, Sink, abi,
};
use options::{ExportOptions, ImportOptions};

/// The DLPack plugin.
pub struct DlPack {
    memory: Memory,
    import_formats: Vec<Format>,
    export_formats: Vec<Format>,
}

impl Plugin for DlPack {
    fn create(host: Host) -> Result<Self> {
        let memory = Memory::from_host(&host)?.with_host_kernels()?;
        Ok(Self {
            memory,
            import_formats: options::import_formats(),
            export_formats: options::export_formats(),
        })
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
        &self.import_formats
    }

    fn open(&self, call: &Call<'_>, input: Input, request: &ReadRequest<'_>) -> Result<Box<dyn BatchStream>> {
        let ReadRequest { format, schema, options, .. } = *request;
        let import_options = ImportOptions::new(format, options)?;
        let Input::Capsules(capsules) = input else {
            return Err(Error::invalid_argument(format!("{format}: the input is bytes, expected capsules")));
        };
        import::open(&self.memory, call, import_options, capsules, schema)
    }
}

impl Exporter for DlPack {
    fn formats(&self) -> &[Format] {
        &self.export_formats
    }

    fn plan(
        &self,
        call: &Call<'_>,
        format: &str,
        schema: &abi::ArrowSchema,
        from: Device,
        options: &Options,
    ) -> Result<Vec<ColumnPlan>> {
        let export_options = ExportOptions::new(format, options)?;
        export::plan(export_options, call, schema, from)
    }

    fn begin(
        &self,
        _call: &Call<'_>,
        format: &str,
        schema: &abi::ArrowSchema,
        options: &Options,
        sink: Option<Sink>,
    ) -> Result<Box<dyn BatchWriter>> {
        let export_options = ExportOptions::new(format, options)?;
        if sink.is_some() {
            return Err(Error::invalid_argument(format!(
                "{format}: a sink was given, expected none: the format exports capsules"
            )));
        }
        export::begin(&self.memory, export_options, schema)
    }
}
