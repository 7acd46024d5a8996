//! What is read of an input.

use std::ops::Range;

use arrow_schema::SchemaRef;
use crossdock_memory::Result;
use crossdock_plugin_api::{Call, Error, Fragment, Selection};

use super::super::messages::Messages;
use super::super::selection::Needed;
use super::{Reader, with_source_name};
use crate::fragments::{self, Piece};
use crate::wire::schema::{names_and_types, same_types};

impl Reader {
    /// Sets the needed columns and rows, before anything is read.
    pub fn select(&mut self, selection: &Selection) -> Result<()> {
        self.needed = Needed::new(&self.schema, selection).map_err(|e| with_source_name(e, &self.name))?;
        self.has_ended = self.needed.has_all_rows();
        if selection.write_options {
            // A malformed message is an error when it is read.
            self.codec = self.messages.next_codec().ok().flatten();
        }
        if selection.row_count {
            // A malformed message is an error when it is read, after the batches before it.
            let rows = self.messages.rows_of_batches(|| Ok(())).ok().flatten();
            self.n_rows = rows.map(|rows| self.needed.count(rows.iter().sum()));
        }
        Ok(())
    }

    /// Reads only the piece with this token. Must be called before anything is read.
    pub fn restrict(&mut self, token: &[u8]) -> Result<()> {
        let range =
            Piece::find(token, self.messages.batches()).map_err(|e| with_source_name(e, &self.name))?;
        if let Some(range) = range {
            self.batches = range.start as u64;
            self.messages.keep_batches(range);
        }
        Ok(())
    }

    /// Lists the fragments of the input, before anything is read.
    pub fn fragments(&self, call: &Call<'_>) -> Result<Vec<Fragment>> {
        let Some(batches) = self.messages.batches() else {
            if let Messages::Pipe(_) = self.messages {
                return Err(Error::unsupported(format!(
                    "'{}' has no fragments, because its length is unknown",
                    self.name
                )));
            }
            let (token, bytes) = (Piece::Stream.token(), self.messages.total_bytes());
            return Ok(vec![Fragment { token, n_rows: None, bytes, statistics: None }]);
        };
        let rows = self.messages.rows_of_batches(|| call.check_cancelled());
        let rows = rows.map_err(|e| with_source_name(e, &self.name))?.unwrap_or_default();
        let fragment = |range: Range<usize>| {
            let blocks = batches.get(range.clone()).unwrap_or_default();
            let n_rows = rows.get(range.clone()).map(|rows| rows.iter().sum());
            let bytes = blocks.iter().map(fragments::size).sum();
            let token = Piece::of(batches, range)?.token();
            Some(Fragment { token, n_rows, bytes, statistics: None })
        };
        Ok(fragments::divide(batches).into_iter().filter_map(fragment).collect())
    }

    /// The schema of the batches that are returned.
    pub(super) fn arrow_schema(&self) -> &SchemaRef {
        self.needed.columns.as_ref().map_or(&self.schema.arrow, |(_, schema)| schema)
    }

    /// Rejects a schema with other types than the caller expects.
    pub fn expect(&self, expected: &arrow_schema::Schema) -> Result<()> {
        let got = &self.schema.arrow;
        if same_types(got, expected) {
            return Ok(());
        }
        Err(Error::invalid_argument(format!(
            "'{}' has another schema: expected [{}], got [{}]",
            self.name,
            names_and_types(expected),
            names_and_types(got)
        )))
    }
}
