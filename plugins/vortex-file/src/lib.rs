//! Plugin that reads Vortex files on every device.
//!
//! The host reads the footer and the layouts. The segments are loaded to the device while they are
//! still encoded, and decoded there by the session's encodings, including those of other plugins.
//! A file stores the types of its columns only, so the plugin of each encoding derives the types of
//! the nodes below them.
//!
//! - `footer`, `layout`: the metadata of a file.
//! - `segments`: loads data; `tree`: builds encoded arrays from it.
//! - `zone_stats`, `zones`: find the rows that can fulfil predicates.
//! - `fragments`: divides a file into fragments.
//! - `batches`: divides the rows; `reader`: loads each batch; `columns`: decodes the columns.

mod batches;
mod columns;
mod context;
mod footer;
mod fragments;
mod layout;
mod metadata;
mod place;
mod reader;
mod segments;
mod tree;
mod zone_stats;
mod zones;

use crossdock_memory::{Loader, Memory};
use crossdock_plugin_api::{
    BatchStream, Call, Format, Fragment, Host, Importer, Input, Plugin, ReadRequest, Result, Tasks,
};

use context::Context;
use reader::Reader;

/// The name of the format.
pub const FORMAT: &str = "vortex";

/// The Vortex file plugin: an importer.
pub struct VortexFile {
    context: Context,
    formats: [Format; 1],
}

impl Plugin for VortexFile {
    fn create(host: Host) -> Result<Self> {
        let context = Context {
            memory: Memory::from_host(&host)?.with_host_kernels()?,
            loader: Loader::from_host(&host)?,
            tasks: Tasks::from_host(&host)?,
            host,
        };
        let magic = footer::MAGIC.to_vec();
        let format = Format {
            bytes: true,
            filters: true,
            magics: vec![(0, magic.clone()), (-4, magic)],
            extensions: vec![".vortex".into()],
            ..Format::new(FORMAT, "Vortex file: a table of encoded columns, read to any device")
        };
        Ok(Self { context, formats: [format] })
    }

    fn importer(&self) -> Option<&dyn Importer> {
        Some(self)
    }
}

impl Importer for VortexFile {
    fn formats(&self) -> &[Format] {
        &self.formats
    }

    fn open(&self, call: &Call<'_>, input: Input, request: &ReadRequest<'_>) -> Result<Box<dyn BatchStream>> {
        call.check_cancelled()?;
        Ok(Box::new(Reader::open(&self.context, call, input, request)?))
    }

    fn has_fragments(&self) -> bool {
        true
    }

    fn fragments(&self, call: &Call<'_>, input: Input, request: &ReadRequest<'_>) -> Result<Vec<Fragment>> {
        call.check_cancelled()?;
        Reader::open(&self.context, call, input, request)?.fragments()
    }
}
