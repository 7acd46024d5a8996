//! Operations on columns, on any device: takes and filters rows, fills nulls, casts, and encodes
//! dictionaries.

mod cast;
mod convert_numbers;
mod dictionary_encode;
mod fill_null;
mod filter_rows;
mod host_casts;
mod lists;
mod take_rows;
mod texts;
mod units;

pub use cast::cast_values;
pub use convert_numbers::{can_cast, cast};
pub use dictionary_encode::dictionary_encode;
pub use fill_null::{fill_null, first_null, null_mask};
pub use filter_rows::filter_rows;
pub use lists::{elements_and_offsets, lists_of_fixed_size};
pub use take_rows::RowIndices;

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema};
use crossdock_memory::{Buffer, Result, Stream};

use crate::take::{Validity, byte_aligned_bits};
use crate::{DeviceArray, DeviceBatch};

/// Whether a cast may lose information.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CastMode {
    /// A value that the type cannot represent is an error. A float is rounded to a narrower float.
    Safe,
    /// An integer that does not fit loses its upper bits, a float is truncated towards 0 and
    /// limited to the range of the type, NaN becomes 0, and a time is truncated towards 0. A
    /// decimal loses the digits that the type has no place for; its overflow is an error.
    Unsafe,
}

/// The values of `array` with another validity: `bits` from bit 0 on, or no nulls. The offset of
/// the array must be 0.
fn with_validity(array: &DeviceArray, bits: Option<Buffer>) -> Result<DeviceArray> {
    let nulls = if bits.is_none() { Some(0) } else { None };
    let buffers = std::iter::once(bits).chain(array.buffers().iter().skip(1).cloned()).collect();
    let (children, dictionary) = (array.children().to_vec(), array.dictionary().cloned());
    DeviceArray::try_new(
        array.data_type().clone(),
        array.len(),
        array.offset(),
        nulls,
        buffers,
        children,
        dictionary,
    )
}

/// A batch of one column.
fn batch_of(array: &DeviceArray) -> Result<DeviceBatch> {
    let schema = Schema::new(vec![Field::new("", array.data_type().clone(), true)]);
    DeviceBatch::try_new(Arc::new(schema), array.len(), vec![array.clone()])
}

/// The bitmap of a validity, from bit 0 on.
fn aligned(stream: &Stream, validity: Option<Validity>, len: usize) -> Result<Option<Buffer>> {
    validity.map(|(bits, first)| byte_aligned_bits(stream, &bits, first, len)).transpose()
}

/// An array of the values in `values`, with the validity of `array`.
fn numbers_of(
    array: &DeviceArray,
    of: DataType,
    values: Option<Buffer>,
    stream: &Stream,
) -> Result<DeviceArray> {
    let bits = aligned(stream, array.validity_bits(), array.len())?;
    let nulls = if bits.is_none() { Some(0) } else { array.null_count() };
    DeviceArray::try_new(of, array.len(), 0, nulls, vec![bits, values], Vec::new(), None)
}

fn is_decimal(data_type: &DataType) -> bool {
    decimal_scale(data_type).is_some()
}

fn decimal_scale(of: &DataType) -> Option<i8> {
    use DataType::{Decimal32, Decimal64, Decimal128, Decimal256};
    match of {
        Decimal32(_, scale) | Decimal64(_, scale) | Decimal128(_, scale) | Decimal256(_, scale) => {
            Some(*scale)
        }
        _ => None,
    }
}
