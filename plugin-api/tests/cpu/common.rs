//! What the tests at the boundary share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossdock_plugin_api::{Owned, abi};

/// A batch whose release counts.
pub fn batch(released: &Arc<AtomicUsize>) -> Owned<abi::Batch> {
    unsafe extern "C" fn release(array: *mut abi::ArrowArray) {
        // SAFETY: `private_data` is the Arc put there below; released once.
        unsafe {
            (*array).release = None;
            Arc::from_raw((*array).private_data.cast::<AtomicUsize>()).fetch_add(1, Ordering::SeqCst);
        }
    }
    let mut batch = abi::Batch::new();
    batch.array.array.release = Some(release);
    batch.array.array.private_data = Arc::into_raw(released.clone()).cast_mut().cast();
    // SAFETY: made above.
    unsafe { Owned::new(batch) }
}
