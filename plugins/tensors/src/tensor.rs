//! The tensors of a file: their types, shapes, and places in the file.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_schema::{FieldRef, Metadata};
use crossdock_memory::{Error, Result};

use crate::element::Element;
use crate::field::to_field;
use crate::shape::Shape;
use crate::zip::Member;

/// The contents of a file.
#[derive(Debug)]
pub struct File {
    /// The tensors, in the order of the columns.
    pub tensors: Vec<Tensor>,
    /// The metadata of the file.
    pub metadata: Metadata,
}

/// A tensor with a name.
#[derive(Clone, Debug)]
pub struct Tensor {
    pub name: String,
    /// The reason if the tensor cannot be a column. It begins with the tensor's type.
    pub column: std::result::Result<Column, String>,
}

/// A tensor that can be a column.
#[derive(Clone, Debug)]
pub struct Column {
    pub field: FieldRef,
    pub element: Element,
    pub shape: Shape,
    /// Whether the bytes of each number are in big-endian order.
    pub is_big_endian: bool,
    pub data: Data,
}

/// The place of a tensor's elements, in row-major order.
#[derive(Clone, Debug)]
pub enum Data {
    /// The file contains the elements from this byte on. If they are in a zip member, the member is
    /// stored without compression.
    Plain { offset: u64, member: Option<Member> },
    /// The elements are compressed. They begin at byte `skip` of the decompressed member.
    Deflated { member: Member, skip: u64 },
}

impl Tensor {
    /// A tensor whose elements have a supported type. It can be a column if Arrow has a type for
    /// its rows.
    pub fn new(name: &str, element: Element, shape: Shape, is_big_endian: bool, data: Data) -> Self {
        let column = match to_field(name, &element, shape.row_dims()) {
            Ok(field) => Ok(Column { field: Arc::new(field), element, shape, is_big_endian, data }),
            Err(error) => Err(error.message().to_owned()),
        };
        Self { name: name.to_owned(), column }
    }

    /// The tensor as a column.
    ///
    /// # Errors
    /// Unsupported, with the tensor's name and its type, if the tensor cannot be a column.
    pub fn column(&self) -> Result<&Column> {
        self.column.as_ref().map_err(|why| Error::unsupported(format!("tensor '{}': {why}", self.name)))
    }
}

impl Column {
    /// Whether the bytes of each number are reversed.
    pub fn is_swapped(&self) -> bool {
        self.is_big_endian && self.element.alignment() > 1
    }
}

impl File {
    /// Creates the description of a file.
    ///
    /// # Errors
    /// If two tensors have the same name.
    pub fn new(tensors: Vec<Tensor>, metadata: Metadata) -> Result<Self> {
        let mut names = HashSet::with_capacity(tensors.len());
        if let Some(twice) = tensors.iter().find(|tensor| !names.insert(tensor.name.as_str())) {
            return Err(Error::bad_data(format!("the file contains two tensors named '{}'", twice.name)));
        }
        Ok(Self { tensors, metadata })
    }

    /// Restricts the file to one tensor.
    ///
    /// # Errors
    /// Invalid argument if there is no tensor with this name.
    pub fn restrict(&mut self, name: &str) -> Result<()> {
        if !self.tensors.iter().any(|tensor| tensor.name == name) {
            return Err(Error::invalid_argument(format!(
                "there is no tensor '{name}'; the tensors are: {}",
                list(self.tensors.iter().map(|tensor| tensor.name.as_str()))
            )));
        }
        self.tensors.retain(|tensor| tensor.name == name);
        Ok(())
    }
}

/// The number of rows that columns have.
///
/// # Errors
/// Unsupported if the columns have different numbers of rows. The message names two of them.
pub fn common_rows(columns: &[(&str, &Column)]) -> Result<u64> {
    let Some(((first_name, first), others)) = columns.split_first() else { return Ok(0) };
    let rows = first.shape.rows();
    match others.iter().find(|(_, column)| column.shape.rows() != rows) {
        None => Ok(rows),
        Some((name, other)) => Err(Error::unsupported(format!(
            "the tensors '{first_name}' of shape {:?} and '{name}' of shape {:?} have {rows} and {} rows, expected \
             tensors with the same first dimension: select such tensors (columns), or one tensor (option tensor)",
            first.shape.dims(),
            other.shape.dims(),
            other.shape.rows()
        ))),
    }
}

/// Lists at most 20 names.
fn list<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    const MAX_NAMES: usize = 20;
    let n = names.len();
    let shown: Vec<_> = names.take(MAX_NAMES).collect();
    match n.checked_sub(shown.len()) {
        None | Some(0) => shown.join(", "),
        Some(more) => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(name: &str, dims: &[u64]) -> Tensor {
        let element = Element::from_numpy("f4").unwrap();
        let shape = Shape::new(dims.to_vec(), 4).unwrap();
        Tensor::new(name, element, shape, false, Data::Plain { offset: 0, member: None })
    }

    #[test]
    fn columns_must_have_the_same_number_of_rows() {
        let tensors = [tensor("a", &[3, 2]), tensor("b", &[3]), tensor("c", &[4, 3]), tensor("d", &[])];
        let columns: Vec<_> = tensors.iter().map(|t| (t.name.as_str(), t.column().unwrap())).collect();
        assert_eq!(common_rows(&[]), Ok(0));
        assert_eq!(common_rows(&columns[..2]), Ok(3));
        assert_eq!(common_rows(&columns[3..]), Ok(1));
        let error = common_rows(&columns).unwrap_err();
        for part in ["'a' of shape [3, 2]", "'c' of shape [4, 3]", "3 and 4 rows", "option tensor"] {
            assert!(error.message().contains(part), "{error}");
        }
    }

    #[test]
    fn names_are_unique() {
        let error = File::new(vec![tensor("a", &[1]), tensor("a", &[1])], Metadata::new()).unwrap_err();
        assert!(error.message().contains("two tensors named 'a'"), "{error}");
    }

    #[test]
    fn unknown_tensor_is_an_error_that_lists_the_tensors() {
        let tensors = (0..30).map(|i| tensor(&format!("t{i}"), &[1])).collect();
        let mut file = File::new(tensors, Metadata::new()).unwrap();
        let error = file.restrict("x").unwrap_err();
        assert!(error.message().contains("t0, t1") && error.message().contains("t19 and 10 more"), "{error}");
        file.restrict("t7").unwrap();
        assert_eq!(file.tensors.len(), 1);
    }
}
