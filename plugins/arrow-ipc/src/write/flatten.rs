//! Flattens arrays and slices to the nodes and buffers of a message. Only the used parts are
//! written, beginning at bit 0 and offset 0. They are not copied if possible.

use crossdock_arrays::DeviceArray;
use crossdock_arrays::layout::{BufferKind, ChildRule};
use crossdock_memory::{Buffer, Result, Stream};
use crossdock_plugin_api::Error;

use super::chunk::{Chunk, view};
use super::dictionaries::{Dictionaries, Dictionary};
use super::message::Flat;
use super::ranges::Offsets;
use crate::wire::message::Node;
use crate::wire::schema::{Column, Kind, in_field};
use crossdock_arrays::by_value::{self, HostArray, shifted};

/// The state while one batch is flattened.
pub struct Flattener<'a> {
    /// A stream of the CPU.
    pub stream: &'a Stream,
    /// The dictionaries that have been written.
    pub dictionaries: &'a mut Dictionaries,
    /// The dictionary batches that are written before the batch. Each entry has the dictionary's
    /// id, whether the batch is a delta, and its content.
    pub before: &'a mut Vec<(i64, bool, Flat)>,
}

impl Flattener<'_> {
    /// Adds values `start..start + len` of `array` to `out`. `column` describes the array.
    pub fn add(
        &mut self,
        column: &Column,
        array: &DeviceArray,
        start: usize,
        len: usize,
        out: &mut Flat,
    ) -> Result<()> {
        self.array(column, array, start, len, out).map_err(|e| in_field(e, column.field.name()))
    }

    fn array(
        &mut self,
        column: &Column,
        array: &DeviceArray,
        start: usize,
        len: usize,
        out: &mut Flat,
    ) -> Result<()> {
        if start.checked_add(len).is_none_or(|end| end > array.len()) {
            return Err(Error::bad_data(format!(
                "rows {start}..+{len} are referred to, expected a range within {} rows",
                array.len()
            )));
        }
        let row = array.layout();
        let first = array.offset() + start;
        if row.child_rule == ChildRule::Runs && !self.has_exact_runs(array, start, len)? {
            return self.add_rebuilt(column, array, start, len, out);
        }
        let value_buffers = array.buffers().get(usize::from(row.has_validity)..).unwrap_or_default();
        if let [BufferKind::Views] = row.buffers()
            && self.wastes_view_data(value_buffers, first, len)?
        {
            return self.add_rebuilt(column, array, start, len, out);
        }
        self.validity(array, start, len, out)?;
        let children = match &column.kind {
            Kind::Plain { children } => children.as_slice(),
            Kind::Dictionary { id, values } => {
                let dictionary = Dictionary { id: *id, field: &column.field, values };
                let keys = self.keys(&dictionary, array, start, len)?;
                out.chunks.push(keys);
                return Ok(());
            }
        };
        let rows = self.values(array, value_buffers, first, len, out)?;
        for (i, (column, child)) in children.iter().zip(array.children()).enumerate() {
            let (begin, n) = match row.child_rule {
                ChildRule::SameRows => (first, len),
                ChildRule::Times(n) => (first.saturating_mul(n), len.saturating_mul(n)),
                ChildRule::Runs => (0, child.len()),
                _ => rows.get(i).copied().unwrap_or((0, 0)),
            };
            // For an empty range, `begin` may be greater than the length of the child, so it is
            // replaced by 0.
            let begin = if n == 0 { 0 } else { begin };
            self.add(column, child, begin, n, out)?;
        }
        Ok(())
    }

    /// Adds values `first..first + len` of the buffers that follow the validity bitmap. Returns the
    /// range of rows of each child, if the type's child rule does not determine it.
    fn values(
        &mut self,
        array: &DeviceArray,
        value_buffers: &[Option<Buffer>],
        first: usize,
        len: usize,
        out: &mut Flat,
    ) -> Result<Vec<(usize, usize)>> {
        let buffer = |i: usize| value_buffers.get(i).and_then(Option::as_ref);
        let mut rows = Vec::new();
        match *array.layout().buffers() {
            [] => {}
            [BufferKind::Bits] => {
                let bits = self.bits(buffer(0), first, len)?;
                out.chunks.push(bits);
            }
            [BufferKind::Offsets { width }, BufferKind::Data] => {
                let (offsets, begin, end) =
                    Offsets { buffer: buffer(0), width }.rebased(first, len, self.stream)?;
                out.chunks.push(offsets);
                out.chunks.push(Chunk::from_range(buffer(1), begin, end - begin)?);
            }
            [BufferKind::Offsets { width }] => {
                let (offsets, begin, end) =
                    Offsets { buffer: buffer(0), width }.rebased(first, len, self.stream)?;
                out.chunks.push(offsets);
                rows.push((begin, end - begin));
            }
            [BufferKind::Views] => {
                out.chunks.push(Chunk::from_range(
                    buffer(0),
                    first.saturating_mul(16),
                    len.saturating_mul(16),
                )?);
                let data: Vec<_> = value_buffers.get(1..).unwrap_or_default().iter().collect();
                let data = if len == 0 { Vec::new() } else { data };
                out.variadic.push(data.len());
                for buffer in data {
                    let bytes = buffer.as_ref().map_or(Some(0), Buffer::len);
                    let bytes = bytes.ok_or_else(|| {
                        Error::internal("the length of a data buffer of a view array is unknown")
                    })?;
                    out.chunks.push(Chunk::from_range(buffer.as_ref(), 0, bytes)?);
                }
            }
            [BufferKind::ViewOffsets { width }, _] => {
                rows.push(self.list_views(array, value_buffers, first, len, width, out)?);
            }
            [BufferKind::TypeIds, BufferKind::DenseOffsets] => {
                out.chunks.push(Chunk::from_range(buffer(0), first, len)?);
                rows = self.dense_union(array, value_buffers, first, len, out)?;
            }
            [kind] => {
                let width = kind.width().unwrap_or(0);
                out.chunks.push(Chunk::from_range(
                    buffer(0),
                    first.saturating_mul(width),
                    len.saturating_mul(width),
                )?);
            }
            _ => {
                return Err(Error::internal(format!(
                    "the layout of {} is unsupported",
                    crossdock_arrays::type_name(array.data_type())
                )));
            }
        }
        Ok(rows)
    }

    /// Adds the node of the array, and the validity bitmap if the type has one.
    fn validity(&self, array: &DeviceArray, start: usize, len: usize, out: &mut Flat) -> Result<()> {
        let row = array.layout();
        if !row.has_validity {
            out.nodes.push(Node { length: len, nulls: if row.all_null { len } else { 0 } });
            return Ok(());
        }
        let bitmap = array.buffers().first().and_then(Option::as_ref);
        let (nulls, bits) = match (array.null_count(), bitmap) {
            (Some(0), _) | (_, None) => (0, Chunk::empty()),
            _ if len == 0 => (0, Chunk::empty()),
            (known, bitmap) => {
                let bits = self.bits(bitmap, array.offset() + start, len)?;
                let known = known.filter(|_| start == 0 && len == array.len());
                let count = || bits.with(self.stream, |bits| Ok(len - by_value::count_set(bits, 0, len)));
                match known.map_or_else(count, Ok)? {
                    0 => (0, Chunk::empty()),
                    nulls => (nulls, bits),
                }
            }
        };
        out.nodes.push(Node { length: len, nulls });
        out.chunks.push(bits);
        Ok(())
    }

    /// Returns bits `first..first + len`, shifted so that they begin at bit 0.
    fn bits(&self, buffer: Option<&Buffer>, first: usize, len: usize) -> Result<Chunk> {
        // If there are 0 bits, the buffer may be missing.
        if len == 0 || first.is_multiple_of(8) {
            return Chunk::from_range(buffer, first / 8, len.div_ceil(8));
        }
        let bytes = (first % 8 + len).div_ceil(8);
        let bits = view(buffer, first / 8, bytes, self.stream)?;
        Ok(Chunk::Owned(shifted(bits.as_deref().unwrap_or_default(), first % 8, len)))
    }

    fn keys(&mut self, of: &Dictionary<'_>, array: &DeviceArray, start: usize, len: usize) -> Result<Chunk> {
        let dictionary =
            array.dictionary().ok_or_else(|| Error::internal("a dictionary array has no dictionary"))?;
        if let Some(positions) = Dictionaries::write(self, of, dictionary)? {
            let keys = HostArray::new(array, self.stream)?;
            return by_value::remap_keys(&keys, start, len, &positions).map(Chunk::Owned);
        }
        let value_buffers = array.buffers().get(1).and_then(Option::as_ref);
        let width = array.layout().kind(1).and_then(BufferKind::width).unwrap_or(0);
        Chunk::from_range(
            value_buffers,
            (array.offset() + start).saturating_mul(width),
            len.saturating_mul(width),
        )
    }

    /// Copies the slice to a new array, and adds the new array.
    fn add_rebuilt(
        &mut self,
        column: &Column,
        array: &DeviceArray,
        start: usize,
        len: usize,
        out: &mut Flat,
    ) -> Result<()> {
        let mut builder = by_value::Builder::new(array.data_type());
        builder.append(&HostArray::new(array, self.stream)?, start, len)?;
        let add_rebuilt = builder.finish(self.stream)?;
        self.array(column, &add_rebuilt, 0, len, out)
    }
}
