//! Builds encoded arrays from layouts and their segments.

use std::ops::Range;

use arrow_schema::{DataType, Field};
use crossdock_arrays::export_field;
use crossdock_memory::{Buffer, Device, Memory, Result};
use crossdock_plugin_api::encoded::{MAX_DEPTH, MAX_NODES};
use crossdock_plugin_api::{EncodedArray, EncodedBuffers, Error, Host, LogicalType, NodeParts, Owned, abi};
use crossdock_vortex_types::flatbuffer::{Flatbuffer, Table};
use crossdock_vortex_types::protobuf::message;

use crate::layout::{Kind, Layout};
use crate::segments::Segments;

/// The rows of a layout that an array of the layout contains if `rows` are needed. They are
/// those of whole segments.
pub fn covering(layout: &Layout, rows: &Range<u64>) -> Range<u64> {
    match &layout.kind {
        Kind::Flat { .. } | Kind::Struct { .. } => 0..layout.rows,
        Kind::Dict { codes, .. } => covering(codes, rows),
        Kind::Chunked(chunks) => {
            let needed = chunks_of(chunks, rows);
            match (needed.first(), needed.last()) {
                (Some((begin, only)), Some(_)) if needed.len() == 1 => {
                    let within = covering(only, &(rows.start.saturating_sub(*begin)..rows.end - begin));
                    begin + within.start..begin + within.end
                }
                (Some((begin, _)), Some((last, chunk))) => *begin..last + chunk.rows,
                _ => 0..0,
            }
        }
    }
}

/// The chunks that contain rows of a range, each with its first row.
fn chunks_of<'a>(chunks: &'a [Layout], rows: &Range<u64>) -> Vec<(u64, &'a Layout)> {
    let mut end = 0;
    let with_begin = chunks.iter().map(|chunk| {
        end += chunk.rows;
        (end - chunk.rows, chunk)
    });
    let is_needed = |(begin, chunk): &(u64, &Layout)| *begin < rows.end && begin + chunk.rows > rows.start;
    with_begin.filter(is_needed).collect()
}

/// Calls `f` with each segment that the array of these rows needs.
pub fn for_each_segment(layout: &Layout, rows: &Range<u64>, f: &mut dyn FnMut(u32)) {
    match &layout.kind {
        Kind::Flat { segment, .. } => f(*segment),
        Kind::Struct { validity, fields } => {
            validity.as_deref().into_iter().chain(fields).for_each(|field| for_each_segment(field, rows, f));
        }
        Kind::Dict { values, codes, .. } => {
            for_each_segment(values, &(0..values.rows), f);
            for_each_segment(codes, rows, f);
        }
        Kind::Chunked(chunks) => {
            for (begin, chunk) in chunks_of(chunks, rows) {
                let within = rows.start.saturating_sub(begin)..(rows.end - begin).min(chunk.rows);
                for_each_segment(chunk, &within, f);
            }
        }
    }
}

/// Builds an encoded array from the root to the leaves.
pub struct Builder<'a> {
    host: &'a Host,
    memory: &'a Memory,
    encodings: &'a [String],
    segments: &'a Segments,
    nodes: Vec<NodeParts>,
    buffers: EncodedBuffers,
}

/// A segment whose flatbuffer is read.
struct Data<'a> {
    segment: u32,
    block: &'a Buffer,
    /// The offset and the length of each buffer in the segment.
    buffers: Vec<(usize, usize)>,
}

impl<'a> Builder<'a> {
    pub fn new(host: &'a Host, memory: &'a Memory, encodings: &'a [String], segments: &'a Segments) -> Self {
        Self { host, memory, encodings, segments, nodes: Vec::new(), buffers: Vec::new() }
    }

    /// The array of the rows `rows` of a layout. They are a result of [`covering`].
    pub fn array(mut self, layout: &Layout, field: &Field, rows: Range<u64>) -> Result<EncodedArray> {
        self.layout(layout, field, rows)?;
        EncodedArray::new(self.nodes, self.buffers)
    }

    fn layout(&mut self, layout: &Layout, field: &Field, rows: Range<u64>) -> Result<()> {
        match &layout.kind {
            Kind::Flat { segment, array } => {
                self.flat(*segment, array.as_deref(), field, layout.rows).map_err(|error| {
                    let offset = self.segments.offset(*segment);
                    error.or_offset(offset).context(format_args!("segment {segment}"))
                })
            }
            Kind::Struct { validity, fields } => {
                let DataType::Struct(types) = field.data_type() else {
                    return Err(Error::internal("the layout of a struct has another type"));
                };
                let n_children = fields.len() + usize::from(validity.is_some());
                self.node("vortex.struct", export_field(field)?, layout.rows, Vec::new(), 0, n_children)?;
                if let Some(validity) = validity {
                    self.whole(validity, &Field::new("", DataType::Boolean, false))?;
                }
                fields.iter().zip(types).try_for_each(|(layout, field)| self.whole(layout, field))
            }
            Kind::Dict { values, codes, codes_ptype, codes_nullable } => {
                let metadata = message(&[(1, values.rows), (2, *codes_ptype as u64)]);
                // The field is optional, so `false` is written too.
                let metadata = [metadata, vec![3 << 3, u8::from(*codes_nullable)]].concat();
                let len = rows.end - rows.start;
                self.node("vortex.dict", export_field(field)?, len, metadata, 0, 2)?;
                self.layout(codes, &Field::new("", codes_ptype.arrow(), *codes_nullable), rows)?;
                self.whole(values, field)
            }
            Kind::Chunked(chunks) => {
                let needed = chunks_of(chunks, &rows);
                if let [(begin, only)] = needed.as_slice() {
                    return self.layout(only, field, rows.start - begin..rows.end - begin);
                }
                let mut offsets = vec![0u64];
                for (begin, chunk) in &needed {
                    offsets.push(begin + chunk.rows - rows.start);
                }
                let len = rows.end - rows.start;
                self.node("vortex.chunked", export_field(field)?, len, Vec::new(), 0, offsets.len())?;
                self.offsets(&offsets)?;
                needed.iter().try_for_each(|(_, chunk)| self.whole(chunk, field))
            }
        }
    }

    fn whole(&mut self, layout: &Layout, field: &Field) -> Result<()> {
        self.layout(layout, field, 0..layout.rows)
    }

    fn node(
        &mut self,
        encoding: &str,
        schema: Owned<abi::ArrowSchema>,
        length: u64,
        metadata: Vec<u8>,
        n_buffers: usize,
        n_children: usize,
    ) -> Result<()> {
        if self.nodes.len() >= MAX_NODES {
            return Err(Error::bad_data(format!("an array has more than {MAX_NODES} nodes")));
        }
        self.nodes.push(NodeParts {
            encoding: encoding.to_owned(),
            logical_type: LogicalType::Schema(schema),
            length,
            metadata,
            n_buffers: u32::try_from(n_buffers).unwrap_or(u32::MAX),
            n_children: u32::try_from(n_children).unwrap_or(u32::MAX),
        });
        Ok(())
    }

    /// A node with the offsets of chunks.
    fn offsets(&mut self, offsets: &[u64]) -> Result<()> {
        let schema = export_field(&Field::new("", DataType::UInt64, false))?;
        self.node("vortex.primitive", schema, offsets.len() as u64, Vec::new(), 1, 0)?;
        let bytes: Vec<u8> = offsets.iter().flat_map(|offset| offset.to_ne_bytes()).collect();
        self.buffers.push(self.on_host(&bytes)?.to_encoded());
        Ok(())
    }

    fn on_host(&self, bytes: &[u8]) -> Result<Buffer> {
        let stream = self.memory.default_stream(Device::CPU)?;
        let fill = |to: &mut [u8]| {
            to.copy_from_slice(bytes);
            Ok(())
        };
        Ok(self.memory.alloc_with(&stream, bytes.len(), fill)?.freeze_now())
    }

    /// The nodes of a segment's array.
    fn flat(&mut self, segment: u32, array: Option<&[u8]>, field: &Field, rows: u64) -> Result<()> {
        let segments = self.segments;
        let schema = export_field(field)?;
        match array {
            Some(array) => {
                self.array_of(Flatbuffer::new(array).root()?, segment, segments.bytes(segment)?, schema, rows)
            }
            None => segments.with_array(segment, |table, data_bytes| {
                self.array_of(table, segment, data_bytes, schema, rows)
            }),
        }
    }

    fn array_of(
        &mut self,
        table: Table<'_, '_>,
        segment: u32,
        data_bytes: usize,
        schema: Owned<abi::ArrowSchema>,
        rows: u64,
    ) -> Result<()> {
        let (mut end, mut buffers) = (0usize, Vec::new());
        for raw in table.structs::<8>(1)? {
            let [p0, p1, _alignment, compression, l0, l1, l2, l3] = *raw;
            if compression != 0 {
                return Err(Error::unsupported(format!(
                    "a buffer is compressed with codec {compression}, expected 0 for none"
                )));
            }
            let at = end.saturating_add(usize::from(u16::from_le_bytes([p0, p1])));
            let bytes = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
            end = at.saturating_add(bytes);
            if end > data_bytes {
                return Err(Error::bad_data(format!(
                    "a buffer is at the bytes {at} to {end}, but the segment has {data_bytes} bytes of buffers"
                )));
            }
            buffers.push((at, bytes));
        }
        let data = Data { segment, block: self.segments.buffer(segment)?, buffers };
        self.array_node(table.table(0, "the root of the array")?, &data, schema, rows, 0)
    }

    fn array_node(
        &mut self,
        table: Table<'_, '_>,
        data: &Data<'_>,
        schema: Owned<abi::ArrowSchema>,
        rows: u64,
        depth: usize,
    ) -> Result<()> {
        if depth >= MAX_DEPTH {
            return Err(Error::bad_data(format!("an array is nested more than {MAX_DEPTH} levels deep")));
        }
        let number = usize::from(table.u16(0)?);
        let encoding = self.encodings.get(number).ok_or_else(|| {
            Error::bad_data(format!(
                "encoding number {number}, but the footer lists {} encodings",
                self.encodings.len()
            ))
        })?;
        let (children, buffers) = (table.tables(2)?, table.structs::<2>(3)?);
        self.node(encoding, schema, rows, table.blob(1)?.to_vec(), buffers.len(), children.len())?;
        for index in buffers {
            let index = usize::from(u16::from_le_bytes(*index));
            let (at, bytes) = *data.buffers.get(index).ok_or_else(|| {
                Error::bad_data(format!(
                    "{encoding}: buffer {index}, but the array has {}",
                    data.buffers.len()
                ))
            })?;
            // The value of a constant is decoded without a copy from the device if it is in host
            // memory.
            let is_constant = encoding == "vortex.constant";
            let block = if is_constant && data.block.device() != Device::CPU {
                self.segments.with_bytes(data.segment, at, bytes, |bytes| self.on_host(bytes))?
            } else {
                data.block.slice(at, bytes)?
            };
            self.buffers.push(block.to_encoded());
        }
        if children.len() == 0 {
            return Ok(());
        }
        let node = self.nodes.last().ok_or_else(|| Error::internal("the node was not added"))?;
        let types = self.host.child_types(node)?;
        // The lengths of chunks are the differences of their offsets.
        let mut lengths: Option<Vec<u64>> = None;
        for (i, (child, child_type)) in children.zip(types).enumerate() {
            let child = child?;
            let length = match (child_type.length, &lengths) {
                (Some(length), _) => length,
                (None, Some(lengths)) => length_of(lengths, i).ok_or_else(|| unknown_length(encoding, i))?,
                (None, None) => return Err(unknown_length(encoding, i)),
            };
            if i == 0 && encoding == "vortex.chunked" {
                lengths = Some(self.plain_offsets(child, data, length)?);
            }
            self.array_node(child, data, child_type.schema, length, depth + 1)?;
        }
        Ok(())
    }

    /// The values of a node of plain 64-bit integers.
    fn plain_offsets(&self, node: Table<'_, '_>, data: &Data<'_>, length: u64) -> Result<Vec<u64>> {
        let encoding = self.encodings.get(usize::from(node.u16(0)?));
        let buffer = match node.structs::<2>(3)? {
            [index] => data.buffers.get(usize::from(u16::from_le_bytes(*index))),
            _ => None,
        };
        let is_plain = encoding.is_some_and(|id| id == "vortex.primitive");
        let Some((at, bytes)) = buffer.copied().filter(|_| is_plain) else {
            return Err(Error::unsupported(format!(
                "vortex.chunked: the offsets of the chunks are encoded with '{}', expected vortex.primitive",
                encoding.map_or("an unknown encoding", String::as_str)
            )));
        };
        if Some(bytes as u64) != length.checked_mul(8) {
            return Err(Error::bad_data(format!(
                "vortex.chunked: {bytes} bytes for {length} offsets of 8 bytes"
            )));
        }
        self.segments.with_bytes(data.segment, at, bytes, |bytes| {
            Ok(bytes.as_chunks::<8>().0.iter().map(|offset| u64::from_le_bytes(*offset)).collect())
        })
    }
}

/// The length of chunk `i - 1`, whose node is child `i`.
fn length_of(offsets: &[u64], i: usize) -> Option<u64> {
    let (begin, end) = (offsets.get(i.checked_sub(1)?)?, offsets.get(i)?);
    end.checked_sub(*begin)
}

fn unknown_length(encoding: &str, i: usize) -> Error {
    Error::bad_data(format!("{encoding}: the length of child {i} does not follow from the node"))
}
