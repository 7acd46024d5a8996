//! Converts Arrow columns to tensors and back.

use std::sync::Arc;

use arrow_schema::extension::{EXTENSION_TYPE_METADATA_KEY, EXTENSION_TYPE_NAME_KEY};
use arrow_schema::{DataType, Field, FieldRef, Metadata};
use crossdock_arrays::{ExtensionNumber, field_type_name};
use crossdock_plugin_api::{Error, Result};

use crate::element::Element;
use crate::strides::{MAX_DIMS, Strides};

const BOOL8: &str = "arrow.bool8";
const FIXED_SHAPE_TENSOR: &str = "arrow.fixed_shape_tensor";

/// A column whose rows are elements, or arrays of elements that all have the same shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) element: Element,
    /// Whether Arrow stores the elements as bits. This is true only for booleans. The import packs
    /// booleans to bits, and the export unpacks the bits to bytes.
    pub(crate) bits: bool,
    /// The shape of a row; `None` if a row is one element.
    row: Option<Box<Row>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Row {
    /// Sizes of the dimensions in the order of memory, outermost first.
    sizes: Vec<usize>,
    /// Dimension `i` of the row's logical shape is dimension `permutation[i]` in memory.
    permutation: Option<Vec<usize>>,
}

/// The metadata of the canonical extension type `arrow.fixed_shape_tensor`. Some writers use the
/// key "permutations" instead of "permutation".
#[derive(serde::Serialize, serde::Deserialize)]
struct TensorMetadata {
    shape: Vec<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dim_names: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none", alias = "permutations")]
    permutation: Option<Vec<usize>>,
}

impl Column {
    /// # Errors
    /// Returns an error if DLPack cannot represent the field. The message says what to do instead.
    pub(crate) fn from_field(field: &Field) -> Result<Self> {
        let unsupported = |why: String| {
            Err(Error::unsupported(format!(
                "column '{}' of type {}: {why}",
                field.name(),
                field_type_name(field)
            )))
        };
        let (mut sizes, mut values) = (Vec::new(), field);
        while let DataType::FixedSizeList(child, n) = values.data_type() {
            match usize::try_from(*n) {
                Ok(n) if sizes.len() + 1 < MAX_DIMS => sizes.push(n),
                _ => return unsupported(invalid_list_size(*n, sizes.len())),
            }
            values = child;
        }
        let number = match ExtensionNumber::of(field) {
            Ok(number) => number.map(Element::Extension),
            Err(why) => return unsupported(why),
        };
        let element = number.or_else(|| match (values.data_type(), values.extension_type_name()) {
            (DataType::Int8, Some(BOOL8)) => Some(Element::BOOL),
            (other, _) => Element::from_arrow(other),
        });
        let Some(element) = element else { return unsupported(advice(values.data_type()).into()) };
        let mut row = Row { sizes, permutation: None };
        if field.extension_type_name() == Some(FIXED_SHAPE_TENSOR) {
            row = match Row::from_metadata(&row.sizes, field.extension_type_metadata().unwrap_or("")) {
                Ok(row) => row,
                Err(error) => {
                    return unsupported(format!("the {FIXED_SHAPE_TENSOR} metadata is invalid: {error}"));
                }
            };
        }
        let bits = *values.data_type() == DataType::Boolean;
        // A tensor of the extension type with 0 dimensions is stored as lists of one value.
        let is_list = values.data_type() != field.data_type();
        Ok(Self { element, bits, row: is_list.then(|| Box::new(row)) })
    }

    /// Creates the column of a mask, which has one boolean byte per row.
    pub(crate) fn mask() -> Self {
        Self { element: Element::BOOL, bits: false, row: None }
    }

    /// Determines the column of a tensor without a schema. The size of the first dimension is the
    /// number of rows. If `packed` is true, booleans become bits.
    pub(crate) fn from_tensor(element: Element, strides: &Strides, packed: bool) -> Self {
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

    /// Returns the Arrow field of the column.
    pub(crate) fn field(&self, name: &str, nullable: bool) -> Result<Field> {
        let extension = |name: &str, metadata: String| {
            Metadata::from([
                (EXTENSION_TYPE_NAME_KEY.to_string(), name.to_string()),
                (EXTENSION_TYPE_METADATA_KEY.to_string(), metadata),
            ])
        };
        let values = |name: &str, nullable: bool| match self.element {
            Element::Extension(number) => number.field(name, nullable),
            Element::BOOL if !self.bits => {
                Field::new(name, DataType::Int8, nullable).with_metadata(extension(BOOL8, String::new()))
            }
            element => Field::new(name, element.data_type().into_owned(), nullable),
        };
        let Some(row) = &self.row else { return Ok(values(name, nullable)) };
        let n = i32::try_from(self.row_len()).map_err(|_| {
            Error::unsupported(format!(
                "column '{name}': a row has {} values, expected at most {} in an Arrow list",
                self.row_len(),
                i32::MAX
            ))
        })?;
        let metadata = TensorMetadata {
            shape: row.sizes.clone(),
            dim_names: None,
            permutation: row.permutation.clone(),
        };
        let metadata =
            serde_json::to_string(&metadata).map_err(|error| Error::internal(error.to_string()))?;
        let item: FieldRef = Arc::new(values("item", true));
        let mut metadata = extension(FIXED_SHAPE_TENSOR, metadata);
        if let Element::Extension(number) = self.element {
            number.add_to_column(&mut metadata);
        }
        Ok(Field::new(name, DataType::FixedSizeList(item, n), nullable).with_metadata(metadata))
    }

    /// Bytes per row. `None` unless a row is one element that has the same bytes in Arrow and
    /// DLPack.
    pub(crate) fn plain_width(&self) -> Option<usize> {
        (self.row.is_none() && !self.bits).then(|| self.element.width())
    }

    /// Number of elements per row.
    pub(crate) fn row_len(&self) -> usize {
        self.row.as_ref().map_or(1, |row| row.sizes.iter().product())
    }

    /// The logical dimensions of a row in the order of memory, outermost first.
    pub(crate) fn order(&self) -> Vec<usize> {
        let Some(row) = &self.row else { return Vec::new() };
        row.permutation.as_deref().map_or_else(|| (0..row.sizes.len()).collect(), inverse)
    }

    /// Whether the rows of the column have this logical shape.
    pub(crate) fn is_of_shape(&self, mut row: impl Iterator<Item = usize>) -> bool {
        match &self.row {
            None => row.next().is_none(),
            Some(expected) => row.eq(expected.in_logical_order(&expected.sizes)),
        }
    }

    /// The shape of a tensor that has `rows` rows.
    pub(crate) fn shape(&self, rows: usize) -> Vec<usize> {
        let row = self.row.as_ref().map_or(Vec::new(), |row| row.in_logical_order(&row.sizes));
        std::iter::once(rows).chain(row).collect()
    }

    /// The strides of the column's tensors, in elements.
    pub(crate) fn strides(&self) -> Vec<usize> {
        let Some(row) = &self.row else { return vec![1] };
        let mut in_memory = vec![1usize; row.sizes.len()];
        let mut stride = 1usize;
        for (to, size) in in_memory.iter_mut().zip(&row.sizes).rev() {
            *to = stride;
            stride = stride.saturating_mul((*size).max(1));
        }
        std::iter::once(stride).chain(row.in_logical_order(&in_memory)).collect()
    }
}

impl Row {
    /// Parses the metadata of the extension type. `storage` contains the sizes of the fixed-size
    /// lists in which the rows are stored.
    fn from_metadata(storage: &[usize], metadata: &str) -> Result<Self, String> {
        let metadata: TensorMetadata = serde_json::from_str(metadata).map_err(|error| error.to_string())?;
        let [list] = storage else {
            return Err(format!("the storage has {} levels of fixed-size lists, expected 1", storage.len()));
        };
        if metadata.shape.len() >= MAX_DIMS {
            return Err(format!(
                "the shape has {} dimensions, expected fewer than {MAX_DIMS}",
                metadata.shape.len()
            ));
        }
        let values = metadata.shape.iter().try_fold(1usize, |n, size| n.checked_mul(*size));
        if values != Some(*list) {
            return Err(format!("shape {:?} does not match a row of {list} values", metadata.shape));
        }
        if let Some(permutation) = &metadata.permutation {
            let mut sorted = permutation.clone();
            sorted.sort_unstable();
            if !sorted.into_iter().eq(0..metadata.shape.len()) {
                return Err(format!(
                    "{permutation:?} is not a permutation of {} dimensions",
                    metadata.shape.len()
                ));
            }
        }
        Ok(Self { sizes: metadata.shape, permutation: metadata.permutation })
    }

    /// Reorders an array with one number per dimension from the order of memory to the logical
    /// order.
    fn in_logical_order(&self, in_memory: &[usize]) -> Vec<usize> {
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

fn invalid_list_size(size: i32, level: usize) -> String {
    format!(
        "the fixed-size list at level {level} has {size} values, expected 0 or more values and fewer than {MAX_DIMS} levels"
    )
}

/// Returns the reason why DLPack cannot represent a type, and what to do instead.
fn advice(data_type: &DataType) -> &'static str {
    use DataType::*;
    match data_type {
        Date32 | Date64 | Time32(_) | Time64(_) | Timestamp(..) | Duration(_) | Interval(_) => {
            "DLPack has no dates and times; cast it to an integer type of its width (in Python, Column.to_tensor \
             does), or leave it out"
        }
        Decimal32(..) | Decimal64(..) | Decimal128(..) | Decimal256(..) => {
            "DLPack has no decimals; cast it to float64 (Column.cast), or leave it out"
        }
        Dictionary(..) => {
            "DLPack has plain values only; decode it first (Table.decode_dictionary in Python, \
             Table::decode_dictionaries in Rust), export its keys (Column.to_tensor), or leave it out"
        }
        RunEndEncoded(..) => {
            "DLPack has plain values only; cast it to the type of its values (Column.cast), or leave it out"
        }
        List(_) | LargeList(_) | ListView(_) | LargeListView(_) => {
            "the rows of a tensor have one length; make it a fixed-size list (Column.to_tensor), export its elements \
             and offsets (Column.elements_and_offsets), or leave it out"
        }
        FixedSizeBinary(_) => {
            "DLPack holds numbers and booleans only; if the bytes are numbers, give the field the extension type \
             crossdock.number, or export a number for each value (Column.dictionary_encode().to_tensor())"
        }
        Utf8 | LargeUtf8 | Binary | LargeBinary => {
            "DLPack holds numbers and booleans only; export a number for each value \
             (Column.dictionary_encode().to_tensor()), or leave it out"
        }
        _ => "DLPack holds numbers and booleans only; leave it out",
    }
}
