//! Collects the checks of a batch's contents and adds them to the launches of kernels.

use arrow_schema::DataType;
use crossdock_kernels::{Checks, IntType, Offsets};
use crossdock_memory::{Buffer, Result};

use crate::layout::{BufferKind, ChildRule, Children};
use crate::{DeviceArray, DeviceBatch};

/// A check of one array.
pub(super) struct Check<'a> {
    /// The path of the array, such as `flights.dest`.
    pub path: String,
    pub array: &'a DeviceArray,
    pub rule: Rule<'a>,
}

/// A rule for the contents of an array.
pub(super) enum Rule<'a> {
    /// The number of zeros in the bitmap equals the declared null count.
    NullCount { validity: &'a Buffer, declared: usize },
    /// The bitmap has no zeros. This applies to the entries and keys of a map, which must not be
    /// null.
    NoNulls { validity: &'a Buffer },
    /// Offsets do not descend, and are at most `limit`.
    Offsets { offsets: &'a Buffer, width: usize, limit: u64 },
    /// The text is UTF-8. This check must follow the check of the same array's offsets.
    Utf8 { offsets: &'a Buffer, width: usize, data: &'a Buffer },
    /// Dictionary keys are below `limit`.
    Keys { keys: &'a Buffer, key_type: IntType, limit: u64 },
    /// The views refer to ranges within their data buffers.
    Views { views: &'a Buffer, data: Vec<Option<&'a Buffer>>, utf8: bool },
    /// All type ids exist, and dense offsets are less than the length of their child.
    Union { ids: &'a Buffer, offsets: Option<&'a Buffer>, children: Vec<(i8, usize)> },
    /// Run ends ascend, and the last run end is at least `covered`. The array of this check is the
    /// child that contains the run ends.
    RunEnds { ends: &'a Buffer, width: usize, covered: u64 },
    /// The range that an offset and a size describe is within the child.
    ListViews { offsets: &'a Buffer, sizes: &'a Buffer, width: usize, limit: u64 },
}

impl<'a> Check<'a> {
    /// Collects the checks of all arrays of a batch, parents before children. All buffer sizes must
    /// be known.
    pub(super) fn all(batch: &'a DeviceBatch) -> Vec<Self> {
        (0..batch.columns().len()).flat_map(|i| Self::of_column(batch, i)).collect()
    }

    /// Collects the checks of one column.
    pub(super) fn of_column(batch: &'a DeviceBatch, i: usize) -> Vec<Self> {
        let mut checks = Vec::new();
        if let (Some(field), Some(column)) = (batch.schema().fields().get(i), batch.columns().get(i)) {
            collect(field.name(), column, &mut checks);
        }
        checks
    }

    /// The number of bytes that the check reads.
    pub(super) fn bytes(&self) -> usize {
        let len = |buffer: &Buffer| buffer.len().unwrap_or(0);
        match &self.rule {
            Rule::NullCount { validity, .. } | Rule::NoNulls { validity } => len(validity),
            Rule::Offsets { offsets, .. } => len(offsets),
            Rule::Utf8 { data, .. } => len(data),
            Rule::Keys { keys, .. } => len(keys),
            Rule::Views { views, data, .. } => {
                data.iter().flatten().fold(len(views), |sum, data| sum.saturating_add(len(data)))
            }
            Rule::Union { ids, offsets, .. } => len(ids).saturating_add(offsets.map_or(0, len)),
            Rule::RunEnds { ends, .. } => len(ends),
            Rule::ListViews { offsets, sizes, .. } => len(offsets).saturating_add(len(sizes)),
        }
    }

    /// Requests this check and returns the index of its result cell. `previous` is the index of the
    /// cell of the preceding check.
    pub(super) fn request(&self, checks: &mut Checks<'a>, previous: usize) -> Result<usize> {
        let (array, first, len) = (self.array, self.array.offset(), self.array.len());
        let validity = array.validity().map(|bits| (bits, first));
        let entries = |buffer, width_bytes| Offsets { buffer, width_bytes, first, len };
        match &self.rule {
            Rule::NullCount { validity, .. } | Rule::NoNulls { validity } => {
                checks.null_count(validity, first, len)
            }
            Rule::Offsets { offsets, width, limit } => checks.offsets(entries(offsets, *width), *limit),
            Rule::Utf8 { offsets, width, data } => {
                checks.utf8(entries(offsets, *width), previous, data, validity)
            }
            Rule::Keys { keys, key_type, limit } => {
                checks.indices(keys, *key_type, first, len, validity, *limit)
            }
            Rule::Views { views, data, utf8 } => checks.views(views, first, len, validity, data, *utf8),
            Rule::Union { ids, offsets, children } => checks.union(ids, *offsets, first, len, children),
            Rule::RunEnds { ends, width, covered } => checks.run_ends(ends, *width, first, len, *covered),
            Rule::ListViews { offsets, sizes, width, limit } => {
                checks.list_views(offsets, sizes, *width, first, len, *limit)
            }
        }
    }
}

/// Whether a batch may have checks, or nulls that its fields forbid. A column of numbers without a
/// validity bitmap has none.
pub(super) fn has_checks(batch: &DeviceBatch) -> bool {
    batch.columns().iter().any(|array| {
        let layout = array.layout();
        let is_plain = matches!(layout.buffers(), [BufferKind::Bits | BufferKind::Fixed { .. }])
            && array.dictionary().is_none()
            && array.children().is_empty();
        let [None, Some(values)] = array.buffers() else { return true };
        !is_plain || values.len().is_none()
    })
}

fn collect<'a>(path: &str, array: &'a DeviceArray, checks: &mut Vec<Check<'a>>) {
    let mut add = |array, rule| checks.push(Check { path: path.to_string(), array, rule });
    if !array.is_empty() {
        rules_of(array, &mut |rule| add(array, rule));
        if array.layout().child_rule == ChildRule::Runs
            && let Some(ends) = array.children().first()
            && let (Some(Some(buffer)), Some(width)) =
                (ends.buffers().get(1), ends.layout().kind(1).and_then(BufferKind::width))
        {
            add(ends, Rule::RunEnds { ends: buffer, width, covered: (array.offset() + array.len()) as u64 });
        }
    }
    if let (DataType::Map(..), Some(entries)) = (array.data_type(), array.children().first()) {
        for array in std::iter::once(entries).chain(entries.children().first()) {
            if let (Some(validity), false) = (array.validity(), array.is_empty()) {
                add(array, Rule::NoNulls { validity });
            }
        }
    }
    for (field, child) in array.layout().children.iter().zip(array.children()) {
        collect(&format!("{path}.{}", field.name()), child, checks);
    }
    if let Some(dictionary) = array.dictionary() {
        collect(&format!("{path}.dictionary"), dictionary, checks);
    }
}

/// The rules for an array's own buffers, according to the layout table.
fn rules_of<'a>(array: &'a DeviceArray, add: &mut impl FnMut(Rule<'a>)) {
    let layout = array.layout();
    let buffer =
        |i: usize| array.buffers().get(i + usize::from(layout.has_validity)).and_then(Option::as_ref);
    if layout.has_validity
        && let (Some(Some(validity)), Some(declared)) = (array.buffers().first(), array.declared_null_count())
    {
        add(Rule::NullCount { validity, declared });
    }
    let child_len = array.children().first().map_or(0, DeviceArray::len) as u64;
    match (layout.buffers(), buffer(0)) {
        ([BufferKind::Fixed { bytes }], Some(keys)) => {
            if let (Some(dictionary), Some((key_type, _))) = (array.dictionary(), layout.dictionary) {
                let key_type = IntType { width_bytes: *bytes, signed: key_type.is_signed_integer() };
                add(Rule::Keys { keys, key_type, limit: dictionary.len() as u64 });
            }
        }
        ([BufferKind::Offsets { width }, BufferKind::Data], Some(offsets)) => {
            let data = buffer(1);
            let limit = data.and_then(Buffer::len).unwrap_or(0) as u64;
            add(Rule::Offsets { offsets, width: *width, limit });
            if let (true, Some(data)) = (layout.utf8, data) {
                add(Rule::Utf8 { offsets, width: *width, data });
            }
        }
        ([BufferKind::Offsets { width }], Some(offsets)) => {
            add(Rule::Offsets { offsets, width: *width, limit: child_len });
        }
        ([BufferKind::ViewOffsets { width }, _], Some(offsets)) => {
            if let Some(sizes) = buffer(1) {
                add(Rule::ListViews { offsets, sizes, width: *width, limit: child_len });
            }
        }
        ([BufferKind::Views], Some(views)) => {
            add(Rule::Views { views, data: variadic(array), utf8: layout.utf8 })
        }
        ([BufferKind::TypeIds, ..], Some(ids)) => {
            let Children::Union(fields) = layout.children else { return };
            let lens = array.children().iter().map(DeviceArray::len);
            add(Rule::Union {
                ids,
                offsets: buffer(1),
                children: fields.iter().map(|(id, _)| id).zip(lens).collect(),
            });
        }
        _ => {}
    }
}

/// The data buffers of a view array.
fn variadic(array: &DeviceArray) -> Vec<Option<&Buffer>> {
    let data = array.buffers().get(array.layout().n_buffers()..).unwrap_or(&[]);
    data.iter().map(Option::as_ref).collect()
}
