//! The stranger's arrays: one column of 64-bit integers, as the C Device interface has it.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use crossdock_plugin_api::{Owned, abi};

pub fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]))
}

struct Held {
    child: abi::ArrowArray,
    children: [*mut abi::ArrowArray; 1],
    root_buffers: [*const c_void; 1],
    child_buffers: [*const c_void; 2],
    event: *mut c_void,
    released: Arc<AtomicUsize>,
}

/// `rows` values at `address`, ready after `event` (NULL: now). Counts its release.
pub fn array(
    address: u64,
    rows: usize,
    event: *mut c_void,
    released: &Arc<AtomicUsize>,
) -> Owned<abi::ArrowDeviceArray> {
    let mut held = Box::new(Held {
        child: abi::ArrowArray { length: rows as i64, n_buffers: 2, ..Default::default() },
        children: [null_mut()],
        root_buffers: [null_mut()],
        child_buffers: [null_mut(), address as *const c_void],
        event,
        released: released.clone(),
    });
    held.child.buffers = held.child_buffers.as_mut_ptr();
    held.child.release = Some(nothing);
    held.children = [&raw mut held.child];
    let mut raw = abi::ArrowDeviceArray {
        device_type: abi::DEVICE_CUDA,
        sync_event: if event.is_null() { null_mut() } else { (&raw mut held.event).cast() },
        ..Default::default()
    };
    raw.array.length = rows as i64;
    (raw.array.n_buffers, raw.array.n_children) = (1, 1);
    raw.array.buffers = held.root_buffers.as_mut_ptr();
    raw.array.children = held.children.as_mut_ptr();
    raw.array.release = Some(release);
    raw.array.private_data = Box::into_raw(held).cast();
    // SAFETY: complete, and its release frees it.
    unsafe { Owned::new(raw) }
}

unsafe extern "C" fn release(array: *mut abi::ArrowArray) {
    // SAFETY: `array` made it so, once.
    unsafe {
        let held = Box::from_raw((*array).private_data.cast::<Held>());
        (*array).release = None;
        held.released.fetch_add(1, Ordering::SeqCst);
    }
}

unsafe extern "C" fn nothing(array: *mut abi::ArrowArray) {
    // SAFETY: a live array; what it points at is its parent's.
    unsafe { (*array).release = None };
}

/// Where the values of an exported batch's first column lie.
pub fn address_of(array: &abi::ArrowDeviceArray) -> u64 {
    // SAFETY: a batch of one column of two buffers.
    unsafe { *(**array.array.children).buffers.add(1) as u64 }
}
