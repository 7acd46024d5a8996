//! The options of reading.

use std::ops::Range;
use std::sync::Arc;

use crossdock_plugin_api::{Options, Progress};

use crate::column_name::ColumnName;
use crate::filter::Predicate;

/// Options of [`Session::read`](crate::Session::read).
#[derive(Clone, Default)]
pub struct ReadOptions {
    /// The name of a plugin or a format. `None`: the host recognises the format.
    pub from: Option<String>,
    /// The format's options.
    pub options: Options,
    /// The columns to read, in this order; `None` for all columns. If the importer cannot read only
    /// these columns, the host drops the others.
    pub columns: Option<Vec<ColumnName>>,
    /// The rows to read: ascending ranges of positions in the input. Rows beyond the end of the
    /// input do not exist, which is not an error. `None` for all rows.
    pub rows: Option<Vec<Range<u64>>>,
    /// Conditions that the rows of the result fulfil. `rows` are positions before any condition.
    pub filter: Vec<Predicate>,
    /// The maximum number of rows of the result.
    pub limit: Option<u64>,
    /// The maximum number of rows of a batch; 0 for the batches of the input.
    pub batch_rows: u64,
    /// The token of a fragment of the input ([`crate::Fragment::token`]); `None` for the whole
    /// input. `rows` are positions in the fragment.
    pub fragment: Option<Arc<[u8]>>,
    /// Whether [`n_rows`](crate::Reader::n_rows) is needed, also if the importer reads a few bytes
    /// for each batch to find it.
    pub row_count: bool,
    /// Whether [`write_options`](crate::Reader::write_options) are needed, also if the importer
    /// reads a few bytes to find them.
    pub write_options: bool,
    /// Receives the bytes read so far, and the total (0 if unknown).
    pub progress: Option<Arc<Progress>>,
}
