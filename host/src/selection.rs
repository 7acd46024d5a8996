//! The columns and rows that a caller requests, and the part of the request that an importer does
//! not honour.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use arrow_schema::SchemaRef;
use crossdock_arrays::{DeviceBatch, Projection};
use crossdock_plugin_api::{Error as ApiError, Honoured, Result as ApiResult, Selection};

use crate::error::{Error, Result};

/// The name of a column, or of a field of nested structs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ColumnName {
    /// Names from the top-level column down.
    Path(Vec<String>),
    /// The names of a path, separated by dots. If the table does not have this path, the top-level
    /// column that has exactly this name.
    Dotted(String),
}

impl ColumnName {
    fn path(&self) -> Vec<String> {
        match self {
            Self::Path(path) => path.clone(),
            Self::Dotted(name) => name.split('.').map(str::to_owned).collect(),
        }
    }

    /// Returns the path of the column in `schema`. If the column does not exist, the result is a
    /// path whose error names the column as the caller did.
    fn resolve(&self, schema: &SchemaRef) -> Vec<String> {
        let path = self.path();
        match self {
            Self::Dotted(name) if path.len() > 1 => {
                let is_missing = Projection::new(schema, std::slice::from_ref(&path)).is_err();
                let has_name = schema.fields().iter().any(|field| field.name() == name);
                let first_is_missing = schema.fields().iter().all(|field| Some(field.name()) != path.first());
                if is_missing && (has_name || first_is_missing) { vec![name.clone()] } else { path }
            }
            _ => path,
        }
    }
}

impl From<&str> for ColumnName {
    fn from(name: &str) -> Self {
        Self::Dotted(name.to_owned())
    }
}

impl From<String> for ColumnName {
    fn from(name: String) -> Self {
        Self::Dotted(name)
    }
}

/// The columns and rows that a caller requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Request {
    /// The columns in the order of the result; `None` for all columns.
    pub columns: Option<Vec<ColumnName>>,
    /// What the importer is asked for.
    pub selection: Selection,
    /// The maximum number of rows of a batch; 0 for no maximum.
    pub batch_rows: u64,
}

impl Request {
    /// # Errors
    /// [`Error::Usage`] if `rows` are not ascending ranges.
    pub fn new(
        columns: Option<&[ColumnName]>,
        rows: Option<&[Range<u64>]>,
        limit: Option<u64>,
        batch_rows: u64,
    ) -> Result<Self> {
        let selection = Selection {
            columns: columns.map(|names| names.iter().map(ColumnName::path).collect()),
            rows: limited(rows, limit)?,
            batch_rows,
            batch_bytes: 0,
        };
        Ok(Self { columns: columns.map(<[_]>::to_vec), selection, batch_rows })
    }
}

/// The first `limit` of the rows.
pub(crate) fn limited(rows: Option<&[Range<u64>]>, limit: Option<u64>) -> Result<Option<Vec<Range<u64>>>> {
    let everything = [0..u64::MAX];
    let ranges = match (rows, limit) {
        (None, None) => return Ok(None),
        (rows, _) => rows.unwrap_or(&everything),
    };
    let (mut left, mut end) = (limit.unwrap_or(u64::MAX), 0);
    let mut limited: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        if range.start < end || range.end < range.start {
            return Err(Error::usage(format!(
                "rows {}..{}: expected ascending ranges that do not overlap; the range before ends at row {end}",
                range.start, range.end
            )));
        }
        end = range.end;
        let len = (range.end - range.start).min(left);
        left -= len;
        if len > 0 {
            limited.push(range.start..range.start + len);
        }
    }
    Ok(Some(limited))
}

/// The part of a request that the host applies, because the stream does not honour it.
pub(crate) struct Remaining {
    columns: Option<(Projection, SchemaRef)>,
    /// The positions of the result's columns in the selected columns, if the order differs.
    order: Option<(Vec<usize>, SchemaRef)>,
    rows: Rows,
}

impl Remaining {
    /// `schema` is the stream's schema. It is replaced by the schema of the requested columns.
    /// `request.selection.columns` is replaced by the paths of the columns if the stream has all
    /// columns, because only then the columns of dotted names are known.
    ///
    /// # Errors
    /// [`Error::Usage`] if a column does not exist, or [`Error::Data`] if the stream states that it
    /// honours columns, but has another schema.
    pub fn new(request: &mut Request, honoured: Honoured, schema: &mut SchemaRef) -> Result<Self> {
        let (mut columns, mut order) = (None, None);
        if let (Some(names), Some(paths)) = (&request.columns, &mut request.selection.columns) {
            if !honoured.columns {
                *paths = names.iter().map(|name| name.resolve(schema)).collect();
            }
            let data = |error| Error::data("cannot select columns", error);
            let projection =
                Projection::new(schema, paths).map_err(|error| Error::usage(error.message().to_string()))?;
            let projected = SchemaRef::new(projection.schema(schema).map_err(data)?);
            if honoured.columns && projected != *schema {
                return Err(data(ApiError::internal(format!(
                    "the plugin states that it returns only the requested columns, expected {} columns, got {}",
                    projected.fields().len(),
                    schema.fields().len()
                ))));
            }
            if !honoured.columns {
                columns = Some((projection, projected.clone()));
            }
            *schema = projected;
            order = requested_order(paths, schema)?;
            if let Some((_, ordered)) = &order {
                *schema = ordered.clone();
            }
        }
        let rows = if honoured.rows { None } else { request.selection.rows.clone() };
        Ok(Self { columns, order, rows: Rows::new(rows, request.batch_rows) })
    }

    /// The next requested rows of the batches that were added.
    pub fn next(&mut self) -> Option<DeviceBatch> {
        self.rows.next()
    }

    /// Whether the host selects no rows and splits no batches.
    pub fn has_all_rows(&self) -> bool {
        self.rows.ranges.is_none() && self.rows.batch_rows == 0
    }

    /// The requested columns of a batch of the stream.
    pub fn columns_of(&self, batch: DeviceBatch) -> ApiResult<DeviceBatch> {
        let mut batch = match &self.columns {
            Some((projection, schema)) => projection.batch(&batch, schema)?,
            None => batch,
        };
        if let Some((indices, schema)) = &self.order {
            batch = batch.select(indices)?.with_schema(schema.clone())?;
        }
        Ok(batch)
    }

    /// Adds a batch of the stream.
    pub fn add(&mut self, batch: DeviceBatch) -> ApiResult<()> {
        let batch = self.columns_of(batch)?;
        self.rows.add(batch)
    }

    /// Whether no further batch of the stream has a requested row.
    pub fn has_all(&self) -> bool {
        self.rows.has_all()
    }
}

/// The positions in `schema` of the columns at `paths`, and the schema in this order; `None` if
/// `schema` has this order. A struct of which several fields are requested is one column, at the
/// position of the first field.
fn requested_order(paths: &[Vec<String>], schema: &SchemaRef) -> Result<Option<(Vec<usize>, SchemaRef)>> {
    let mut order = Vec::new();
    let mut is_whole: HashMap<usize, bool> = HashMap::new();
    for path in paths {
        let name = path.first().map_or("", String::as_str);
        let index = schema.index_of(name).map_err(|error| Error::usage(error.to_string()))?;
        let (whole, before) = (path.len() == 1, is_whole.get(&index).copied());
        // A column may be requested twice.
        if before.is_none() || (whole && before == Some(true)) {
            order.push(index);
        }
        is_whole.insert(index, whole && before != Some(false));
    }
    if order.iter().copied().eq(0..schema.fields().len()) {
        return Ok(None);
    }
    let ordered = schema.project(&order).map_err(|error| Error::usage(error.to_string()))?;
    Ok(Some((order, ordered.into())))
}

/// Selects rows of consecutive batches, and splits long batches.
pub(crate) struct Rows {
    /// The selected rows, as positions in all batches; `None` for all rows.
    ranges: Option<Vec<Range<u64>>>,
    /// The maximum number of rows of a batch; 0 for no maximum.
    batch_rows: u64,
    /// The number of rows of the batches that were added.
    n_rows: u64,
    slices: VecDeque<DeviceBatch>,
}

impl Rows {
    pub fn new(ranges: Option<Vec<Range<u64>>>, batch_rows: u64) -> Self {
        Self { ranges, batch_rows, n_rows: 0, slices: VecDeque::new() }
    }

    /// The next selected rows.
    pub fn next(&mut self) -> Option<DeviceBatch> {
        self.slices.pop_front()
    }

    /// The number of rows of the batches that were added.
    pub fn n_rows(&self) -> u64 {
        self.n_rows
    }

    pub fn add(&mut self, batch: DeviceBatch) -> ApiResult<()> {
        let begin = self.n_rows;
        self.n_rows = begin.saturating_add(batch.len() as u64);
        let Some(ranges) = &self.ranges else {
            let len = batch.len() as u64;
            return split(&batch, 0..len, self.batch_rows, &mut self.slices);
        };
        let first = ranges.partition_point(|range| range.end <= begin);
        for range in ranges.iter().skip(first).take_while(|range| range.start < self.n_rows) {
            let rows = range.start.max(begin) - begin..range.end.min(self.n_rows) - begin;
            split(&batch, rows, self.batch_rows, &mut self.slices)?;
        }
        Ok(())
    }

    /// Whether no further batch has a selected row.
    pub fn has_all(&self) -> bool {
        self.ranges.as_ref().is_some_and(|rows| rows.last().is_none_or(|last| last.end <= self.n_rows))
    }
}

/// Appends `rows` of the batch to `slices`, each with at most `batch_rows` rows.
fn split(
    batch: &DeviceBatch,
    rows: Range<u64>,
    batch_rows: u64,
    slices: &mut VecDeque<DeviceBatch>,
) -> ApiResult<()> {
    let mut begin = rows.start;
    loop {
        let len = match batch_rows {
            0 => rows.end - begin,
            max => (rows.end - begin).min(max),
        };
        let is_whole = begin == 0 && len == batch.len() as u64;
        slices.push_back(if is_whole { batch.clone() } else { batch.slice(begin as usize, len as usize)? });
        begin += len;
        if begin >= rows.end {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_shortens_the_rows() {
        assert_eq!(limited(None, None).unwrap(), None);
        assert_eq!(limited(None, Some(3)).unwrap(), Some(vec![0..3]));
        assert_eq!(limited(None, Some(0)).unwrap(), Some(vec![]));
        let rows = [2..5, 5..5, 7..9, 20..30];
        assert_eq!(limited(Some(&rows), None).unwrap(), Some(vec![2..5, 7..9, 20..30]));
        assert_eq!(limited(Some(&rows), Some(4)).unwrap(), Some(vec![2..5, 7..8]));
        assert_eq!(limited(Some(&[0..u64::MAX]), Some(u64::MAX)).unwrap(), Some(vec![0..u64::MAX]));
    }

    #[test]
    fn rejects_rows_that_are_not_ascending() {
        #[allow(clippy::reversed_empty_ranges)]
        for rows in [vec![3..2], vec![0..5, 4..6], vec![5..6, 0..1]] {
            let error = limited(Some(&rows), Some(1)).unwrap_err().to_string();
            assert!(error.contains("ascending"), "{rows:?}: {error}");
        }
    }
}
