//! Produces and consumes Arrow C structs with arrow-rs.

use std::ffi::{c_char, c_int};

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi};
use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_array::{Array, RecordBatch, StructArray};
use crossdock_plugin_api::{Capsule, Owned, abi};

/// Converts between two declarations of the same Arrow C struct.
fn transmute_struct<A, B>(a: A) -> B {
    const { assert!(size_of::<A>() == size_of::<B>()) };
    let a = std::mem::ManuallyDrop::new(a);
    // SAFETY: `A` and `B` are declarations of the same Arrow C struct, and the original is not
    // dropped.
    unsafe { std::ptr::read((&raw const *a).cast()) }
}

fn array(batch: &RecordBatch) -> abi::ArrowArray {
    transmute_struct(FFI_ArrowArray::new(&StructArray::from(batch.clone()).to_data()))
}

pub fn schema_capsule(batch: &RecordBatch) -> Capsule {
    let schema = FFI_ArrowSchema::try_from(batch.schema().as_ref()).unwrap();
    // SAFETY: arrow-rs passes the ownership of the exported struct.
    Capsule::new(unsafe { Owned::<abi::ArrowSchema>::new(transmute_struct(schema)) })
}

pub fn array_capsule(batch: &RecordBatch) -> Capsule {
    // SAFETY: arrow-rs passes the ownership of the exported struct.
    Capsule::new(unsafe { Owned::<abi::ArrowArray>::new(array(batch)) })
}

pub fn device_array(batch: &RecordBatch) -> abi::ArrowDeviceArray {
    abi::ArrowDeviceArray {
        array: array(batch),
        device_id: -1,
        device_type: abi::DEVICE_CPU,
        ..abi::ArrowDeviceArray::default()
    }
}

pub fn device_capsule(batch: &RecordBatch) -> Capsule {
    // SAFETY: arrow-rs passes the ownership of the exported array.
    Capsule::new(unsafe { Owned::new(device_array(batch)) })
}

pub fn schema_of(schema: Owned<abi::ArrowSchema>) -> arrow_schema::Schema {
    arrow_schema::Schema::try_from(&transmute_struct::<_, FFI_ArrowSchema>(schema.into_raw())).unwrap()
}

/// Imports pairs of schema and array with arrow-rs.
pub fn batch_of(capsules: Vec<Capsule>) -> Vec<RecordBatch> {
    let mut batches = Vec::new();
    let mut capsules = capsules.into_iter();
    while let (Some(schema), Some(array)) = (capsules.next(), capsules.next()) {
        let schema: FFI_ArrowSchema = transmute_struct(schema.take::<abi::ArrowSchema>().unwrap().into_raw());
        let array: FFI_ArrowArray = transmute_struct(array.take::<abi::ArrowArray>().unwrap().into_raw());
        // SAFETY: the plugin exported the array and the schema, and `take` passed their ownership.
        let data = unsafe { from_ffi(array, &schema) }.unwrap();
        data.validate_full().unwrap();
        let batch = RecordBatch::from(StructArray::from(data));
        let schema = arrow_schema::Schema::try_from(&schema).unwrap();
        batches.push(batch.with_schema(schema.into()).unwrap());
    }
    batches
}

pub fn batches_of_stream(mut capsules: Vec<Capsule>) -> Vec<RecordBatch> {
    let stream: FFI_ArrowArrayStream =
        transmute_struct(capsules.pop().unwrap().take::<abi::ArrowArrayStream>().unwrap().into_raw());
    RecordBatchStreamReader::try_new(stream).unwrap().collect::<Result<_, _>>().unwrap()
}

type Change = fn(&mut abi::ArrowDeviceArray);

/// Changes that make a device array malformed, each with a part of the expected error message.
pub fn corruptions() -> Vec<(Change, &'static str)> {
    fn child(array: &mut abi::ArrowDeviceArray, i: usize) -> &mut abi::ArrowArray {
        // SAFETY: the array of `table` has four children, and callers pass 0 to 3.
        unsafe { &mut **array.array.children.add(i) }
    }
    vec![
        (|a| a.array.length = -1, "-1"),
        (|a| a.array.offset = -4, "-4"),
        (|a| a.array.offset = i64::MAX, "offset"),
        (|a| a.array.null_count = -2, "-2"),
        (|a| a.array.n_buffers = 7, "7"),
        (|a| a.array.n_children = 3, "3"),
        (|a| a.array.n_children = i64::MAX, "9223372036854775807"),
        (|a| a.device_type = 99, "99"),
        (|a| a.sync_event = std::ptr::dangling_mut(), "sync_event"),
        (|a| child(a, 0).length = 5, "5"),
        (|a| child(a, 1).n_buffers = 2, "2"),
        (|a| child(a, 0).buffers = std::ptr::null_mut(), "buffers"),
        (|a| child(a, 3).children = std::ptr::null_mut(), "children"),
        // SAFETY: an int32 column has two buffers, so index 1 is valid.
        (|a| unsafe { *child(a, 0).buffers.add(1) = std::ptr::null() }, "number"),
    ]
}

/// Creates a malformed device array. Its release function restores the original fields before
/// arrow-rs frees the array.
pub fn corrupted(batch: &RecordBatch, change: Change) -> Capsule {
    struct Original {
        array: abi::ArrowArray,
        nodes: Vec<(*mut abi::ArrowArray, abi::ArrowArray)>,
        data: *const std::ffi::c_void,
    }
    unsafe extern "C" fn release(array: *mut abi::ArrowArray) {
        // SAFETY: `private_data` is the box that `corrupted` leaks, and a release function is
        // called only once.
        unsafe {
            (*array).release = None;
            let mut original = Box::from_raw((*array).private_data.cast::<Original>());
            for (node, fields) in original.nodes.drain(..) {
                std::ptr::write(node, fields);
            }
            let number = *original.array.children;
            *(*number).buffers.add(1) = original.data;
            drop(Owned::new(original.array));
        }
    }
    // SAFETY: the array is alive and has four children. The first child has two buffers.
    unsafe {
        let original = array(batch);
        let copy = |node: *mut abi::ArrowArray| (node, std::ptr::read(node));
        let nodes = (0..4).map(|i| copy(*original.children.add(i))).collect();
        let data = *(**original.children).buffers.add(1);
        let original = Box::new(Original { array: original, nodes, data });
        let mut malformed = abi::ArrowDeviceArray {
            array: std::ptr::read(&original.array),
            device_id: -1,
            device_type: abi::DEVICE_CPU,
            ..abi::ArrowDeviceArray::default()
        };
        malformed.array.release = Some(release);
        malformed.array.private_data = Box::into_raw(original).cast();
        change(&mut malformed);
        Capsule::new(Owned::new(malformed))
    }
}

pub unsafe extern "C" fn release_stream(stream: *mut abi::ArrowArrayStream) {
    // SAFETY: the consumer passes the stream that is to be released. The stream owns nothing.
    unsafe { (*stream).release = None };
}

/// Creates a stream whose `get_schema` or `get_next` returns an error with a message.
pub fn failing_stream(fail_schema: bool) -> Capsule {
    unsafe extern "C" fn fails(_: *mut abi::ArrowArrayStream, _: *mut abi::ArrowSchema) -> c_int {
        5
    }
    unsafe extern "C" fn works(_: *mut abi::ArrowArrayStream, out: *mut abi::ArrowSchema) -> c_int {
        let schema = arrow_schema::Schema::empty();
        // SAFETY: the consumer passes a valid out parameter.
        unsafe { out.write(transmute_struct(FFI_ArrowSchema::try_from(&schema).unwrap())) };
        0
    }
    unsafe extern "C" fn no_next(_: *mut abi::ArrowArrayStream, _: *mut abi::ArrowArray) -> c_int {
        5
    }
    unsafe extern "C" fn last_error(_: *mut abi::ArrowArrayStream) -> *const c_char {
        c"connection reset".as_ptr()
    }
    let stream = abi::ArrowArrayStream {
        get_schema: Some(if fail_schema { fails } else { works }),
        get_next: Some(no_next),
        get_last_error: Some(last_error),
        release: Some(release_stream),
        private_data: std::ptr::null_mut(),
    };
    // SAFETY: the stream owns nothing, and its functions use no state.
    Capsule::new(unsafe { Owned::new(stream) })
}
