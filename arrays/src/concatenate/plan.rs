//! Plans which ranges of the buffers are copied, and to which positions.

use arrow_schema::{DataType, Field};
use crossdock_memory::{ALIGNMENT, Buffer, Device, Error, Result, Stream};

use super::dictionaries::unify;
use super::nested::{Dense, Ends, child_len};
use super::too_long;
use crate::DeviceArray;
use crate::layout::{BufferKind, ChildRule};
use crate::numbers::{self, Numbers};

/// All copies and adjustments that fill one allocation.
#[derive(Default)]
pub(super) struct Plan {
    pub copies: Vec<Copied>,
    pub bitmaps: Vec<Bitmap>,
    pub rebases: Vec<Rebase>,
    pub views: Vec<Views>,
    pub unions: Vec<Dense>,
    pub ends: Vec<Ends>,
    /// Size of the allocation, in bytes.
    pub bytes: usize,
}

/// Bytes to copy unchanged.
pub(super) struct Copied {
    pub from: Buffer,
    pub at: usize,
    pub bytes: usize,
    pub to: usize,
}

/// Bitmaps to concatenate. Each entry has a buffer, the index of the first bit, and the number of
/// bits. If an entry has no buffer, all its bits are set.
pub(super) struct Bitmap {
    pub parts: Vec<(Option<(Buffer, usize)>, usize)>,
    pub to: usize,
}

/// Offsets to adjust: their number, their width, and the value to subtract from each.
pub(super) struct Rebase {
    pub to: usize,
    pub n: usize,
    pub width: usize,
    pub base: i64,
}

/// Views to renumber. `n` is the number of views. `buffers_before` is the number of data buffers of
/// the preceding chunks, and is added to the buffer index of each view.
pub(super) struct Views {
    pub to: usize,
    pub n: usize,
    pub buffers_before: usize,
}

/// An array to create.
pub(super) struct Node {
    pub data_type: DataType,
    pub len: usize,
    pub null_count: Option<usize>,
    /// The position in the allocation and the size of each buffer, both in bytes.
    pub buffers: Vec<Option<(usize, usize)>>,
    /// Buffers that are shared instead of copied. They follow the copied buffers.
    pub shared: Vec<Option<Buffer>>,
    pub children: Vec<Node>,
    pub dictionary: Option<DeviceArray>,
}

impl Plan {
    /// Plans the chunks of one column or child. There is at least one chunk, and all have the same
    /// type. `ordered` is true if their dictionaries are ordered.
    pub(super) fn node(&mut self, chunks: &[DeviceArray], ordered: bool, stream: &Stream) -> Result<Node> {
        let unified = unify(chunks, ordered, stream)?;
        let chunks = unified.as_deref().unwrap_or(chunks);
        let Some(first) = chunks.first() else { return Err(Error::internal("a column has no chunks")) };
        let layout = first.layout();
        let len = chunks.iter().try_fold(0usize, |len, chunk| len.checked_add(chunk.len()));
        let len = len.filter(|len| i64::try_from(*len).is_ok()).ok_or_else(too_long)?;
        check_rule(first)?;
        let bounds = bounds_of(chunks, stream)?;
        let mut node = Node {
            data_type: first.data_type().clone(),
            len,
            null_count: chunks.iter().try_fold(0usize, |nulls, chunk| Some(nulls + chunk.null_count()?)),
            buffers: Vec::with_capacity(layout.n_buffers()),
            shared: Vec::new(),
            children: Vec::new(),
            dictionary: first.dictionary().cloned(),
        };
        for b in 0..layout.n_buffers() {
            let place = match layout.kind(b) {
                _ if len == 0 => None,
                _ if layout.is_validity(b) => self.validity(chunks, len)?,
                Some(BufferKind::Bits) => {
                    let parts = chunks.iter().map(|chunk| (bits_of(chunk, b), chunk.len())).collect();
                    Some(self.bitmap(parts, len)?)
                }
                Some(BufferKind::Offsets { width }) => self.offsets(chunks, b, len, width, &bounds)?,
                Some(BufferKind::Data) => self.data(chunks, b, &bounds)?,
                Some(kind) => self.fixed(chunks, b, kind.width().unwrap_or(0))?,
                None => None,
            };
            node.buffers.push(place);
        }
        let place = |b: usize| node.buffers.get(b).copied().flatten().map(|(to, _)| to);
        match (layout.kind(1), place(0), place(1)) {
            (Some(BufferKind::ViewOffsets { width }), _, Some(to)) => self.count_views(chunks, to, width)?,
            (Some(BufferKind::DenseOffsets), Some(ids), Some(to)) => self.count_dense(chunks, ids, to)?,
            _ => {}
        }
        if layout.variadic {
            node.shared = self.variadic(chunks, node.buffers.get(1).copied().flatten(), layout.n_buffers());
        }
        if layout.child_rule == ChildRule::Runs {
            node.children = self.runs(chunks, len, stream)?;
            return Ok(node);
        }
        node.children = self.children(chunks, &bounds, stream)?;
        Ok(node)
    }

    /// Plans the children of types in which each row refers to a range of the child's rows. For
    /// chunks with offsets, `bounds` contains the range of the child's rows that each chunk uses.
    fn children(
        &mut self,
        chunks: &[DeviceArray],
        bounds: &[(usize, usize)],
        stream: &Stream,
    ) -> Result<Vec<Node>> {
        let Some(first) = chunks.first() else { return Ok(Vec::new()) };
        let layout = first.layout();
        let mut children = Vec::with_capacity(first.children().len());
        for c in 0..first.children().len() {
            let parts = chunks.iter().zip(bounds).filter_map(|(chunk, bounds)| {
                let child = chunk.children().get(c)?;
                let (from, len) = match layout.child_rule {
                    ChildRule::Times(n) => (chunk.offset() * n, chunk.len() * n),
                    ChildRule::Offsets => (bounds.0, bounds.1 - bounds.0),
                    ChildRule::Views | ChildRule::Dense => (0, child_len(chunk, child)),
                    _ => (chunk.offset(), chunk.len()),
                };
                Some(child.slice(from, len))
            });
            let parts = parts.collect::<Result<Vec<_>>>()?;
            let ordered = layout.children.get(c).is_some_and(|field| is_ordered(field));
            children.push(self.node(&parts, ordered, stream)?);
        }
        Ok(children)
    }

    /// Reserves `bytes` bytes of the allocation. Returns their position.
    pub(super) fn reserve(&mut self, bytes: usize) -> Result<usize> {
        let to = self.bytes;
        let end = to.checked_add(bytes).and_then(|end| end.checked_next_multiple_of(ALIGNMENT));
        self.bytes = end.ok_or_else(too_long)?;
        Ok(to)
    }

    fn validity(&mut self, chunks: &[DeviceArray], len: usize) -> Result<Option<(usize, usize)>> {
        if chunks.iter().all(|chunk| chunk.validity().is_none()) {
            return Ok(None);
        }
        let part =
            |chunk: &DeviceArray| (chunk.validity().map(|bits| (bits.clone(), chunk.offset())), chunk.len());
        self.bitmap(chunks.iter().map(part).collect(), len).map(Some)
    }

    fn bitmap(&mut self, parts: Vec<(Option<(Buffer, usize)>, usize)>, len: usize) -> Result<(usize, usize)> {
        let bytes = len.div_ceil(8);
        let to = self.reserve(bytes)?;
        self.bitmaps.push(Bitmap { parts, to });
        Ok((to, bytes))
    }

    fn copy(&mut self, from: &Buffer, at: usize, bytes: usize, to: usize) -> Result<()> {
        if bytes > 0 {
            // Rejects a buffer that is shorter than its array requires.
            from.slice(at, bytes)?;
            self.copies.push(Copied { from: from.clone(), at, bytes, to });
        }
        Ok(())
    }

    fn fixed(&mut self, chunks: &[DeviceArray], b: usize, width: usize) -> Result<Option<(usize, usize)>> {
        let total = chunks.iter().try_fold(0usize, |n, chunk| n.checked_add(chunk.len().checked_mul(width)?));
        let total = total.ok_or_else(too_long)?;
        let to = self.reserve(total)?;
        let mut next = to;
        for chunk in chunks {
            if let Some(Some(buffer)) = chunk.buffers().get(b) {
                self.copy(buffer, chunk.offset() * width, chunk.len() * width, next)?;
            }
            next += chunk.len() * width;
        }
        Ok((total > 0).then_some((to, total)))
    }

    fn offsets(
        &mut self,
        chunks: &[DeviceArray],
        b: usize,
        len: usize,
        width: usize,
        bounds: &[(usize, usize)],
    ) -> Result<Option<(usize, usize)>> {
        let bytes = len.checked_add(1).and_then(|n| n.checked_mul(width)).ok_or_else(too_long)?;
        let to = self.reserve(bytes)?;
        let (mut entries, mut data) = (0usize, 0usize);
        for (chunk, (first, last)) in chunks.iter().zip(bounds) {
            let (Some(Some(buffer)), 1..) = (chunk.buffers().get(b), chunk.len()) else { continue };
            // The result begins with the first offset of the first chunk. In each later chunk, the
            // first offset equals the last offset of the preceding chunk and is skipped.
            let skip = usize::from(entries > 0);
            let (n, place) = (chunk.len() + 1 - skip, to + (entries + skip) * width);
            self.copy(buffer, (chunk.offset() + skip) * width, n * width, place)?;
            let base = *first as i64 - data as i64;
            if base != 0 {
                self.rebases.push(Rebase { to: place, n, width, base });
            }
            entries += chunk.len();
            data = data.checked_add(last - first).ok_or_else(too_long)?;
        }
        check_reach(data, width, "offsets")?;
        Ok(Some((to, bytes)))
    }

    fn data(
        &mut self,
        chunks: &[DeviceArray],
        b: usize,
        bounds: &[(usize, usize)],
    ) -> Result<Option<(usize, usize)>> {
        let total = bounds.iter().try_fold(0usize, |n, (first, last)| n.checked_add(last - first));
        let total = total.ok_or_else(too_long)?;
        let to = self.reserve(total)?;
        let mut next = to;
        for (chunk, (first, last)) in chunks.iter().zip(bounds) {
            match chunk.buffers().get(b) {
                Some(Some(buffer)) => self.copy(buffer, *first, last - first, next)?,
                _ if last > first => {
                    return Err(Error::bad_data("the data buffer is missing, but the offsets are not empty"));
                }
                _ => {}
            }
            next += last - first;
        }
        Ok((total > 0).then_some((to, total)))
    }

    /// Shares the data buffers of view arrays, and plans to renumber their views.
    fn variadic(
        &mut self,
        chunks: &[DeviceArray],
        views: Option<(usize, usize)>,
        n_buffers: usize,
    ) -> Vec<Option<Buffer>> {
        const BYTES: usize = 16;
        let mut shared = Vec::new();
        let mut next = views.map_or(0, |(to, _)| to);
        for chunk in chunks {
            if !shared.is_empty() && !chunk.is_empty() {
                self.views.push(Views { to: next, n: chunk.len(), buffers_before: shared.len() });
            }
            next += chunk.len() * BYTES;
            shared.extend(chunk.buffers().iter().skip(n_buffers).cloned());
        }
        shared
    }
}

fn bits_of(chunk: &DeviceArray, b: usize) -> Option<(Buffer, usize)> {
    let buffer = chunk.buffers().get(b).and_then(Option::as_ref)?;
    Some((buffer.clone(), chunk.offset()))
}

/// Returns an error if integers of `width` bytes cannot count `values` values.
pub(super) fn check_reach(values: usize, width: usize, what: &str) -> Result<()> {
    let max = i64::MAX >> (64 - 8 * width.clamp(1, 8));
    if i64::try_from(values).is_ok_and(|values| values <= max) {
        return Ok(());
    }
    Err(Error::unsupported(format!(
        "the concatenated column has the length {values}, but {}-bit {what} reach only to {max}: keep the batches separate, or \
         create the column with wider {what}",
        8 * width
    )))
}

/// Whether a field's dictionary is ordered.
pub(super) fn is_ordered(field: &Field) -> bool {
    field.dict_is_ordered() == Some(true)
}

/// Rejects types that only the host can concatenate.
fn check_rule(array: &DeviceArray) -> Result<()> {
    let layout = array.layout();
    if array.device() == Device::CPU || layout.child_rule != ChildRule::Dense {
        return Ok(());
    }
    Err(Error::unsupported(format!(
        "values of {} cannot be concatenated on {}, only on the cpu: move the table to the cpu (Table.to in Python, \
         Table::move_to in Rust), or keep the batches separate",
        crate::type_name(array.data_type()),
        array.device()
    )))
}

/// Reads, for each chunk with offsets, the range of its data or of its child that the chunk uses.
fn bounds_of(chunks: &[DeviceArray], stream: &Stream) -> Result<Vec<(usize, usize)>> {
    let mut requests = Vec::new();
    let mut request_indices = Vec::with_capacity(chunks.len());
    for chunk in chunks {
        let Some(BufferKind::Offsets { width }) = chunk.layout().kind(1) else {
            request_indices.push(None);
            continue;
        };
        let source = chunk.buffers().get(1).and_then(Option::as_ref).filter(|_| !chunk.is_empty());
        request_indices.push(source.map(|_| requests.len()));
        if let Some(source) = source {
            for entry in [chunk.offset(), chunk.offset() + chunk.len()] {
                requests.push(Numbers { source, at: entry * width, n: 1, width });
            }
        }
    }
    let read = numbers::read(&requests, stream)?;
    let bounds = |request: Option<usize>| {
        let Some(i) = request else { return Ok((0, 0)) };
        let ends = read.get(i).copied().zip(read.get(i + 1).copied()).unwrap_or((0, 0));
        match (usize::try_from(ends.0), usize::try_from(ends.1)) {
            (Ok(first), Ok(last)) if first <= last => Ok((first, last)),
            _ => Err(Error::bad_data(format!(
                "the first offset is {} and the last offset is {}, expected ascending offsets of 0 or more",
                ends.0, ends.1
            ))),
        }
    };
    request_indices.into_iter().map(bounds).collect()
}
