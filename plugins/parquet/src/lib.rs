//! A plugin that reads and writes Parquet files with the crate `parquet`.
//!
//! The crate decodes columns. This plugin decides what to decode, on which thread, and in how many
//! rows at a time:
//!
//! - `bytes`: reads ranges of a file; `thrift`: reads metadata that the crate does not check.
//! - `footer`, `page_index`, `pages`: the metadata of a file, of column chunks and of pages.
//! - `columns`: finds the column chunks of columns and nested fields.
//! - `prune`: finds the rows that can fulfil predicates; `rows`: ranges of rows.
//! - `plan`: divides the rows into parts and batches; `fragments`: names row groups.
//! - `lane`: decodes a column of a part; `running`: decodes the columns on the session's threads.
//! - `reader`: the stream of batches.

mod bytes;
mod columns;
mod error;
mod footer;
mod fragments;
mod lane;
mod page_index;
mod pages;
mod plan;
mod prune;
mod reader;
mod rows;
mod running;
mod settings;
mod thrift;

use crossdock_memory::Memory;
use crossdock_plugin_api::{
    BatchStream, Call, Format, Fragment, Host, Importer, Input, Plugin, ReadRequest, Result, Tasks,
    crossdock_plugin,
};

use reader::{Context, Reader};

/// The name of the format.
pub const FORMAT: &str = "parquet";

crossdock_plugin!(
    Parquet,
    name: "parquet",
    description: "reads and writes Parquet files",
    interfaces: "crossdock.importer/1",
    formats: "parquet",
    requires: "crossdock.host.memory/1 crossdock.host.kernels/1 crossdock.host.tasks/1",
);

/// An instance of the plugin.
pub struct Parquet {
    context: Context,
    formats: [Format; 1],
}

impl Plugin for Parquet {
    fn create(host: Host) -> Result<Self> {
        let context = Context {
            memory: Memory::from_host(&host)?.with_host_kernels()?,
            tasks: Tasks::from_host(&host)?,
            host,
        };
        let magic = footer::MAGIC.to_vec();
        let format = Format {
            bytes: true,
            filters: true,
            magics: vec![(0, magic)],
            extensions: vec![".parquet".into()],
            ..Format::new(FORMAT, "Parquet file: a table of compressed columns")
        };
        Ok(Self { context, formats: [format] })
    }

    fn importer(&self) -> Option<&dyn Importer> {
        Some(self)
    }
}

impl Importer for Parquet {
    fn formats(&self) -> &[Format] {
        &self.formats
    }

    fn open(&self, call: &Call<'_>, input: Input, request: &ReadRequest<'_>) -> Result<Box<dyn BatchStream>> {
        Ok(Box::new(Reader::open(&self.context, call, input, request)?))
    }

    fn has_fragments(&self) -> bool {
        true
    }

    fn fragments(&self, call: &Call<'_>, input: Input, request: &ReadRequest<'_>) -> Result<Vec<Fragment>> {
        Reader::open(&self.context, call, input, request)?.fragments()
    }
}
