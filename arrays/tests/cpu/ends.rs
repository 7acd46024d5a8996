//! Batches that leave for where no sizes are told.

use std::sync::Arc;

use crate::common::{Dock, samples};
use arrow_schema::{DataType, Field, Schema};
use crossdock_arrays::{DeviceArray, DeviceBatch, check_ends, export_batch};
use crossdock_memory::{Buffer, Device};

impl Dock {
    fn bytes(&self, bytes: &[u8]) -> Option<Buffer> {
        let filled = self.memory.alloc_with(&self.cpu, bytes.len(), |to| {
            to.copy_from_slice(bytes);
            Ok(())
        });
        Some(filled.unwrap().freeze_now())
    }

    /// Three texts over four bytes of data, the last of which ends at `last`.
    fn texts(&self, last: i32) -> DeviceArray {
        let offsets: Vec<u8> = [0, 1, 3, last].into_iter().flat_map(i32::to_ne_bytes).collect();
        let buffers = vec![None, self.bytes(&offsets), self.bytes(b"abcd")];
        DeviceArray::try_new(DataType::Utf8, 3, 0, Some(0), buffers, vec![], None).unwrap()
    }

    fn leaves(&self, column: DeviceArray) -> Result<(), String> {
        let schema = Arc::new(Schema::new(vec![Field::new("c", column.data_type().clone(), true)]));
        let batch = DeviceBatch::try_new(schema.clone(), column.len(), vec![column]).unwrap();
        let raw = export_batch(&batch, false, &self.cpu).unwrap();
        check_ends(&raw, &schema, &self.memory).map_err(|e| e.message().to_owned())
    }
}

#[test]
fn a_last_offset_beyond_the_data_does_not_leave_for_where_no_size_contradicts_it() {
    let dock = Dock::new();
    for last in [5, 1 << 30, -1, i32::MIN] {
        let said = dock.leaves(dock.texts(last)).unwrap_err();
        assert_eq!(
            said,
            format!("'c': an array of type Utf8 ends at byte {last} of its data, which has 4 bytes")
        );
        // In a struct, behind an integer column, and in a dictionary.
        let number = DeviceArray::try_new(
            DataType::Int32,
            3,
            0,
            Some(0),
            vec![None, dock.bytes(&[0; 12])],
            vec![],
            None,
        )
        .unwrap();
        let fields = vec![Field::new("n", DataType::Int32, true), Field::new("t", DataType::Utf8, true)];
        let children = vec![number, dock.texts(last)];
        let nested =
            DeviceArray::try_new(DataType::Struct(fields.into()), 3, 0, Some(0), vec![None], children, None);
        assert!(dock.leaves(nested.unwrap()).is_err(), "in a struct");
        let keyed = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
        let keys = vec![None, dock.bytes(&[0, 1, 2])];
        let keyed = DeviceArray::try_new(keyed, 3, 0, Some(0), keys, vec![], Some(dock.texts(last)));
        assert!(dock.leaves(keyed.unwrap()).is_err(), "in a dictionary");
    }
    assert!(dock.leaves(dock.texts(5).slice(0, 2).unwrap()).is_ok(), "of a slice its own end counts");
}

#[test]
fn what_offsets_claim_is_not_allocated_before_it_is_known_to_be_there() {
    let dock = Dock::new();
    let offsets: Vec<u8> = [0, 1, 1 << 30, 1 << 30].into_iter().flat_map(i32::to_ne_bytes).collect();
    let buffers = vec![None, dock.bytes(&offsets), dock.bytes(b"abcd")];
    let texts = DeviceArray::try_new(DataType::Utf8, 3, 0, Some(0), buffers, vec![], None).unwrap();
    let schema = Arc::new(Schema::new(vec![Field::new("c", DataType::Utf8, true)]));
    let part = DeviceBatch::try_new(schema, 3, vec![texts]).unwrap().slice(1, 1).unwrap();
    for moved in [part.move_to(&dock.cpu, Device::UNTOUCHABLE), part.compact(&dock.cpu)] {
        let said = moved.err().unwrap();
        assert_eq!(said.message(), "bytes 1..+1073741823 lie outside a buffer of 4 bytes");
    }
    let accounts = dock.host.backend().ledger().accounts;
    let peak = accounts.iter().flat_map(|a| &a.devices).map(|d| d.peak_bytes).max();
    assert!(peak < Some(1 << 20), "{peak:?}");
}

#[test]
fn every_sample_and_slice_of_it_may_leave() {
    let dock = Dock::new();
    let mut batch = dock.batch(&samples::all());
    batch.resolve_sizes(&dock.cpu).unwrap();
    for (start, len) in [(0, batch.len()), (2, 7), (batch.len(), 0), (3, 0)] {
        let part = batch.slice(start, len).unwrap();
        let raw = export_batch(&part, false, &dock.cpu).unwrap();
        check_ends(&raw, part.schema(), &dock.memory).unwrap();
    }
}
