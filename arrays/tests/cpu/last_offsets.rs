//! Tests the check of last offsets, which runs before a batch is passed to a consumer that does not
//! receive buffer sizes.

use std::sync::Arc;

use crate::common::{Fixture, samples};
use arrow_schema::{DataType, Field, Schema};
use crossdock_arrays::{DeviceArray, DeviceBatch, check_last_offsets, export_batch};
use crossdock_memory::{Buffer, Device};

impl Fixture {
    fn bytes(&self, bytes: &[u8]) -> Option<Buffer> {
        let filled = self.memory.alloc_with(&self.cpu, bytes.len(), |to| {
            to.copy_from_slice(bytes);
            Ok(())
        });
        Some(filled.unwrap().freeze_now())
    }

    /// An array of three strings whose data has four bytes. The last offset is `last`.
    fn texts(&self, last: i32) -> DeviceArray {
        let offsets: Vec<u8> = [0, 1, 3, last].into_iter().flat_map(i32::to_ne_bytes).collect();
        let buffers = vec![None, self.bytes(&offsets), self.bytes(b"abcd")];
        DeviceArray::try_new(DataType::Utf8, 3, 0, Some(0), buffers, vec![], None).unwrap()
    }

    fn check(&self, column: DeviceArray) -> Result<(), String> {
        let schema = Arc::new(Schema::new(vec![Field::new("c", column.data_type().clone(), true)]));
        let batch = DeviceBatch::try_new(schema.clone(), column.len(), vec![column]).unwrap();
        let raw = export_batch(&batch, false, &self.cpu).unwrap();
        check_last_offsets(&raw, &schema, &self.memory).map_err(|e| e.message().to_owned())
    }
}

#[test]
fn rejects_last_offset_beyond_data() {
    let fixture = Fixture::new();
    for last in [5, 1 << 30, -1, i32::MIN] {
        let message = fixture.check(fixture.texts(last)).unwrap_err();
        assert_eq!(
            message,
            format!("'c': an array of type string has the last offset {last}, but 4 bytes of data")
        );
        // The next checks have the strings as the second child of a struct, and as the values of a
        // dictionary.
        let number = DeviceArray::try_new(
            DataType::Int32,
            3,
            0,
            Some(0),
            vec![None, fixture.bytes(&[0; 12])],
            vec![],
            None,
        )
        .unwrap();
        let fields = vec![Field::new("n", DataType::Int32, true), Field::new("t", DataType::Utf8, true)];
        let children = vec![number, fixture.texts(last)];
        let nested =
            DeviceArray::try_new(DataType::Struct(fields.into()), 3, 0, Some(0), vec![None], children, None);
        assert!(fixture.check(nested.unwrap()).is_err(), "in a struct");
        let keyed = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
        let keys = vec![None, fixture.bytes(&[0, 1, 2])];
        let keyed = DeviceArray::try_new(keyed, 3, 0, Some(0), keys, vec![], Some(fixture.texts(last)));
        assert!(fixture.check(keyed.unwrap()).is_err(), "in a dictionary");
    }
    assert!(fixture.check(fixture.texts(5).slice(0, 2).unwrap()).is_ok(), "a slice has its own last offset");
}

#[test]
fn rejects_range_beyond_data_before_allocating() {
    let fixture = Fixture::new();
    let offsets: Vec<u8> = [0, 1, 1 << 30, 1 << 30].into_iter().flat_map(i32::to_ne_bytes).collect();
    let buffers = vec![None, fixture.bytes(&offsets), fixture.bytes(b"abcd")];
    let texts = DeviceArray::try_new(DataType::Utf8, 3, 0, Some(0), buffers, vec![], None).unwrap();
    let schema = Arc::new(Schema::new(vec![Field::new("c", DataType::Utf8, true)]));
    let part = DeviceBatch::try_new(schema, 3, vec![texts]).unwrap().slice(1, 1).unwrap();
    for moved in [part.move_to(&fixture.cpu, Device::UNTOUCHABLE), part.compact(&fixture.cpu)] {
        let error = moved.err().unwrap();
        assert_eq!(error.message(), "bytes 1..+1073741823 lie outside a buffer of 4 bytes");
    }
    let accounts = fixture.host.backend().ledger().accounts;
    let peak = accounts.iter().flat_map(|a| &a.devices).map(|d| d.peak_bytes).max();
    assert!(peak < Some(1 << 20), "{peak:?}");
}

#[test]
fn accepts_every_sample_and_its_slices() {
    let fixture = Fixture::new();
    let mut batch = fixture.batch(&samples::all());
    batch.resolve_sizes(&fixture.cpu).unwrap();
    for (start, len) in [(0, batch.len()), (2, 7), (batch.len(), 0), (3, 0)] {
        let part = batch.slice(start, len).unwrap();
        let raw = export_batch(&part, false, &fixture.cpu).unwrap();
        check_last_offsets(&raw, part.schema(), &fixture.memory).unwrap();
    }
}
