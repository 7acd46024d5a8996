//! Tests that the fast import of plain columns rejects every batch that the general import rejects.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::Arc;

use crate::common::Fixture;
use arrow_schema::{DataType, Field, Schema};
use crossdock_arrays::{check_batch_array, import_batch};
use crossdock_plugin_api::{Owned, abi};

/// A change to the root or to the second column of a valid batch.
type Change = fn(&mut abi::ArrowDeviceArray, &mut abi::ArrowArray);

const CHANGES: &[(&str, bool, Change)] = &[
    ("no change", true, |_, _| {}),
    ("more nulls than in the bitmap", true, |_, c| c.null_count = 2),
    ("fewer rows in the batch", true, |r, _| r.array.length = 2),
    ("an offset", true, |_, c| c.offset = 1),
    ("a negative length", false, |_, c| c.length = -1),
    ("a negative offset", false, |_, c| c.offset = -1),
    ("an offset beyond the maximum length", false, |_, c| c.offset = i64::MAX),
    ("values beyond the address space", false, |_, c| c.offset = i64::MAX / 4 - 8),
    ("more nulls than rows", false, |_, c| c.null_count = 4),
    ("a count of nulls below -1", false, |_, c| c.null_count = -2),
    ("unknown nulls", true, |_, c| c.null_count = -1),
    ("three buffers", false, |_, c| c.n_buffers = 3),
    ("one buffer", false, |_, c| c.n_buffers = 1),
    ("no list of buffers", false, |_, c| c.buffers = null_mut()),
    // SAFETY: the column's list has two entries.
    ("no values", false, |_, c| unsafe { *c.buffers.add(1) = null() }),
    // SAFETY: the column's list has two entries.
    ("nulls without a bitmap", false, |_, c| unsafe { *c.buffers = null() }),
    ("a dictionary", false, |_, c| c.dictionary = std::ptr::dangling_mut()),
    ("a child", false, |_, c| c.n_children = 1),
    ("a released column", false, |_, c| c.release = None),
    ("a released batch", false, |r, _| r.array.release = None),
    ("a column too many", false, |r, _| r.array.n_children = 3),
    ("no list of columns", false, |r, _| r.array.children = null_mut()),
    ("an offset of the batch", false, |r, _| r.array.offset = 1),
    ("nulls of the batch", false, |r, _| r.array.null_count = 1),
    ("two buffers of the batch", false, |r, _| r.array.n_buffers = 2),
    ("an unknown device", false, |r, _| r.device_type = 99),
    ("a device id below 0", false, |r, _| (r.device_type, r.device_id) = (abi::DEVICE_CUDA, -2)),
    ("another device", true, |r, _| (r.device_type, r.device_id) = (abi::DEVICE_CUDA, 1)),
    ("an event on the cpu", false, |r, _| r.sync_event = std::ptr::dangling_mut()),
];

/// The parts of a valid batch with three rows, a column of integers, and a column of floats that
/// contains one null.
struct Parts {
    bits: [u8; 64],
    values: [u64; 8],
    lists: [[*const c_void; 2]; 2],
    root_list: [*const c_void; 1],
    columns: [abi::ArrowArray; 2],
    children: [*mut abi::ArrowArray; 2],
}

impl Parts {
    fn new() -> Box<Self> {
        let mut parts = Box::new(Self {
            bits: [0b101; 64],
            values: [1; 8],
            lists: [[null(); 2]; 2],
            root_list: [null()],
            columns: [abi::ArrowArray::default(), abi::ArrowArray::default()],
            children: [null_mut(); 2],
        });
        let (bits, values) = (parts.bits.as_ptr().cast(), parts.values.as_ptr().cast());
        parts.lists = [[null(), values], [bits, values]];
        for i in 0..2 {
            let list = parts.lists[i].as_mut_ptr();
            let column = &mut parts.columns[i];
            (column.length, column.null_count, column.n_buffers) = (3, i as i64, 2);
            column.buffers = list;
            column.release = Some(nothing);
            parts.children[i] = column;
        }
        parts
    }

    fn changed(&mut self, change: Change) -> Owned<abi::ArrowDeviceArray> {
        let mut raw =
            abi::ArrowDeviceArray { device_id: -1, device_type: abi::DEVICE_CPU, ..Default::default() };
        (raw.array.length, raw.array.n_buffers, raw.array.n_children) = (3, 1, 2);
        raw.array.buffers = self.root_list.as_mut_ptr();
        raw.array.children = self.children.as_mut_ptr();
        raw.array.release = Some(nothing);
        change(&mut raw, &mut self.columns[1]);
        // SAFETY: the pointers that the import follows are valid or NULL, and the release frees
        // nothing.
        unsafe { Owned::new(raw) }
    }
}

#[test]
fn fast_import_rejects_the_same_batches_as_general_import() {
    let fixture = Fixture::new();
    let fields = [("a", DataType::Int64), ("b", DataType::Float32)];
    let fields: Vec<_> = fields.into_iter().map(|(name, t)| Field::new(name, t, true)).collect();
    let schema = Arc::new(Schema::new(fields));
    for (what, is_valid, change) in CHANGES {
        let mut parts = Parts::new();
        let fast = check_batch_array(&parts.changed(*change), &schema, &fixture.memory);
        assert_eq!(fast.is_ok(), *is_valid, "{what}: {fast:?}");
        if *what == "no change" {
            assert_eq!(fast, Ok(true), "all null counts are known");
        }
        let mut parts = Parts::new();
        let array = parts.changed(*change).into_raw();
        // SAFETY: the batch has a valid array and no sizes.
        let batch = unsafe { Owned::new(abi::Batch { array, ..abi::Batch::new() }) };
        let general = import_batch(batch, &schema, &fixture.memory);
        assert_eq!(general.is_ok(), *is_valid, "{what}: {:?}", general.err());
    }
    fixture.host.assert_nothing_leaked();
}

unsafe extern "C" fn nothing(array: *mut abi::ArrowArray) {
    // SAFETY: the caller passes an unreleased array.
    unsafe { (*array).release = None };
}
