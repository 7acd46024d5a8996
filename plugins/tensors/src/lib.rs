//! Plugin that reads and writes files of tensors on every device: safetensors, and NumPy's npy and
//! npz.
//!
//! Each tensor is one column. Its first dimension is the rows, and the other dimensions become
//! `arrow.fixed_shape_tensor`. On the CPU, the bytes of a mapped file are used without a copy. On a
//! device, the host's loader moves the needed rows from the file to the device. Only compressed
//! bytes, big-endian numbers and strings are converted on the host.
//!
//! - `safetensors`, `npy`, `numpy`, `zip`: the structure of files; `tensor`: the tensors of a file.
//! - `element`, `shape`, `field`: types and shapes, in the formats and in Arrow.
//! - `reader`, `batches`, `target`, `load`, `convert`, `jobs`, `text`, `days`: read rows.
//! - `writer`, `encode`, `output`: write tables.

mod batches;
mod convert;
mod crc;
mod days;
mod element;
mod encode;
mod field;
mod jobs;
mod load;
mod npy;
#[cfg(test)]
mod npy_tests;
mod numpy;
#[cfg(test)]
mod numpy_tests;
mod reader;
mod safetensors;
#[cfg(test)]
mod safetensors_tests;
mod shape;
mod target;
mod tensor;
#[cfg(test)]
mod test_source;
mod text;
mod writer;
mod zip;

use std::sync::Arc;

use arrow_schema::Schema;
use crossdock_arrays::import_schema_ref;
use crossdock_memory::{Loader, Memory, StoredSource};
use crossdock_plugin_api::{
    BatchStream, BatchWriter, Call, ColumnPlan, Device, Error, Exporter, Format, Host, Importer, Input,
    Options, Plugin, ReadRequest, Result, Sink, Source, Tasks, abi,
};

use reader::{Context, Reader};
use tensor::File;
use writer::{Target, Writer};
use zip::Compression;

/// The name of the format safetensors.
pub const SAFETENSORS: &str = "safetensors";
/// The name of the format npy: one array of NumPy.
pub const NPY: &str = "npy";
/// The name of the format npz: arrays of NumPy in a zip archive.
pub const NPZ: &str = "npz";

const TENSOR: &str = "tensor";
const NAME: &str = "name";
const CRC: &str = "crc";
const COMPRESSION: &str = "compression";

/// The name of the column of an npy file.
const DEFAULT_NAME: &str = "values";

/// The plugin for files of tensors: an importer and an exporter.
pub struct Tensors {
    context: Context,
    import_formats: [Format; 3],
    export_formats: [Format; 3],
}

impl Plugin for Tensors {
    fn create(host: Host) -> Result<Self> {
        let context = Context {
            memory: Memory::from_host(&host)?.with_host_kernels()?,
            loader: Loader::from_host(&host)?,
            tasks: Tasks::from_host(&host)?,
            host,
        };
        let [safetensors, npy, npz] = formats();
        let tensor =
            "name of the only tensor to read [default: all tensors, which must have the same number of rows]";
        Ok(Self {
            context,
            import_formats: [
                safetensors.with_option(TENSOR, tensor),
                npy.with_option(NAME, "name of the column [default: values]"),
                npz.with_option(TENSOR, tensor).with_option(
                    CRC,
                    "checksums of members without compression: check (the default; reads them once more if all rows \
                     are read) or skip",
                ),
            ],
            export_formats: {
                let [safetensors, npy, npz] = formats();
                let compression = "compression of each array: none (the default) or deflate";
                [safetensors, npy, npz.with_option(COMPRESSION, compression)]
            },
        })
    }

    fn importer(&self) -> Option<&dyn Importer> {
        Some(self)
    }

    fn exporter(&self) -> Option<&dyn Exporter> {
        Some(self)
    }
}

fn formats() -> [Format; 3] {
    let format = |name: &str, magics: &[(i64, &[u8])], description: &str| Format {
        bytes: true,
        magics: magics.iter().map(|(offset, magic)| (*offset, magic.to_vec())).collect(),
        extensions: vec![format!(".{name}")],
        ..Format::new(name, description)
    };
    let archives = zip::MAGICS.map(|magic| (0, magic));
    [
        format(
            SAFETENSORS,
            &safetensors::MAGICS,
            "safetensors: numbers and booleans without nulls, one tensor per column",
        ),
        format(NPY, &[(0, npy::MAGIC)], "NumPy array: one column of values of fixed width without nulls"),
        format(
            NPZ,
            &archives,
            "NumPy arrays in a zip archive: columns of values of fixed width without nulls",
        ),
    ]
}

impl Importer for Tensors {
    fn formats(&self) -> &[Format] {
        &self.import_formats
    }

    fn open(&self, call: &Call<'_>, input: Input, request: &ReadRequest<'_>) -> Result<Box<dyn BatchStream>> {
        call.check_cancelled()?;
        let Input::Source(source) = input else {
            return Err(Error::invalid_argument(format!(
                "{}: the input is capsules, expected bytes",
                request.format
            )));
        };
        let name = source.name().to_owned();
        let reader = self.open_source(call, source, &name, request);
        Ok(Box::new(reader.map_err(|error| error.context(format_args!("'{name}'")))?))
    }
}

impl Tensors {
    fn open_source(
        &self,
        call: &Call<'_>,
        source: Source,
        name: &str,
        request: &ReadRequest<'_>,
    ) -> Result<Reader> {
        let ReadRequest { format, options, .. } = *request;
        let checks_crc = match options.get(CRC) {
            None | Some("check") => true,
            Some("skip") => false,
            Some(other) => {
                return Err(Error::invalid_argument(format!("option {CRC}={other}: expected check or skip")));
            }
        };
        let source = StoredSource::new(source).map_err(|_| {
            Error::unsupported(format!(
                "{format} is read at several positions, but the input is a pipe: store it in a file first"
            ))
        })?;
        let mut file = read_structure(call, &source, request)?;
        if let Some(tensor) = options.get(TENSOR) {
            file.restrict(tensor)?;
        }
        Reader::open(&self.context, name, source, &file, request, checks_crc)
    }
}

fn read_structure(call: &Call<'_>, source: &StoredSource, request: &ReadRequest<'_>) -> Result<File> {
    match request.format {
        SAFETENSORS => safetensors::read(source),
        NPY => numpy::read_npy(source, request.options.get(NAME).unwrap_or(DEFAULT_NAME)),
        NPZ => numpy::read_npz(call, source),
        other => Err(unknown(other)),
    }
}

fn unknown(format: &str) -> Error {
    Error::invalid_argument(format!("unknown format '{format}', expected {SAFETENSORS}, {NPY} or {NPZ}"))
}

fn target(format: &str, options: &Options) -> Result<Target> {
    match format {
        SAFETENSORS => Ok(Target::SafeTensors),
        NPY => Ok(Target::Npy),
        NPZ => match options.get(COMPRESSION) {
            None | Some("none") => Ok(Target::Npz(Compression::None)),
            Some("deflate") => Ok(Target::Npz(Compression::Deflate)),
            Some(other) => Err(Error::invalid_argument(format!(
                "unknown compression '{other}', expected none or deflate"
            ))),
        },
        other => Err(unknown(other)),
    }
}

impl Exporter for Tensors {
    fn formats(&self) -> &[Format] {
        &self.export_formats
    }

    fn plan(
        &self,
        _: &Call<'_>,
        format: &str,
        schema: &abi::ArrowSchema,
        from: Device,
        options: &Options,
    ) -> Result<Vec<ColumnPlan>> {
        Ok(writer::plan(target(format, options)?, &import_borrowed_schema(schema)?, from))
    }

    fn begin(
        &self,
        _: &Call<'_>,
        format: &str,
        schema: &abi::ArrowSchema,
        options: &Options,
        sink: Option<Sink>,
    ) -> Result<Box<dyn BatchWriter>> {
        let target = target(format, options)?;
        let sink = sink.ok_or_else(|| Error::invalid_argument(format!("{format} needs a sink, got none")))?;
        let schema = Arc::new(import_borrowed_schema(schema)?);
        let Context { host, memory, .. } = &self.context;
        Ok(Box::new(Writer::begin(target, schema, sink, host, memory)?))
    }
}

fn import_borrowed_schema(schema: &abi::ArrowSchema) -> Result<Schema> {
    // SAFETY: the plugin boundary requires the caller to pass a valid ArrowSchema that lives until
    // the call returns.
    unsafe { import_schema_ref(schema) }
}
