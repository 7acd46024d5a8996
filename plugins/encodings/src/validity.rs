//! Where the nulls are, as a bitmap.

use crossdock_memory::Buffer;

/// A validity bitmap from its first bit on, `None` where every value is valid, and how many are not.
#[derive(Clone)]
pub struct Validity {
    /// A bit a value: 1 where it is valid.
    pub bits: Option<Buffer>,
    /// `None`: nobody has counted.
    pub null_count: Option<usize>,
}

impl Validity {
    /// Every value is valid.
    pub fn all() -> Self {
        Self { bits: None, null_count: Some(0) }
    }
}
