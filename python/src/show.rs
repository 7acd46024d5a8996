//! What `repr` and notebooks show.

use std::fmt::Write as _;

use crossdock::{Shown, Table as HostTable};
use pyo3::prelude::*;

use crate::table::device_of;
use crate::work::detached;

/// How many rows are shown.
const ROWS: usize = 10;

/// A table as lines.
pub fn table(py: Python<'_>, table: &HostTable) -> PyResult<String> {
    let rows = detached(py, || table.format(ROWS))?;
    Ok(format!("crossdock.Table: {}\n{}", about(table), rows.trim_end()))
}

/// A column as lines: its name and type once, then its values.
pub fn column(py: Python<'_>, name: &str, data_type: &str, table: &HostTable) -> PyResult<String> {
    let Shown { columns, more_rows } = detached(py, || table.first_rows(ROWS))?;
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

/// A table as HTML, for notebooks: no style and no script, and every text escaped.
pub fn html(py: Python<'_>, table: &HostTable) -> PyResult<String> {
    let Shown { columns, more_rows } = detached(py, || table.first_rows(ROWS))?;
    let mut html = format!("<div><p>crossdock.Table: {}</p>\n<table>\n", escaped(&about(table)));
    for row in 0..columns.iter().map(Vec::len).max().unwrap_or(0) {
        // Names, then types.
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

fn about(table: &HostTable) -> String {
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
