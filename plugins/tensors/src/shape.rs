//! Checks the shapes of tensors.

use crossdock_memory::{Error, Result};

/// The maximum number of dimensions. It is NumPy's maximum.
pub const MAX_DIMS: usize = 64;

/// A shape whose sizes fit into an address. The first dimension is the rows. A tensor without
/// dimensions has one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    dims: Vec<u64>,
    /// The number of elements of a row.
    row_len: usize,
    /// The number of bytes of an element.
    width: usize,
}

impl Shape {
    /// Checks a shape whose elements have `width` bytes.
    ///
    /// # Errors
    /// If there are too many dimensions, or if the size in bytes exceeds `i64::MAX`. For this
    /// check, a dimension of size 0 counts as 1, so that no product of other dimensions overflows.
    pub fn new(dims: Vec<u64>, width: usize) -> Result<Self> {
        if dims.len() > MAX_DIMS {
            return Err(Error::bad_data(format!(
                "the shape has {} dimensions, expected at most {MAX_DIMS}",
                dims.len()
            )));
        }
        let bytes =
            dims.iter().try_fold(width.max(1) as u64, |bytes, size| bytes.checked_mul((*size).max(1)));
        if bytes.is_none_or(|bytes| i64::try_from(bytes).is_err()) {
            return Err(Error::bad_data(format!("shape {dims:?}: the size in bytes overflows int64")));
        }
        let row_len = dims.iter().skip(1).product::<u64>();
        let row_len =
            usize::try_from(row_len).map_err(|_| Error::bad_data("a row exceeds the address space"))?;
        Ok(Self { dims, row_len, width })
    }

    /// All dimensions.
    pub fn dims(&self) -> &[u64] {
        &self.dims
    }

    /// The number of rows.
    pub fn rows(&self) -> u64 {
        self.dims.first().copied().unwrap_or(1)
    }

    /// The dimensions of a row.
    pub fn row_dims(&self) -> &[u64] {
        self.dims.get(1..).unwrap_or_default()
    }

    /// The number of elements of a row.
    pub fn row_len(&self) -> usize {
        self.row_len
    }

    /// The number of bytes of a row.
    pub fn row_bytes(&self) -> usize {
        self.row_len * self.width
    }

    /// The number of bytes of all rows.
    pub fn bytes(&self) -> u64 {
        self.rows() * self.row_bytes() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_follow_from_the_dimensions() {
        let sizes = |dims: &[u64], width| {
            let shape = Shape::new(dims.to_vec(), width).unwrap();
            (shape.rows(), shape.row_len(), shape.row_bytes(), shape.bytes())
        };
        assert_eq!(sizes(&[], 8), (1, 1, 8, 8));
        assert_eq!(sizes(&[5], 4), (5, 1, 4, 20));
        assert_eq!(sizes(&[5, 2, 3], 4), (5, 6, 24, 120));
        assert_eq!(sizes(&[0, 7], 1), (0, 7, 7, 0));
        assert_eq!(sizes(&[7, 0], 1), (7, 0, 0, 0));
    }

    #[test]
    fn rejects_overflow_and_too_many_dimensions() {
        for dims in [vec![u64::MAX], vec![1 << 32, 1 << 32], vec![0, u64::MAX, 2], vec![1 << 62, 0, 4]] {
            let error = Shape::new(dims.clone(), 1).unwrap_err();
            assert!(error.message().contains("overflows int64"), "{dims:?}: {error}");
        }
        assert!(Shape::new(vec![i64::MAX as u64], 1).is_ok());
        assert!(Shape::new(vec![i64::MAX as u64], 2).is_err());
        assert!(Shape::new(vec![1; 64], 1).is_ok());
        assert!(Shape::new(vec![1; 65], 1).unwrap_err().message().contains("65 dimensions"));
    }
}
