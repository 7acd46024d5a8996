//! The columns and rows that a caller requests, and the part of the request that an importer does
//! not honour.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use arrow_schema::SchemaRef;
use crossdock_arrays::{DeviceBatch, Projection};
use crossdock_plugin_api::{Error as ApiError, Honoured, Result as ApiResult, Selection};

use crate::column_name::ColumnName;
use crate::error::{Error, Result};
use crate::filter::{Condition, Filter, Predicate};
use crate::read_options::ReadOptions;
use crate::row_ranges::{compose, count, within};
use crate::session::Session;

/// The columns and rows that a caller requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Request {
    /// The columns in the order of the result; `None` for all columns.
    pub columns: Option<Vec<ColumnName>>,
    /// The paths of `columns`.
    column_paths: Vec<Vec<String>>,
    /// The conditions on rows.
    pub filter: Vec<Predicate>,
    /// The paths of the columns of `filter`.
    filter_paths: Vec<Vec<String>>,
    /// The requested rows, as positions in the stream before any condition.
    pub rows: Option<Vec<Range<u64>>>,
    /// The maximum number of rows that fulfil the filter; `None` if `rows` include the limit.
    pub limit: Option<u64>,
    /// What the importer is asked for. Its rows may include more than `rows`.
    pub selection: Selection,
    /// The maximum number of rows of a batch; 0 for no maximum.
    pub batch_rows: u64,
    /// Whether the reader knows the positions of all rows up to the last requested one.
    pub knows_positions: bool,
    /// The plugin's token of the piece to read; `None` for the whole input.
    pub fragment: Option<Vec<u8>>,
}

impl Request {
    /// # Errors
    /// [`Error::Usage`] if `rows` are not ascending ranges.
    pub fn new(options: &ReadOptions) -> Result<Self> {
        let ReadOptions { columns, filter, rows, limit, batch_rows, row_count, write_options, .. } = options;
        // A filter decides which rows are the first, so the rows cannot include the limit.
        let (in_rows, limit) = if filter.is_empty() { (*limit, None) } else { (None, *limit) };
        let rows = limited(rows.as_deref(), in_rows)?;
        let mut request = Self {
            columns: columns.clone(),
            column_paths: columns.iter().flatten().map(ColumnName::path).collect(),
            filter: filter.clone(),
            filter_paths: filter.iter().map(|predicate| predicate.column.path()).collect(),
            rows: rows.clone(),
            limit,
            selection: Selection {
                rows,
                batch_rows: *batch_rows,
                row_count: *row_count,
                write_options: *write_options,
                ..Selection::default()
            },
            batch_rows: *batch_rows,
            knows_positions: false,
            fragment: None,
        };
        request.selection.columns = request.needed_columns();
        Ok(request)
    }

    /// Restricts the request to the rows `rows` of a fragment.
    pub fn restrict(&mut self, fragment: Option<Vec<u8>>, rows: Option<Vec<Range<u64>>>) {
        self.fragment = fragment;
        if rows.is_some() {
            self.rows = compose(rows.as_deref(), self.rows.take());
            self.selection.rows = self.rows.clone();
        }
    }

    /// The same request, of which the importer may leave out only the rows after the last requested
    /// one. So the reader knows the positions of all rows before it.
    pub fn with_positions(mut self) -> Self {
        self.knows_positions = true;
        if let Some(rows) = &self.rows {
            let end = rows.last().map_or(0, |last| last.end);
            self.selection.rows = Some(if end == 0 { Vec::new() } else { vec![0..end] });
        }
        self
    }

    /// Finds the columns in the schema of the whole input.
    fn resolve(&mut self, schema: &SchemaRef) {
        self.column_paths = self.columns.iter().flatten().map(|name| name.resolve(schema)).collect();
        self.filter_paths = self.filter.iter().map(|predicate| predicate.column.resolve(schema)).collect();
    }

    /// The paths of the requested columns and of the columns of the filter; `None` for all columns.
    fn needed_columns(&self) -> Option<Vec<Vec<String>>> {
        self.columns.as_ref()?;
        let mut paths = self.column_paths.clone();
        for path in &self.filter_paths {
            if !paths.iter().any(|other| path.starts_with(other)) {
                paths.retain(|other| !other.starts_with(path));
                paths.push(path.clone());
            }
        }
        Some(paths)
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
    rows: Rows,
    /// Whether no row fulfils the filter.
    is_empty: bool,
    filter: Option<Filter>,
    /// The requested columns without those that only the filter needs.
    requested: Option<(Projection, SchemaRef)>,
    /// The positions of the result's columns in the selected columns, if the order differs.
    order: Option<(Vec<usize>, SchemaRef)>,
    /// The rows of the result.
    result: Rows,
}

impl Remaining {
    /// `schema` is the stream's schema. It is replaced by the schema of the requested columns.
    /// `request.selection.columns` is replaced by the paths of the columns, because the columns of
    /// dotted names are known only if the stream has all columns.
    /// `request.selection.predicates` is replaced by the conditions for an importer, in the types
    /// of the schema. The filter runs on the stream and the threads of `session`.
    ///
    /// # Errors
    /// [`Error::Usage`] if a column does not exist, or if its values cannot be compared with the
    /// literal of the filter. [`Error::Data`] if the stream states that it honours columns, but has
    /// another schema.
    pub fn new(
        request: &mut Request,
        honoured: Honoured,
        schema: &mut SchemaRef,
        session: &Session,
    ) -> Result<Self> {
        let data = |error| Error::data("cannot select columns", error);
        let usage = |error: ApiError| Error::usage(error.message().to_string());
        if !honoured.columns {
            request.resolve(schema);
        }
        let (mut columns, paths) = (None, request.needed_columns());
        if let Some(paths) = &paths {
            let projection = Projection::new(schema, paths).map_err(usage)?;
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
        }
        request.selection.columns = paths;
        let conditions = request.filter.iter().zip(&request.filter_paths);
        let conditions = conditions.map(|(predicate, path)| Condition::new(schema, path, predicate));
        let conditions = conditions.collect::<Result<Vec<_>>>()?;
        let is_empty = conditions.iter().any(Condition::is_never);
        let filter = Filter::new(remaining_conditions(request, honoured, conditions)?, session);
        let (mut requested, mut order) = (None, None);
        if request.columns.is_some() {
            let paths = &request.column_paths;
            let projection = Projection::new(schema, paths).map_err(usage)?;
            let projected = SchemaRef::new(projection.schema(schema).map_err(data)?);
            if projected != *schema {
                requested = Some((projection, projected.clone()));
                *schema = projected;
            }
            order = requested_order(paths, schema)?;
            if let Some((_, ordered)) = &order {
                *schema = ordered.clone();
            }
        }
        // If the importer returns exactly the rows that it is asked for, and these are the
        // requested ones, nothing is left to select.
        let is_exact = honoured.rows && request.rows == request.selection.rows;
        let rows = Rows::new(if is_exact { None } else { request.rows.clone() }, 0);
        let limit = request.limit.map(|limit| if limit == 0 { Vec::new() } else { vec![0..limit] });
        let result = Rows::new(limit, request.batch_rows);
        Ok(Self { columns, rows, is_empty, filter, requested, order, result })
    }

    /// The next requested rows of the batches that were added.
    pub fn next(&mut self) -> Option<DeviceBatch> {
        self.result.next()
    }

    /// Whether the host selects no rows and splits no batches.
    pub fn keeps_batches(&self) -> bool {
        let selects_rows =
            self.filter.is_some() || self.rows.ranges.is_some() || self.result.ranges.is_some();
        !selects_rows && self.rows.batch_rows == 0 && self.result.batch_rows == 0
    }

    /// The columns of the result of a batch of the stream.
    pub fn columns_of(&self, batch: DeviceBatch) -> ApiResult<DeviceBatch> {
        self.result_columns(self.needed_columns(batch)?)
    }

    fn needed_columns(&self, batch: DeviceBatch) -> ApiResult<DeviceBatch> {
        match &self.columns {
            Some((projection, schema)) => projection.batch(&batch, schema),
            None => Ok(batch),
        }
    }

    fn result_columns(&self, mut batch: DeviceBatch) -> ApiResult<DeviceBatch> {
        if let Some((projection, schema)) = &self.requested {
            batch = projection.batch(&batch, schema)?;
        }
        if let Some((indices, schema)) = &self.order {
            batch = batch.select(indices)?.with_schema(schema.clone())?;
        }
        Ok(batch)
    }

    /// Adds a batch of the stream.
    pub fn add(&mut self, batch: DeviceBatch) -> ApiResult<()> {
        self.rows.add(self.needed_columns(batch)?)?;
        while let Some(rows) = self.rows.next() {
            let kept = match &self.filter {
                Some(filter) => filter.apply(&rows)?,
                None => Some(rows),
            };
            let Some(batch) = kept else { continue };
            self.result.add(self.result_columns(batch)?)?;
        }
        Ok(())
    }

    /// Whether no further batch of the stream has a requested row.
    pub fn has_all(&self) -> bool {
        self.is_empty || self.rows.has_all() || self.result.has_all()
    }

    /// The number of rows of the stream's batches, before the selection of rows.
    pub fn position(&self) -> u64 {
        self.rows.n_rows()
    }

    /// The number of rows of the result if the stream returns `n_rows` rows; `None` if it depends
    /// on the rows.
    pub fn count(&self, n_rows: u64) -> Option<u64> {
        if self.filter.is_some() || self.result.ranges.is_some() {
            return None;
        }
        Some(self.rows.ranges.as_ref().map_or(n_rows, |rows| count(&within(rows, 0..n_rows))))
    }
}

/// The conditions that the stream does not apply. Sets the conditions for an importer.
fn remaining_conditions(
    request: &mut Request,
    honoured: Honoured,
    conditions: Vec<Condition>,
) -> Result<Vec<Condition>> {
    let wrong = |what: &str| Error::data("cannot filter rows", ApiError::internal(what));
    let passed = std::mem::take(&mut request.selection.predicates);
    if honoured.prunes && passed.is_empty() {
        return Err(wrong("the plugin states that rows are missing, expected all rows without predicates"));
    }
    if honoured.prunes && request.selection.rows.is_some() && !honoured.rows {
        return Err(wrong(
            "the plugin states that rows are missing, expected that it also selects the requested rows",
        ));
    }
    let exact = if honoured.prunes { honoured.exact } else { 0 };
    let (mut remaining, mut passed_before) = (Vec::new(), 0);
    for condition in conditions {
        let Some(predicate) = condition.for_importer().filter(|_| request.selection.predicates.len() < 64)
        else {
            remaining.push(condition);
            continue;
        };
        // The importer got the same conditions in the same order, or none.
        if passed.get(passed_before) != Some(&predicate) || exact >> passed_before & 1 == 0 {
            remaining.push(condition);
        }
        passed_before += 1;
        request.selection.predicates.push(predicate);
    }
    Ok(remaining)
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
            if self.batch_rows == 0 || len <= self.batch_rows {
                self.slices.push_back(batch);
                return Ok(());
            }
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
