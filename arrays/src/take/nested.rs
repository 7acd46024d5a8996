//! Rows of arrays of any type that is made of those with slots: structs, lists and maps of them, and nulls.

use arrow_schema::DataType;
use crossdock_kernels::{Checks, IntType, Integers, Lists, Numbers, Source, Words};
use crossdock_memory::{Buffer, Error, Result, Stream};

use super::{Slot, Slots, Validity, led};
use crate::DeviceArray;

/// Bytes of an offset.
const OFFSET: usize = 4;

/// Whether rows of arrays of a type can be taken.
pub fn takes(data_type: &DataType) -> bool {
    match data_type {
        DataType::Null => true,
        DataType::Struct(fields) => fields.iter().all(|field| takes(field.data_type())),
        DataType::List(field) | DataType::Map(field, _) | DataType::FixedSizeList(field, _) => {
            takes(field.data_type())
        }
        other => Slot::of(other).is_some(),
    }
}

/// Refuses a type whose rows are not taken.
pub(super) fn check_takes(data_type: &DataType) -> Result<()> {
    if takes(data_type) {
        return Ok(());
    }
    Err(Error::unsupported(format!("values of {data_type} are not taken by their rows")))
}

/// Bytes that the number of each of so many rows needs: 4 or 8. All ones is none of them.
pub fn row_width(rows: usize) -> usize {
    if u32::try_from(rows).is_ok() { 4 } else { 8 }
}

/// Rows that are wanted of an array, in order. Those that it has not got are none that are null here or further up: of them
/// comes what has no bits set, or no elements.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    /// Their numbers, of 4 or 8 bytes.
    pub buffer: &'a Buffer,
    pub len: usize,
    pub width: usize,
    /// Which of them there are; `None`: all.
    pub valid: Option<&'a Validity>,
}

impl Rows<'_> {
    /// Those of values in slots.
    fn of(&self, stream: &Stream, source: Source<'_>, width: usize) -> Result<Buffer> {
        let mut to = stream.memory().alloc(stream, self.len.saturating_mul(width))?;
        let names = Numbers { buffer: self.buffer, at: 0, len: self.len, width_bytes: self.width };
        let mut checks = Checks::new();
        checks.take(names, None, source, &mut to, 0, width)?;
        checks.run(stream)?;
        to.freeze(stream)
    }

    /// Where they and `values` are valid.
    fn validity(&self, stream: &Stream, values: &DeviceArray) -> Result<Option<Validity>> {
        let lead = |slots: &Slots| self.of(stream, slots.source(), slots.width).map(Ok);
        super::led_validity(stream, values, self.len, self.valid.cloned(), &lead)?.map_err(refused)
    }
}

/// The rows of an array of which [`takes`] says that they can be taken.
pub(super) fn take_rows(stream: &Stream, values: &DeviceArray, rows: Rows<'_>) -> Result<DeviceArray> {
    let data_type = values.data_type();
    if rows.len == 0 {
        return DeviceArray::empty(data_type);
    }
    if *data_type == DataType::Null {
        return DeviceArray::try_new(DataType::Null, rows.len, 0, None, Vec::new(), Vec::new(), None);
    }
    if Slot::of(data_type).is_some() {
        let lead = |slots: &Slots| rows.of(stream, slots.source(), slots.width).map(Ok);
        return led(stream, values, rows.len, rows.valid.cloned(), &lead)?.map_err(refused);
    }
    let validity = rows.validity(stream, values)?;
    let below = Rows { valid: validity.as_ref(), ..rows };
    let (offsets, children) = match data_type {
        DataType::FixedSizeList(_, size) => {
            (None, vec![elements_of_a_size(stream, values, below, usize::try_from(*size).unwrap_or(0))?])
        }
        DataType::List(_) | DataType::Map(..) => {
            let (offsets, elements) = lists(stream, values, below)?;
            (Some(offsets), vec![elements])
        }
        _ => {
            let rows_of =
                |child: &DeviceArray| take_rows(stream, &child.slice(values.offset(), values.len())?, below);
            (None, values.children().iter().map(rows_of).collect::<Result<_>>()?)
        }
    };
    let null_count = if validity.is_none() { Some(0) } else { None };
    let bits = super::aligned(stream, validity.as_ref(), rows.len)?;
    let buffers = std::iter::once(bits).chain(offsets.map(Some)).collect();
    DeviceArray::try_new(data_type.clone(), rows.len, 0, null_count, buffers, children, None)
}

fn refused(at: u64) -> Error {
    Error::internal(format!("row {at} was refused, where any is taken"))
}

/// Of lists, of which there is a row at least, the new offsets and the elements.
fn lists(stream: &Stream, values: &DeviceArray, rows: Rows<'_>) -> Result<(Buffer, DeviceArray)> {
    let Some(elements) = values.children().first() else {
        return Err(Error::internal("lists without elements"));
    };
    let offsets = values.buffers().get(1).and_then(Option::as_ref).filter(|_| !values.is_empty());
    // Where each begins, and where it ends.
    let [begins, ends] = [0, 1].map(|next| {
        let source = Source { buffer: offsets, at: (values.offset() + next) * OFFSET, len: values.len() };
        rows.of(stream, source, OFFSET)
    });
    let (begins, ends) = (begins?, ends?);
    let of = IntType { width_bytes: OFFSET, signed: true };
    let numbers = |buffer| Integers { buffer, at: 0, len: rows.len, of };
    let validity = rows.valid.map(|(bits, first)| (bits, *first));
    let from = (numbers(&begins), numbers(&ends));
    let all = Lists { begins: from.0, rest: from.1, ends: true, validity, elements: elements.len() };
    gather(stream, all, elements)?.map_err(|wrong| match wrong {
        WrongLists::Outside(_) => Error::bad_data(format!(
            "offsets of lists into {} elements: expected ones that do not fall, within them",
            elements.len()
        )),
        WrongLists::TooMany => Error::unsupported(
            "lists that are named have more elements together than offsets of 32 bits reach to",
        ),
    })
}

/// Why lists are not put one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrongLists {
    /// That one is not within the elements.
    Outside(u64),
    /// They have more elements than offsets of 32 bits reach to.
    TooMany,
}

/// Lists put one after the other: their offsets, of 32 bits, and their elements, which are used where they lie if they lie so.
pub type Gathered = std::result::Result<(Buffer, DeviceArray), WrongLists>;

/// Puts lists one after the other. Blocks until it is known how many elements they have.
///
/// # Errors
/// Elements that do not lie so already are of a type whose rows are not taken (see [`takes`]).
pub fn gather(stream: &Stream, lists: Lists<'_>, elements: &DeviceArray) -> Result<Gathered> {
    let n = lists.begins.len;
    let memory = stream.memory();
    let mut offsets = memory.alloc(stream, n.saturating_add(1).saturating_mul(OFFSET))?;
    let mut room = memory.alloc(stream, lists.bytes_to_place())?;
    let mut checks = Checks::new();
    let cells = checks.place_lists(lists, &mut offsets, 0, &mut room)?;
    let found = checks.run(stream)?;
    if let Some(at) = found.first_wrong(cells.wrong) {
        return Ok(Err(WrongLists::Outside(at)));
    }
    let Ok(total) = i32::try_from(found.number(cells.elements)) else { return Ok(Err(WrongLists::TooMany)) };
    let (total, offsets) = (usize::try_from(total).unwrap_or(0), offsets.freeze(stream)?);
    if found.first_wrong(cells.moved).is_none() {
        return Ok(Ok((offsets, elements.slice(0, total)?)));
    }
    check_takes(elements.data_type())?;
    let named = Named { begins: lists.begins, offsets: (&offsets, OFFSET), validity: lists.validity };
    let elements = named.elements(stream, &super::resolved(stream, elements)?, total)?;
    Ok(Ok((offsets, elements)))
}

/// Where lists begin, and where they are put.
struct Named<'a> {
    begins: Integers<'a>,
    offsets: (&'a Buffer, usize),
    validity: Option<(&'a Buffer, usize)>,
}

impl Named<'_> {
    /// All of their elements, one list's after the other's, so many together.
    fn elements(self, stream: &Stream, elements: &DeviceArray, total: usize) -> Result<DeviceArray> {
        let width = row_width(elements.len());
        let mut to = stream.memory().alloc(stream, total.saturating_mul(width))?;
        let mut checks = Checks::new();
        checks.name_elements(self.begins, self.offsets, self.validity, &mut to, 0, (total, width))?;
        checks.run(stream)?;
        let buffer = to.freeze(stream)?;
        take_rows(stream, elements, Rows { buffer: &buffer, len: total, width, valid: None })
    }
}

/// The elements of lists of `size` each.
fn elements_of_a_size(
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
        Error::unsupported(format!("{} lists of {size} elements are beyond what Arrow can count", rows.len))
    })?;
    if total == 0 {
        return DeviceArray::empty(child.data_type());
    }
    let elements = child.slice(values.offset() * size, values.len() * size)?;
    let (at_width, to_width) = (row_width(elements.len()), row_width(total));
    let at = counted(stream, values.len(), size, at_width)?;
    let to = counted(stream, rows.len + 1, size, to_width)?;
    let begins = rows.of(stream, Source { buffer: Some(&at), at: 0, len: values.len() }, at_width)?;
    let of = IntType { width_bytes: at_width, signed: false };
    let begins = Integers { buffer: &begins, at: 0, len: rows.len, of };
    let validity = rows.valid.map(|(bits, first)| (bits, *first));
    Named { begins, offsets: (&to, to_width), validity }.elements(stream, &elements, total)
}

/// `n` numbers from 0 on, by `step`.
pub(super) fn counted(stream: &Stream, n: usize, step: usize, width_bytes: usize) -> Result<Buffer> {
    let mut to = stream.memory().alloc(stream, n.saturating_mul(width_bytes))?;
    let mut checks = Checks::new();
    checks.sequence(0, step as u64, &mut to, Words { at: 0, len: n, width_bytes }, &[])?;
    checks.run(stream)?;
    to.freeze(stream)
}
