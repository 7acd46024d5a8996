//! Tables for people.

use std::fmt::Write as _;

use crossdock_arrays::{cells, header, lines};

use super::Table;
use crate::error::{Error, Result};

/// The first rows of a table, as text.
pub struct Shown {
    /// Of each column its name, its type, and a cell for each row that is shown; each short and on one line.
    pub columns: Vec<Vec<String>>,
    /// How many rows follow that are not shown.
    pub more_rows: u64,
}

impl Table {
    /// The first `max_rows` rows, whatever batches they are in. Only what is shown is copied to the host.
    pub fn first_rows(&self, max_rows: usize) -> Result<Shown> {
        let mut columns = header(&self.schema);
        let mut left = max_rows;
        for batch in &self.batches {
            if left == 0 {
                break;
            }
            let shown = cells(batch, left, self.session.stream())
                .map_err(|error| Error::data("cannot show the table", error))?;
            for (cells, more) in columns.iter_mut().zip(shown) {
                cells.extend(more);
            }
            left = left.saturating_sub(batch.len());
        }
        Ok(Shown { columns, more_rows: self.rows().saturating_sub(max_rows as u64) })
    }

    /// The same as lines: names, types, a line a row, and how many rows are not shown.
    pub fn format(&self, max_rows: usize) -> Result<String> {
        let shown = self.first_rows(max_rows)?;
        let mut text = lines(&shown.columns);
        if shown.more_rows > 0 {
            let _ = writeln!(text, "... {} more rows", shown.more_rows);
        }
        Ok(text)
    }
}
