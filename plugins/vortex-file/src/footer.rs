//! Reads the end of a Vortex file: the postscript, the type, the layouts and the list of segments.
//!
//! The file ends with the version (2 bytes), the length of the postscript (2 bytes) and the magic
//! bytes `VTXF`. The postscript is a flatbuffer with the places of the type, the layout, the
//! statistics and the footer, which are flatbuffers too.

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use crossdock_memory::{Result, StoredSource};
use crossdock_plugin_api::Error;
use crossdock_vortex_types::dtype;
use crossdock_vortex_types::flatbuffer::Flatbuffer;

use crate::layout::{self, Layout};
use crate::metadata;
use crate::place::Place;

/// The bytes at the beginning and at the end of a file.
pub const MAGIC: &[u8; 4] = b"VTXF";
/// The version of the file format.
const VERSION: u16 = 1;
/// The version, the length of the postscript, and the magic bytes.
const END_BYTES: usize = 8;

/// The metadata of a file.
pub struct Footer {
    /// The schema of the table.
    pub schema: SchemaRef,
    /// Whether the fields of the root are the columns of the table. Otherwise, the table has one
    /// column without a name, which contains the root.
    pub is_table: bool,
    /// The layout of the root.
    pub root: Layout,
    /// The type of the root.
    pub field: Field,
    /// The ids of encodings. Nodes of arrays refer to them by index.
    pub encodings: Vec<String>,
    /// The segments, which contain the data of the file.
    pub segments: Vec<Segment>,
}

/// A segment of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The offset of the first byte in the file.
    pub offset: u64,
    /// The number of bytes.
    pub bytes: u32,
}

impl Segment {
    /// The offset of the first byte after the segment.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(u64::from(self.bytes))
    }
}

impl Footer {
    /// Reads the metadata of a file. Calls `warn` if metadata of the user are left out.
    pub fn read(file: &StoredSource, warn: &mut dyn FnMut(&str)) -> Result<Self> {
        let len = file.len();
        if len < END_BYTES as u64 {
            return Err(Error::bad_data(format!(
                "the file has {len} bytes, expected at least {END_BYTES}: it is not a Vortex file, or it is truncated"
            )));
        }
        let mut end = [0; END_BYTES];
        file.read_unmapped(len - END_BYTES as u64, &mut end)?;
        let [v0, v1, p0, p1, magic @ ..] = end;
        if magic != *MAGIC {
            return Err(Error::bad_data(format!(
                "the file ends with the bytes {magic:?}, expected {MAGIC:?} ('VTXF'): it is not a Vortex file, or it \
                 is truncated"
            )));
        }
        let version = u16::from_le_bytes([v0, v1]);
        if version != VERSION {
            return Err(Error::unsupported(format!(
                "the version of the file format is {version}, expected {VERSION}"
            )));
        }
        let bytes = u64::from(u16::from_le_bytes([p0, p1]));
        let Some(start) = (len - END_BYTES as u64).checked_sub(bytes) else {
            return Err(Error::bad_data(format!(
                "the postscript has {bytes} bytes, but the file has only {len}"
            )));
        };
        file.with(start, bytes as usize, |bytes| {
            Self::from_postscript(file, bytes, warn).map_err(|error| error.context("the postscript"))
        })
    }

    fn from_postscript(file: &StoredSource, postscript: &[u8], warn: &mut dyn FnMut(&str)) -> Result<Self> {
        let postscript = Flatbuffer::new(postscript);
        let root = postscript.root()?;
        let place = |n: usize, what: &str| {
            Place::read(root.table(n, what)?, file).map_err(|error| error.context(what))
        };
        if !root.has(0)? {
            return Err(Error::unsupported(
                "the file does not contain its type: write it without the option that excludes the type",
            ));
        }
        let field = place(0, "the type")?.with(file, dtype::read)?;
        let (schema, is_table) = match field.data_type() {
            DataType::Struct(fields) if !field.is_nullable() => (Schema::new(fields.clone()), true),
            _ => (Schema::new(vec![field.clone()]), false),
        };
        let metadata = metadata::read(root, 4, file, warn).map_err(|error| error.context("the metadata"))?;
        let schema = schema.with_metadata(metadata);
        let footer = place(3, "the footer")?;
        let specs = footer.with(file, |bytes| {
            Specs::read(bytes, file.len()).map_err(|error| error.context("the footer"))
        })?;
        let layout = place(1, "the layout")?.with(file, |bytes| {
            let layouts = layout::Context { ids: &specs.layouts, n_segments: specs.segments.len() };
            layout::read(bytes, &field, &layouts).map_err(|error| error.context("the layout"))
        })?;
        let Specs { encodings, segments, .. } = specs;
        Ok(Self { schema: schema.into(), is_table, root: layout, field, encodings, segments })
    }
}

/// The lists of the footer.
struct Specs {
    encodings: Vec<String>,
    layouts: Vec<String>,
    segments: Vec<Segment>,
}

impl Specs {
    fn read(bytes: &[u8], file_bytes: u64) -> Result<Self> {
        let footer = Flatbuffer::new(bytes);
        let root = footer.root()?;
        let ids = |n: usize| {
            let tables = root.tables(n)?;
            tables.map(|table| Ok(table?.text(0)?.to_owned())).collect::<Result<Vec<_>>>()
        };
        let segment = |(i, raw): (usize, &[u8; 16])| {
            let [offset @ .., b0, b1, b2, b3, _, compression, e0, e1] = *raw;
            let segment =
                Segment { offset: u64::from_le_bytes(offset), bytes: u32::from_le_bytes([b0, b1, b2, b3]) };
            if (compression, e0, e1) != (0, 0, 0) {
                return Err(Error::unsupported(format!("segment {i} is compressed or encrypted")));
            }
            if segment.end() > file_bytes {
                return Err(Error::bad_data(format!(
                    "segment {i} is at the bytes {} to {}, but the file has {file_bytes} bytes",
                    segment.offset,
                    segment.end()
                )));
            }
            Ok(segment)
        };
        let segments = root.structs::<16>(2)?.iter().enumerate().map(segment).collect::<Result<_>>()?;
        Ok(Self { encodings: ids(0)?, layouts: ids(1)?, segments })
    }
}
