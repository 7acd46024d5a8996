//! Compares the number of rows that a stream returns with the number that the plugin states.

use crossdock_plugin_api::{Error as ApiError, Honoured, Result as ApiResult, Selection};

/// What a plugin states about the rows of its stream.
pub(crate) struct StatedRows {
    /// The number of rows in total.
    n_rows: Option<u64>,
    /// The maximum number of rows, if the plugin honours the requested rows.
    max_rows: Option<u64>,
    /// The number of rows that the stream has returned.
    returned: u64,
}

impl StatedRows {
    pub fn new(honoured: Honoured, selection: &Selection) -> Self {
        let requested = selection.rows.as_ref().filter(|_| honoured.rows);
        let max_rows = requested.map(|rows| rows.iter().map(|rows| rows.end - rows.start).sum());
        Self { n_rows: honoured.n_rows, max_rows, returned: 0 }
    }

    /// Whether the plugin states nothing about the number of rows.
    pub fn is_unknown(&self) -> bool {
        self.n_rows.is_none() && self.max_rows.is_none()
    }

    /// Counts the rows of a batch.
    pub fn add(&mut self, rows: usize) -> ApiResult<()> {
        self.returned = self.returned.saturating_add(rows as u64);
        match self.n_rows.into_iter().chain(self.max_rows).min() {
            Some(max) if self.returned > max => Err(ApiError::internal(format!(
                "the stream has returned {} rows, expected at most {max}",
                self.returned
            ))),
            _ => Ok(()),
        }
    }

    /// Checks the number of rows at the end of the stream.
    pub fn end(&self) -> ApiResult<()> {
        match self.n_rows {
            Some(expected) if self.returned != expected => Err(ApiError::internal(format!(
                "the stream ended after {} rows, expected {expected}",
                self.returned
            ))),
            _ => Ok(()),
        }
    }
}
