//! What a scan reads.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use arrow_schema::SchemaRef;
use crossdock_plugin_api::Options;

use crate::error::{Error, Result};
use crate::plugin::Plugin;
use crate::read_options::ReadOptions;
use crate::reader::Reader;
use crate::source::Input;
use crate::writer::schema_difference;

/// The inputs of a scan.
#[derive(Clone)]
pub enum ScanSource {
    /// Files of one schema: paths, or URIs that a plugin opens (see
    /// [`Session::open_input`](crate::Session::open_input)). They are read one after another, or
    /// all at once if the format of the first file is read from several inputs.
    Files(Vec<PathBuf>),
    /// An input that is already open.
    Input(Input),
}

/// Options of [`Session::scan`](crate::Session::scan).
#[derive(Clone)]
pub struct ScanOptions {
    /// How each input is read. `rows` and `limit` apply to the rows of all inputs together.
    pub read: ReadOptions,
    /// The schema of the result. The inputs may have other columns, and numbers of other types if
    /// no value changes. `None`: all inputs must have the schema of the first input.
    pub schema: Option<SchemaRef>,
    /// The number of batches that a thread reads ahead; 0 for no thread.
    pub prefetch: usize,
    /// Whether files may be mapped.
    pub map: bool,
    /// The options of the plugin that opens URIs, for example credentials. If there are any, all
    /// files must be URIs.
    pub storage: Options,
}

impl Default for ScanOptions {
    fn default() -> Self {
        Self { read: ReadOptions::default(), schema: None, prefetch: 2, map: true, storage: Options::new() }
    }
}

/// A scan's inputs, options and schema.
pub(crate) struct Description {
    pub source: ScanSource,
    pub options: ScanOptions,
    pub schema: SchemaRef,
    /// The plugin that reads the first input, and the name of the format.
    pub reader: (Arc<Plugin>, String),
    /// Options with which a writer stores data as the first input does.
    pub write_options: Options,
    pub n_rows: Option<u64>,
    /// Whether all files are read at once.
    pub several: bool,
    /// The versions of the inputs that were opened to read the schema, in order.
    pub versions: Vec<String>,
    /// The reader of an input that can be read only once, until it is used.
    pub once: Option<Mutex<Option<Reader>>>,
}

impl Description {
    /// Compares the schema of the input `name` with that of the first input, unless the inputs may
    /// have other schemas.
    pub fn check_schema(&self, name: &str, schema: &SchemaRef) -> Result<()> {
        if self.options.schema.is_some() {
            return Ok(());
        }
        match schema_difference(&self.schema, schema) {
            None => Ok(()),
            Some(difference) => Err(Error::usage(format!(
                "'{name}' does not have the schema of the scan's first input: {difference}"
            ))),
        }
    }
}
