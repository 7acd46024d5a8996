//! Converts literals to values of a type.

use arrow_schema::DataType;
use crossdock_memory::{Error, Result};

use super::comparison::{Comparison, Constant};
use super::literal::{Literal, Operator};
use super::round;

/// The bytes of a literal as a value of type `data_type`; a boolean is one byte. A number is
/// rounded to the nearest float, and is converted exactly to any other type.
///
/// # Errors
/// Returns an error if the type cannot represent the literal, or is nested.
pub(crate) fn value_bytes(data_type: &DataType, literal: &Literal) -> Result<Vec<u8>> {
    let number = match literal {
        Literal::Float(x) => Some(*x),
        Literal::Decimal(number) => Some(number.to_f64()),
        _ => None,
    };
    match (data_type, number) {
        (DataType::Float64, Some(x)) => return Ok(x.to_ne_bytes().to_vec()),
        (DataType::Float32, Some(x)) => return Ok((x as f32).to_ne_bytes().to_vec()),
        (DataType::Float16, Some(x)) => return Ok(round::to_f16(x).to_ne_bytes().to_vec()),
        _ => {}
    }
    let cannot = |why: &str| {
        Error::invalid_argument(format!(
            "{literal} cannot be a value of type {}{why}",
            crate::type_name(data_type)
        ))
    };
    let comparison = Comparison::new(data_type, Operator::Equal, literal).map_err(|error| {
        let message = error.message().replace("cannot be compared with", "cannot be");
        Error::invalid_argument(message)
    })?;
    let bytes = match comparison {
        Comparison::With(Operator::Equal, Constant::Bool(truth)) => vec![u8::from(truth)],
        _ if has_too_many_digits(data_type, literal) => {
            return Err(cannot(": it has more digits than the precision of the type"));
        }
        Comparison::With(Operator::Equal, constant) => constant.bytes(),
        _ => return Err(cannot(": the type cannot represent this number exactly")),
    };
    match data_type {
        DataType::FixedSizeBinary(size) if usize::try_from(*size).ok() != Some(bytes.len()) => {
            Err(cannot(&format!(": expected {size} bytes, got {}", bytes.len())))
        }
        _ => Ok(bytes),
    }
}

fn has_too_many_digits(data_type: &DataType, literal: &Literal) -> bool {
    use DataType::{Decimal32, Decimal64, Decimal128, Decimal256};
    match (data_type, literal) {
        (
            Decimal32(precision, scale)
            | Decimal64(precision, scale)
            | Decimal128(precision, scale)
            | Decimal256(precision, scale),
            Literal::Decimal(number),
        ) => number.digits_at((*scale).into()) > (*precision).into(),
        _ => false,
    }
}
