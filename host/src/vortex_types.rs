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
