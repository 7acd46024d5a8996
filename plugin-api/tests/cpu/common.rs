//! Helpers of several tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossdock_plugin_api::{Owned, abi};

/// A batch whose release increments `released`.
pub fn batch(released: &Arc<AtomicUsize>) -> Owned<abi::Batch> {
    unsafe extern "C" fn release(array: *mut abi::ArrowArray) {
        // SAFETY: only `batch` sets this function, with a leaked `Arc`. `release` is cleared, so
        // that this runs once.
        unsafe {
            (*array).release = None;
            Arc::from_raw((*array).private_data.cast::<AtomicUsize>()).fetch_add(1, Ordering::SeqCst);
        }
    }
    let mut batch = abi::Batch::new();
    batch.array.array.release = Some(release);
    batch.array.array.private_data = Arc::into_raw(released.clone()).cast_mut().cast();
    // SAFETY: the batch was created above with its release function, and this is its only copy.
    unsafe { Owned::new(batch) }
}
