//! Divides a scan into fragments.

use std::ops::Range;
use std::sync::Arc;

use crossdock_arrays::DeviceBatch;

use super::description::{ScanOptions, ScanSource};
use super::{Scan, run};
use crate::error::{Error, Result};
use crate::fragments::{Piece, Token};
use crate::read_options::ReadOptions;
use crate::row_ranges;
use crate::selection::limited;
use crate::session::Session;
use crate::source::Input;
use crate::table::Table;

/// A part of a scan that can be read independently of the other parts, also in another process: a
/// scan of `source` with `options` reads it. The options contain the fragment's token, and have no
/// rows and no limit, because the token names the rows.
///
/// The token belongs to one version of a plugin and of the input. For a file, the host compares the
/// length, the inode and the time of the last change; for other inputs, the length, the first and
/// the last 4096 bytes.
#[derive(Clone)]
pub struct Fragment {
    session: Session,
    source: ScanSource,
    options: ScanOptions,
    token: Arc<[u8]>,
    n_rows: Option<u64>,
    bytes: u64,
    statistics: Option<Table>,
}

impl Fragment {
    /// The input: one file, or an input that is open.
    pub fn source(&self) -> &ScanSource {
        &self.source
    }

    /// How the input is read: the options of the scan, with the token and without rows and limit.
    pub fn options(&self) -> &ScanOptions {
        &self.options
    }

    /// Names the rows of the fragment, for [`ReadOptions::fragment`]. Tokens may come from
    /// untrusted sources: a token that is damaged or belongs to another input, plugin or version is
    /// an error.
    pub fn token(&self) -> &[u8] {
        &self.token
    }

    /// The number of rows, if it is known. It is unknown if the scan has a filter.
    pub fn n_rows(&self) -> Option<u64> {
        self.n_rows
    }

    /// The bytes of the input to read for all columns; 0 if unknown. If the scan has rows, the
    /// number is that of the whole piece of the input in which the fragment's rows are.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Statistics in Arrow's statistics schema, in host memory, if the format has them. They
    /// describe all columns and rows of the piece of the input in which the fragment's rows are.
    pub fn statistics(&self) -> Option<&Table> {
        self.statistics.as_ref()
    }

    /// Describes the fragment's table, in the session of the scan.
    ///
    /// # Errors
    /// The errors of [`Session::scan`]. [`Error::Data`] if the input has changed.
    pub fn scan(&self) -> Result<Scan> {
        self.scan_in(&self.session)
    }

    /// Describes the fragment's table in another session.
    ///
    /// # Errors
    /// Like [`Fragment::scan`]; [`Error::Usage`] if the session reads the input with another
    /// plugin.
    pub fn scan_in(&self, session: &Session) -> Result<Scan> {
        session.scan(self.source.clone(), self.options.clone())
    }
}

impl Scan {
    /// Lists parts of the table that can be read independently. In the order of the list, they
    /// contain each row of the table exactly once. Opens each input, and reads its metadata.
    ///
    /// If the scan has rows or a limit, a fragment contains the requested rows of its piece, and
    /// pieces without requested rows are left out. An input with unknown row counts is then one
    /// fragment.
    ///
    /// # Errors
    /// [`Error::Usage`] if the input can be read only once, if the scan has a filter and a limit,
    /// or if rows of several files are requested and the position of a file's first row is unknown;
    /// the errors of opening.
    pub fn fragments(&self) -> Result<Vec<Fragment>> {
        if self.is_once() {
            return Err(Error::usage(
                "the input of the scan has no fragments, because it can be read only once",
            ));
        }
        let options = &self.description.options;
        let read = &options.read;
        if !read.filter.is_empty() && read.limit.is_some() {
            return Err(Error::usage(
                "limit: a scan with a filter and a limit has no fragments, because the filter decides which rows are the first",
            ));
        }
        if let (true, ScanSource::Files(files)) = (self.description.several, &self.description.source)
            && files.len() > 1
        {
            return Err(Error::usage(
                "a scan whose plugin reads all inputs at once has no fragments: scan the inputs one by one",
            ));
        }
        let ranges = limited(read.rows.as_deref(), read.limit)?;
        let mut listing = Listing { scan: self, ranges, begin: Some(0), fragments: Vec::new() };
        match &self.description.source {
            source @ ScanSource::Input(input) => listing.add(source, input)?,
            ScanSource::Files(files) => {
                for (i, path) in files.iter().enumerate() {
                    if listing.has_all_rows() {
                        break;
                    }
                    let input = run::open_file(&self.session, path, options)?;
                    if i > 0 {
                        let reader = self.session.read_shared(input.clone(), &run::without_rows(read))?;
                        self.description.check_schema(input.name(), reader.schema())?;
                    }
                    listing.add(&ScanSource::Files(vec![path.clone()]), &input)?;
                }
            }
        }
        Ok(listing.fragments)
    }
}

/// The fragments of the inputs so far.
struct Listing<'a> {
    scan: &'a Scan,
    /// The requested rows of all inputs together.
    ranges: Option<Vec<Range<u64>>>,
    /// The position of the first row of the next piece in all inputs, if it is known.
    begin: Option<u64>,
    fragments: Vec<Fragment>,
}

impl Listing<'_> {
    /// Whether no further input has a requested row.
    fn has_all_rows(&self) -> bool {
        let is_before = |end: u64| self.begin.is_some_and(|begin| end <= begin);
        self.ranges.as_ref().is_some_and(|rows| rows.last().is_none_or(|last| is_before(last.end)))
    }

    fn add(&mut self, source: &ScanSource, input: &Input) -> Result<()> {
        let (session, read) = (&self.scan.session, &self.scan.description.options.read);
        let mut pieces = session.pieces(input, read)?;
        if self.ranges.is_some() && pieces.iter().any(|piece| piece.n_rows.is_none()) {
            pieces = whole(pieces, session.count_rows(input, read)?);
        }
        pieces.into_iter().try_for_each(|piece| self.add_piece(source, input, piece))
    }

    fn add_piece(&mut self, source: &ScanSource, input: &Input, piece: Piece) -> Result<()> {
        let Piece { mut token, mut n_rows, bytes, statistics } = piece;
        if let Some(ranges) = &self.ranges {
            let begin = self.begin.ok_or_else(|| {
                Error::usage(format!(
                    "rows, limit: cannot divide the rows of '{}', because an input before it has an unknown number of rows",
                    input.name()
                ))
            })?;
            let end = n_rows.map(|n_rows| begin.saturating_add(n_rows));
            let rows = row_ranges::within(ranges, begin..end.unwrap_or(u64::MAX));
            self.begin = end;
            if rows.is_empty() {
                return Ok(());
            }
            if n_rows.is_none_or(|n_rows| rows != [0..n_rows]) {
                n_rows = n_rows.map(|_| row_ranges::count(&rows));
                token.rows = row_ranges::compose(token.rows.as_deref(), Some(rows));
            }
        }
        let scan = self.scan;
        let token: Arc<[u8]> = token.to_bytes()?.into();
        let options = &scan.description.options;
        let read = ReadOptions { fragment: Some(token.clone()), ..run::without_rows(&options.read) };
        let table =
            |batch: DeviceBatch| Table::from_batches(&scan.session, batch.schema().clone(), vec![batch]);
        self.fragments.push(Fragment {
            session: scan.session.clone(),
            source: source.clone(),
            options: ScanOptions { read, ..options.clone() },
            token,
            n_rows: n_rows.filter(|_| options.read.filter.is_empty()),
            bytes,
            statistics: statistics.map(table).transpose()?,
        });
        Ok(())
    }
}

/// The pieces of an input with `n_rows` rows as one piece.
fn whole(pieces: Vec<Piece>, n_rows: Option<u64>) -> Vec<Piece> {
    let bytes = pieces.iter().map(|piece| piece.bytes).sum();
    let is_single = pieces.len() == 1;
    let first = pieces.into_iter().next().map(|piece| match is_single {
        true => Piece { n_rows, ..piece },
        false => Piece { token: Token { piece: None, ..piece.token }, n_rows, bytes, statistics: None },
    });
    first.into_iter().collect()
}
