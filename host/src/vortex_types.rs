//! What a session has learnt of types that Vortex wrote.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use arrow_schema::Field;

/// Types that plugins have read for a session, by what Vortex wrote: arrays repeat few, and reading one takes longer than
/// decoding a small array.
#[derive(Default)]
pub(crate) struct VortexTypes(Mutex<HashMap<Vec<u8>, Field>>);

impl VortexTypes {
    /// So many are remembered, none of more bytes; nobody has more than that for long.
    const MOST: usize = 256;
    const MOST_BYTES: usize = 4096;

    pub(crate) fn get(&self, dtype: &[u8]) -> Option<Field> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(dtype).cloned()
    }

    pub(crate) fn remember(&self, dtype: &[u8], field: &Field) {
        if dtype.len() > Self::MOST_BYTES {
            return;
        }
        let mut types = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if types.len() >= Self::MOST {
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
    fn a_type_is_known_by_its_bytes_until_there_are_too_many_and_long_ones_never_are() {
        let types = VortexTypes::default();
        let field = |i: usize| Field::new(i.to_string(), DataType::Int8, false);
        assert_eq!(types.get(b"0"), None);
        for i in 0..VortexTypes::MOST {
            types.remember(i.to_string().as_bytes(), &field(i));
        }
        assert_eq!(types.get(b"0"), Some(field(0)));
        assert_eq!(types.get(b"255"), Some(field(255)));
        types.remember(b"one more", &field(256));
        assert_eq!((types.get(b"0"), types.get(b"one more")), (None, Some(field(256))));
        let long = vec![7; VortexTypes::MOST_BYTES];
        types.remember(&long, &field(1));
        assert_eq!(types.get(&long), Some(field(1)));
        let longer = vec![7; VortexTypes::MOST_BYTES + 1];
        types.remember(&longer, &field(1));
        assert_eq!(types.get(&longer), None);
    }
}
