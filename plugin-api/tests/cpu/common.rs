//! Helper functions that several tests use.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossdock_plugin_api::{Owned, abi};

/// Creates a batch that increments `released` when it is released.
pub fn batch(released: &Arc<AtomicUsize>) -> Owned<abi::Batch> {
    unsafe extern "C" fn release(array: *mut abi::ArrowArray) {
        // SAFETY: only `batch` sets this function, with a leaked `Arc`. Clearing `release` ensures
        // that this runs only once.
        unsafe {
            (*array).release = None;
            Arc::from_raw((*array).private_data.cast::<AtomicUsize>()).fetch_add(1, Ordering::SeqCst);
        }
    }
    let mut batch = abi::Batch::new();
    batch.array.array.release = Some(release);
    batch.array.array.private_data = Arc::into_raw(released.clone()).cast_mut().cast();
    // SAFETY: this function created the batch with its release function, and there is no other copy
    // of it.
    unsafe { Owned::new(batch) }
}
