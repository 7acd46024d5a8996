//! Values of one width, whatever they mean: numbers, decimals, times, views of strings; and bits.

use arrow_schema::DataType;
use crossdock_arrays::DeviceArray;
pub use crossdock_arrays::take::Slot;
use crossdock_memory::{Buffer, HostView};
use crossdock_plugin_api::Result;

use crate::cpu::bits::{self, Bits};
use crate::cpu::words::Index;
use crate::job::{Job, Plain, Values};
use crate::node::Node;
use crate::validity::Validity;

/// How the values of a node's type lie; `None` where they are arrays themselves.
pub fn slot(node: &Node<'_>) -> Option<Slot> {
    Slot::of(node.data_type())
}

/// Bytes of a node's values and their validity; of values that are arrays, of the numbers of their rows.
pub fn size(node: &Node<'_>) -> Result<Option<usize>> {
    let bits = node.len.div_ceil(8);
    Ok(Some(match slot(node) {
        Some(Slot::Bit) => bits.saturating_mul(2),
        Some(Slot::Bytes(width)) => node.len.saturating_mul(width).saturating_add(bits),
        None => node.len.saturating_mul(size_of::<u64>()),
    }))
}

/// Runs `$body` with `$t` as a type of so many bytes.
macro_rules! by_width {
    ($job:expr, $width:expr, $t:ident => $body:expr) => {
        match $width {
            1 => {
                type $t = u8;
                $body
            }
            2 => {
                type $t = u16;
                $body
            }
            4 => {
                type $t = u32;
                $body
            }
            8 => {
                type $t = u64;
                $body
            }
            16 => {
                // Of bytes, which go through one register; halves of a number go through two.
                type $t = [u8; 16];
                $body
            }
            32 => {
                type $t = [u64; 4];
                $body
            }
            other => Err($job.node.wrong(format_args!("values of {other} bytes each are not decoded here"))),
        }
    };
}
pub(super) use by_width;

/// Runs `$body` with `$names` as the integers of an array as they count: in place where they are of one of these types, and
/// else as [`counts`].
macro_rules! by_counts {
    ($job:expr, $array:expr, $names:ident: $($type:ident $t:ty),* => $body:expr) => {{
        let array = $array;
        match array.data_type() {
            $( arrow_schema::DataType::$type => {
                let values = crate::job::Values::of(array, $job.stream)?;
                let $names = values.get::<$t>()?;
                $body
            } )*
            _ => {
                let $names = &crate::kinds::slots::counts($job, array)?[..];
                $body
            }
        }
    }};
}
pub(super) use by_counts;

/// The same with those in place that codes, indices and ends of runs are of.
macro_rules! by_integers {
    ($job:expr, $array:expr, $names:ident => $body:expr) => {
        crate::kinds::slots::by_counts!(
            $job, $array, $names: UInt8 u8, UInt16 u16, UInt32 u32, UInt64 u64 => $body
        )
    };
}
pub(super) use by_integers;

/// Integers of any type as they count: what is negative is more than there can be.
pub fn counts(job: &Job<'_>, array: &DeviceArray) -> Result<Vec<u64>> {
    job.afford(array.len().saturating_mul(size_of::<u64>()))?;
    let values = Values::of(array, job.stream)?;
    fn widened<I: Index + Plain>(values: &Values<'_>) -> Result<Vec<u64>> {
        Ok(values.get::<I>()?.iter().map(|value| value.index() as u64).collect())
    }
    match array.data_type() {
        DataType::UInt8 => widened::<u8>(&values),
        DataType::UInt16 => widened::<u16>(&values),
        DataType::UInt32 => widened::<u32>(&values),
        DataType::UInt64 => widened::<u64>(&values),
        DataType::Int8 => widened::<i8>(&values),
        DataType::Int16 => widened::<i16>(&values),
        DataType::Int32 => widened::<i32>(&values),
        DataType::Int64 => widened::<i64>(&values),
        other => Err(job.node.wrong(format_args!("{other} was given, expected integers"))),
    }
}

/// An array's values and validity, in reach.
pub struct Source<'a> {
    array: &'a DeviceArray,
    bits: Option<HostView<'a>>,
    validity: Option<HostView<'a>>,
    values: Option<Values<'a>>,
}

impl<'a> Source<'a> {
    /// Of an array whose values lie in slots.
    pub fn of(job: &Job<'_>, array: &'a DeviceArray) -> Result<Self> {
        let view = |i: usize| {
            let buffer = array.buffers().get(i).and_then(Option::as_ref).filter(|_| !array.is_empty());
            buffer.map(|buffer: &'a Buffer| buffer.host_view(job.stream)).transpose()
        };
        let has_nulls = array.null_count() != Some(0) && array.layout().has_validity;
        let is_bits = *array.data_type() == DataType::Boolean;
        Ok(Self {
            array,
            bits: if is_bits { view(1)? } else { None },
            validity: if has_nulls { view(0)? } else { None },
            values: if is_bits { None } else { Some(Values::of(array, job.stream)?) },
        })
    }

    /// Only which values are valid, of an array of any type.
    pub fn of_validity(job: &Job<'_>, array: &'a DeviceArray) -> Result<Self> {
        let has_nulls = array.null_count() != Some(0) && array.layout().has_validity && !array.is_empty();
        let buffer = array.buffers().first().and_then(Option::as_ref).filter(|_| has_nulls);
        let validity = buffer.map(|buffer| buffer.host_view(job.stream)).transpose()?;
        Ok(Self { array, bits: None, validity, values: None })
    }

    fn of_view<'v>(&self, view: &'v Option<HostView<'a>>) -> Result<Option<Bits<'v>>> {
        let bits = |view: &'v HostView<'a>| Bits::new(view, self.array.offset(), self.array.len());
        view.as_ref().map(bits).transpose()
    }

    /// Which values are valid; `None`: all of them.
    pub fn valid(&self) -> Result<Option<Bits<'_>>> {
        self.of_view(&self.validity)
    }

    /// Truth values.
    pub fn truths(&self) -> Result<Bits<'_>> {
        match self.of_view(&self.bits)? {
            Some(bits) => Ok(bits),
            None => Bits::new(&[], 0, 0),
        }
    }

    /// The slots.
    pub fn slots<T: Plain>(&self) -> Result<&[T]> {
        self.values.as_ref().map_or(Ok(&[]), Values::get)
    }

    /// What views point into.
    pub fn data(&self) -> impl Iterator<Item = Option<Buffer>> + use<'a> {
        let variadic = self.array.layout().variadic;
        self.array.buffers().iter().skip(2).filter(move |_| variadic).cloned()
    }
}

/// An array of the node's type out of slots or bits, what views point into, and a bitmap.
pub fn array(
    job: &Job<'_>,
    slots: Buffer,
    data: impl Iterator<Item = Option<Buffer>>,
    validity: Validity,
) -> Result<DeviceArray> {
    job.array(job.node.data_type(), validity, std::iter::once(Some(slots)).chain(data).collect())
}

/// A bitmap of the node's length that `fill` writes.
pub fn bitmap(job: &Job<'_>, fill: &mut dyn FnMut(&mut [u8]) -> Result<()>) -> Result<Buffer> {
    job.make(bits::bytes_of(job.node.len), fill)
}

/// The validity that `fill` writes.
pub fn validity(job: &Job<'_>, fill: &mut dyn FnMut(&mut [u8]) -> Result<()>) -> Result<Validity> {
    Ok(Validity { bits: Some(bitmap(job, fill)?), null_count: None })
}
