//! Checks the shape and strides of tensors, and finds an order of the dimensions in which the
//! elements are contiguous.

use crossdock_kernels::Dim;
use crossdock_plugin_api::{Error, Result};

/// Maximum number of dimensions of a tensor. Among common libraries, numpy has the greatest limit,
/// which is 64.
pub(crate) const MAX_DIMS: usize = 64;

/// A checked shape with strides. No size is negative, and the memory is within the address space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Strides {
    /// One contiguous dimension with this number of elements. Most tensors have this form.
    Plain(usize),
    Any(Box<Any>),
}

/// The shape and strides of any tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Any {
    /// The size of each dimension and its stride in elements.
    dims: Vec<(usize, i64)>,
    /// Distance from the element with the lowest address to the first element, in bytes.
    low: usize,
    /// Size of the memory from the begin of the element with the lowest address to the end of the
    /// element with the highest address, in bytes.
    extent: usize,
    elements: usize,
}

impl Strides {
    /// Checks a tensor at `address` whose elements have `width` bytes. If `strides` is `None`, the
    /// order is row-major.
    pub(crate) fn new(shape: &[i64], strides: Option<&[i64]>, width: usize, address: u64) -> Result<Self> {
        match Self::plain(shape, strides, width, address) {
            Some(plain) => Ok(plain),
            None => Any::new(shape, strides, width, address).map(|any| Self::Any(Box::new(any))),
        }
    }

    fn plain(shape: &[i64], strides: Option<&[i64]>, width: usize, address: u64) -> Option<Self> {
        let ([size], None | Some([1])) = (shape, strides) else { return None };
        let elements = usize::try_from(*size).ok()?;
        i64::try_from(address.checked_add(elements.checked_mul(width)? as u64)?).ok()?;
        Some(Self::Plain(elements))
    }

    /// Total number of elements.
    pub(crate) fn elements(&self) -> usize {
        match self {
            Self::Plain(elements) => *elements,
            Self::Any(any) => any.elements,
        }
    }

    /// Size of the first dimension.
    pub(crate) fn rows(&self) -> usize {
        match self {
            Self::Plain(elements) => *elements,
            Self::Any(any) => any.dims.first().map_or(0, |dim| dim.0),
        }
    }

    /// Sizes of all dimensions except the first.
    pub(crate) fn row_shape(&self) -> impl Iterator<Item = usize> {
        let dims = match self {
            Self::Plain(_) => &[][..],
            Self::Any(any) => any.dims.get(1..).unwrap_or(&[]),
        };
        dims.iter().map(|dim| dim.0)
    }

    /// Sizes of all dimensions.
    pub(crate) fn shape(&self) -> impl Iterator<Item = usize> {
        std::iter::once(self.rows()).chain(self.row_shape())
    }

    /// The distance from the element with the lowest address to the first element, and the size of
    /// the tensor's memory. Both are in bytes, for elements of `width` bytes.
    pub(crate) fn extent(&self, width: usize) -> (usize, usize) {
        match self {
            Self::Plain(elements) => (0, elements * width),
            Self::Any(any) => (any.low, any.extent),
        }
    }

    /// Whether the elements are contiguous if all dimensions except the first are in this order.
    pub(crate) fn is_contiguous(&self, order: &[usize]) -> bool {
        match self {
            Self::Plain(_) => true,
            Self::Any(any) => any.is_contiguous(order),
        }
    }

    /// Finds an order of all dimensions except the first in which the elements are contiguous.
    /// `None` if no such order exists.
    pub(crate) fn contiguous_order(&self) -> Option<Vec<usize>> {
        match self {
            Self::Plain(_) => Some(Vec::new()),
            Self::Any(any) => any.contiguous_order(),
        }
    }

    /// Returns the dimensions for `Jobs::gather`, which copies elements of `width` bytes in this
    /// order. The strides are in bytes.
    pub(crate) fn gather_dims(&self, order: &[usize], width: usize) -> Vec<Dim> {
        match self {
            Self::Plain(elements) => vec![Dim { size: *elements, stride: width as i64 }],
            Self::Any(any) => any.gather_dims(order, width),
        }
    }
}

impl Any {
    fn new(shape: &[i64], strides: Option<&[i64]>, width: usize, address: u64) -> Result<Self> {
        let reject = |what: String| Err(Error::bad_data(what));
        let mut elements: usize = 1;
        for (i, size) in shape.iter().enumerate() {
            let Ok(size) = usize::try_from(*size) else {
                return reject(format!("dimension {i} has size {size}, expected 0 or more"));
            };
            // The product of the other sizes may overflow even if this size is 0, so 0 is replaced
            // by 1.
            elements = match elements.max(1).checked_mul(size.max(1)) {
                Some(n) if n.checked_mul(width).is_some_and(|bytes| i64::try_from(bytes).is_ok()) => n,
                _ => return reject(format!("shape {shape:?}: the size in bytes overflows int64")),
            };
        }
        if shape.contains(&0) {
            elements = 0;
        }
        let mut dims: Vec<(usize, i64)> = Vec::with_capacity(shape.len());
        let mut row_major = elements as i64;
        for (i, size) in shape.iter().enumerate() {
            row_major = row_major.checked_div(*size).unwrap_or(0);
            let stride = strides.and_then(|strides| strides.get(i).copied()).unwrap_or(row_major);
            dims.push((*size as usize, stride));
        }
        let (mut low, mut high) = (0i128, 0i128);
        // The stride of a dimension with fewer than two elements has no effect, so such dimensions
        // are left out.
        let reaching = dims.iter().filter(|(size, _): &&(usize, i64)| elements > 0 && *size > 1);
        for (size, stride) in reaching {
            let reach = (*size as i128 - 1) * i128::from(*stride) * width as i128;
            if reach < 0 { low -= reach } else { high += reach }
        }
        let bytes = if elements == 0 { 0 } else { low + high + width as i128 };
        let lies_within = low <= i128::from(address)
            && i128::from(address) + high + width as i128 <= i128::from(i64::MAX)
            && bytes <= i128::from(i64::MAX);
        if elements > 0 && !lies_within {
            return reject(format!(
                "strides {:?} reach beyond the address space",
                dims.iter().map(|dim| dim.1).collect::<Vec<_>>()
            ));
        }
        Ok(Self { dims, low: low as usize, extent: bytes as usize, elements })
    }

    fn is_contiguous(&self, order: &[usize]) -> bool {
        let mut expected = 1i64;
        self.ordered(order).rev().all(|(size, stride)| {
            let fits = size <= 1 || stride == expected;
            expected = expected.saturating_mul(size as i64);
            fits
        }) || self.elements == 0
    }

    /// Returns the first dimension, followed by the other dimensions in `order`.
    fn ordered(&self, order: &[usize]) -> impl DoubleEndedIterator<Item = (usize, i64)> {
        let inner = order.iter().filter_map(|i| self.dims.get(i + 1).copied()).collect::<Vec<_>>();
        self.dims.first().copied().into_iter().chain(inner)
    }

    fn contiguous_order(&self) -> Option<Vec<usize>> {
        let mut order: Vec<usize> = (0..self.dims.len().saturating_sub(1)).collect();
        if self.is_contiguous(&order) {
            return Some(order);
        }
        order.sort_by_key(|i| {
            let (size, stride) = self.dims.get(i + 1).copied().unwrap_or_default();
            std::cmp::Reverse(if size > 1 { stride } else { i64::MAX })
        });
        self.is_contiguous(&order).then_some(order)
    }

    fn gather_dims(&self, order: &[usize], width: usize) -> Vec<Dim> {
        // The stride of a dimension with fewer than two elements has no effect, so it is not
        // checked.
        let is_checked = |size: usize| self.elements > 0 && size > 1;
        let bytes = |size, stride: i64| if is_checked(size) { stride * width as i64 } else { 0 };
        self.ordered(order).map(|(size, stride)| Dim { size, stride: bytes(size, stride) }).collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn strides(shape: &[i64], strides: &[i64]) -> Strides {
        Strides::new(shape, Some(strides), 4, 1 << 20).unwrap()
    }

    #[test]
    fn dimensions_of_size_0_and_1_ignore_their_strides() {
        assert!(strides(&[5, 1, 3], &[3, -77, 1]).is_contiguous(&[0, 1]));
        assert!(strides(&[1, 3], &[99, 1]).is_contiguous(&[0]));
        assert!(strides(&[0, 3], &[99, 7]).is_contiguous(&[0]));
        assert!(!strides(&[2, 3], &[4, 1]).is_contiguous(&[0]));
        assert!(!strides(&[5], &[2]).is_contiguous(&[]));
        assert!(!strides(&[5], &[0]).is_contiguous(&[]));
    }

    #[test]
    fn finds_contiguous_order_of_column_major_rows() {
        assert_eq!(strides(&[4, 2, 3], &[6, 1, 2]).contiguous_order(), Some(vec![1, 0]));
        assert_eq!(strides(&[4, 2, 3], &[6, 3, 1]).contiguous_order(), Some(vec![0, 1]));
        assert_eq!(strides(&[4, 2, 3], &[1, 4, 8]).contiguous_order(), None);
        assert_eq!(strides(&[4, 2, 3], &[6, -3, 1]).contiguous_order(), None);
    }

    #[test]
    fn extent_covers_negative_strides() {
        assert_eq!(strides(&[4, 3], &[-6, 2]).extent(4), (72, 72 + 16 + 4));
        assert_eq!(strides(&[4, 3], &[0, 0]).extent(4), (0, 4));
        assert_eq!(strides(&[4, 0], &[i64::MAX, i64::MIN]).extent(4), (0, 0));
    }

    #[test]
    fn rejects_negative_sizes_and_overflow() {
        for (shape, strides) in [
            (&[-1i64][..], &[1i64][..]),
            (&[i64::MAX, 2], &[1, 1]),
            (&[0, i64::MAX, i64::MAX], &[1, 1, 1]),
            (&[2], &[i64::MAX]),
            (&[2], &[i64::MIN]),
            (&[3, 3], &[i64::MAX / 4, i64::MAX / 4]),
            (&[1 << 30], &[-1]),
        ] {
            assert!(Strides::new(shape, Some(strides), 4, 1 << 20).is_err(), "{shape:?} {strides:?}");
        }
        assert!(Strides::new(&[5], Some(&[1]), 4, i64::MAX as u64 - 10).is_err());
    }
}
