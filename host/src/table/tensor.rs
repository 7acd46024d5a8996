//! Columns of any type as tensors.

use arrow_schema::{DataType, Field};
use crossdock_arrays::filter::{Decimal, Literal};
use crossdock_arrays::{CastMode, NUMBER_EXTENSION, first_null, type_name};

use super::{Table, in_table};
use crate::error::{Error, Result};

/// What [`Table::to_tensor`] does with nulls.
#[derive(Clone, Debug, PartialEq)]
pub enum TensorNulls {
    /// A null is an error.
    Error,
    /// Nulls become 0, and the result has a mask.
    Mask,
    /// Nulls become this value: a number, or a value of the column's type.
    Value(Literal),
}

impl Table {
    /// Converts the only column to one batch without nulls that exports as a tensor: numbers and
    /// booleans stay, dates and times become integers, dictionaries become their keys, and lists of
    /// equal length become lists of fixed size. Also returns a column of booleans that are true for
    /// each null, if it is requested.
    ///
    /// # Errors
    /// [`Error::Usage`] if there is another number of columns, if the type is no tensor, or if
    /// there is a null that is not replaced.
    pub fn to_tensor(&self, nulls: &TensorNulls) -> Result<(Table, Option<Table>)> {
        match self.schema().fields().len() {
            1 => tensor(self, nulls),
            n => Err(Error::usage(format!("expected one column, got {n}"))),
        }
    }
}

fn tensor(column: &Table, nulls: &TensorNulls) -> Result<(Table, Option<Table>)> {
    let column = column.combine()?;
    let field = column.schema().fields().first().ok_or_else(|| Error::usage("a column without a field"))?;
    let name = field.name();
    let is_list = |field: &Field| {
        use DataType::{FixedSizeList, LargeList, List};
        matches!(field.data_type(), List(_) | LargeList(_) | FixedSizeList(..))
    };
    let first_null = match nulls {
        // The nulls of numbers are only marked.
        TensorNulls::Mask if !is_list(field) => None,
        _ => column.first_null()?,
    };
    let mask = matches!(nulls, TensorNulls::Mask).then(|| column.null_mask(0)).transpose()?;
    let column = match nulls {
        // A value such as a date is a value of the column's own type.
        TensorNulls::Value(value) if !is_number(value) && first_null.is_some() => {
            column.fill_null(0, value)?
        }
        _ => column.clone(),
    };
    match (nulls, first_null) {
        (_, Some(row)) if is_list(field) => {
            return Err(Error::usage(format!(
                "column '{name}', row {row}: a null list has no elements for a tensor: drop the row with filter"
            )));
        }
        (TensorNulls::Error, Some(row)) => {
            return Err(Error::usage(format!(
                "column '{name}', row {row}: a tensor has no nulls: pass nulls=\"mask\", or a value that replaces nulls"
            )));
        }
        _ => {}
    }
    let numbers = numbers(&column, name)?;
    let filled = match nulls {
        _ if is_list(field) => {
            check_elements(&numbers, name)?;
            numbers
        }
        TensorNulls::Value(value) if is_number(value) && first_null.is_some() => {
            numbers.fill_null(0, value)?
        }
        _ => numbers.fill_null(0, &zero(&numbers))?,
    };
    Ok((filled, mask))
}

/// Checks that the elements of lists of fixed size are numbers or booleans, and not null.
fn check_elements(column: &Table, name: &str) -> Result<()> {
    let wrong = |what: String| Error::usage(format!("column '{name}': {what}"));
    let array = column.batches().first().and_then(|batch| batch.column(0));
    let (Some(array), Some(field)) = (array, column.schema().fields().first()) else { return Ok(()) };
    let (mut array, mut field, mut per_row) = (array.clone(), field.clone(), 1);
    while let DataType::FixedSizeList(element, size) = field.clone().data_type() {
        let n = usize::try_from(*size).unwrap_or(0);
        let Some(child) = array.children().first() else { return Ok(()) };
        let child = child.slice(array.offset() * n, array.len() * n).map_err(in_table)?;
        (array, field, per_row) = (child, element.clone(), per_row * n);
        if let Some(at) = first_null(&array, column.session().stream()).map_err(in_table)? {
            let row = at / (per_row.max(1) as u64);
            return Err(wrong(format!(
                "row {row} has a null element, and a tensor has no nulls: fill it, or drop the row"
            )));
        }
    }
    let of = field.data_type();
    let is_number = of.is_integer() || of.is_floating() || *of == DataType::Boolean;
    if is_number || field.extension_type_name() == Some(NUMBER_EXTENSION) {
        return Ok(());
    }
    Err(wrong(format!("a tensor has numbers or booleans, and the elements are of type {}", type_name(of))))
}

fn is_number(value: &Literal) -> bool {
    matches!(value, Literal::Bool(_) | Literal::Decimal(_) | Literal::Float(_))
}

/// The value of a null that is marked in the mask.
fn zero(column: &Table) -> Literal {
    match column.schema().fields().first().map(|field| field.data_type()) {
        Some(DataType::Boolean) => Literal::Bool(false),
        Some(DataType::FixedSizeBinary(size)) => Literal::Bytes(vec![0; usize::try_from(*size).unwrap_or(0)]),
        _ => Literal::Decimal(Decimal::from(0)),
    }
}

/// Converts the values to numbers or booleans that a tensor can have, without regard to nulls.
fn numbers(column: &Table, name: &str) -> Result<Table> {
    use DataType::{
        Date32, Date64, Decimal32, Decimal64, Decimal128, Decimal256, Dictionary, Duration, FixedSizeList,
        LargeList, List, RunEndEncoded, Time32, Time64, Timestamp,
    };
    let Some(field) = column.schema().fields().first() else { return Ok(column.clone()) };
    let unsupported = |advice: &str| {
        let data_type = type_name(field.data_type());
        Err(Error::usage(format!("column '{name}' of type {data_type} is no tensor: {advice}")))
    };
    match field.data_type() {
        DataType::Boolean => Ok(column.clone()),
        // Numbers such as bfloat16.
        DataType::FixedSizeBinary(_) if field.extension_type_name() == Some(NUMBER_EXTENSION) => {
            Ok(column.clone())
        }
        of if of.is_numeric()
            && !matches!(of, Decimal32(..) | Decimal64(..) | Decimal128(..) | Decimal256(..)) =>
        {
            Ok(column.clone())
        }
        Date32 | Time32(_) => column.cast(0, &DataType::Int32, CastMode::Safe),
        Date64 | Time64(_) | Timestamp(..) | Duration(_) => column.cast(0, &DataType::Int64, CastMode::Safe),
        Dictionary(..) => column.dictionary_keys(0),
        RunEndEncoded(_, values) => {
            let expanded = column.cast(0, values.data_type(), CastMode::Safe)?;
            numbers(&expanded, name)
        }
        List(_) | LargeList(_) => column.lists_of_fixed_size(0),
        FixedSizeList(..) => Ok(column.clone()),
        Decimal32(..) | Decimal64(..) | Decimal128(..) | Decimal256(..) => {
            unsupported("cast(\"float64\") gives the nearest floats")
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            unsupported("dictionary_encode().to_tensor() gives a number for each text")
        }
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            unsupported("dictionary_encode().to_tensor() gives a number for each value")
        }
        _ => unsupported("a tensor has numbers or booleans; choose a field of a struct, or leave it out"),
    }
}
