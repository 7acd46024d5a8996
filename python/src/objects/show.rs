//! Formats tables and columns for `repr` and notebooks.

use std::fmt::Write as _;

use arrow_schema::{FieldRef, Fields};
use crossdock::{Shown, Table as HostTable};
use crossdock_arrays::field_type_name;
use pyo3::prelude::*;

use crate::objects::table_rows::device_of;
use crate::runtime::work::detached;

/// Number of rows to show.
const MAX_ROWS: usize = 10;

/// Number of columns to show in HTML.
const MAX_HTML_COLUMNS: usize = 20;

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

/// Formats a table as HTML without scripts. All text is escaped. The middle columns of wide tables
/// are left out.
pub fn table_html(py: Python<'_>, table: &HostTable) -> PyResult<String> {
    let schema = table.schema();
    let n = schema.fields().len();
    let (n_left, begin_right) =
        if n > MAX_HTML_COLUMNS { (MAX_HTML_COLUMNS / 2, n - MAX_HTML_COLUMNS / 2) } else { (n, n) };
    let indices: Vec<usize> = (0..n_left).chain(begin_right..n).collect();
    let Shown { columns, more_rows } = detached(py, || table.select(&indices)?.first_rows(MAX_ROWS))?;
    let is_number = |i: &usize| schema.field(*i).data_type().is_numeric();
    let mut columns: Vec<_> = columns.into_iter().zip(indices.iter().map(is_number)).collect();
    if n_left < begin_right {
        let n_rows = columns.first().map_or(0, |(cells, _)| cells.len());
        columns.insert(n_left, (vec!["…".to_owned(); n_rows], false));
    }
    let left_out = if n_left < begin_right {
        format!("<p>... {} more columns between these</p>\n", begin_right - n_left)
    } else {
        String::new()
    };
    Ok(html(
        &format!("crossdock.Table: {}", summary(table)),
        2,
        &columns,
        &(left_out + &more(more_rows, "rows")),
    ))
}

/// Formats a column as HTML.
pub fn column_html(py: Python<'_>, name: &str, data_type: &str, table: &HostTable) -> PyResult<String> {
    let Shown { columns, more_rows } = detached(py, || table.first_rows(MAX_ROWS))?;
    let title = format!("crossdock.Column: {data_type}, {} values on {}", table.rows(), device_of(table));
    let is_number = table.schema().fields().first().is_some_and(|field| field.data_type().is_numeric());
    // The name of the column may differ from that of the table's only column.
    let cells = columns.into_iter().flatten().skip(2);
    let cells = [name.to_owned(), data_type.to_owned()].into_iter().chain(cells).collect();
    Ok(html(&title, 2, &[(cells, is_number)], &more(more_rows, "values")))
}

/// Formats a schema as HTML.
pub fn schema_html(fields: &Fields) -> String {
    let column = |name: &str, cell: &dyn Fn(&FieldRef) -> String| {
        let cells = std::iter::once(name.to_owned()).chain(fields.iter().map(cell));
        (cells.collect::<Vec<_>>(), false)
    };
    let columns = [
        column("column", &|field| field.name().clone()),
        column("type", &|field| field_type_name(field)),
        column("nulls", &|field| (if field.is_nullable() { "yes" } else { "no" }).to_owned()),
    ];
    html(&format!("crossdock.Schema: {} columns", fields.len()), 1, &columns, "")
}

fn more(n: u64, what: &str) -> String {
    if n > 0 { format!("<p>... {n} more {what}</p>\n") } else { String::new() }
}

/// An HTML table. The first `n_head` cells of each column are its head. The flag of a column states
/// whether its cells are aligned to the right.
fn html(title: &str, n_head: usize, columns: &[(Vec<String>, bool)], below: &str) -> String {
    let mut html = format!("<div><p>{}</p>\n<table>\n", escaped(title));
    for row in 0..columns.iter().map(|(cells, _)| cells.len()).max().unwrap_or(0) {
        let tag = if row < n_head { "th" } else { "td" };
        html += "<tr>";
        for (cells, is_right) in columns {
            let cell = cells.get(row).map_or("", String::as_str);
            let side = if *is_right { "right" } else { "left" };
            let _ = write!(html, "<{tag} style=\"text-align: {side}\">{}</{tag}>", escaped(cell));
        }
        html += "</tr>\n";
    }
    html + "</table>\n" + below + "</div>"
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
