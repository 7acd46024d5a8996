//! Defines the validity of a node's values.

use crossdock_memory::Buffer;

/// A validity bitmap without offset, and its null count.
#[derive(Clone)]
pub struct Validity {
    /// One bit per value. The bit is 1 if the value is valid. `None` if all values are valid.
    pub bits: Option<Buffer>,
    /// `None` if unknown.
    pub null_count: Option<usize>,
}

impl Validity {
    /// Every value is valid.
    pub fn all_valid() -> Self {
        Self { bits: None, null_count: Some(0) }
    }
}
