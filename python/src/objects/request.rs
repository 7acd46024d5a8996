//! Converts the arguments that select columns and rows.

use std::ops::Range;

use crossdock::{ColumnName, ReadOptions};
use pyo3::prelude::*;
use pyo3::types::{PyRange, PyRangeMethods, PySlice, PyString};

use crate::runtime::errors::usage;

/// The arguments `columns`, `rows` and `limit` of the reading functions.
pub struct RequestArguments<'a, 'py> {
    pub columns: Option<&'a Bound<'py, PyAny>>,
    pub rows: Option<&'a Bound<'py, PyAny>>,
    pub limit: Option<u64>,
}

impl RequestArguments<'_, '_> {
    /// # Errors
    /// UsageError that names the argument.
    pub fn options(&self) -> PyResult<ReadOptions> {
        Ok(ReadOptions {
            columns: self.columns.map(columns).transpose()?,
            rows: self.rows.map(rows).transpose()?,
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
        if let Ok(name) = item.cast::<PyString>() {
            return Ok(ColumnName::Dotted(name.to_str()?.to_owned()));
        }
        match item.extract::<Vec<String>>() {
            Ok(path) if !path.is_empty() => Ok(ColumnName::Path(path)),
            _ => Err(wrong(&item)),
        }
    };
    argument.try_iter().map_err(|_| wrong(argument))?.map(name).collect()
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
