//! Requests to read an input: the format, the expected schema, and the needed columns and rows.

use std::ops::Range;

use crate::abi;
use crate::error::{Error, Result};
use crate::lists::{list, read_path};
use crate::options::Options;
use crate::predicate::{Predicate, RawPredicates};
use crate::sized_struct;

/// The part of an input that a caller needs. By default it is everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// The columns and nested fields, each as names from the top-level column down; `None` for all
    /// columns. No path begins with another path.
    pub columns: Option<Vec<Vec<String>>>,
    /// The rows, as ascending ranges of positions in the input that do not overlap; `None` for all
    /// rows. No range is empty.
    pub rows: Option<Vec<Range<u64>>>,
    /// Conditions that needed rows fulfil, at most 64. Rows are positions before any condition.
    pub predicates: Vec<Predicate>,
    /// The preferred number of rows of a batch; 0 for the format's own.
    pub batch_rows: u64,
    /// The preferred size of a batch in bytes; 0 for the format's own.
    pub batch_bytes: u64,
    /// Whether the caller uses [`Honoured::n_rows`]: count the rows if the metadata of the input
    /// contains their number, also if this takes several small reads.
    pub row_count: bool,
    /// Whether the caller uses [`crate::BatchStream::write_options`].
    pub write_options: bool,
}

impl Selection {
    /// The needed rows of a piece, or of the whole input, which has the rows `piece`: as ascending
    /// ranges of positions in the input. Predicates are not considered.
    pub fn rows_of_piece(&self, piece: Range<u64>) -> Vec<Range<u64>> {
        let shift = |row: u64| piece.start.saturating_add(row);
        match &self.rows {
            None => Vec::from_iter((!piece.is_empty()).then_some(piece)),
            Some(rows) => {
                let rows: Vec<_> = rows.iter().map(|rows| shift(rows.start)..shift(rows.end)).collect();
                intersection(&rows, &[piece])
            }
        }
    }
}

/// The rows that both lists of ascending ranges contain.
pub fn intersection(a: &[Range<u64>], b: &[Range<u64>]) -> Vec<Range<u64>> {
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    let mut both = Vec::new();
    while let (Some(first), Some(second)) = (a.peek(), b.peek()) {
        let rows = first.start.max(second.start)..first.end.min(second.end);
        if !rows.is_empty() {
            both.push(rows);
        }
        if first.end <= second.end {
            a.next();
        } else {
            b.next();
        }
    }
    both
}

/// What a caller reads.
#[derive(Clone, Copy)]
pub struct ReadRequest<'a> {
    /// The name of one of the importer's formats.
    pub format: &'a str,
    /// The schema of the whole input that the caller expects: reject an input with another schema,
    /// or take the types from it if the format has none.
    pub schema: Option<&'a abi::ArrowSchema>,
    /// Options, all of which the format accepts.
    pub options: &'a Options,
    /// The needed columns and rows. An importer may ignore it.
    pub selection: &'a Selection,
    /// The token of the piece of the input to read, see [`crate::Fragment`]. The rows of the
    /// selection are positions in the piece. `None`: the whole input. Always `None` if the importer
    /// has no fragments.
    pub fragment: Option<&'a [u8]>,
}

static NO_OPTIONS: Options = Options::new();
static EVERYTHING: Selection = Selection {
    columns: None,
    rows: None,
    predicates: Vec::new(),
    batch_rows: 0,
    batch_bytes: 0,
    row_count: false,
    write_options: false,
};

impl<'a> ReadRequest<'a> {
    /// A request to read everything, without options or an expected schema.
    pub fn new(format: &'a str) -> Self {
        Self { format, schema: None, options: &NO_OPTIONS, selection: &EVERYTHING, fragment: None }
    }

    /// Sets the expected schema.
    pub fn with_schema(self, schema: Option<&'a abi::ArrowSchema>) -> Self {
        Self { schema, ..self }
    }

    /// Sets the options.
    pub fn with_options(self, options: &'a Options) -> Self {
        Self { options, ..self }
    }

    /// Sets the needed columns and rows.
    pub fn with_selection(self, selection: &'a Selection) -> Self {
        Self { selection, ..self }
    }

    /// Sets the token of the piece to read.
    pub fn with_fragment(self, fragment: Option<&'a [u8]>) -> Self {
        Self { fragment, ..self }
    }
}

/// The parts of a [`Selection`] that a stream honours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Honoured {
    /// Whether the schema and the batches have only the requested columns.
    pub columns: bool,
    /// Whether the batches have only the requested rows.
    pub rows: bool,
    /// The number of rows that the stream returns in total, if it is known.
    pub n_rows: Option<u64>,
    /// Whether rows that do not fulfil all predicates may be missing. If the request has rows, the
    /// stream must honour them too.
    pub prunes: bool,
    /// Bit i is set if all returned rows fulfil predicate i. 0 unless `prunes` is set.
    pub exact: u64,
}

impl Honoured {
    pub(crate) fn write(self, raw: &mut abi::BatchStream) {
        let flag = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
        raw.honoured = flag(self.columns, abi::HONOURS_COLUMNS)
            | flag(self.rows, abi::HONOURS_ROWS)
            | flag(self.n_rows.is_some(), abi::HAS_ROW_COUNT)
            | flag(self.prunes, abi::PRUNES_ROWS);
        raw.n_rows = self.n_rows.unwrap_or(0);
        raw.exact_predicates = self.exact;
    }

    pub(crate) fn read(raw: &abi::BatchStream) -> Self {
        let has = |flag: u32| raw.honoured & flag != 0;
        Self {
            columns: has(abi::HONOURS_COLUMNS),
            rows: has(abi::HONOURS_ROWS),
            n_rows: has(abi::HAS_ROW_COUNT).then_some(raw.n_rows),
            prunes: has(abi::PRUNES_ROWS),
            exact: raw.exact_predicates,
        }
    }
}

/// The greatest number of columns and of ranges in a request.
const MAX_ITEMS: usize = 1 << 20;

impl Selection {
    /// Whether everything is needed.
    pub fn is_everything(&self) -> bool {
        self.columns.is_none() && self.rows.is_none() && self.predicates.is_empty()
    }

    /// Reads the columns, rows and sizes of a request.
    ///
    /// # Errors
    /// Invalid argument if a list is null although it is not empty, if a path has no name, or if
    /// the rows are not ascending ranges.
    ///
    /// # Safety
    /// The lists of `raw` are null, or have as many valid elements as the request declares.
    pub unsafe fn from_raw(raw: &abi::ReadRequest) -> Result<Self> {
        let columns = if raw.flags & abi::READ_COLUMNS == 0 {
            None
        } else {
            // SAFETY: the caller guarantees `n_columns` valid paths.
            let paths = unsafe { list(raw.columns, raw.n_columns, MAX_ITEMS, "columns") }?;
            // SAFETY: each path has `n_names` valid strings.
            Some(paths.iter().map(|path| unsafe { read_path(path) }).collect::<Result<Vec<_>>>()?)
        };
        let rows = if raw.flags & abi::READ_ROWS == 0 {
            None
        } else {
            // SAFETY: the caller guarantees `n_rows` ranges.
            let ranges = unsafe { list(raw.rows, raw.n_rows, MAX_ITEMS, "row ranges") }?;
            Some(read_ranges(ranges)?)
        };
        // SAFETY: the caller guarantees `n_predicates` valid predicates.
        let predicates = unsafe { Predicate::read_all(raw) }?;
        let row_count = raw.flags & abi::READ_ROW_COUNT != 0;
        let (batch_rows, batch_bytes) = (raw.batch_rows, raw.batch_bytes);
        let write_options = raw.flags & abi::READ_WRITE_OPTIONS != 0;
        Ok(Self { columns, rows, predicates, batch_rows, batch_bytes, row_count, write_options })
    }
}

/// Reads the token of a request.
///
/// # Errors
/// Invalid argument if the token is null although it is not empty, or too long.
///
/// # Safety
/// `fragment` of `raw` is null, or points to `fragment_bytes` bytes that are not changed during
/// `'a`.
pub(crate) unsafe fn read_token<'a>(raw: &abi::ReadRequest) -> Result<Option<&'a [u8]>> {
    if raw.fragment.is_null() && raw.fragment_bytes == 0 {
        return Ok(None);
    }
    // SAFETY: the caller guarantees null or `fragment_bytes` bytes.
    unsafe { crate::fragment::token(raw.fragment, raw.fragment_bytes) }.map(Some)
}

fn read_ranges(ranges: &[abi::RowRange]) -> Result<Vec<Range<u64>>> {
    let mut end = 0;
    ranges
        .iter()
        .map(|range| {
            if range.begin < end || range.end <= range.begin {
                return Err(Error::invalid_argument(format!(
                    "the read request has the rows {}..{} after row {end}, expected ascending ranges that are not \
                     empty",
                    range.begin, range.end
                )));
            }
            end = range.end;
            Ok(range.begin..range.end)
        })
        .collect()
}

/// The C structs of a [`Selection`], which they borrow.
pub(crate) struct RawSelection {
    _names: Vec<Vec<abi::Str>>,
    columns: Vec<abi::Path>,
    rows: Vec<abi::RowRange>,
    predicates: RawPredicates,
    flags: u32,
}

impl RawSelection {
    pub fn new(selection: &Selection) -> Result<Self> {
        let paths = selection.columns.iter().flatten();
        let names: Vec<Vec<abi::Str>> =
            paths.map(|path| path.iter().map(|name| abi::Str::new(name)).collect()).collect();
        let columns =
            names.iter().map(|names| abi::Path { names: names.as_ptr(), n_names: names.len() }).collect();
        let ranges = selection.rows.iter().flatten();
        let rows = ranges.map(|range| abi::RowRange { begin: range.start, end: range.end }).collect();
        let columns_flag = if selection.columns.is_some() { abi::READ_COLUMNS } else { 0 };
        let rows_flag = if selection.rows.is_some() { abi::READ_ROWS } else { 0 };
        let predicates = RawPredicates::new(&selection.predicates)?;
        let filter_flag = if selection.predicates.is_empty() { 0 } else { abi::READ_FILTER };
        let count_flag = if selection.row_count { abi::READ_ROW_COUNT } else { 0 };
        let options_flag = if selection.write_options { abi::READ_WRITE_OPTIONS } else { 0 };
        let flags = columns_flag | rows_flag | filter_flag | count_flag | options_flag;
        Ok(Self { _names: names, columns, rows, predicates, flags })
    }

    pub fn fill(&self, raw: &mut abi::ReadRequest, selection: &Selection) {
        raw.flags = self.flags;
        (raw.columns, raw.n_columns) = (self.columns.as_ptr(), self.columns.len());
        (raw.rows, raw.n_rows) = (self.rows.as_ptr(), self.rows.len());
        let predicates = self.predicates.as_slice();
        (raw.predicates, raw.n_predicates) = (predicates.as_ptr(), predicates.len());
        (raw.batch_rows, raw.batch_bytes) = (selection.batch_rows, selection.batch_bytes);
    }
}

/// Borrows the request of a caller.
///
/// # Safety
/// `raw` is null or points to a valid request that is not changed during `'a`.
pub(crate) unsafe fn borrow<'a>(
    raw: *const abi::ReadRequest,
) -> Result<sized_struct::SizedRef<'a, abi::ReadRequest>> {
    // SAFETY: the caller guarantees null or a struct of `struct_size` bytes.
    unsafe { sized_struct::borrow(raw) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(selection: &Selection) -> Result<Selection> {
        let raw_selection = RawSelection::new(selection)?;
        let mut raw = abi::ReadRequest::new();
        raw_selection.fill(&mut raw, selection);
        // SAFETY: the lists borrow from `raw_selection` and `selection`, which are alive.
        unsafe { Selection::from_raw(&raw) }
    }

    #[test]
    fn selections_round_trip() {
        let path = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        for selection in [
            Selection::default(),
            Selection { columns: Some(Vec::new()), rows: Some(Vec::new()), ..Selection::default() },
            Selection {
                columns: Some(vec![path(&["a"]), path(&["b", "", "c,d"])]),
                rows: Some(vec![0..1, 1..5, 10..u64::MAX]),
                batch_rows: 7,
                batch_bytes: u64::MAX,
                predicates: Vec::new(),
                row_count: true,
                write_options: true,
            },
        ] {
            assert_eq!(round_trip(&selection).unwrap(), selection);
        }
    }

    #[test]
    fn rejects_unordered_ranges_empty_paths_and_null_lists() {
        #[allow(clippy::reversed_empty_ranges)]
        for rows in [vec![1..1], vec![3..2], vec![0..5, 4..6], vec![5..6, 0..1]] {
            let selection = Selection { rows: Some(rows.clone()), ..Selection::default() };
            assert!(round_trip(&selection).unwrap_err().message().contains("ascending"), "{rows:?}");
        }
        let selection = Selection { columns: Some(vec![Vec::new()]), ..Selection::default() };
        assert!(round_trip(&selection).unwrap_err().message().contains("no name"));
        let raw = abi::ReadRequest { flags: abi::READ_ROWS, n_rows: 3, ..abi::ReadRequest::new() };
        // SAFETY: the list is null, which is rejected before it is read.
        let error = unsafe { Selection::from_raw(&raw) }.unwrap_err();
        assert!(error.message().contains("invalid list of 3 row ranges"), "{error}");
    }

    #[test]
    fn intersection_contains_the_rows_of_both_lists() {
        assert_eq!(intersection(&[0..10, 20..30], &[5..25]), [5..10, 20..25]);
        assert_eq!(intersection(&[0..10], &[10..20]), []);
        assert_eq!(intersection(&[0..10, 12..14], &[0..3, 4..5, 9..20]), [0..3, 4..5, 9..10, 12..14]);
    }

    #[test]
    fn rows_of_a_piece_are_positions_in_the_input() {
        let selection = |rows| Selection { rows, ..Selection::default() };
        assert_eq!(selection(None).rows_of_piece(5..9), [5..9]);
        assert_eq!(selection(None).rows_of_piece(5..5), []);
        assert_eq!(selection(Some(vec![1..2, 3..100])).rows_of_piece(5..9), [6..7, 8..9]);
        assert_eq!(selection(Some(vec![u64::MAX - 1..u64::MAX])).rows_of_piece(5..9), []);
    }
}
