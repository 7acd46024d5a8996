//! Decoders of arrow-json that accept only values of a column's type. Those of arrow-json drop
//! fractions, zones and repeated fields, and their errors do not name the column.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::builder::PrimitiveBuilder;
use arrow_array::types::*;
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType, StructArray};
use arrow_buffer::NullBufferBuilder;
use arrow_json::reader::{ArrayDecoder, DecoderContext, DecoderFactory, Tape, TapeElement};
use arrow_schema::{ArrowError, DataType, FieldRef, Fields, SchemaRef, TimeUnit};
use crossdock_arrays::Projection;

use crate::lines::{excerpt, shortened};
use crate::values::{self, Zone};

type Decoded<T> = Result<T, ArrowError>;
type Decoder = Box<dyn ArrayDecoder>;

/// Separates the path of a column from the text of an error.
const SEPARATOR: char = '\0';

/// Creates decoders for the columns of a file.
#[derive(Debug)]
pub struct Factory {
    /// The columns of the file.
    pub schema: SchemaRef,
    /// The needed columns; `None` for all.
    pub projection: Option<Projection>,
}

impl DecoderFactory for Factory {
    fn make_default_decoder(
        &self,
        context: &DecoderContext,
        field: &FieldRef,
        is_nullable: bool,
    ) -> Decoded<Option<Decoder>> {
        let decoder = match field.data_type() {
            // The root is the only struct that is neither in a column nor nullable and has no name.
            DataType::Struct(fields) if field.name().is_empty() && !is_nullable => {
                let all = self.schema.fields();
                match self.is_root(fields) {
                    true => StructDecoder::create(context, all, self.projection.as_ref(), false)?,
                    false => StructDecoder::create(context, fields, None, is_nullable)?,
                }
            }
            DataType::Struct(fields) => StructDecoder::create(context, fields, None, is_nullable)?,
            data_type => return Ok(of_values(data_type)),
        };
        Ok(Some(decoder))
    }
}

impl Factory {
    fn is_root(&self, fields: &Fields) -> bool {
        match &self.projection {
            None => fields == self.schema.fields(),
            Some(projection) => {
                projection.schema(&self.schema).is_ok_and(|projected| projected.fields() == fields)
            }
        }
    }
}

/// Splits an error into the path of the column, if it is known, and the text.
pub fn split_error(error: ArrowError) -> (Option<String>, String) {
    let text = match error {
        ArrowError::JsonError(text) => text,
        other => other.to_string(),
    };
    match text.strip_prefix(SEPARATOR).and_then(|text| text.split_once(SEPARATOR)) {
        Some((path, text)) => (Some(path.to_string()), text.to_string()),
        None => (None, text),
    }
}

fn in_column(name: &str, error: ArrowError) -> ArrowError {
    let (path, text) = split_error(error);
    let path = path.map_or_else(|| name.to_string(), |path| format!("{name}.{path}"));
    ArrowError::JsonError(format!("{SEPARATOR}{path}{SEPARATOR}{text}"))
}

/// A needed field of a struct.
struct Needed {
    field: FieldRef,
    decoder: Decoder,
}

struct StructDecoder {
    /// All names, also those of fields that are not needed.
    fields: Fields,
    /// For each name its position among the needed fields.
    needed_at: Vec<Option<usize>>,
    positions_of_names: HashMap<String, usize>,
    needed: Vec<Needed>,
    is_nullable: bool,
}

impl StructDecoder {
    fn create(
        context: &DecoderContext,
        fields: &Fields,
        projection: Option<&Projection>,
        is_nullable: bool,
    ) -> Decoded<Decoder> {
        let (mut needed, mut needed_at) = (Vec::new(), Vec::new());
        for (i, field) in fields.iter().enumerate() {
            let chosen = projection.map_or(Some(None), |projection| projection.get(i));
            needed_at.push(chosen.is_some().then_some(needed.len()));
            let is_nullable = field.is_nullable() || is_nullable;
            let (field, decoder) = match (chosen, field.data_type()) {
                (None, _) => continue,
                (Some(Some(inner)), DataType::Struct(fields)) => {
                    let projected = inner.data_type(field.data_type());
                    let projected = projected.map_err(|error| ArrowError::JsonError(error.to_string()))?;
                    let field = field.as_ref().clone().with_data_type(projected);
                    (Arc::new(field), Self::create(context, fields, Some(inner), is_nullable)?)
                }
                _ => (field.clone(), context.make_decoder(field, is_nullable)?),
            };
            needed.push(Needed { field, decoder });
        }
        let names = fields.iter().enumerate();
        let positions_of_names = names.map(|(i, field)| (field.name().clone(), i)).collect();
        Ok(Box::new(Self { fields: fields.clone(), needed_at, positions_of_names, needed, is_nullable }))
    }

    /// The position of a field. Most objects have the order of the schema, so `guess` comes first.
    #[inline]
    fn position(&self, name: &str, guess: usize) -> Option<usize> {
        match self.fields.get(guess) {
            Some(field) if field.name() == name => Some(guess),
            _ => self.positions_of_names.get(name).copied(),
        }
    }

    /// Adds the positions of the values of an object at `begin..end` of the tape. `set` gets the
    /// position of a field and the position of its value, and returns false if the field is
    /// repeated.
    fn walk(
        &self,
        tape: &Tape<'_>,
        begin: u32,
        end: u32,
        mut set: impl FnMut(usize, u32) -> bool,
    ) -> Decoded<()> {
        let (mut at, mut guess) = (begin, 0);
        while at < end {
            let TapeElement::String(name) = tape.get(at) else {
                return Err(tape.error(at, "the name of a field"));
            };
            let name = tape.get_string(name);
            let Some(position) = self.position(name, guess) else {
                let text = "the field is not in the schema; if types are inferred, infer them from more rows \
                            (infer_rows), or set its type with the option types";
                return Err(in_column(name, ArrowError::JsonError(text.into())));
            };
            if !set(position, at + 1) {
                return Err(in_column(name, ArrowError::JsonError("the object has this field twice".into())));
            }
            guess = position + 1;
            at = tape.next(at + 1, "a value")?;
        }
        Ok(())
    }
}

impl ArrayDecoder for StructDecoder {
    fn decode(&mut self, tape: &Tape<'_>, pos: &[u32]) -> Decoded<ArrayRef> {
        let mut nulls = NullBufferBuilder::new(pos.len());
        // For each needed field the positions of its values. The element at 0 is null.
        let mut values = vec![vec![0; pos.len()]; self.needed.len()];
        // The row in which a field was seen last, plus 1.
        let mut seen_in = vec![0; self.fields.len()];
        for (row, at) in pos.iter().enumerate() {
            match tape.get(*at) {
                TapeElement::StartObject(end) => {
                    nulls.append_non_null();
                    self.walk(tape, at + 1, end, |position, value| {
                        let last = seen_in.get_mut(position).map(|last| std::mem::replace(last, row + 1));
                        let needed = self.needed_at.get(position).copied().flatten();
                        let values = needed.and_then(|needed| values.get_mut(needed));
                        if let Some(of_row) = values.and_then(|values| values.get_mut(row)) {
                            *of_row = value;
                        }
                        last != Some(row + 1)
                    })?;
                }
                TapeElement::Null if self.is_nullable => nulls.append_null(),
                _ => return Err(expected(tape, *at, "an object")),
            }
        }
        let nulls = nulls.finish();
        let mut columns = Vec::with_capacity(self.needed.len());
        for (Needed { field, decoder }, values) in self.needed.iter_mut().zip(&values) {
            let column = decoder.decode(tape, values).map_err(|error| in_column(field.name(), error))?;
            let is_null =
                |row: &usize| column.is_null(*row) && nulls.as_ref().is_none_or(|nulls| nulls.is_valid(*row));
            if !field.is_nullable() && column.null_count() > 0 && (0..pos.len()).any(|row| is_null(&row)) {
                let text = format!("expected {}, got a null", crossdock_arrays::type_name(field.data_type()));
                return Err(in_column(field.name(), ArrowError::JsonError(text)));
            }
            columns.push(column);
        }
        let fields: Fields = self.needed.iter().map(|needed| needed.field.clone()).collect();
        match fields.is_empty() {
            true => Ok(Arc::new(StructArray::new_empty_fields(pos.len(), nulls))),
            false => Ok(Arc::new(StructArray::try_new(fields, columns, nulls)?)),
        }
    }
}

/// An error about the value at `at` of the tape.
fn expected(tape: &Tape<'_>, at: u32, what: &str) -> ArrowError {
    let ArrowError::JsonError(text) = tape.error(at, "") else {
        return ArrowError::JsonError(format!("expected {what}"));
    };
    let got = text.strip_prefix("expected  got ").unwrap_or(&text);
    let in_quotes = got.strip_prefix('"').and_then(|got| got.strip_suffix('"'));
    ArrowError::JsonError(match (tape.get(at), in_quotes) {
        (TapeElement::String(_), Some(got)) => format!("expected {what}, got {}", shortened(got)),
        _ => format!("expected {what}, got {}", excerpt(got)),
    })
}

/// A text or a number of the input.
#[derive(Clone, Copy)]
enum Token<'a> {
    Text(&'a str),
    Number(&'a str),
}

type Parse<T> = Box<dyn Fn(Token<'_>) -> Option<T> + Send>;

struct Values<T: ArrowPrimitiveType> {
    data_type: DataType,
    parse: Parse<T::Native>,
}

impl<T: ArrowPrimitiveType> ArrayDecoder for Values<T> {
    fn decode(&mut self, tape: &Tape<'_>, pos: &[u32]) -> Decoded<ArrayRef> {
        let mut builder =
            PrimitiveBuilder::<T>::with_capacity(pos.len()).with_data_type(self.data_type.clone());
        for at in pos {
            let token = match tape.get(*at) {
                TapeElement::Null => {
                    builder.append_null();
                    continue;
                }
                TapeElement::String(text) => Some(Token::Text(tape.get_string(text))),
                TapeElement::Number(text) => Some(Token::Number(tape.get_string(text))),
                _ => None,
            };
            match token.and_then(&self.parse) {
                Some(value) => builder.append_value(value),
                None => return Err(expected(tape, *at, &crossdock_arrays::type_name(&self.data_type))),
            }
        }
        Ok(Arc::new(builder.finish()))
    }
}

/// The decoder of a type whose decoder in arrow-json accepts other values.
fn of_values(data_type: &DataType) -> Option<Decoder> {
    macro_rules! integer {
        ($type:ty) => {
            of::<$type>(data_type, |token| match token {
                Token::Text(text) | Token::Number(text) => text.parse().ok(),
            })
        };
    }
    macro_rules! decimal {
        ($type:ty, $precision:expr, $scale:expr) => {{
            let (precision, scale) = (*$precision, *$scale);
            of::<$type>(data_type, move |token| match token {
                Token::Text(text) | Token::Number(text) => values::decimal::<$type>(text, precision, scale),
            })
        }};
    }
    fn of<T: ArrowPrimitiveType>(
        data_type: &DataType,
        parse: impl Fn(Token<'_>) -> Option<T::Native> + Send + 'static,
    ) -> Option<Decoder> {
        Some(Box::new(Values::<T> { data_type: data_type.clone(), parse: Box::new(parse) }))
    }
    fn text<T>(
        parse: impl Fn(&str) -> Option<T> + Send + 'static,
    ) -> impl Fn(Token<'_>) -> Option<T> + Send + 'static {
        move |token| match token {
            Token::Text(text) => parse(text),
            Token::Number(_) => None,
        }
    }
    let time = |unit| move |value: &str| values::time(value, unit);
    let time32 = |unit| move |value: &str| i32::try_from(values::time(value, unit)?).ok();
    match data_type {
        DataType::Int8 => integer!(Int8Type),
        DataType::Int16 => integer!(Int16Type),
        DataType::Int32 => integer!(Int32Type),
        DataType::Int64 => integer!(Int64Type),
        DataType::UInt8 => integer!(UInt8Type),
        DataType::UInt16 => integer!(UInt16Type),
        DataType::UInt32 => integer!(UInt32Type),
        DataType::UInt64 => integer!(UInt64Type),
        DataType::Decimal32(p, s) => decimal!(Decimal32Type, p, s),
        DataType::Decimal64(p, s) => decimal!(Decimal64Type, p, s),
        DataType::Decimal128(p, s) => decimal!(Decimal128Type, p, s),
        DataType::Decimal256(p, s) => decimal!(Decimal256Type, p, s),
        DataType::Date32 => of::<Date32Type>(data_type, text(values::date)),
        DataType::Date64 => of::<Date64Type>(data_type, text(values::date_millis)),
        DataType::Time32(TimeUnit::Second) => {
            of::<Time32SecondType>(data_type, text(time32(TimeUnit::Second)))
        }
        DataType::Time32(unit) => of::<Time32MillisecondType>(data_type, text(time32(*unit))),
        DataType::Time64(TimeUnit::Nanosecond) => {
            of::<Time64NanosecondType>(data_type, text(time(TimeUnit::Nanosecond)))
        }
        DataType::Time64(unit) => of::<Time64MicrosecondType>(data_type, text(time(*unit))),
        DataType::Timestamp(unit, zone) => {
            let (unit, zone) = (*unit, Zone::new(zone.as_deref()));
            // A number is in units since the epoch.
            let parse = move |token: Token<'_>| match token {
                Token::Text(text) => values::timestamp(text, unit, zone),
                Token::Number(text) => text.parse().ok(),
            };
            match unit {
                TimeUnit::Second => of::<TimestampSecondType>(data_type, parse),
                TimeUnit::Millisecond => of::<TimestampMillisecondType>(data_type, parse),
                TimeUnit::Microsecond => of::<TimestampMicrosecondType>(data_type, parse),
                TimeUnit::Nanosecond => of::<TimestampNanosecondType>(data_type, parse),
            }
        }
        _ => None,
    }
}
