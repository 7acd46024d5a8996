//! Tables for people.

mod number;
mod time;
mod value;

pub(crate) use value::cell;

use std::fmt::Write as _;

use crossdock_memory::{Device, Result, Stream};

use crate::DeviceBatch;
use crate::host::HostArray;

/// Characters of a cell before it is cut.
const WIDEST: usize = 40;

/// The first `max_rows` rows as a table of text: names, types, then a line a row, and how many rows are not shown. Only
/// what is printed is copied to the host, through `stream`.
pub fn format_batch(batch: &DeviceBatch, max_rows: usize, stream: &Stream) -> Result<String> {
    let rows = batch.len().min(max_rows);
    let mut shown = batch.slice(0, rows)?.move_to(stream, Device::CPU)?;
    shown.resolve_sizes(stream)?;
    let mut columns = Vec::new();
    for (field, array) in shown.schema().fields().iter().zip(shown.columns()) {
        let host = HostArray::new(array, stream)?;
        let mut cells = vec![cut(field.name()), cut(&field.data_type().to_string())];
        cells.extend((0..rows).map(|row| cut(&cell(&host, row))));
        columns.push(cells);
    }
    let mut text = lines(&columns, rows + 2);
    if batch.len() > rows {
        let _ = writeln!(text, "... {} more rows", batch.len() - rows);
    }
    Ok(text)
}

/// A line for each place in the columns, padded so that they stand below each other.
fn lines(columns: &[Vec<String>], n: usize) -> String {
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
