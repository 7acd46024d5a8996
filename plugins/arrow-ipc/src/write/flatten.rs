//! An array, or a slice of one, into the nodes and buffers of a message: only what the slice needs, from bit 0 and
//! offset 0 on, in place wherever that is so already.

use crossdock_arrays::DeviceArray;
use crossdock_arrays::layout::{BufferKind, ChildRule};
use crossdock_memory::{Buffer, Result, Stream};
use crossdock_plugin_api::Error;

use super::chunk::{Chunk, view};
use super::dictionaries::{Dictionaries, Dictionary};
use super::message::Flat;
use super::ranges::Offsets;
use crate::wire::message::Node;
use crate::wire::schema::{Column, Kind, at};
use crossdock_arrays::by_value::{self, HostArray, shifted};

/// What flattening needs besides the array.
pub struct Flattener<'a> {
    /// Of the host.
    pub stream: &'a Stream,
    /// What has been written of dictionaries; what a batch needs first is added to `before`.
    pub dictionaries: &'a mut Dictionaries,
    /// Dictionary messages that go out before the batch.
    pub before: &'a mut Vec<(i64, bool, Flat)>,
}

impl Flattener<'_> {
    /// Adds values `start..+len` of `array`, which `column` describes, to `out`.
    pub fn add(
        &mut self,
        column: &Column,
        array: &DeviceArray,
        start: usize,
        len: usize,
        out: &mut Flat,
    ) -> Result<()> {
        self.array(column, array, start, len, out).map_err(|e| at(e, column.field.name()))
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
            return Err(Error::bad_data(format!("rows {start}..+{len} are pointed at, of {}", array.len())));
        }
        let row = array.layout();
        let first = array.offset() + start;
        if row.child_rule == ChildRule::Runs && !self.runs_fit(array, start, len)? {
            return self.rebuilt(column, array, start, len, out);
        }
        let own = array.buffers().get(usize::from(row.has_validity)..).unwrap_or_default();
        let buffer = |i: usize| own.get(i).and_then(Option::as_ref);
        if let [BufferKind::Views] = row.buffers()
            && self.views_waste(own, first, len)?
        {
            return self.rebuilt(column, array, start, len, out);
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
        // The rows of each child, where the type's rule does not tell.
        let mut rows: Vec<(usize, usize)> = Vec::new();
        match *row.buffers() {
            [] => {}
            [BufferKind::Bits] => {
                let bits = self.bits(buffer(0), first, len)?;
                out.chunks.push(bits);
            }
            [BufferKind::Offsets { width }, BufferKind::Data] => {
                let (offsets, begin, end) =
                    Offsets { buffer: buffer(0), width }.rebased(first, len, self.stream)?;
                out.chunks.push(offsets);
                out.chunks.push(Chunk::of(buffer(1), begin, end - begin)?);
            }
            [BufferKind::Offsets { width }] => {
                let (offsets, begin, end) =
                    Offsets { buffer: buffer(0), width }.rebased(first, len, self.stream)?;
                out.chunks.push(offsets);
                rows.push((begin, end - begin));
            }
            [BufferKind::Views] => {
                out.chunks.push(Chunk::of(buffer(0), first.saturating_mul(16), len.saturating_mul(16))?);
                let data: Vec<_> = own.get(1..).unwrap_or_default().iter().collect();
                let data = if len == 0 { Vec::new() } else { data };
                out.variadic.push(data.len());
                for buffer in data {
                    let bytes = buffer.as_ref().map_or(Some(0), Buffer::len);
                    let bytes =
                        bytes.ok_or_else(|| Error::internal("a view's data buffer of unknown length"))?;
                    out.chunks.push(Chunk::of(buffer.as_ref(), 0, bytes)?);
                }
            }
            [BufferKind::ViewOffsets { width }, _] => {
                rows.push(self.list_views(array, own, first, len, width, out)?);
            }
            [BufferKind::TypeIds, BufferKind::DenseOffsets] => {
                out.chunks.push(Chunk::of(buffer(0), first, len)?);
                rows = self.dense(array, own, first, len, out)?;
            }
            [kind] => {
                let width = kind.width().unwrap_or(0);
                out.chunks.push(Chunk::of(
                    buffer(0),
                    first.saturating_mul(width),
                    len.saturating_mul(width),
                )?);
            }
            _ => {
                return Err(Error::internal(format!(
                    "{} has a layout that is not known here",
                    array.data_type()
                )));
            }
        }
        for (i, (column, child)) in children.iter().zip(array.children()).enumerate() {
            let (begin, n) = match row.child_rule {
                ChildRule::SameRows => (first, len),
                ChildRule::Times(n) => (first.saturating_mul(n), len.saturating_mul(n)),
                ChildRule::Runs => (0, child.len()),
                _ => rows.get(i).copied().unwrap_or((0, 0)),
            };
            // A child of no rows need not have the row that it would begin at.
            let begin = if n == 0 { 0 } else { begin };
            self.add(column, child, begin, n, out)?;
        }
        Ok(())
    }

    /// The node, and the validity bitmap where the type has one.
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

    /// `len` bits from `first` on, beginning at bit 0.
    fn bits(&self, buffer: Option<&Buffer>, first: usize, len: usize) -> Result<Chunk> {
        // Of no bits there need not be a buffer, wherever in a byte they would begin.
        if len == 0 || first.is_multiple_of(8) {
            return Chunk::of(buffer, first / 8, len.div_ceil(8));
        }
        let bytes = (first % 8 + len).div_ceil(8);
        let bits = view(buffer, first / 8, bytes, self.stream)?;
        Ok(Chunk::Made(shifted(bits.as_deref().unwrap_or_default(), first % 8, len)))
    }

    fn keys(&mut self, of: &Dictionary<'_>, array: &DeviceArray, start: usize, len: usize) -> Result<Chunk> {
        let dictionary =
            array.dictionary().ok_or_else(|| Error::internal("a dictionary array has no dictionary"))?;
        // Nothing points into it, and there may be nothing in it: it need not be written.
        if let Some(places) = Dictionaries::write(self, of, dictionary)? {
            let keys = HostArray::new(array, self.stream)?;
            return by_value::remapped(&keys, start, len, &places).map(Chunk::Made);
        }
        let own = array.buffers().get(1).and_then(Option::as_ref);
        let width = array.layout().kind(1).and_then(BufferKind::width).unwrap_or(0);
        Chunk::of(own, (array.offset() + start).saturating_mul(width), len.saturating_mul(width))
    }

    /// The slice as an array of its own, and then that.
    fn rebuilt(
        &mut self,
        column: &Column,
        array: &DeviceArray,
        start: usize,
        len: usize,
        out: &mut Flat,
    ) -> Result<()> {
        let mut builder = by_value::Builder::new(array.data_type());
        builder.append(&HostArray::new(array, self.stream)?, start, len)?;
        let rebuilt = builder.finish(self.stream)?;
        self.array(column, &rebuilt, 0, len, out)
    }
}
