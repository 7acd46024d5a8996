//! Caches Vortex types that a session has read.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use arrow_schema::Field;

/// The cached fields, by their serialised Vortex types. Arrays use few different types, and reading
/// a type takes longer than decoding a small array.
#[derive(Default)]
pub(crate) struct VortexTypes(Mutex<HashMap<Vec<u8>, Field>>);

impl VortexTypes {
    /// The maximum number of cached types. If another type is added, all cached types are dropped.
    const MAX_TYPES: usize = 256;
    /// The maximum length in bytes of a serialised type in the cache.
    const MAX_TYPE_BYTES: usize = 4096;

    pub(crate) fn get(&self, dtype: &[u8]) -> Option<Field> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(dtype).cloned()
    }

    pub(crate) fn remember(&self, dtype: &[u8], field: &Field) {
        if dtype.len() > Self::MAX_TYPE_BYTES {
            return;
        }
        let mut types = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if types.len() >= Self::MAX_TYPES {
            types.clear();
        }
        types.insert(dtype.to_vec(), field.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_schema::DataType;

    #[test]
    fn caches_types_up_to_both_limits() {
        let types = VortexTypes::default();
        let field = |i: usize| Field::new(i.to_string(), DataType::Int8, false);
        assert_eq!(types.get(b"0"), None);
        for i in 0..VortexTypes::MAX_TYPES {
            types.remember(i.to_string().as_bytes(), &field(i));
        }
        assert_eq!(types.get(b"0"), Some(field(0)));
        assert_eq!(types.get(b"255"), Some(field(255)));
        types.remember(b"one more", &field(256));
        assert_eq!((types.get(b"0"), types.get(b"one more")), (None, Some(field(256))));
        let long = vec![7; VortexTypes::MAX_TYPE_BYTES];
        types.remember(&long, &field(1));
        assert_eq!(types.get(&long), Some(field(1)));
        let longer = vec![7; VortexTypes::MAX_TYPE_BYTES + 1];
        types.remember(&longer, &field(1));
        assert_eq!(types.get(&longer), None);
    }
}
