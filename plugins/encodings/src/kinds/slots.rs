//! Accesses values of fixed width (slots: numbers, decimals, times, string views) and bits.

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

/// The slot of a node's type; `None` for nested types.
pub fn slot(node: &Node<'_>) -> Option<Slot> {
    Slot::of(node.data_type())
}

/// Size in bytes of a node's values and validity. For a nested type, this is the size of the row
/// indices.
pub fn size(node: &Node<'_>) -> Result<Option<usize>> {
    let bits = node.len.div_ceil(8);
    Ok(Some(match slot(node) {
        Some(Slot::Bit) => bits.saturating_mul(2),
        Some(Slot::Bytes(width)) => node.len.saturating_mul(width).saturating_add(bits),
        None => node.len.saturating_mul(size_of::<u64>()),
    }))
}

/// Runs `$body` with `$t` as a type of `$width` bytes.
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
                // An array of bytes is copied with one vector register. A `u128` would use two
                // registers.
                type $t = [u8; 16];
                $body
            }
            32 => {
                type $t = [u64; 4];
                $body
            }
            other => Err($job.node.wrong(format_args!("values of {other} bytes are unsupported"))),
        }
    };
}
pub(super) use by_width;

/// Runs `$body` with `$names` as the integers of an array. Integers of one of the listed types are
/// used in place; all others are converted by [`counts`].
macro_rules! by_counts {
    ($job:expr, $array:expr, $names:ident: $($type:ident $t:ty),* => $body:expr) => {{
        let array = $array;
        match array.data_type() {
            $( arrow_schema::DataType::$type => {
                let values = crate::job::Values::new(array, $job.stream)?;
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

/// Like [`by_counts`], with the unsigned integers as the listed types.
macro_rules! by_integers {
    ($job:expr, $array:expr, $names:ident => $body:expr) => {
        crate::kinds::slots::by_counts!(
            $job, $array, $names: UInt8 u8, UInt16 u16, UInt32 u32, UInt64 u64 => $body
        )
    };
}
pub(super) use by_integers;

/// Converts integers of any type to `u64`. Negative integers become the greatest index.
pub fn counts(job: &Job<'_>, array: &DeviceArray) -> Result<Vec<u64>> {
    job.check_available(array.len().saturating_mul(size_of::<u64>()))?;
    let values = Values::new(array, job.stream)?;
    fn widen<I: Index + Plain>(values: &Values<'_>) -> Result<Vec<u64>> {
        Ok(values.get::<I>()?.iter().map(|value| value.index() as u64).collect())
    }
    match array.data_type() {
        DataType::UInt8 => widen::<u8>(&values),
        DataType::UInt16 => widen::<u16>(&values),
        DataType::UInt32 => widen::<u32>(&values),
        DataType::UInt64 => widen::<u64>(&values),
        DataType::Int8 => widen::<i8>(&values),
        DataType::Int16 => widen::<i16>(&values),
        DataType::Int32 => widen::<i32>(&values),
        DataType::Int64 => widen::<i64>(&values),
        other => Err(job
            .node
            .wrong(format_args!("the type is {}, expected integers", crossdock_arrays::type_name(other)))),
    }
}

/// Host views of an array's values and validity.
pub struct Source<'a> {
    array: &'a DeviceArray,
    bits: Option<HostView<'a>>,
    validity: Option<HostView<'a>>,
    values: Option<Values<'a>>,
}

impl<'a> Source<'a> {
    /// Views an array whose values are slots or bits.
    pub fn new(job: &Job<'_>, array: &'a DeviceArray) -> Result<Self> {
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
            values: if is_bits { None } else { Some(Values::new(array, job.stream)?) },
        })
    }

    /// Views only the validity of an array. The array may have any type.
    pub fn from_validity(job: &Job<'_>, array: &'a DeviceArray) -> Result<Self> {
        let has_nulls = array.null_count() != Some(0) && array.layout().has_validity && !array.is_empty();
        let buffer = array.buffers().first().and_then(Option::as_ref).filter(|_| has_nulls);
        let validity = buffer.map(|buffer| buffer.host_view(job.stream)).transpose()?;
        Ok(Self { array, bits: None, validity, values: None })
    }

    fn bits_of<'v>(&self, view: &'v Option<HostView<'a>>) -> Result<Option<Bits<'v>>> {
        let bits = |view: &'v HostView<'a>| Bits::new(view, self.array.offset(), self.array.len());
        view.as_ref().map(bits).transpose()
    }

    /// The validity bitmap; `None` if all values are valid.
    pub fn valid(&self) -> Result<Option<Bits<'_>>> {
        self.bits_of(&self.validity)
    }

    /// The bools.
    pub fn bools(&self) -> Result<Bits<'_>> {
        match self.bits_of(&self.bits)? {
            Some(bits) => Ok(bits),
            None => Bits::new(&[], 0, 0),
        }
    }

    /// The slots.
    pub fn slots<T: Plain>(&self) -> Result<&[T]> {
        self.values.as_ref().map_or(Ok(&[]), Values::get)
    }

    /// The data buffers of views.
    pub fn data(&self) -> impl Iterator<Item = Option<Buffer>> + use<'a> {
        let variadic = self.array.layout().variadic;
        self.array.buffers().iter().skip(2).filter(move |_| variadic).cloned()
    }
}

/// Builds an array of the node's type from slots or bits, the data buffers of views, and a
/// validity.
pub fn array(
    job: &Job<'_>,
    slots: Buffer,
    data: impl Iterator<Item = Option<Buffer>>,
    validity: Validity,
) -> Result<DeviceArray> {
    job.array(job.node.data_type(), validity, std::iter::once(Some(slots)).chain(data).collect())
}

/// Allocates a bitmap of the node's length, which `fill` writes.
pub fn bitmap(job: &Job<'_>, fill: &mut dyn FnMut(&mut [u8]) -> Result<()>) -> Result<Buffer> {
    job.make(bits::bitmap_bytes(job.node.len), fill)
}

/// Allocates a validity bitmap, which `fill` writes.
pub fn validity(job: &Job<'_>, fill: &mut dyn FnMut(&mut [u8]) -> Result<()>) -> Result<Validity> {
    Ok(Validity { bits: Some(bitmap(job, fill)?), null_count: None })
}
