//! Tables for people.

mod number;
mod time;
mod value;

pub(crate) use value::cell;

use std::fmt::Write as _;

use arrow_schema::Schema;
use crossdock_memory::{Device, Result, Stream};

use crate::DeviceBatch;
use crate::host::HostArray;

/// Characters of a cell before it is cut.
const WIDEST: usize = 40;

/// The first `max_rows` rows as a table of text: names, types, then a line a row, and how many rows are not shown. Only
/// what is printed is copied to the host, through `stream`.
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

/// The name and the type of each column, as text that fits a table.
pub fn header(schema: &Schema) -> Vec<Vec<String>> {
    let fields = schema.fields().iter();
    fields.map(|field| vec![cut(field.name()), cut(&field.data_type().to_string())]).collect()
}

/// Of each column the first `rows` values, as text that fits a table.
pub fn cells(batch: &DeviceBatch, rows: usize, stream: &Stream) -> Result<Vec<Vec<String>>> {
    let rows = rows.min(batch.len());
    let mut shown = batch.slice(0, rows)?.move_to(stream, Device::CPU)?;
    shown.resolve_sizes(stream)?;
    let column = |array| {
        let host = HostArray::new(array, stream)?;
        Ok((0..rows).map(|row| cut(&cell(&host, row))).collect())
    };
    shown.columns().iter().map(column).collect()
}

/// A line for each place in the columns, padded so that they stand below each other.
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

/// At most so many characters, on one line.
fn cut(text: &str) -> String {
    let mut cut: String =
        text.chars().take(WIDEST).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if text.chars().nth(WIDEST).is_some() {
        cut.pop();
        cut.push('…');
    }
    cut
}
