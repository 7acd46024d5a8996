//! The short way in, for batches of plain columns, takes nothing that the long way refuses.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::Arc;

use crate::common::Dock;
use arrow_schema::{DataType, Field, Schema};
use crossdock_arrays::{check_batch_array, import_batch};
use crossdock_plugin_api::{Owned, abi};

/// What is done to a good batch's second column or to its root.
type Change = fn(&mut abi::ArrowDeviceArray, &mut abi::ArrowArray);

const CHANGES: &[(&str, bool, Change)] = &[
    ("nothing", true, |_, _| {}),
    ("more nulls than bits tell", true, |_, c| c.null_count = 2),
    ("fewer rows in the batch", true, |r, _| r.array.length = 2),
    ("an offset", true, |_, c| c.offset = 1),
    ("a negative length", false, |_, c| c.length = -1),
    ("a negative offset", false, |_, c| c.offset = -1),
    ("an offset beyond counting", false, |_, c| c.offset = i64::MAX),
    ("values beyond all addresses", false, |_, c| c.offset = i64::MAX / 4 - 8),
    ("more nulls than rows", false, |_, c| c.null_count = 4),
    ("a count of nulls below -1", false, |_, c| c.null_count = -2),
    ("unknown nulls", true, |_, c| c.null_count = -1),
    ("three buffers", false, |_, c| c.n_buffers = 3),
    ("one buffer", false, |_, c| c.n_buffers = 1),
    ("no list of buffers", false, |_, c| c.buffers = null_mut()),
    // SAFETY: the column's list has two entries.
    ("no values", false, |_, c| unsafe { *c.buffers.add(1) = null() }),
    // SAFETY: as above.
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
    ("a device that is none", false, |r, _| r.device_type = 99),
    ("a device id below 0", false, |r, _| (r.device_type, r.device_id) = (abi::DEVICE_CUDA, -2)),
    ("another device", true, |r, _| (r.device_type, r.device_id) = (abi::DEVICE_CUDA, 1)),
    ("an event on the cpu", false, |r, _| r.sync_event = std::ptr::dangling_mut()),
];

/// A good batch of three rows, that many numbers and floats, one of them null. What its structs point at.
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
        // SAFETY: valid as far as what is read goes; its release does nothing.
        unsafe { Owned::new(raw) }
    }
}

#[test]
fn what_is_wrong_with_a_plain_batch_is_seen_both_ways() {
    let dock = Dock::new();
    let fields = [("a", DataType::Int64), ("b", DataType::Float32)];
    let fields: Vec<_> = fields.into_iter().map(|(name, t)| Field::new(name, t, true)).collect();
    let schema = Arc::new(Schema::new(fields));
    for (what, good, change) in CHANGES {
        let mut parts = Parts::new();
        let short = check_batch_array(&parts.changed(*change), &schema, &dock.memory);
        assert_eq!(short.is_ok(), *good, "{what}: {short:?}");
        if *what == "nothing" {
            assert_eq!(short, Ok(true), "every null count is told");
        }
        let mut parts = Parts::new();
        let array = parts.changed(*change).into_raw();
        // SAFETY: as before, in a batch without sizes.
        let batch = unsafe { Owned::new(abi::Batch { array, ..abi::Batch::new() }) };
        let long = import_batch(batch, &schema, &dock.memory);
        assert_eq!(long.is_ok(), *good, "{what}: {:?}", long.err());
    }
    dock.host.assert_nothing_leaked();
}

unsafe extern "C" fn nothing(array: *mut abi::ArrowArray) {
    // SAFETY: a live array.
    unsafe { (*array).release = None };
}
