//! Takes rows of nested arrays (structs, lists, maps) and of null arrays.

use arrow_schema::DataType;
use crossdock_kernels::{Checks, IntType, Integers, Lists, Numbers, Source, Words};
use crossdock_memory::{Buffer, Error, Result, Stream};

use super::{Slot, Slots, Validity, from_plain, others, select_values, to_plain};
use crate::DeviceArray;

/// Bytes per offset.
const OFFSET_BYTES: usize = 4;

/// Whether rows of a type can be taken.
pub fn can_take(data_type: &DataType) -> bool {
    match data_type {
        DataType::Null | DataType::FixedSizeBinary(_) => true,
        DataType::Struct(fields) => fields.iter().all(|field| can_take(field.data_type())),
        DataType::List(field) | DataType::Map(field, _) | DataType::FixedSizeList(field, _) => {
            can_take(field.data_type())
        }
        other => Slot::of(other).is_some(),
    }
}

/// Whether the type is nested, and its rows are taken here. Rows of its children may be taken in
/// another way.
fn can_take_directly(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Struct(_) | DataType::List(_) | DataType::Map(..) | DataType::FixedSizeList(..)
    )
}

/// Rejects a type whose rows cannot be taken.
pub(super) fn check_can_take(data_type: &DataType) -> Result<()> {
    if can_take(data_type) {
        return Ok(());
    }
    Err(Error::unsupported(format!(
        "cannot take rows of values of type {data_type}",
        data_type = crate::type_name(data_type)
    )))
}

/// The width in bytes of the index of a row, 4 or 8, if there are `rows` rows. The largest integer
/// of this width is reserved as an index that refers to no row.
pub fn row_width(rows: usize) -> usize {
    if u32::try_from(rows).is_ok() { 4 } else { 8 }
}

/// The indices of rows to take, in order. An index may be out of range only if its row is null in
/// this array or in a parent. The value that is taken for such an index has no bits set or, for a
/// list, no elements.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    /// The indices. Each has 4 or 8 bytes.
    pub buffer: &'a Buffer,
    pub len: usize,
    pub width: usize,
    /// The validity of the rows; `None` if all are valid.
    pub valid: Option<&'a Validity>,
    /// Whether all indices are in range. Rows of any type can then be taken.
    pub are_in_range: bool,
}

impl Rows<'_> {
    /// Takes the rows of fixed-width values.
    fn of(&self, stream: &Stream, source: Source<'_>, width: usize) -> Result<Buffer> {
        let mut to = stream.memory().alloc(stream, self.len.saturating_mul(width))?;
        let indices = Numbers { buffer: self.buffer, at: 0, len: self.len, width_bytes: self.width };
        let mut checks = Checks::new();
        checks.take(indices, None, source, &mut to, 0, width)?;
        checks.run(stream)?;
        to.freeze(stream)
    }

    /// The validity of the taken rows.
    fn validity(&self, stream: &Stream, values: &DeviceArray) -> Result<Option<Validity>> {
        let select = |slots: &Slots| self.of(stream, slots.source(), slots.width).map(Ok);
        super::select_validity(stream, values, self.len, self.valid.cloned(), &select)?
            .map_err(unexpectedly_invalid)
    }
}

/// Takes rows of an array. Unless all indices are in range, [`can_take`] must be true for its type.
pub(super) fn take_rows(stream: &Stream, values: &DeviceArray, rows: Rows<'_>) -> Result<DeviceArray> {
    let data_type = values.data_type();
    if rows.len == 0 {
        return DeviceArray::empty(data_type);
    }
    if *data_type == DataType::Null {
        return DeviceArray::try_new(DataType::Null, rows.len, 0, None, Vec::new(), Vec::new(), None);
    }
    if Slot::of(data_type).is_some() {
        let select = |slots: &Slots| rows.of(stream, slots.source(), slots.width).map(Ok);
        return select_values(stream, values, rows.len, rows.valid.cloned(), &select)?
            .map_err(unexpectedly_invalid);
    }
    if let (DataType::FixedSizeBinary(_), false) = (data_type, rows.are_in_range) {
        let taken = take_rows(stream, &to_plain(values, stream)?, rows)?;
        return from_plain(&taken, data_type, stream);
    }
    if !can_take_directly(data_type) {
        return others::take_other(stream, values, rows);
    }
    let validity = rows.validity(stream, values)?;
    let child_rows = Rows { valid: validity.as_ref(), ..rows };
    let (offsets, children) = match data_type {
        DataType::FixedSizeList(_, size) => (
            None,
            vec![elements_of_fixed_size(stream, values, child_rows, usize::try_from(*size).unwrap_or(0))?],
        ),
        DataType::List(_) | DataType::Map(..) => {
            let (offsets, elements) = lists(stream, values, child_rows)?;
            (Some(offsets), vec![elements])
        }
        _ => {
            let rows_of = |child: &DeviceArray| {
                take_rows(stream, &child.slice(values.offset(), values.len())?, child_rows)
            };
            (None, values.children().iter().map(rows_of).collect::<Result<_>>()?)
        }
    };
    let null_count = if validity.is_none() { Some(0) } else { None };
    let bits = super::byte_aligned_validity(stream, validity.as_ref(), rows.len)?;
    let buffers = std::iter::once(bits).chain(offsets.map(Some)).collect();
    DeviceArray::try_new(data_type.clone(), rows.len, 0, null_count, buffers, children, None)
}

fn unexpectedly_invalid(at: u64) -> Error {
    Error::internal(format!("row {at} is invalid, although any index is allowed"))
}

/// Takes at least one row of lists. Returns the new offsets and elements.
fn lists(stream: &Stream, values: &DeviceArray, rows: Rows<'_>) -> Result<(Buffer, DeviceArray)> {
    let Some(elements) = values.children().first() else {
        return Err(Error::internal("lists without elements"));
    };
    let offsets = values.buffers().get(1).and_then(Option::as_ref).filter(|_| !values.is_empty());
    // Reads the begin and the end of each list.
    let [begins, ends] = [0, 1].map(|next| {
        let source =
            Source { buffer: offsets, at: (values.offset() + next) * OFFSET_BYTES, len: values.len() };
        rows.of(stream, source, OFFSET_BYTES)
    });
    let (begins, ends) = (begins?, ends?);
    let of = IntType { width_bytes: OFFSET_BYTES, signed: true };
    let numbers = |buffer| Integers { buffer, at: 0, len: rows.len, of };
    let validity = rows.valid.map(|(bits, first)| (bits, *first));
    let from = (numbers(&begins), numbers(&ends));
    let all =
        Lists { begins: from.0, ends_or_sizes: from.1, has_ends: true, validity, elements: elements.len() };
    gather_lists(stream, all, elements, rows.are_in_range)?.map_err(|invalid| match invalid {
        InvalidLists::Outside(_) => Error::bad_data(format!(
            "the offsets of lists with {} elements are out of range or descend",
            elements.len()
        )),
        InvalidLists::TooMany => {
            Error::unsupported("the taken lists have more elements than 32-bit offsets can address")
        }
    })
}

/// The reason why lists cannot be gathered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidLists {
    /// The list at this index is out of the range of the elements.
    Outside(u64),
    /// The lists have more elements than 32-bit offsets can address.
    TooMany,
}

/// The 32-bit offsets and the elements of gathered lists. If the elements of the lists are
/// contiguous already, the result shares them.
pub type Gathered = std::result::Result<(Buffer, DeviceArray), InvalidLists>;

/// Gathers lists: creates new offsets and copies the elements to a contiguous array. Blocks until
/// the number of elements is known.
///
/// # Errors
/// Returns an error if the elements are not contiguous and rows of their type cannot be taken (see
/// [`can_take`]).
pub fn gather(stream: &Stream, lists: Lists<'_>, elements: &DeviceArray) -> Result<Gathered> {
    gather_lists(stream, lists, elements, false)
}

/// Like [`gather`]. If `takes_any` is set, the elements may have any type.
fn gather_lists(
    stream: &Stream,
    lists: Lists<'_>,
    elements: &DeviceArray,
    takes_any: bool,
) -> Result<Gathered> {
    let n = lists.begins.len;
    let memory = stream.memory();
    let mut offsets = memory.alloc(stream, n.saturating_add(1).saturating_mul(OFFSET_BYTES))?;
    let mut scratch = memory.alloc(stream, lists.scratch_bytes())?;
    let mut checks = Checks::new();
    let cells = checks.place_lists(lists, &mut offsets, 0, &mut scratch)?;
    let findings = checks.run(stream)?;
    if let Some(at) = findings.first_wrong(cells.wrong) {
        return Ok(Err(InvalidLists::Outside(at)));
    }
    let Ok(total) = i32::try_from(findings.number(cells.elements)) else {
        return Ok(Err(InvalidLists::TooMany));
    };
    let (total, offsets) = (usize::try_from(total).unwrap_or(0), offsets.freeze(stream)?);
    if findings.first_wrong(cells.moved).is_none() {
        return Ok(Ok((offsets, elements.slice(0, total)?)));
    }
    if !takes_any {
        check_can_take(elements.data_type())?;
    }
    let placed = PlacedLists {
        begins: lists.begins,
        offsets: (&offsets, OFFSET_BYTES),
        validity: lists.validity,
        are_in_range: takes_any,
    };
    let elements = placed.elements(stream, &super::with_known_sizes(stream, elements)?, total)?;
    Ok(Ok((offsets, elements)))
}

/// The position of the first element of each list, and the offsets of the gathered lists.
struct PlacedLists<'a> {
    begins: Integers<'a>,
    offsets: (&'a Buffer, usize),
    validity: Option<(&'a Buffer, usize)>,
    /// Whether the elements of all lists exist, also of null lists that are not empty.
    are_in_range: bool,
}

impl PlacedLists<'_> {
    /// Gathers the elements of all lists. `total` is the number of elements.
    fn elements(self, stream: &Stream, elements: &DeviceArray, total: usize) -> Result<DeviceArray> {
        if *elements.data_type() == DataType::UInt8 && elements.null_count() == Some(0) {
            return self.bytes(stream, elements, total);
        }
        let width = row_width(elements.len());
        let mut to = stream.memory().alloc(stream, total.saturating_mul(width))?;
        let mut checks = Checks::new();
        checks.name_elements(self.begins, self.offsets, self.validity, &mut to, 0, (total, width))?;
        checks.run(stream)?;
        let buffer = to.freeze(stream)?;
        let are_in_range = self.are_in_range;
        take_rows(stream, elements, Rows { buffer: &buffer, len: total, width, valid: None, are_in_range })
    }
}

impl PlacedLists<'_> {
    /// Gathers the elements of lists of bytes without nulls.
    fn bytes(self, stream: &Stream, elements: &DeviceArray, total: usize) -> Result<DeviceArray> {
        let buffer = elements.buffers().get(1).and_then(Option::as_ref);
        let data = Source { buffer, at: elements.offset(), len: elements.len() };
        let mut to = stream.memory().alloc(stream, total)?;
        let mut checks = Checks::new();
        checks.gather_bytes(self.begins, self.offsets, self.validity, data, &mut to, 0, total)?;
        checks.run(stream)?;
        let buffers = vec![None, Some(to.freeze(stream)?)];
        DeviceArray::try_new(DataType::UInt8, total, 0, Some(0), buffers, Vec::new(), None)
    }
}

/// Gathers the elements of lists that all have `size` elements.
fn elements_of_fixed_size(
    stream: &Stream,
    values: &DeviceArray,
    rows: Rows<'_>,
    size: usize,
) -> Result<DeviceArray> {
    let Some(child) = values.children().first() else {
        return Err(Error::internal("lists without elements"));
    };
    let total = rows.len.checked_mul(size).filter(|total| i64::try_from(*total).is_ok());
    let total = total.ok_or_else(|| {
        Error::unsupported(format!(
            "{} lists of {size} elements exceed the maximum length of an array",
            rows.len
        ))
    })?;
    if total == 0 {
        return DeviceArray::empty(child.data_type());
    }
    let elements = child.slice(values.offset() * size, values.len() * size)?;
    let (at_width, to_width) = (row_width(elements.len()), row_width(total));
    let at = sequence(stream, values.len(), size, at_width)?;
    let to = sequence(stream, rows.len + 1, size, to_width)?;
    let begins = rows.of(stream, Source { buffer: Some(&at), at: 0, len: values.len() }, at_width)?;
    let of = IntType { width_bytes: at_width, signed: false };
    let begins = Integers { buffer: &begins, at: 0, len: rows.len, of };
    // The elements of a null list exist if the index of its row is in range.
    let validity = rows.valid.filter(|_| !rows.are_in_range).map(|(bits, first)| (bits, *first));
    let are_in_range = rows.are_in_range;
    PlacedLists { begins, offsets: (&to, to_width), validity, are_in_range }
        .elements(stream, &elements, total)
}

/// Returns `n` integers: 0, `step`, 2 * `step`, ...
pub(crate) fn sequence(stream: &Stream, n: usize, step: usize, width_bytes: usize) -> Result<Buffer> {
    let mut to = stream.memory().alloc(stream, n.saturating_mul(width_bytes))?;
    let mut checks = Checks::new();
    checks.sequence(0, step as u64, &mut to, Words { at: 0, len: n, width_bytes }, &[])?;
    checks.run(stream)?;
    to.freeze(stream)
}
