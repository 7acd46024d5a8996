//! Formats batches as tables of text.

mod json;
mod number;
mod time;
mod value;

pub(crate) use value::{cell, scalar};

use std::fmt::Write as _;

use arrow_schema::Schema;
use crossdock_memory::{Device, Result, Stream};

use crate::DeviceBatch;
use crate::host::HostArray;
use crate::type_name::field_type_name;

/// Maximum number of characters in a cell.
const MAX_CELL_CHARS: usize = 40;

/// Formats the first `max_rows` rows as a table. The table has the names and types of the columns,
/// a line for each row, and the number of rows that are not shown. Copies only the shown values to
/// the host, on `stream`.
pub fn format_batch(batch: &DeviceBatch, max_rows: usize, stream: &Stream) -> Result<String> {
    let rows = batch.len().min(max_rows);
    let mut columns = header(batch.schema());
    for (cells, more) in columns.iter_mut().zip(cells(batch, rows, stream)?) {
        cells.extend(more);
    }
    let mut text = lines(&columns);
    if batch.len() > rows {
        let _ = writeln!(text, "... {} more rows", batch.len() - rows);
    }
    Ok(text)
}

/// The name and the type of each column, which are the first two lines of a table.
pub fn header(schema: &Schema) -> Vec<Vec<String>> {
    let fields = schema.fields().iter();
    fields.map(|field| vec![to_cell(field.name()), to_cell(&field_type_name(field))]).collect()
}

/// The first `rows` values of each column, as the cells of a table.
pub fn cells(batch: &DeviceBatch, rows: usize, stream: &Stream) -> Result<Vec<Vec<String>>> {
    let rows = rows.min(batch.len());
    let mut shown = batch.slice(0, rows)?.move_to(stream, Device::CPU)?;
    shown.resolve_sizes(stream)?;
    let column = |array| {
        let host = HostArray::new(array, stream)?;
        Ok((0..rows).map(|row| to_cell(&cell(&host, row))).collect())
    };
    shown.columns().iter().map(column).collect()
}

/// The first `rows` rows as JSON objects, each in one line. Numbers are JSON numbers, except
/// decimals and floats that are not finite, which are strings, as are dates and times.
pub fn json_rows(batch: &DeviceBatch, rows: usize, stream: &Stream) -> Result<Vec<String>> {
    let rows = rows.min(batch.len());
    let mut shown = batch.slice(0, rows)?.move_to(stream, Device::CPU)?;
    shown.resolve_sizes(stream)?;
    let columns = shown.columns().iter().map(|array| HostArray::new(array, stream));
    let columns = columns.collect::<Result<Vec<_>>>()?;
    let row = |i| {
        let mut text = String::from("{");
        for (n, (field, column)) in shown.schema().fields().iter().zip(&columns).enumerate() {
            if n > 0 {
                text.push(',');
            }
            json::append_string(&mut text, field.name());
            text.push(':');
            json::append(&mut text, &column.value(i));
        }
        text.push('}');
        text
    };
    Ok((0..rows).map(row).collect())
}

/// Formats columns of cells as lines in which the cells are aligned.
pub fn lines(columns: &[Vec<String>]) -> String {
    let n = columns.iter().map(Vec::len).max().unwrap_or(0);
    let width = |cells: &Vec<String>| cells.iter().map(|cell| cell.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = columns.iter().map(width).collect();
    let mut text = String::new();
    for i in 0..n {
        let mut line = String::new();
        for (cells, width) in columns.iter().zip(&widths) {
            let cell = cells.get(i).map_or("", String::as_str);
            let _ = write!(line, "{cell:width$}  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Truncates a text to [`MAX_CELL_CHARS`] characters and replaces control characters.
fn to_cell(text: &str) -> String {
    let mut cell: String =
        text.chars().take(MAX_CELL_CHARS).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if text.chars().nth(MAX_CELL_CHARS).is_some() {
        cell.pop();
        cell.push('…');
    }
    cell
}
