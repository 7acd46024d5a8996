//! Builds the arrays of a schema from the buffers of a message.

use arrow_schema::DataType;
use crossdock_arrays::layout::{Layout, layout};
use crossdock_arrays::{DeviceArray, Projection};
use crossdock_memory::{Result, Stream};
use crossdock_plugin_api::Error;

use super::dictionaries::Dictionaries;
use super::loading::Slots;
use crate::wire::BatchMeta;
use crate::wire::message::Node;
use crate::wire::schema::{Column, Kind, in_field};

/// The numbers of arrays and buffers that a message must have for some columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    nodes: usize,
    /// Number of buffers in version 5, not counting the data buffers of view arrays.
    buffers: usize,
    /// Number of arrays that had a validity buffer in versions before 5 but have none in version 5.
    former_validity: usize,
    views: usize,
}

impl Shape {
    /// Returns the total numbers of all `columns`.
    pub fn of(columns: &[Column]) -> Self {
        let mut shape = Self::default();
        columns.iter().for_each(|column| shape.add(column));
        shape
    }

    fn add(&mut self, column: &Column) {
        let row = layout(column.field.data_type());
        self.nodes += 1;
        self.buffers += row.n_buffers();
        self.former_validity += usize::from(had_validity(&row));
        self.views += usize::from(row.variadic);
        if let Kind::Plain { children } = &column.kind {
            children.iter().for_each(|child| self.add(child));
        }
    }

    /// Returns an error if the message has other numbers of arrays or buffers. The reader calls
    /// this function before it reads the body.
    pub fn check(&self, meta: &BatchMeta) -> Result<()> {
        let mismatch = |what: &str, expected: usize, got: usize| {
            Err(Error::bad_data(format!("a message has {got} {what}, but its schema requires {expected}")))
        };
        if meta.nodes.len() != self.nodes {
            return mismatch("arrays", self.nodes, meta.nodes.len());
        }
        if meta.variadic.len() != self.views {
            return mismatch("counts of views' data buffers", self.views, meta.variadic.len());
        }
        let data = meta.variadic.iter().fold(0usize, |sum, n| sum.saturating_add(*n));
        let former_validity = if meta.all_have_validity { self.former_validity } else { 0 };
        let expected = (self.buffers + former_validity).saturating_add(data);
        if meta.spans.len() == expected { Ok(()) } else { mismatch("buffers", expected, meta.spans.len()) }
    }
}

/// Whether arrays of this layout had a validity buffer before version 5: unions and run-end encoded
/// arrays.
pub fn had_validity(row: &Layout<'_>) -> bool {
    !row.has_validity && !row.all_null
}

/// Builds the arrays of a message in order. The fields contain the parts of the message that no
/// array uses yet.
pub struct Builder<'a> {
    nodes: std::slice::Iter<'a, Node>,
    variadic: std::slice::Iter<'a, usize>,
    all_have_validity: bool,
    slots: Slots,
    dictionaries: &'a mut Dictionaries,
    stream: &'a Stream,
}

impl<'a> Builder<'a> {
    /// Creates a builder. The message must have the shape of the columns.
    pub fn new(
        meta: &'a BatchMeta,
        slots: Slots,
        dictionaries: &'a mut Dictionaries,
        stream: &'a Stream,
    ) -> Self {
        Self {
            nodes: meta.nodes.iter(),
            variadic: meta.variadic.iter(),
            all_have_validity: meta.all_have_validity,
            slots,
            dictionaries,
            stream,
        }
    }

    /// Builds the array of the next column.
    pub fn column(&mut self, column: &Column) -> Result<DeviceArray> {
        self.column_with(column, None)
    }

    /// The next columns, only those of `projection` if there is one.
    pub fn columns(
        &mut self,
        columns: &[Column],
        projection: Option<&Projection>,
    ) -> Result<Vec<DeviceArray>> {
        let Some(projection) = projection else {
            // `collect` of results would not allocate for all of them at once.
            let mut arrays = Vec::with_capacity(columns.len());
            for column in columns {
                arrays.push(self.column(column)?);
            }
            return Ok(arrays);
        };
        let mut arrays = Vec::new();
        for (i, column) in columns.iter().enumerate() {
            match projection.get(i) {
                Some(fields) => arrays.push(self.column_with(column, fields)?),
                None => self.skip(column).map_err(|e| in_field(e, column.field.name()))?,
            }
        }
        Ok(arrays)
    }

    fn column_with(&mut self, column: &Column, fields: Option<&Projection>) -> Result<DeviceArray> {
        self.build(column, fields).map_err(|e| in_field(e, column.field.name()))
    }

    /// Passes over the parts of a column.
    fn skip(&mut self, column: &Column) -> Result<()> {
        let missing = || Error::internal("the message does not have the shape of its schema");
        self.nodes.next().ok_or_else(missing)?;
        let row = layout(column.field.data_type());
        let former = usize::from(had_validity(&row) && self.all_have_validity);
        let data = if row.variadic { *self.variadic.next().ok_or_else(missing)? } else { 0 };
        (0..former + row.n_buffers() + data).try_for_each(|_| self.slots.next().map(drop))?;
        match &column.kind {
            Kind::Plain { children } => children.iter().try_for_each(|child| self.skip(child)),
            Kind::Dictionary { .. } => Ok(()),
        }
    }

    /// `fields` are the needed fields of a struct; `None` for the whole column.
    fn build(&mut self, column: &Column, fields: Option<&Projection>) -> Result<DeviceArray> {
        let missing = || Error::internal("the message does not have the shape of its schema");
        let node = *self.nodes.next().ok_or_else(missing)?;
        let data_type = column.field.data_type();
        let row = layout(data_type);
        if had_validity(&row) && self.all_have_validity {
            self.slots.next()?;
            if node.nulls > 0 {
                return Err(Error::unsupported(format!(
                    "a {} has {} nulls in a validity bitmap, which only versions before Arrow 1.0 wrote: write the \
                     data again with a newer version",
                    if matches!(data_type, DataType::Union(..)) { "union" } else { "run-end encoded array" },
                    node.nulls
                )));
            }
        }
        let data = if row.variadic { *self.variadic.next().ok_or_else(missing)? } else { 0 };
        let mut buffers = Vec::with_capacity(row.n_buffers() + data);
        for i in 0..row.n_buffers() + data {
            let slot = self.slots.next()?;
            // Most writers omit a bitmap if there are no nulls, so such a bitmap is dropped here.
            buffers.push(slot.filter(|_| !(row.is_validity(i) && node.nulls == 0)));
        }
        let children = match &column.kind {
            Kind::Plain { children } => self.columns(children, fields)?,
            Kind::Dictionary { .. } => Vec::new(),
        };
        let dictionary = match &column.kind {
            Kind::Plain { .. } => None,
            Kind::Dictionary { id, values } => {
                let unused = node.nulls == node.length;
                Some(self.dictionaries.get(*id, values.field.data_type(), self.stream, unused)?)
            }
        };
        let nulls = if row.has_validity { node.nulls } else { 0 };
        let data_type = match fields {
            Some(fields) => fields.data_type(data_type)?,
            None => data_type.clone(),
        };
        DeviceArray::try_new(data_type, node.length, 0, Some(nulls), buffers, children, dictionary)
    }
}
