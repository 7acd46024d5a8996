//! Slices arrays whose buffers do not have the order of the rows: run-end encoded arrays, views,
//! list-views and dense unions.

use crossdock_arrays::DeviceArray;
use crossdock_arrays::layout::BufferKind;
use crossdock_memory::{Buffer, Result};
use crossdock_plugin_api::Error;

use super::chunk::{Chunk, view};
use super::flatten::Flattener;
use super::message::Flat;
use super::ranges::{Extent, signed, subtract};

impl Flattener<'_> {
    /// Whether the array's runs contain exactly the values of the slice.
    pub(super) fn has_exact_runs(&self, array: &DeviceArray, start: usize, len: usize) -> Result<bool> {
        let Some(ends) = array.children().first() else { return Ok(false) };
        if array.offset() + start > 0 || len != array.len() {
            return Ok(false);
        }
        if ends.is_empty() || len == 0 {
            return Ok(ends.is_empty() && len == 0);
        }
        let width = ends.layout().kind(1).and_then(BufferKind::width).unwrap_or(0);
        let last = (ends.offset() + ends.len() - 1).saturating_mul(width);
        let last = view(ends.buffers().get(1).and_then(Option::as_ref), last, width, self.stream)?;
        Ok(usize::try_from(signed(last.as_deref().unwrap_or_default())) == Ok(len))
    }

    /// Whether a slice of a view array uses less than half of a large amount of data.
    pub(super) fn wastes_view_data(
        &self,
        value_buffers: &[Option<Buffer>],
        first: usize,
        len: usize,
    ) -> Result<bool> {
        const MIN_DATA_BYTES: usize = 64 << 10;
        let length = |buffer: &Option<Buffer>| buffer.as_ref().and_then(Buffer::len).unwrap_or(0);
        let data = value_buffers.iter().skip(1).map(length).fold(0, usize::saturating_add);
        let sliced =
            first > 0 || value_buffers.first().map_or(0, length) >= (first + len + 64).saturating_mul(16);
        if len == 0 || !sliced || data < MIN_DATA_BYTES {
            return Ok(false);
        }
        let views = view(
            value_buffers.first().and_then(Option::as_ref),
            first.saturating_mul(16),
            len.saturating_mul(16),
            self.stream,
        )?;
        let views = views.as_deref().unwrap_or_default();
        let used = views.chunks_exact(16).map(|view| signed(view.get(..4).unwrap_or_default()));
        let used: u64 = used.filter(|n| *n > 12).map(|n| n as u64).sum();
        Ok(used < data as u64 / 2)
    }

    /// Adds the offsets and sizes of list-views. Returns the begin and the length of the child's
    /// range that the list-views refer to.
    pub(super) fn list_views(
        &self,
        array: &DeviceArray,
        value_buffers: &[Option<Buffer>],
        first: usize,
        len: usize,
        width: usize,
        out: &mut Flat,
    ) -> Result<(usize, usize)> {
        let (begin, bytes) = (first.saturating_mul(width), len.saturating_mul(width));
        let buffer = |i: usize| value_buffers.get(i).and_then(Option::as_ref);
        if first == 0 && len == array.len() {
            out.chunks.push(Chunk::from_range(buffer(0), begin, bytes)?);
            out.chunks.push(Chunk::from_range(buffer(1), begin, bytes)?);
            return Ok((0, array.children().first().map_or(0, DeviceArray::len)));
        }
        let (offsets, sizes) =
            (view(buffer(0), begin, bytes, self.stream)?, view(buffer(1), begin, bytes, self.stream)?);
        let (offsets, sizes) = (offsets.as_deref().unwrap_or_default(), sizes.as_deref().unwrap_or_default());
        let mut extent = Extent::default();
        for (offset, size) in offsets.chunks_exact(width).zip(sizes.chunks_exact(width)) {
            extent.add(row(signed(offset))?, row(signed(size))?)?;
        }
        let (least, n) = extent.range();
        let mut rebased = subtract(offsets, least as u64, width);
        // The offset of an empty list may be any number, also one before the range.
        for (offset, size) in rebased.chunks_exact_mut(width).zip(sizes.chunks_exact(width)) {
            if signed(size) == 0 {
                offset.fill(0);
            }
        }
        out.chunks.push(Chunk::Owned(rebased));
        out.chunks.push(Chunk::from_range(buffer(1), begin, bytes)?);
        Ok((least, n))
    }

    /// Adds the offsets of a dense union. Returns, for each child, the begin and the length of the
    /// range that the offsets refer to.
    pub(super) fn dense_union(
        &self,
        array: &DeviceArray,
        value_buffers: &[Option<Buffer>],
        first: usize,
        len: usize,
        out: &mut Flat,
    ) -> Result<Vec<(usize, usize)>> {
        let buffer = |i: usize| value_buffers.get(i).and_then(Option::as_ref);
        let (begin, bytes) = (first.saturating_mul(4), len.saturating_mul(4));
        if first == 0 && len == array.len() {
            out.chunks.push(Chunk::from_range(buffer(1), begin, bytes)?);
            return Ok(array.children().iter().map(|child| (0, child.len())).collect());
        }
        let arrow_schema::DataType::Union(fields, _) = array.data_type() else {
            return Err(Error::internal("a dense union array is not of a union type"));
        };
        let (ids, offsets) =
            (view(buffer(0), first, len, self.stream)?, view(buffer(1), begin, bytes, self.stream)?);
        let (ids, offsets) = (ids.as_deref().unwrap_or_default(), offsets.as_deref().unwrap_or_default());
        let child_of = |id: u8| fields.iter().position(|(known, _)| known == id as i8);
        let mut extents = vec![Extent::default(); fields.len()];
        for (id, offset) in ids.iter().zip(offsets.chunks_exact(4)) {
            let extent = child_of(*id).and_then(|child| extents.get_mut(child));
            let extent = extent.ok_or_else(|| {
                Error::bad_data(format!(
                    "a union has type id {}, expected a type id of the union's type",
                    *id as i8
                ))
            })?;
            extent.add(row(signed(offset))?, 1)?;
        }
        let mut rebased = Vec::with_capacity(offsets.len());
        for (id, offset) in ids.iter().zip(offsets.chunks_exact(4)) {
            let least =
                child_of(*id).and_then(|child| extents.get(child)).map_or(0, |extent| extent.range().0);
            rebased.extend_from_slice(&subtract(offset, least as u64, 4));
        }
        out.chunks.push(Chunk::Owned(rebased));
        Ok(extents.into_iter().map(Extent::range).collect())
    }
}

fn row(n: i64) -> Result<usize> {
    usize::try_from(n).map_err(|_| Error::bad_data(format!("an offset or size is {n}, expected 0 or more")))
}
