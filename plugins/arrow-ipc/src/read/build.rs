//! Arrays over the buffers of a message, as the schema says.

use arrow_schema::DataType;
use crossdock_arrays::DeviceArray;
use crossdock_arrays::layout::{Layout, layout};
use crossdock_memory::{Result, Stream};
use crossdock_plugin_api::Error;

use super::dictionaries::Dictionaries;
use super::loading::Slots;
use crate::wire::BatchMeta;
use crate::wire::message::Node;
use crate::wire::schema::{Column, Kind, at};

/// What a list of columns must find in a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    nodes: usize,
    /// Without views' data buffers, and as of version 5.
    buffers: usize,
    /// Arrays that had a validity buffer before version 5 and have none since.
    bare: usize,
    views: usize,
}

impl Shape {
    /// The sum over `columns`.
    pub fn of(columns: &[Column]) -> Self {
        let mut shape = Self::default();
        columns.iter().for_each(|column| shape.add(column));
        shape
    }

    fn add(&mut self, column: &Column) {
        let row = layout(column.field.data_type());
        self.nodes += 1;
        self.buffers += row.n_buffers();
        self.bare += usize::from(had_validity(&row));
        self.views += usize::from(row.variadic);
        if let Kind::Plain { children } = &column.kind {
            children.iter().for_each(|child| self.add(child));
        }
    }

    /// Refuses a message with more or less than that, before its body is touched.
    pub fn check(&self, meta: &BatchMeta) -> Result<()> {
        let differs = |what: &str, expected: usize, got: usize| {
            Err(Error::bad_data(format!("a message has {got} {what}, its schema expects {expected}")))
        };
        if meta.nodes.len() != self.nodes {
            return differs("arrays", self.nodes, meta.nodes.len());
        }
        if meta.variadic.len() != self.views {
            return differs("counts of views' data buffers", self.views, meta.variadic.len());
        }
        let data = meta.variadic.iter().fold(0usize, |sum, n| sum.saturating_add(*n));
        let bare = if meta.all_have_validity { self.bare } else { 0 };
        let expected = (self.buffers + bare).saturating_add(data);
        if meta.spans.len() == expected { Ok(()) } else { differs("buffers", expected, meta.spans.len()) }
    }
}

/// Whether arrays of this row had a validity buffer before version 5: unions and run-end encoded ones.
fn had_validity(row: &Layout<'_>) -> bool {
    !row.has_validity && !row.all_null
}

/// What is left of a message while its arrays are built.
pub struct Builder<'a> {
    nodes: std::slice::Iter<'a, Node>,
    variadic: std::slice::Iter<'a, usize>,
    all_have_validity: bool,
    slots: Slots,
    dictionaries: &'a mut Dictionaries,
    stream: &'a Stream,
}

impl<'a> Builder<'a> {
    /// All of it; the message has the shape of the columns that will be asked for.
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

    /// The next column.
    pub fn column(&mut self, column: &Column) -> Result<DeviceArray> {
        self.build(column).map_err(|e| at(e, column.field.name()))
    }

    fn build(&mut self, column: &Column) -> Result<DeviceArray> {
        let missing = || Error::internal("a message was built that had been refused");
        let node = *self.nodes.next().ok_or_else(missing)?;
        let data_type = column.field.data_type();
        let row = layout(data_type);
        if had_validity(&row) && self.all_have_validity {
            self.slots.next()?;
            if node.nulls > 0 {
                return Err(Error::unsupported(format!(
                    "a {} with {} nulls of its own, as only versions before Arrow 1.0 wrote them: write the data again \
                     with a newer one",
                    if matches!(data_type, DataType::Union(..)) { "union" } else { "run-end encoded array" },
                    node.nulls
                )));
            }
        }
        let data = if row.variadic { *self.variadic.next().ok_or_else(missing)? } else { 0 };
        let mut buffers = Vec::with_capacity(row.n_buffers() + data);
        for i in 0..row.n_buffers() + data {
            let slot = self.slots.next()?;
            // A bitmap that says nothing is left out, as most writers do from the start.
            buffers.push(slot.filter(|_| !(row.is_validity(i) && node.nulls == 0)));
        }
        let children = match &column.kind {
            Kind::Plain { children } => {
                children.iter().map(|child| self.column(child)).collect::<Result<_>>()?
            }
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
        DeviceArray::try_new(data_type.clone(), node.length, 0, Some(nulls), buffers, children, dictionary)
    }
}
