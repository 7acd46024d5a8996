//! Formats tables and columns for `repr` and notebooks.

use std::fmt::Write as _;

use crossdock::{Shown, Table as HostTable};
use pyo3::prelude::*;

use crate::objects::table_rows::device_of;
use crate::runtime::work::detached;

/// Number of rows to show.
const MAX_ROWS: usize = 10;

/// Formats a table as text.
pub fn table(py: Python<'_>, table: &HostTable) -> PyResult<String> {
    let rows = detached(py, || table.format(MAX_ROWS))?;
    Ok(format!("crossdock.Table: {}\n{}", summary(table), rows.trim_end()))
}

/// Formats a column as text: name and type in the first line, then one value per line.
pub fn column(py: Python<'_>, name: &str, data_type: &str, table: &HostTable) -> PyResult<String> {
    let Shown { columns, more_rows } = detached(py, || table.first_rows(MAX_ROWS))?;
    let (device, n) = (device_of(table), table.rows());
    let mut text = format!("crossdock.Column {name:?}: {data_type}, {n} values on {device}");
    for cell in columns.iter().flatten().skip(2) {
        let _ = write!(text, "\n{cell}");
    }
    if more_rows > 0 {
        let _ = write!(text, "\n... {more_rows} more values");
    }
    Ok(text)
}

/// Formats a table as HTML without styles and scripts. All text is escaped.
pub fn html(py: Python<'_>, table: &HostTable) -> PyResult<String> {
    let Shown { columns, more_rows } = detached(py, || table.first_rows(MAX_ROWS))?;
    let mut html = format!("<div><p>crossdock.Table: {}</p>\n<table>\n", escaped(&summary(table)));
    for row in 0..columns.iter().map(Vec::len).max().unwrap_or(0) {
        // The first two rows are names and types.
        let tag = if row < 2 { "th" } else { "td" };
        html += "<tr>";
        for cells in &columns {
            let cell = cells.get(row).map_or("", String::as_str);
            let _ = write!(html, "<{tag}>{}</{tag}>", escaped(cell));
        }
        html += "</tr>\n";
    }
    html += "</table>\n";
    if more_rows > 0 {
        let _ = writeln!(html, "<p>... {more_rows} more rows</p>");
    }
    Ok(html + "</div>")
}

fn summary(table: &HostTable) -> String {
    let columns = table.schema().fields().len();
    format!("{} rows, {columns} columns on {}", table.rows(), device_of(table))
}

fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#x27;",
            _ => escaped.push(c),
        }
    }
    escaped
}
