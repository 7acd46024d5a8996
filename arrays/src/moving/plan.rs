//! Plans which ranges of the buffers are copied, and to which positions.

use crossdock_memory::{ALIGNMENT, Buffer, Error, Result, Stream};

use crate::DeviceArray;
use crate::layout::{BufferKind, ChildRule, Layout};
use crate::numbers::{self, Numbers};

/// A range of a buffer that is copied, and its position in the new allocation.
pub(super) struct Piece<'a> {
    pub from: &'a Buffer,
    /// Position of the range in `from`, in bytes.
    pub at: usize,
    /// Bytes to copy.
    pub bytes: usize,
    /// Position in the new allocation, in bytes.
    pub to: usize,
    /// The first bit and the number of bits, if bits are copied instead of bytes. The first bit
    /// becomes bit 0 of the copy.
    pub bits: Option<(usize, usize)>,
}

/// Offsets to adjust because the data before the first used byte is not copied: their number, their
/// width, and the value to subtract from each.
pub(super) struct Rebase {
    pub piece: usize,
    pub n: usize,
    pub width: usize,
    pub base: i64,
}

/// An array of the tree.
pub(super) struct Node<'a> {
    pub array: &'a DeviceArray,
    /// Index of the first value to copy, where index 0 is the start of the array's buffers.
    start: usize,
    pub len: usize,
    /// The offset of the new array.
    pub offset: usize,
    /// For each of the array's buffers, the index of its [`Piece`].
    pub pieces: Vec<Option<usize>>,
    pub children: Vec<usize>,
    pub dictionary: Option<usize>,
}

/// All nodes of the plan, parents before children, and the copies to submit.
pub(super) struct Plan<'a> {
    pub nodes: Vec<Node<'a>>,
    pub pieces: Vec<Piece<'a>>,
    pub rebases: Vec<Rebase>,
    /// Number of root nodes. They are the first nodes.
    pub roots: usize,
    /// Size of the allocation, in bytes.
    pub bytes: usize,
    align_bits: bool,
}

/// Bytes behind the last offset that are padding, and not other offsets.
const MAX_PADDING: usize = 64;

/// The first and the last offset of a node, if it uses only a part of its data or child.
type Bounds = Option<(usize, usize)>;

impl<'a> Plan<'a> {
    /// Plans the copies of arrays whose sizes are all known. Reads the first and last offsets of
    /// slices, with one read for each nesting level.
    pub(super) fn new(arrays: &'a [DeviceArray], align_bits: bool, stream: &Stream) -> Result<Self> {
        let mut plan = Self {
            nodes: Vec::new(),
            pieces: Vec::new(),
            rebases: Vec::new(),
            roots: arrays.len(),
            bytes: 0,
            align_bits,
        };
        for array in arrays {
            plan.node(array, 0, array.len())?;
        }
        let mut level = 0..plan.nodes.len();
        while !level.is_empty() {
            let next = plan.nodes.len();
            let bounds = plan.read_bounds(level.clone(), stream)?;
            for (i, bounds) in level.zip(bounds) {
                plan.expand(i, bounds)?;
            }
            level = next..plan.nodes.len();
        }
        Ok(plan)
    }

    /// Adds a node for values `first..first + len` of an array.
    fn node(&mut self, array: &'a DeviceArray, first: usize, len: usize) -> Result<usize> {
        if first.checked_add(len).is_none_or(|end| end > array.len()) {
            return Err(Error::bad_data(format!(
                "values {first}..+{len} of a child of type {} are used, but the child has {} values",
                crate::type_name(array.data_type()),
                array.len()
            )));
        }
        let (start, layout) = (array.offset() + first, array.layout());
        let has_bits = array.validity().is_some() || layout.buffers().contains(&BufferKind::Bits);
        let offset = match layout.child_rule {
            ChildRule::Runs => start,
            _ if has_bits && !self.align_bits && len > 0 => start % 8,
            _ => 0,
        };
        let (pieces, children) = (Vec::new(), Vec::new());
        self.nodes.push(Node { array, start, len, offset, pieces, children, dictionary: None });
        Ok(self.nodes.len() - 1)
    }

    fn get(&self, i: usize) -> Result<&Node<'a>> {
        self.nodes.get(i).ok_or_else(|| Error::internal("a node of a plan is missing"))
    }

    /// Reads the first and last offset of each node in `level` that uses only a part of its data or
    /// child.
    fn read_bounds(&self, level: std::ops::Range<usize>, stream: &Stream) -> Result<Vec<Bounds>> {
        let partial_offsets = |node: &Node<'a>| {
            let BufferKind::Offsets { width } = node.array.layout().kind(1)? else { return None };
            let offsets = node.array.buffers().get(1).and_then(Option::as_ref)?;
            // The beginning of an array has more offsets than it needs.
            let max_bytes = (node.len + 1).saturating_mul(width).saturating_add(MAX_PADDING);
            let has_own_offsets = offsets.len().is_none_or(|bytes| bytes <= max_bytes);
            let is_whole = node.start == 0 && node.len == node.array.len() && has_own_offsets;
            if is_whole || node.len == 0 {
                return None;
            }
            Some((offsets, width))
        };
        let nodes = self.nodes.get(level).unwrap_or(&[]);
        let requests: Vec<Numbers<'_>> = nodes
            .iter()
            .filter_map(|node| Some((node, partial_offsets(node)?)))
            .flat_map(|(node, (source, width))| {
                let ends = [node.start - node.offset, node.start + node.len];
                ends.map(|entry| Numbers { source, at: entry * width, n: 1, width })
            })
            .collect();
        let mut read = numbers::read(&requests, stream)?.into_iter();
        nodes
            .iter()
            .map(|node| {
                if partial_offsets(node).is_none() {
                    return Ok(None);
                }
                let begin = offset_of(read.next().unwrap_or(0))?;
                let end = offset_of(read.next().unwrap_or(0))?;
                if begin > end {
                    return Err(Error::bad_data(format!(
                        "an array of type {}: the offsets descend from {begin} to {end}",
                        crate::type_name(node.array.data_type())
                    )));
                }
                Ok(Some((begin, end)))
            })
            .collect()
    }

    /// Sets the pieces of a node, and adds its children.
    fn expand(&mut self, i: usize, bounds: Bounds) -> Result<()> {
        let node = self.get(i)?;
        let (array, offset, len) = (node.array, node.offset, node.len);
        let layout = array.layout();
        let begin = if layout.child_rule == ChildRule::Runs { node.start } else { node.start - offset };
        let (start, end) = (node.start, node.start + len);
        let mut pieces = Vec::with_capacity(array.buffers().len());
        for (b, slot) in array.buffers().iter().enumerate() {
            let is_skipped = len == 0 || (layout.is_validity(b) && array.validity().is_none());
            let piece = match (slot, layout.kind(b)) {
                (Some(buffer), Some(kind)) if !is_skipped => {
                    self.piece(buffer, kind, begin, start, end, bounds)?
                }
                _ => None,
            };
            if let (Some(piece), Some(BufferKind::Offsets { width }), Some((base @ 1.., _))) =
                (piece, layout.kind(b), bounds)
            {
                self.rebases.push(Rebase { piece, n: end - begin + 1, width, base: base as i64 });
            }
            pieces.push(piece);
        }
        let mut children = Vec::with_capacity(array.children().len());
        for child in array.children() {
            let (first, len) = child_range(&layout, child, begin, end, len, bounds)?;
            children.push(self.node(child, first, len)?);
        }
        let dictionary = match array.dictionary() {
            Some(dictionary) => Some(self.node(dictionary, 0, dictionary.len())?),
            None => None,
        };
        if let Some(node) = self.nodes.get_mut(i) {
            (node.pieces, node.children, node.dictionary) = (pieces, children, dictionary);
        }
        Ok(())
    }

    fn piece(
        &mut self,
        from: &'a Buffer,
        kind: BufferKind,
        begin: usize,
        start: usize,
        end: usize,
        bounds: Bounds,
    ) -> Result<Option<usize>> {
        let from_bytes = from.len().unwrap_or(0);
        let (at, bytes, bits) = match (kind, kind.width()) {
            (BufferKind::Bits, _) if self.align_bits && !start.is_multiple_of(8) => {
                (0, (end - start).div_ceil(8), Some((start, end - start)))
            }
            (BufferKind::Bits, _) => (begin / 8, end.div_ceil(8) - begin / 8, None),
            (BufferKind::Offsets { width }, _) => (begin * width, (end - begin + 1) * width, None),
            (_, Some(width)) => (begin * width, (end - begin) * width, None),
            (BufferKind::Data, None) => {
                let (first, last) = bounds.unwrap_or((0, from_bytes));
                (first, last - first, None)
            }
            (_, None) => (0, from_bytes, None),
        };
        if bytes == 0 {
            return Ok(None);
        }
        // Offsets are not trusted, so a range beyond the end of the buffer is rejected before
        // memory is allocated for it.
        if bits.is_none() && at.checked_add(bytes).is_none_or(|end| end > from_bytes) {
            from.slice(at, bytes)?;
        }
        let to = self.bytes;
        self.bytes =
            to.checked_add(bytes).and_then(|bytes| bytes.checked_next_multiple_of(ALIGNMENT)).ok_or_else(
                || Error::out_of_memory("the total size of a batch's buffers exceeds the address space"),
            )?;
        self.pieces.push(Piece { from, at, bytes, to, bits });
        Ok(Some(self.pieces.len() - 1))
    }
}

/// Returns the range of a child's values that belong to values `begin..end` of the parent. Index 0
/// is the start of the parent's buffers.
fn child_range(
    layout: &Layout<'_>,
    child: &DeviceArray,
    begin: usize,
    end: usize,
    len: usize,
    bounds: Bounds,
) -> Result<(usize, usize)> {
    Ok(match layout.child_rule {
        _ if len == 0 => (0, 0),
        ChildRule::SameRows => (begin, end - begin),
        ChildRule::Times(n) => (begin * n, (end - begin) * n),
        ChildRule::Offsets => bounds.map_or((0, child.len()), |(first, last)| (first, last - first)),
        ChildRule::None | ChildRule::Views | ChildRule::Dense | ChildRule::Runs => (0, child.len()),
    })
}

fn offset_of(n: i64) -> Result<usize> {
    usize::try_from(n).map_err(|_| Error::bad_data(format!("an offset is {n}, expected 0 or more")))
}
