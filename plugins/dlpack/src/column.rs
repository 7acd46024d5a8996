//! How a column is a tensor.

use std::sync::Arc;

use arrow_schema::extension::{EXTENSION_TYPE_METADATA_KEY, EXTENSION_TYPE_NAME_KEY};
use arrow_schema::{DataType, Field, FieldRef, Metadata};
use crossdock_plugin_api::{Error, Result};

use crate::element::Element;
use crate::strides::{MAX_DIMS, Strides};

const BOOL8: &str = "arrow.bool8";
const FIXED_SHAPE_TENSOR: &str = "arrow.fixed_shape_tensor";

/// A column whose rows are elements, or arrays of elements of one shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) element: Element,
    /// Whether Arrow has them as bits: of booleans only, and then they are converted both ways.
    pub(crate) bits: bool,
    /// What a row is, where it is more than one element.
    row: Option<Box<Row>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Row {
    /// Its dimensions, as they lie in memory.
    sizes: Vec<usize>,
    /// Dimension i of the row, as its users count them, is dimension `permutation[i]` in memory.
    permutation: Option<Vec<usize>>,
}

/// The metadata of `arrow.fixed_shape_tensor`, as the specification has it. (Some writers say "permutations".)
#[derive(serde::Serialize, serde::Deserialize)]
struct TensorMetadata {
    shape: Vec<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dim_names: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none", alias = "permutations")]
    permutation: Option<Vec<usize>>,
}

impl Column {
    /// Of a field, or why DLPack cannot hold it and what to do.
    pub(crate) fn of_field(field: &Field) -> Result<Self> {
        let refuse = |why: String| {
            Err(Error::unsupported(format!("column '{}' of type {}: {why}", field.name(), field.data_type())))
        };
        let (mut sizes, mut values) = (Vec::new(), field);
        while let DataType::FixedSizeList(child, n) = values.data_type() {
            match usize::try_from(*n) {
                Ok(n) if sizes.len() + 1 < MAX_DIMS => sizes.push(n),
                _ => return refuse(format!("a list size of {n} at {} levels is none", sizes.len())),
            }
            values = child;
        }
        let element = match (values.data_type(), values.extension_type_name()) {
            (DataType::Int8, Some(BOOL8)) => Some(Element::BOOL),
            (other, _) => Element::of_arrow(other),
        };
        let Some(element) = element else { return refuse(why_not(values.data_type()).into()) };
        let mut row = Row { sizes, permutation: None };
        if field.extension_type_name() == Some(FIXED_SHAPE_TENSOR) {
            row = match Row::told(&row.sizes, field.extension_type_metadata().unwrap_or("")) {
                Ok(row) => row,
                Err(what) => return refuse(format!("its {FIXED_SHAPE_TENSOR} metadata is wrong: {what}")),
            };
        }
        let bits = *values.data_type() == DataType::Boolean;
        // A row of no dimensions is still a list, of one value.
        let is_list = values.data_type() != field.data_type();
        Ok(Self { element, bits, row: is_list.then(|| Box::new(row)) })
    }

    /// Of a mask: one boolean a row.
    pub(crate) fn mask() -> Self {
        Self { element: Element::BOOL, bits: false, row: None }
    }

    /// Of a tensor that nobody has described: its first dimension are the rows. `packed`: booleans become bits.
    pub(crate) fn of_tensor(element: Element, strides: &Strides, packed: bool) -> Self {
        let bits = element == Element::BOOL && packed;
        let shape: Vec<usize> = strides.row_shape().collect();
        if shape.is_empty() {
            return Self { element, bits, row: None };
        }
        let order = strides.contiguous_order().unwrap_or_else(|| (0..shape.len()).collect());
        let sizes = order.iter().filter_map(|i| shape.get(*i).copied()).collect();
        let permutation = (!order.is_sorted()).then(|| inverse(&order));
        Self { element, bits, row: Some(Box::new(Row { sizes, permutation })) }
    }

    /// The field that holds it.
    pub(crate) fn field(&self, name: &str, nullable: bool) -> Result<Field> {
        let extension = |name: &str, metadata: String| {
            Metadata::from([
                (EXTENSION_TYPE_NAME_KEY.to_string(), name.to_string()),
                (EXTENSION_TYPE_METADATA_KEY.to_string(), metadata),
            ])
        };
        let values = |name: &str, nullable: bool| match (self.element == Element::BOOL, self.bits) {
            (true, false) => {
                Field::new(name, DataType::Int8, nullable).with_metadata(extension(BOOL8, String::new()))
            }
            _ => Field::new(name, self.element.data_type().clone(), nullable),
        };
        let Some(row) = &self.row else { return Ok(values(name, nullable)) };
        let n = i32::try_from(self.row_len()).map_err(|_| {
            Error::unsupported(format!(
                "column '{name}': a row of {} values, expected at most {} in an Arrow list",
                self.row_len(),
                i32::MAX
            ))
        })?;
        let told = TensorMetadata {
            shape: row.sizes.clone(),
            dim_names: None,
            permutation: row.permutation.clone(),
        };
        let told = serde_json::to_string(&told).map_err(|error| Error::internal(error.to_string()))?;
        let item: FieldRef = Arc::new(values("item", true));
        Ok(Field::new(name, DataType::FixedSizeList(item, n), nullable)
            .with_metadata(extension(FIXED_SHAPE_TENSOR, told)))
    }

    /// Bytes of a row, if it is one element that Arrow and DLPack have in the same bytes.
    pub(crate) fn plain_width(&self) -> Option<usize> {
        (self.row.is_none() && !self.bits).then(|| self.element.width())
    }

    /// How many elements a row has.
    pub(crate) fn row_len(&self) -> usize {
        self.row.as_ref().map_or(1, |row| row.sizes.iter().product())
    }

    /// In which order the dimensions of a row lie in memory, the outermost first.
    pub(crate) fn order(&self) -> Vec<usize> {
        let Some(row) = &self.row else { return Vec::new() };
        row.permutation.as_deref().map_or_else(|| (0..row.sizes.len()).collect(), inverse)
    }

    /// Whether a row of a tensor of this shape is one of the column's.
    pub(crate) fn is_of_shape(&self, mut row: impl Iterator<Item = usize>) -> bool {
        match &self.row {
            None => row.next().is_none(),
            Some(own) => row.eq(own.as_counted(&own.sizes)),
        }
    }

    /// The shape of a tensor of so many rows.
    pub(crate) fn shape(&self, rows: usize) -> Vec<usize> {
        let row = self.row.as_ref().map_or(Vec::new(), |row| row.as_counted(&row.sizes));
        std::iter::once(rows).chain(row).collect()
    }

    /// Its strides, in elements.
    pub(crate) fn strides(&self) -> Vec<usize> {
        let Some(row) = &self.row else { return vec![1] };
        let mut in_memory = vec![1usize; row.sizes.len()];
        let mut stride = 1usize;
        for (to, size) in in_memory.iter_mut().zip(&row.sizes).rev() {
            *to = stride;
            stride = stride.saturating_mul((*size).max(1));
        }
        std::iter::once(stride).chain(row.as_counted(&in_memory)).collect()
    }
}

impl Row {
    /// What the extension type's metadata says of a row that is stored as lists of these sizes.
    fn told(storage: &[usize], metadata: &str) -> Result<Self, String> {
        let told: TensorMetadata = serde_json::from_str(metadata).map_err(|error| error.to_string())?;
        let [list] = storage else {
            return Err(format!("the storage has {} levels of fixed-size lists, expected 1", storage.len()));
        };
        if told.shape.len() >= MAX_DIMS {
            return Err(format!("{} dimensions, expected fewer than {MAX_DIMS}", told.shape.len()));
        }
        let values = told.shape.iter().try_fold(1usize, |n, size| n.checked_mul(*size));
        if values != Some(*list) {
            return Err(format!("shape {:?} is not one of the {list} values that a row has", told.shape));
        }
        if let Some(permutation) = &told.permutation {
            let mut sorted = permutation.clone();
            sorted.sort_unstable();
            if !sorted.into_iter().eq(0..told.shape.len()) {
                return Err(format!("{permutation:?} is no permutation of {} dimensions", told.shape.len()));
            }
        }
        Ok(Self { sizes: told.shape, permutation: told.permutation })
    }

    /// A list by dimension, in the order in which users count them.
    fn as_counted(&self, in_memory: &[usize]) -> Vec<usize> {
        match &self.permutation {
            Some(order) => order.iter().filter_map(|i| in_memory.get(*i).copied()).collect(),
            None => in_memory.to_vec(),
        }
    }
}

fn inverse(permutation: &[usize]) -> Vec<usize> {
    let mut inverse = vec![0; permutation.len()];
    for (i, at) in permutation.iter().enumerate() {
        if let Some(to) = inverse.get_mut(*at) {
            *to = i;
        }
    }
    inverse
}

/// Why a type has no place in DLPack, and what to do.
fn why_not(data_type: &DataType) -> &'static str {
    use DataType::*;
    match data_type {
        Date32 | Date64 | Time32(_) | Time64(_) | Timestamp(..) | Duration(_) | Interval(_) => {
            "DLPack has no dates and times; cast it to an integer type of its width, or leave it out"
        }
        Decimal32(..) | Decimal64(..) | Decimal128(..) | Decimal256(..) => {
            "DLPack has no decimals; cast it to float64 or an integer type, or leave it out"
        }
        Dictionary(..) => {
            "DLPack has plain values only; decode it first (Table.decode_dictionary in Python, \
             Table::decode_dictionaries in Rust), or leave it out"
        }
        RunEndEncoded(..) => {
            "DLPack has plain values only; expand its runs where it comes from, or leave it out"
        }
        List(_) | LargeList(_) | ListView(_) | LargeListView(_) => {
            "a tensor's rows are of one length; make it a fixed-size list, or leave it out"
        }
        _ => "DLPack holds numbers and booleans only; leave it out",
    }
}
