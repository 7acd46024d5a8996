//! Formats the first rows of tables as text.

use std::fmt::Write as _;

use crossdock_arrays::{cells, header, json_rows, lines};

use super::Table;
use crate::error::{Error, Result};

/// The first rows of a table, as text.
pub struct Shown {
    /// For each column: its name, its type, and a cell for each shown row. Each of these texts is
    /// short and has one line.
    pub columns: Vec<Vec<String>>,
    /// The number of rows that are not shown.
    pub more_rows: u64,
}

impl Table {
    /// Returns the first `max_rows` rows of the table. Only these rows are copied to the host.
    pub fn first_rows(&self, max_rows: usize) -> Result<Shown> {
        let mut columns = header(&self.schema);
        let mut remaining = max_rows;
        for batch in &self.batches {
            if remaining == 0 {
                break;
            }
            let shown = cells(batch, remaining, self.session.stream())
                .map_err(|error| Error::data("cannot show the table", error))?;
            for (cells, more) in columns.iter_mut().zip(shown) {
                cells.extend(more);
            }
            remaining = remaining.saturating_sub(batch.len());
        }
        Ok(Shown { columns, more_rows: self.rows().saturating_sub(max_rows as u64) })
    }

    /// Returns the rows as JSON objects, each in one line.
    pub fn json_rows(&self) -> Result<Vec<String>> {
        let mut rows = Vec::new();
        for batch in &self.batches {
            let batch = json_rows(batch, batch.len(), self.session.stream());
            rows.extend(batch.map_err(|error| Error::data("cannot show the table", error))?);
        }
        Ok(rows)
    }

    /// Like [`Self::first_rows`], but returns lines of text: the names, the types, one line per
    /// row, and the number of rows that are not shown.
    pub fn format(&self, max_rows: usize) -> Result<String> {
        let shown = self.first_rows(max_rows)?;
        let mut text = lines(&shown.columns);
        if shown.more_rows > 0 {
            let _ = writeln!(text, "... {} more rows", shown.more_rows);
        }
        Ok(text)
    }
}
