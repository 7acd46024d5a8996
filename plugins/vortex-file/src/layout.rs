//! Reads the tree of layouts, which says how the rows and columns are divided into segments.

use arrow_schema::{DataType, Field};
use crossdock_plugin_api::encoded::MAX_DEPTH;
use crossdock_plugin_api::{Error, Result};
use crossdock_vortex_types::PType;
use crossdock_vortex_types::flatbuffer::{Flatbuffer, Table};
use crossdock_vortex_types::protobuf::fields;

use crate::zone_stats::ZoneTable;

/// A part of the file with a type and a number of rows.
#[derive(Debug, PartialEq)]
pub struct Layout {
    /// The number of rows.
    pub rows: u64,
    /// How the rows are stored.
    pub kind: Kind,
    /// Statistics of the rows.
    pub zones: Option<Box<Zones>>,
}

/// Statistics of the zones of a layout.
#[derive(Debug, PartialEq)]
pub struct Zones {
    /// What the table contains.
    pub table: ZoneTable,
    /// The layout of the table.
    pub layout: Layout,
}

/// How the rows of a layout are stored.
#[derive(Debug, PartialEq)]
pub enum Kind {
    /// An encoded array in one segment.
    Flat {
        /// The index of the segment.
        segment: u32,
        /// The flatbuffer of the array if the segment does not contain it.
        array: Option<Vec<u8>>,
    },
    /// Layouts of the same type, one after the other.
    Chunked(Vec<Layout>),
    /// One layout for each field.
    Struct {
        /// Booleans, which state which rows are not null.
        validity: Option<Box<Layout>>,
        fields: Vec<Layout>,
    },
    /// Codes, which are indices into the values.
    Dict { values: Box<Layout>, codes: Box<Layout>, codes_ptype: PType, codes_nullable: bool },
}

/// What the layouts of a file refer to.
pub struct Context<'a> {
    /// The ids of layouts.
    pub ids: &'a [String],
    /// The number of segments.
    pub n_segments: usize,
}

/// Reads the layout of an array of type `field`.
pub fn read(bytes: &[u8], field: &Field, context: &Context<'_>) -> Result<Layout> {
    let buffer = Flatbuffer::new(bytes);
    context.layout(buffer.root()?, field, 0)
}

impl Context<'_> {
    fn layout(&self, table: Table<'_, '_>, field: &Field, depth: usize) -> Result<Layout> {
        if depth >= MAX_DEPTH {
            return Err(Error::bad_data(format!("layouts are nested more than {MAX_DEPTH} levels deep")));
        }
        let id = usize::from(table.u16(0)?);
        let id = self.ids.get(id).ok_or_else(|| {
            Error::bad_data(format!("layout number {id}, but the footer lists {} layouts", self.ids.len()))
        })?;
        self.of_kind(id, table, field, depth).map_err(|error| error.context(id))
    }

    fn of_kind(&self, id: &str, table: Table<'_, '_>, field: &Field, depth: usize) -> Result<Layout> {
        let rows = table.u64(1)?;
        let metadata = table.blob(2)?;
        let mut children = table.tables(3)?;
        let n_children = children.len();
        let mut child = |what: &str, field: &Field| {
            let table = children.next().ok_or_else(|| Error::bad_data(format!("{what} is missing")))??;
            self.layout(table, field, depth + 1).map_err(|error| error.context(what))
        };
        let expect = |n: usize| match n_children {
            actual if actual == n => Ok(()),
            actual => Err(Error::bad_data(format!("the layout has {actual} children, expected {n}"))),
        };
        let kind = match id {
            "vortex.flat" => {
                expect(0)?;
                Kind::Flat { segment: self.only_segment(table)?, array: inline_array(metadata)? }
            }
            "vortex.chunked" => {
                let chunks = (0..n_children).map(|i| child(&format!("chunk {i}"), field));
                Kind::Chunked(chunks.collect::<Result<_>>()?)
            }
            "vortex.struct" => {
                let DataType::Struct(fields) = field.data_type() else {
                    return Err(Error::bad_data(format!(
                        "the type is {}, expected a struct",
                        crossdock_arrays::type_name(field.data_type())
                    )));
                };
                expect(fields.len() + usize::from(field.is_nullable()))?;
                let validity = field
                    .is_nullable()
                    .then(|| child("the validity", &Field::new("", DataType::Boolean, false)).map(Box::new));
                let validity = validity.transpose()?;
                let fields = fields.iter().map(|field| child(&format!("field '{}'", field.name()), field));
                Kind::Struct { validity, fields: fields.collect::<Result<_>>()? }
            }
            "vortex.dict" => {
                expect(2)?;
                let (codes_ptype, nullable) = codes_type(metadata)?;
                let codes_nullable = nullable.unwrap_or(field.is_nullable());
                let values = Box::new(child("the values", field)?);
                let codes = Field::new("", codes_ptype.arrow(), codes_nullable);
                let codes = Box::new(child("the codes", &codes)?);
                Kind::Dict { values, codes, codes_ptype, codes_nullable }
            }
            // The second child contains statistics of the rows.
            "vortex.zoned" | "vortex.stats" => {
                expect(2)?;
                let mut data = child("the data", field)?;
                check_rows("the data", data.rows, rows)?;
                let table = match id {
                    "vortex.zoned" => ZoneTable::read(metadata, field)?,
                    _ => ZoneTable::read_legacy(metadata, field),
                };
                if let Some(table) = table {
                    let layout = child("the zones", &table.field)?;
                    check_rows("the zones", layout.rows, rows.div_ceil(table.zone_rows))?;
                    data.zones = Some(Box::new(Zones { table, layout }));
                }
                return Ok(data);
            }
            other => {
                return Err(Error::unsupported(format!(
                    "the layout '{other}', expected vortex.flat, vortex.chunked, vortex.struct, vortex.dict, \
                     vortex.zoned or vortex.stats"
                )));
            }
        };
        let layout = Layout { rows, kind, zones: None };
        layout.check_children()?;
        Ok(layout)
    }

    /// The segment of a layout that has exactly one.
    fn only_segment(&self, table: Table<'_, '_>) -> Result<u32> {
        let [segment] = *table.structs::<4>(4)? else {
            return Err(Error::bad_data("the layout has no segment or several, expected one"));
        };
        let segment = u32::from_le_bytes(segment);
        if segment as usize >= self.n_segments {
            return Err(Error::bad_data(format!(
                "segment {segment}, but the footer lists {} segments",
                self.n_segments
            )));
        }
        Ok(segment)
    }
}

impl Layout {
    /// Compares the number of rows with those of the children.
    fn check_children(&self) -> Result<()> {
        match &self.kind {
            Kind::Flat { .. } => Ok(()),
            Kind::Chunked(chunks) => {
                let rows = chunks.iter().try_fold(0u64, |sum, chunk| sum.checked_add(chunk.rows));
                let rows = rows.ok_or_else(|| Error::bad_data("the number of rows overflows"))?;
                check_rows("the chunks", rows, self.rows)
            }
            Kind::Struct { validity, fields } => {
                let all = validity.as_deref().into_iter().chain(fields);
                all.into_iter().try_for_each(|field| check_rows("a field", field.rows, self.rows))
            }
            Kind::Dict { codes, .. } => check_rows("the codes", codes.rows, self.rows),
        }
    }

    /// Calls `f` with the first row of each chunk except the first, in all chunked layouts of which
    /// rows are chosen. `first` is the first row of the layout.
    pub fn for_each_boundary(&self, first: u64, f: &mut dyn FnMut(u64)) {
        match &self.kind {
            Kind::Flat { .. } => {}
            Kind::Chunked(chunks) => {
                let mut at = first;
                for chunk in chunks {
                    if at > first {
                        f(at);
                    }
                    chunk.for_each_boundary(at, f);
                    at += chunk.rows;
                }
            }
            Kind::Struct { fields, .. } => fields.iter().for_each(|field| field.for_each_boundary(first, f)),
            Kind::Dict { codes, .. } => codes.for_each_boundary(first, f),
        }
    }
}

fn check_rows(what: &str, actual: u64, expected: u64) -> Result<()> {
    if actual == expected {
        return Ok(());
    }
    Err(Error::bad_data(format!("{what} has {actual} rows, but the layout has {expected}")))
}

/// The flatbuffer of a flat layout's array, from its metadata.
fn inline_array(metadata: &[u8]) -> Result<Option<Vec<u8>>> {
    let mut array = None;
    for field in fields(metadata) {
        if let (1, value) = field? {
            array = Some(value.bytes()?.to_vec());
        }
    }
    Ok(array)
}

/// The type of a dictionary's codes and, if the metadata states it, whether they are nullable.
fn codes_type(metadata: &[u8]) -> Result<(PType, Option<bool>)> {
    let (mut ptype, mut nullable) = (PType::U8, None);
    for field in fields(metadata) {
        match field? {
            (1, value) => ptype = PType::from_wire(value.u64()?)?.int("codes")?,
            (2, value) => nullable = Some(value.bool()?),
            _ => {}
        }
    }
    Ok((ptype, nullable))
}
