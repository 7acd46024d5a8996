//! Comparisons with values of the type of a column.

use arrow_schema::DataType;
use crossdock_kernels::{ComparedType, NumberType};
use crossdock_memory::{Error, Result};
use crossdock_plugin_api as api;

use super::exact::{Decimal, Exact, Place, among_f64, among_units};
use super::literal::{Literal, Operator, number_type};
use super::{parse, round};
use crate::layout::format_of;
use crate::type_name;

/// A comparison whose literal has the type of the column.
#[derive(Clone, Debug, PartialEq)]
pub enum Comparison {
    /// No value fulfils the comparison.
    Never,
    /// Each value that is not null fulfils the comparison.
    NotNull,
    /// Values are compared with a value of their type.
    With(Operator, Constant),
}

/// A value of the type of a column.
#[derive(Clone, Debug, PartialEq)]
pub enum Constant {
    /// A truth value.
    Bool(bool),
    /// A number, as [`Jobs::compare_numbers`](crossdock_kernels::Jobs::compare_numbers) expects it.
    Number(ComparedType, [u64; 4]),
    /// Bytes, of text too.
    Bytes(Vec<u8>),
}

impl Constant {
    /// The bytes of the value in a buffer of an array; a truth value is one bit.
    pub fn bytes(&self) -> Vec<u8> {
        let (of, words) = match self {
            Self::Bool(truth) => return vec![u8::from(*truth)],
            Self::Bytes(bytes) => return bytes.clone(),
            Self::Number(of, words) => (of, words),
        };
        let [low, ..] = words;
        match of {
            ComparedType::Number(NumberType::Float16) => {
                round::to_f16(f64::from_bits(*low)).to_ne_bytes().to_vec()
            }
            ComparedType::Number(NumberType::Float32) => (f64::from_bits(*low) as f32).to_ne_bytes().to_vec(),
            _ => words.iter().flat_map(|word| word.to_le_bytes()).take(of.width_bytes()).collect(),
        }
    }
}

impl Constant {
    /// Reads the bytes of a value of type `data_type`, as [`Constant::bytes`] returns them. `None`
    /// if values of the type cannot be compared, or have another number of bytes.
    fn read(data_type: &DataType, bytes: &[u8]) -> Option<Self> {
        match data_type {
            DataType::Boolean => return Some(Self::Bool(*bytes.first()? & 1 == 1)),
            DataType::Utf8
            | DataType::LargeUtf8
            | DataType::Utf8View
            | DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::FixedSizeBinary(_) => return Some(Self::Bytes(bytes.to_vec())),
            _ => {}
        }
        let (of, _) = number_type(data_type)?;
        if bytes.len() != of.width_bytes() {
            return None;
        }
        let float = |x: f64| Some(Self::Number(of, [x.to_bits(), 0, 0, 0]));
        match of {
            ComparedType::Number(NumberType::Float16) => {
                return float(round::of_f16(u16::from_ne_bytes(*bytes.first_chunk()?)));
            }
            ComparedType::Number(NumberType::Float32) => {
                return float(f32::from_ne_bytes(*bytes.first_chunk()?).into());
            }
            _ => {}
        }
        let is_negative = bytes.last().is_some_and(|byte| byte >> 7 == 1);
        let is_unsigned = data_type.is_unsigned_integer() || of == ComparedType::Number(NumberType::Float64);
        let fill = if is_negative && !is_unsigned { u8::MAX } else { 0 };
        let mut all = [fill; 32];
        all.iter_mut().zip(bytes).for_each(|(to, byte)| *to = *byte);
        let words = all.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        let mut number = [0; 4];
        number.iter_mut().zip(words).for_each(|(to, word)| *to = word);
        Some(Self::Number(of, number))
    }
}

/// The type whose values decide a comparison: for dictionaries and run-end encoded arrays, the type
/// of their values.
pub(crate) fn compared_type(data_type: &DataType) -> &DataType {
    match data_type {
        DataType::Dictionary(_, values) => compared_type(values),
        DataType::RunEndEncoded(_, values) => compared_type(values.data_type()),
        other => other,
    }
}

impl Comparison {
    /// Converts a comparison to the type of a column. Numbers are compared exactly: a literal
    /// between two values of the type becomes a comparison with the lesser of them.
    ///
    /// # Errors
    /// Invalid argument if values of the type cannot be compared with the literal, or if the
    /// literal is NaN.
    pub fn new(data_type: &DataType, operator: Operator, literal: &Literal) -> Result<Self> {
        let data_type = compared_type(data_type);
        if let Literal::Unparsed(text) = literal {
            return Self::new(data_type, operator, &parse::literal(text, data_type)?);
        }
        let wrong = || match expected(data_type) {
            Some(expected) => Error::invalid_argument(format!(
                "values of type {} cannot be compared with {literal}, expected {expected}",
                type_name(data_type)
            )),
            None => {
                Error::invalid_argument(format!("values of type {} cannot be compared", type_name(data_type)))
            }
        };
        let with = |constant| Ok(Self::With(operator, constant));
        match (data_type, literal) {
            (DataType::Boolean, Literal::Bool(truth)) => return with(Constant::Bool(*truth)),
            (DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View, Literal::Text(text)) => {
                return with(Constant::Bytes(text.clone().into_bytes()));
            }
            (
                DataType::Binary
                | DataType::LargeBinary
                | DataType::BinaryView
                | DataType::FixedSizeBinary(_),
                Literal::Bytes(bytes),
            ) => return with(Constant::Bytes(bytes.clone())),
            _ => {}
        }
        let (of, scale) = number_type(data_type).ok_or_else(wrong)?;
        let number = exact(data_type, literal)?.ok_or_else(wrong)?;
        Ok(match of {
            ComparedType::Number(NumberType::Float64 | NumberType::Float32 | NumberType::Float16) => {
                let place = match of {
                    ComparedType::Number(NumberType::Float64) => among_f64(number),
                    ComparedType::Number(NumberType::Float32) => round::among(
                        among_f64(number),
                        |x| f64::from(x as f32),
                        |x| f64::from((x as f32).next_down()),
                    ),
                    _ => round::among(
                        among_f64(number),
                        |x| round::of_f16(round::to_f16(x)),
                        round::f16_before,
                    ),
                };
                Self::at(operator, of, place, |x| [x.to_bits(), 0, 0, 0])
            }
            _ => {
                let place = round::within(among_units(number, scale), of);
                Self::at(operator, of, place, |words| words)
            }
        })
    }

    /// The predicate of a read request for a column of type `data_type`. `None` if the comparison
    /// is not one with a value.
    pub fn for_importer(&self, column: Vec<String>, data_type: &DataType) -> Option<api::Predicate> {
        let Self::With(operator, constant) = self else { return None };
        let format = match (compared_type(data_type), constant) {
            (DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View, _) => "u".into(),
            (_, Constant::Bytes(_)) => "z".into(),
            (other, _) => format_of(other).ok()?,
        };
        let literal = api::Literal { format: format.into_owned(), bytes: constant.bytes() };
        Some(api::Predicate { column, comparison: operator.code(), literal })
    }

    /// The comparison of a predicate of a read request, with a column of type `data_type`. `None`
    /// if the operator is unknown, or if the literal is not a value of the type.
    pub fn from_predicate(data_type: &DataType, predicate: &api::Predicate) -> Option<Self> {
        let data_type = compared_type(data_type);
        let operator = Operator::from_code(predicate.comparison)?;
        let format = match data_type {
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "u".into(),
            DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::FixedSizeBinary(_) => "z".into(),
            other => format_of(other).ok()?,
        };
        if format != predicate.literal.format {
            return None;
        }
        Some(Self::With(operator, Constant::read(data_type, &predicate.literal.bytes)?))
    }

    /// The comparison with the value at a place. A value is less than a literal after it.
    fn at<T>(operator: Operator, of: ComparedType, place: Place<T>, words: impl Fn(T) -> [u64; 4]) -> Self {
        let with = |operator, at| Self::With(operator, Constant::Number(of, words(at)));
        match (place, operator) {
            (Place::At(at), operator) => with(operator, at),
            (Place::After(at), Operator::Less | Operator::LessEqual) => with(Operator::LessEqual, at),
            (Place::After(at), Operator::Greater | Operator::GreaterEqual) => with(Operator::Greater, at),
            (_, Operator::Equal) => Self::Never,
            (_, Operator::NotEqual) => Self::NotNull,
            (Place::Above, Operator::Less | Operator::LessEqual)
            | (Place::Below, Operator::Greater | Operator::GreaterEqual) => Self::NotNull,
            (Place::Above | Place::Below, _) => Self::Never,
        }
    }
}

/// What values of a type can be compared with; `None` if they cannot be compared.
fn expected(data_type: &DataType) -> Option<&'static str> {
    Some(match data_type {
        DataType::Boolean => "a boolean",
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "a string",
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            "bytes"
        }
        DataType::Date32 | DataType::Date64 => "a date, or a timestamp without a time zone",
        DataType::Time32(_) | DataType::Time64(_) => "a time of day",
        DataType::Timestamp(_, None) => "a timestamp without a time zone, or a date",
        DataType::Timestamp(_, Some(_)) => "a timestamp with a time zone",
        DataType::Duration(_) => "a duration",
        other if number_type(other).is_some() => "a number",
        _ => return None,
    })
}

/// The number that represents a literal: seconds for times, except days for [`DataType::Date32`].
/// `None` if the literal has another kind than the type.
fn exact(data_type: &DataType, literal: &Literal) -> Result<Option<Exact>> {
    const DAY: i128 = 86_400;
    let seconds = |ns: i128| Exact::Decimal(Decimal::scaled(ns, 9));
    // A timestamp within a day is after the day and before the next day.
    let days = |ns: i128| {
        let (day, rest) = (ns.div_euclid(DAY * 1_000_000_000), ns.rem_euclid(DAY * 1_000_000_000));
        Exact::Decimal(Decimal::scaled(day * 10 + i128::from(rest != 0) * 5, 1))
    };
    Ok(match (data_type, literal) {
        (DataType::Date32, Literal::Date(days)) => Some(Exact::Decimal(i128::from(*days).into())),
        (DataType::Date32, Literal::Timestamp { ns, has_zone: false }) => Some(days(*ns)),
        (DataType::Date64 | DataType::Timestamp(_, None), Literal::Date(days)) => {
            Some(Exact::Decimal((i128::from(*days) * DAY).into()))
        }
        (DataType::Date64 | DataType::Timestamp(_, None), Literal::Timestamp { ns, has_zone: false })
        | (DataType::Timestamp(_, Some(_)), Literal::Timestamp { ns, has_zone: true })
        | (DataType::Duration(_), Literal::Duration(ns)) => Some(seconds(*ns)),
        (DataType::Time32(_) | DataType::Time64(_), Literal::Time(ns)) => Some(seconds(i128::from(*ns))),
        (other, _) if other.is_temporal() => None,
        (_, Literal::Float(x)) if x.is_nan() => {
            return Err(Error::invalid_argument(
                "NaN is not a value of a comparison, because it equals no number and is neither less nor greater",
            ));
        }
        (_, Literal::Float(x)) => Some(Exact::Float(*x)),
        (_, Literal::Decimal(decimal)) => Some(Exact::Decimal(*decimal)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use arrow_schema::TimeUnit;

    use super::*;

    #[test]
    fn predicate_of_a_request_is_read_as_the_same_comparison() {
        let numbers = [DataType::Int8, DataType::Int64, DataType::UInt8, DataType::UInt64, DataType::Float16];
        let more = [
            DataType::Float32,
            DataType::Float64,
            DataType::Decimal32(5, 0),
            DataType::Decimal128(30, 0),
            DataType::Decimal256(60, 0),
        ];
        let cases = numbers.into_iter().chain(more).flat_map(|data_type| {
            [-3i128, 0, 200, 1 << 40].map(|n| (data_type.clone(), Literal::Decimal(n.into())))
        });
        let cases = cases.chain([
            (DataType::Boolean, Literal::Bool(true)),
            (DataType::Boolean, Literal::Bool(false)),
            (DataType::Utf8View, Literal::Text("ab".into())),
            (DataType::Binary, Literal::Bytes(vec![1, 0])),
            (DataType::Date32, Literal::Date(-7)),
            (DataType::Timestamp(TimeUnit::Nanosecond, None), Literal::Date(-7)),
            (DataType::Float32, Literal::Float(0.1)),
            (DataType::Float64, Literal::Float(-0.1)),
            (DataType::Float64, Literal::Float(f64::INFINITY)),
        ]);
        let mut n_read = 0;
        for (data_type, literal) in cases {
            let comparison = Comparison::new(&data_type, Operator::Less, &literal).unwrap();
            let Some(predicate) = comparison.for_importer(vec!["a".into()], &data_type) else { continue };
            assert_eq!(Comparison::from_predicate(&data_type, &predicate), Some(comparison), "{data_type}");
            n_read += 1;
            assert_eq!(Comparison::from_predicate(&DataType::Null, &predicate), None);
            let other = if data_type == DataType::Int8 { DataType::Int16 } else { DataType::Int8 };
            assert_eq!(Comparison::from_predicate(&other, &predicate), None);
        }
        assert!(n_read > 40, "{n_read}");
    }
}
