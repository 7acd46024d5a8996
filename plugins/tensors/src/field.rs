//! Converts between the types of columns and the types of tensors.

use std::sync::Arc;

use arrow_schema::extension::{EXTENSION_TYPE_METADATA_KEY, EXTENSION_TYPE_NAME_KEY};
use arrow_schema::{DataType, Field, Metadata};
use crossdock_arrays::{ExtensionNumber, NUMBER_EXTENSION, field_type_name};
use crossdock_memory::{Error, Result};

use crate::element::Element;
use crate::shape::MAX_DIMS;

const BOOL8: &str = "arrow.bool8";
const FIXED_SHAPE_TENSOR: &str = "arrow.fixed_shape_tensor";

/// The metadata of the extension type `arrow.fixed_shape_tensor`. Some writers use the key
/// "permutations" instead of "permutation".
#[derive(serde::Serialize, serde::Deserialize)]
struct TensorMetadata {
    shape: Vec<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dim_names: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none", alias = "permutations")]
    permutation: Option<Vec<u64>>,
}

fn extension(name: &str, metadata: String) -> Metadata {
    Metadata::from([
        (EXTENSION_TYPE_NAME_KEY.to_string(), name.to_string()),
        (EXTENSION_TYPE_METADATA_KEY.to_string(), metadata),
    ])
}

/// The type of a column whose rows have the dimensions `row_dims`. Times and days are nullable,
/// because NumPy's NaT is read as null.
///
/// # Errors
/// If Arrow has no type for the rows.
pub fn to_field(name: &str, element: &Element, row_dims: &[u64]) -> Result<Field> {
    let values = |name: &str, nullable: bool| {
        let field = Field::new(name, element.data_type(), nullable);
        match element {
            Element::Bool => field.with_metadata(extension(BOOL8, String::new())),
            Element::Extension(number) => number.field(name, nullable),
            _ => field,
        }
    };
    if row_dims.is_empty() {
        return Ok(values(name, element.has_nat()));
    }
    if matches!(element, Element::Text(_)) {
        return Err(Error::unsupported(format!(
            "a tensor of strings with {} dimensions, expected at most 1",
            row_dims.len() + 1
        )));
    }
    let row_len = row_dims.iter().try_fold(1u64, |n, size| n.checked_mul(*size));
    let n = row_len.and_then(|n| i32::try_from(n).ok()).ok_or_else(|| {
        Error::unsupported(format!(
            "rows of shape {row_dims:?}, expected at most {} values in an Arrow list",
            i32::MAX
        ))
    })?;
    let metadata = TensorMetadata { shape: row_dims.to_vec(), dim_names: None, permutation: None };
    let metadata = serde_json::to_string(&metadata).map_err(|error| Error::internal(error.to_string()))?;
    let list = DataType::FixedSizeList(Arc::new(values("item", true)), n);
    let mut metadata = extension(FIXED_SHAPE_TENSOR, metadata);
    if let Element::Extension(number) = element {
        number.add_to_column(&mut metadata);
    }
    Ok(Field::new(name, list, false).with_metadata(metadata))
}

/// The form in which a column is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Form {
    /// The elements in the file.
    pub element: Element,
    /// The dimensions of a row.
    pub row_dims: Vec<u64>,
    /// Whether Arrow stores the elements as bits. Only booleans are stored so.
    pub is_bits: bool,
}

impl Form {
    /// The number of bytes of an element in Arrow. `None` if Arrow stores bits.
    pub fn width(&self) -> Option<usize> {
        match self.element {
            _ if self.is_bits => None,
            Element::Days => Some(4),
            _ => Some(self.element.width()),
        }
    }
}

/// The form in which a column is written.
///
/// # Errors
/// If no format stores the type. The message says what to do instead.
pub fn to_form(field: &Field) -> Result<Form> {
    let unsupported = |why: String| {
        Err(Error::unsupported(format!(
            "column '{}' of type {}: {why}",
            field.name(),
            field_type_name(field)
        )))
    };
    let (mut row_dims, mut values) = (Vec::new(), field);
    while let DataType::FixedSizeList(child, n) = values.data_type() {
        match u64::try_from(*n) {
            Ok(n) if row_dims.len() + 1 < MAX_DIMS => row_dims.push(n),
            _ => {
                return unsupported(format!(
                    "a fixed-size list has {n} values at level {}, expected 0 or more values and fewer than \
                     {MAX_DIMS} levels",
                    row_dims.len()
                ));
            }
        }
        values = child;
    }
    let number = match ExtensionNumber::of(field) {
        Ok(number) => number.map(Element::Extension),
        Err(why) => return unsupported(why),
    };
    let element = number.or_else(|| match (values.data_type(), values.extension_type_name()) {
        (DataType::Boolean, _) | (DataType::Int8, Some(BOOL8)) => Some(Element::Bool),
        (other, _) => Element::from_arrow(other),
    });
    let Some(element) = element else { return unsupported(advice(values.data_type()).to_owned()) };
    if field.extension_type_name() == Some(FIXED_SHAPE_TENSOR) {
        let shape = tensor_shape(&row_dims, field.extension_type_metadata().unwrap_or(""));
        match shape {
            Ok(shape) => row_dims = shape,
            Err(why) => return unsupported(format!("{FIXED_SHAPE_TENSOR}: {why}")),
        }
    }
    Ok(Form { element, row_dims, is_bits: *values.data_type() == DataType::Boolean })
}

/// The shape in the metadata of the extension type. `lists` are the sizes of the fixed-size lists
/// in which a row is stored.
fn tensor_shape(lists: &[u64], metadata: &str) -> Result<Vec<u64>, String> {
    let metadata: TensorMetadata =
        serde_json::from_str(metadata).map_err(|error| format!("the metadata is invalid: {error}"))?;
    let [list] = lists else {
        return Err(format!("the storage has {} levels of fixed-size lists, expected 1", lists.len()));
    };
    if metadata.shape.len() >= MAX_DIMS {
        return Err(format!(
            "the shape has {} dimensions, expected fewer than {MAX_DIMS}",
            metadata.shape.len()
        ));
    }
    let row_len = metadata.shape.iter().try_fold(1u64, |n, size| n.checked_mul(*size));
    if row_len != Some(*list) {
        return Err(format!("shape {:?} does not match a row of {list} values", metadata.shape));
    }
    let is_in_order = |permutation: Vec<u64>| permutation.into_iter().eq(0..metadata.shape.len() as u64);
    if !metadata.permutation.is_none_or(is_in_order) {
        return Err("the dimensions are permuted, expected the order of memory: transpose the tensor first"
            .to_owned());
    }
    Ok(metadata.shape)
}

/// Returns the reason why a type is not written, and what to do instead.
fn advice(data_type: &DataType) -> &'static str {
    use DataType::*;
    match data_type {
        Timestamp(_, Some(_)) => "NumPy has no time zones; cast it to a timestamp without a time zone",
        Date64 | Time32(_) | Time64(_) | Interval(_) => {
            "it is written only as a timestamp, a date of 32 bits or a number; cast it, or leave it out"
        }
        Decimal32(..) | Decimal64(..) | Decimal128(..) | Decimal256(..) => {
            "a tensor has no decimals; cast it to float64 or an integer type, or leave it out"
        }
        Dictionary(..) => {
            "a tensor has plain values only; decode it first (Table.decode_dictionary in Python, \
             Table::decode_dictionaries in Rust), or leave it out"
        }
        RunEndEncoded(..) => "a tensor has plain values only; expand the runs first, or leave it out",
        List(_) | LargeList(_) | ListView(_) | LargeListView(_) => {
            "the rows of a tensor have one length; make it a fixed-size list, or leave it out"
        }
        _ => "the values of a tensor have a fixed width; leave it out",
    }
}

/// The properties of a column that no format stores: keys of metadata, and other extension types.
pub fn lost_metadata(field: &Field) -> Vec<String> {
    let mut lost = Vec::new();
    let mut level = Some(field);
    while let Some(field) = level {
        let name = field.extension_type_name();
        for (key, value) in field.metadata() {
            let is_known = matches!(name, Some(BOOL8 | FIXED_SHAPE_TENSOR | NUMBER_EXTENSION));
            match key.as_str() {
                NUMBER_EXTENSION => {}
                EXTENSION_TYPE_NAME_KEY | EXTENSION_TYPE_METADATA_KEY if is_known => {}
                EXTENSION_TYPE_METADATA_KEY => {}
                EXTENSION_TYPE_NAME_KEY => lost.push(format!("the extension type {value}")),
                other => lost.push(format!("'{other}'")),
            }
        }
        level = match field.data_type() {
            DataType::FixedSizeList(child, _) => Some(child),
            _ => None,
        };
    }
    lost
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_and_forms_round_trip() {
        for row_dims in [vec![], vec![3], vec![2, 3], vec![0, 4], vec![1; 63]] {
            for name in ["b1", "f2", "f8", "i1", "u4", "S7", "M8[us]", "m8[s]", "M8[D]"] {
                let element = Element::from_numpy(name).unwrap();
                let field = to_field("x", &element, &row_dims).unwrap();
                let expected = Form { element, row_dims: row_dims.clone(), is_bits: false };
                assert_eq!(to_form(&field).unwrap(), expected, "{field:?}");
                assert_eq!(lost_metadata(&field), Vec::<String>::new());
            }
        }
    }

    #[test]
    fn tensors_have_the_canonical_extension_type() {
        let field = to_field("x", &Element::Number(DataType::Float32), &[2, 3]).unwrap();
        assert_eq!(field.extension_type_name(), Some("arrow.fixed_shape_tensor"));
        assert_eq!(field.extension_type_metadata(), Some(r#"{"shape":[2,3]}"#));
        let flags = to_field("x", &Element::Bool, &[]).unwrap();
        assert_eq!((flags.data_type(), flags.extension_type_name()), (&DataType::Int8, Some("arrow.bool8")));
    }

    #[test]
    fn rejects_rows_that_arrow_does_not_support() {
        let long = to_field("x", &Element::Number(DataType::Int8), &[1 << 31]).unwrap_err();
        assert!(long.message().contains("2147483647 values"), "{long}");
        let text = to_field("x", &Element::Text(3), &[2]).unwrap_err();
        assert!(text.message().contains("2 dimensions"), "{text}");
    }

    fn tensor(n: i32, metadata: &str) -> Field {
        let list = DataType::FixedSizeList(Arc::new(Field::new("item", DataType::Int32, true)), n);
        Field::new("x", list, false).with_metadata(extension(FIXED_SHAPE_TENSOR, metadata.to_owned()))
    }

    #[test]
    fn nested_lists_are_dimensions() {
        let inner = DataType::FixedSizeList(Arc::new(Field::new("item", DataType::Boolean, true)), 3);
        let outer = DataType::FixedSizeList(Arc::new(Field::new("item", inner, true)), 2);
        let form = to_form(&Field::new("x", outer, true)).unwrap();
        assert_eq!(form, Form { element: Element::Bool, row_dims: vec![2, 3], is_bits: true });
    }

    #[test]
    fn rejects_malformed_and_permuted_tensors() {
        assert_eq!(to_form(&tensor(6, r#"{"shape":[2,3],"permutation":[0,1]}"#)).unwrap().row_dims, [2, 3]);
        for (metadata, part) in [
            ("", "invalid"),
            (r#"{"shape":[2,2]}"#, "does not match a row of 6 values"),
            (r#"{"shape":[4294967296,4294967296]}"#, "does not match"),
            (r#"{"shape":[2,3],"permutation":[1,0]}"#, "permuted"),
            (r#"{"shape":[2,3],"permutations":[1,0]}"#, "permuted"),
            (r#"{"shape":[2,3],"permutation":[0]}"#, "permuted"),
        ] {
            let error = to_form(&tensor(6, metadata)).unwrap_err();
            assert!(error.message().contains(part), "{metadata}: {error}");
        }
    }

    #[test]
    fn rejects_types_that_no_format_stores() {
        for (data_type, part) in [
            (DataType::Utf8, "fixed width"),
            (DataType::Date64, "cast it"),
            (DataType::Decimal128(5, 2), "decimals"),
            (DataType::Timestamp(arrow_schema::TimeUnit::Second, Some("UTC".into())), "time zones"),
            (DataType::FixedSizeBinary(0), "leave it out"),
        ] {
            let error = to_form(&Field::new("x", data_type, true)).unwrap_err();
            assert!(error.message().contains(part) && error.message().contains("'x'"), "{error}");
        }
    }

    #[test]
    fn lists_metadata_that_is_not_stored() {
        let field = Field::new("x", DataType::FixedSizeBinary(16), false)
            .with_metadata(Metadata::from([("ARROW:extension:name", "arrow.uuid"), ("unit", "m")]));
        assert_eq!(lost_metadata(&field), ["the extension type arrow.uuid", "'unit'"]);
    }
}
