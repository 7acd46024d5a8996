//! Arrays that an external library exports through the Arrow C Device interface. They have one
//! column of 64-bit integers.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use crossdock_plugin_api::{Owned, abi};

pub fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]))
}

struct ArrayOwner {
    child: abi::ArrowArray,
    children: [*mut abi::ArrowArray; 1],
    root_buffers: [*const c_void; 1],
    child_buffers: [*const c_void; 2],
    event: *mut c_void,
    released: Arc<AtomicUsize>,
}

/// An array of `rows` values at `address`. The values are ready after `event`, or immediately if
/// `event` is NULL. The release callback increments a counter.
pub fn array(
    address: u64,
    rows: usize,
    event: *mut c_void,
    released: &Arc<AtomicUsize>,
) -> Owned<abi::ArrowDeviceArray> {
    let mut owner = Box::new(ArrayOwner {
        child: abi::ArrowArray { length: rows as i64, n_buffers: 2, ..Default::default() },
        children: [null_mut()],
        root_buffers: [null_mut()],
        child_buffers: [null_mut(), address as *const c_void],
        event,
        released: released.clone(),
    });
    owner.child.buffers = owner.child_buffers.as_mut_ptr();
    owner.child.release = Some(release_child);
    owner.children = [&raw mut owner.child];
    let mut raw = abi::ArrowDeviceArray {
        device_type: abi::DEVICE_CUDA,
        sync_event: if event.is_null() { null_mut() } else { (&raw mut owner.event).cast() },
        ..Default::default()
    };
    raw.array.length = rows as i64;
    (raw.array.n_buffers, raw.array.n_children) = (1, 1);
    raw.array.buffers = owner.root_buffers.as_mut_ptr();
    raw.array.children = owner.children.as_mut_ptr();
    raw.array.release = Some(release);
    raw.array.private_data = Box::into_raw(owner).cast();
    // SAFETY: the array is complete, and `release` frees its owner.
    unsafe { Owned::new(raw) }
}

unsafe extern "C" fn release(array: *mut abi::ArrowArray) {
    // SAFETY: The function `array` stored a boxed `ArrayOwner` in `private_data`. The consumer
    // calls `release` only once, so the box is freed only once.
    unsafe {
        let owner = Box::from_raw((*array).private_data.cast::<ArrayOwner>());
        (*array).release = None;
        owner.released.fetch_add(1, Ordering::SeqCst);
    }
}

unsafe extern "C" fn release_child(array: *mut abi::ArrowArray) {
    // SAFETY: the caller passes a live child, whose memory the root owns.
    unsafe { (*array).release = None };
}

/// The address of the values of an exported batch's first column.
pub fn address_of(array: &abi::ArrowDeviceArray) -> u64 {
    // SAFETY: the batch has one column with two buffers.
    unsafe { *(**array.array.children).buffers.add(1) as u64 }
}
