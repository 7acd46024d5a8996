//! The columns and rows that a caller needs, and what has to be loaded for them.

use std::collections::HashSet;
use std::ops::Range;

use arrow_schema::SchemaRef;
use crossdock_arrays::Projection;
use crossdock_arrays::layout::layout;
use crossdock_memory::Result;

use super::build::had_validity;
use crate::wire::schema::{Column, Kind};
use crate::wire::{BatchMeta, Schema, Span};

/// The needed part of an input.
#[derive(Default)]
pub struct Needed {
    /// The needed columns, and their schema; `None` for all columns.
    pub columns: Option<(Projection, SchemaRef)>,
    /// Whether a requested column does not exist, which the host reports.
    pub lacks_columns: bool,
    /// The needed rows; `None` for all rows.
    rows: Option<Vec<Range<u64>>>,
    /// The number of rows of the batches so far.
    n_rows: u64,
    /// The dictionaries of the needed columns; `None` for all.
    dictionaries: Option<HashSet<i64>>,
}

impl Needed {
    /// `schema` is that of the input.
    pub fn new(schema: &Schema, selection: &crossdock_plugin_api::Selection) -> Result<Self> {
        let projection =
            selection.columns.as_ref().map(|paths| Projection::new(&schema.arrow, paths)).transpose();
        let lacks_columns = projection.is_err();
        let columns = match projection.ok().flatten() {
            None => None,
            Some(projection) => {
                let projected = projection.schema(&schema.arrow)?.into();
                Some((projection, projected))
            }
        };
        let rows = selection.rows.clone();
        let mut needed = Self { columns, lacks_columns, rows, n_rows: 0, dictionaries: None };
        needed.find_dictionaries(schema);
        Ok(needed)
    }

    /// The projection, if only some columns are needed.
    pub fn projection(&self) -> Option<&Projection> {
        self.columns.as_ref().map(|(projection, _)| projection)
    }

    /// Whether only some rows are needed.
    pub fn has_rows(&self) -> bool {
        self.rows.is_some()
    }

    /// Finds the ids of the needed dictionaries, which another stream of the input may change.
    pub fn find_dictionaries(&mut self, schema: &Schema) {
        self.dictionaries = self.columns.as_ref().map(|(projection, _)| {
            let mut ids = HashSet::new();
            add_dictionaries(&schema.columns, Some(projection), &mut ids);
            ids
        });
    }

    /// Whether a needed column uses the dictionary.
    pub fn needs_dictionary(&self, id: i64) -> bool {
        self.dictionaries.as_ref().is_none_or(|ids| ids.contains(&id))
    }

    /// The needed rows of the next batch, which has `len` rows.
    pub fn rows_of_next(&mut self, len: usize) -> Vec<Range<usize>> {
        let Some(rows) = &self.rows else { return vec![0..len] };
        let begin = self.n_rows;
        self.n_rows = begin.saturating_add(len as u64);
        let first = rows.partition_point(|range| range.end <= begin);
        rows.iter()
            .skip(first)
            .take_while(|range| range.start < self.n_rows)
            .map(|range| {
                let end = range.end.min(self.n_rows) - begin;
                (range.start.max(begin) - begin) as usize..end as usize
            })
            .collect()
    }

    /// The number of needed rows of an input with `len` rows.
    pub fn count(&self, len: u64) -> u64 {
        let Some(rows) = &self.rows else { return len };
        rows.iter().map(|range| range.end.min(len) - range.start.min(len)).sum()
    }

    /// Whether no further batch has a needed row.
    pub fn has_all_rows(&self) -> bool {
        self.rows.as_ref().is_some_and(|rows| rows.last().is_none_or(|last| last.end <= self.n_rows))
    }

    /// Empties the buffers of `meta` that are not needed. The message has the shape of `columns`.
    pub fn drop_buffers(&self, columns: &[Column], meta: &mut BatchMeta) {
        let Some(projection) = self.projection() else { return };
        let mut walk = Walk {
            spans: meta.spans.iter_mut(),
            variadic: meta.variadic.iter(),
            all_have_validity: meta.all_have_validity,
        };
        walk.columns(columns, Some(projection));
    }
}

/// Visits the buffers of a message in the order of its columns.
struct Walk<'a> {
    spans: std::slice::IterMut<'a, Span>,
    variadic: std::slice::Iter<'a, usize>,
    all_have_validity: bool,
}

impl Walk<'_> {
    /// `projection` is `None` if all columns are needed.
    fn columns(&mut self, columns: &[Column], projection: Option<&Projection>) {
        for (i, column) in columns.iter().enumerate() {
            match projection.map(|projection| projection.get(i)) {
                None => self.column(column, true, None),
                Some(None) => self.column(column, false, None),
                Some(Some(fields)) => self.column(column, true, fields),
            }
        }
    }

    fn column(&mut self, column: &Column, is_needed: bool, fields: Option<&Projection>) {
        let row = layout(column.field.data_type());
        let former = usize::from(had_validity(&row) && self.all_have_validity);
        let data = if row.variadic { self.variadic.next().copied().unwrap_or(0) } else { 0 };
        for span in self.spans.by_ref().take(former + row.n_buffers() + data) {
            if !is_needed {
                (span.offset, span.bytes) = (0, 0);
            }
        }
        if let Kind::Plain { children } = &column.kind {
            match is_needed {
                true => self.columns(children, fields),
                false => children.iter().for_each(|child| self.column(child, false, None)),
            }
        }
    }
}

fn add_dictionaries(columns: &[Column], projection: Option<&Projection>, ids: &mut HashSet<i64>) {
    for (i, column) in columns.iter().enumerate() {
        let fields = match projection.map(|projection| projection.get(i)) {
            None => None,
            Some(None) => continue,
            Some(Some(fields)) => fields,
        };
        match &column.kind {
            Kind::Plain { children } => add_dictionaries(children, fields, ids),
            Kind::Dictionary { id, values } => {
                ids.insert(*id);
                add_dictionaries(std::slice::from_ref(values), None, ids);
            }
        }
    }
}
