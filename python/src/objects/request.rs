//! Converts the arguments that select columns and rows.

use std::ops::Range;

use crossdock::{ColumnName, Decimal, Literal, Operator, Predicate, ReadOptions};
use pyo3::prelude::*;
use pyo3::types::{PyRange, PyRangeMethods, PySlice, PyString};

use crate::runtime::errors::usage;

/// The arguments `columns`, `rows`, `filter` and `limit` of the reading functions.
pub struct RequestArguments<'a, 'py> {
    pub columns: Option<&'a Bound<'py, PyAny>>,
    pub rows: Option<&'a Bound<'py, PyAny>>,
    pub filter: Option<&'a Bound<'py, PyAny>>,
    pub limit: Option<u64>,
}

impl RequestArguments<'_, '_> {
    /// # Errors
    /// UsageError that names the argument.
    pub fn options(&self) -> PyResult<ReadOptions> {
        Ok(ReadOptions {
            columns: self.columns.map(columns).transpose()?,
            rows: self.rows.map(rows).transpose()?,
            filter: self.filter.map(filter).transpose()?.unwrap_or_default(),
            limit: self.limit,
            ..ReadOptions::default()
        })
    }
}

fn columns(argument: &Bound<'_, PyAny>) -> PyResult<Vec<ColumnName>> {
    let wrong = |item: &Bound<'_, PyAny>| {
        let item = item.repr().map_or_else(|_| "?".into(), |text| text.to_string());
        usage(format!("columns: expected a list of names or of tuples of names, got {item}"))
    };
    if argument.is_instance_of::<PyString>() {
        return Err(wrong(argument));
    }
    let name = |item: PyResult<Bound<'_, PyAny>>| {
        let item = item?;
        column_name(&item)?.ok_or_else(|| wrong(&item))
    };
    argument.try_iter().map_err(|_| wrong(argument))?.map(name).collect()
}

/// A name, or a tuple of names from the top-level column down.
fn column_name(item: &Bound<'_, PyAny>) -> PyResult<Option<ColumnName>> {
    if let Ok(name) = item.cast::<PyString>() {
        return Ok(Some(ColumnName::Dotted(name.to_str()?.to_owned())));
    }
    let path = item.extract::<Vec<String>>().ok().filter(|path| !path.is_empty());
    Ok(path.map(ColumnName::Path))
}

/// Converts a list of comparisons (column, operator, value).
pub fn filter(argument: &Bound<'_, PyAny>) -> PyResult<Vec<Predicate>> {
    let wrong = |item: &Bound<'_, PyAny>| {
        let item = item.repr().map_or_else(|_| "?".into(), |text| text.to_string());
        usage(format!(
            "filter: expected a list of tuples (column, operator, value) with an operator of == != < <= > >=, got \
             {item}"
        ))
    };
    if argument.is_instance_of::<PyString>() {
        return Err(wrong(argument));
    }
    let convert = argument.py().import("crossdock._filter")?.getattr("literal")?;
    let predicate = |item: PyResult<Bound<'_, PyAny>>| {
        let item = item?;
        let parts: Result<(Bound<'_, PyAny>, String, Bound<'_, PyAny>), _> = item.extract();
        let (column, operator, value) = parts.map_err(|_| wrong(&item))?;
        let column = column_name(&column)?.ok_or_else(|| wrong(&item))?;
        let operator = Operator::from_symbol(&operator).ok_or_else(|| wrong(&item))?;
        Ok(Predicate { column, operator, literal: literal(&convert.call1((value, "filter"))?)? })
    };
    argument.try_iter().map_err(|_| wrong(argument))?.map(predicate).collect()
}

/// Converts the result of `crossdock._filter.literal`.
pub fn literal(converted: &Bound<'_, PyAny>) -> PyResult<Literal> {
    let (kind, value): (String, Bound<'_, PyAny>) = converted.extract()?;
    Ok(match kind.as_str() {
        "bool" => Literal::Bool(value.extract()?),
        "decimal" => {
            let text: String = value.extract()?;
            let number = Decimal::parse(&text);
            Literal::Decimal(number.ok_or_else(|| {
                usage(format!("the number {text} has more digits than a decimal of 256 bits"))
            })?)
        }
        "float" => Literal::Float(value.extract()?),
        "text" => Literal::Text(value.extract()?),
        "bytes" => Literal::Bytes(value.extract()?),
        "date" => Literal::Date(value.extract()?),
        "time" => Literal::Time(value.extract()?),
        "timestamp" => {
            let (ns, has_zone) = value.extract()?;
            Literal::Timestamp { ns, has_zone }
        }
        _ => Literal::Duration(value.extract()?),
    })
}

/// Converts a range of rows, or a list of ranges. A range is a pair (start, stop), a `range` or a
/// `slice`.
fn rows(argument: &Bound<'_, PyAny>) -> PyResult<Vec<Range<u64>>> {
    if let Some(range) = row_range(argument)? {
        return Ok(vec![range]);
    }
    let wrong = |item: &Bound<'_, PyAny>| {
        let item = item.repr().map_or_else(|_| "?".into(), |text| text.to_string());
        usage(format!("rows: expected (start, stop), a range with step 1, or a list of these, got {item}"))
    };
    let range = |item: PyResult<Bound<'_, PyAny>>| {
        let item = item?;
        row_range(&item)?.ok_or_else(|| wrong(&item))
    };
    argument.try_iter().map_err(|_| wrong(argument))?.map(range).collect()
}

/// Converts one range of rows, like the elements of `rows`.
pub fn one_range(argument: &Bound<'_, PyAny>) -> PyResult<Range<u64>> {
    row_range(argument)?.ok_or_else(|| {
        let item = argument.repr().map_or_else(|_| "?".into(), |text| text.to_string());
        usage(format!("rows: expected (start, stop) or a range with step 1, got {item}"))
    })
}

fn row_range(item: &Bound<'_, PyAny>) -> PyResult<Option<Range<u64>>> {
    if let Ok(range) = item.cast::<PyRange>() {
        return Ok(match (u64::try_from(range.start()?), u64::try_from(range.stop()?), range.step()?) {
            (Ok(start), Ok(stop), 1) => Some(start..stop.max(start)),
            _ => None,
        });
    }
    if let Ok(slice) = item.cast::<PySlice>() {
        let part = |name: &str| slice.getattr(name)?.extract::<Option<u64>>();
        return Ok(match (part("start"), part("stop"), part("step")) {
            (Ok(start), Ok(stop), Ok(None | Some(1))) => {
                let start = start.unwrap_or(0);
                Some(start..stop.unwrap_or(u64::MAX).max(start))
            }
            _ => None,
        });
    }
    Ok(item.extract::<(u64, u64)>().ok().map(|(start, stop)| start..stop))
}
