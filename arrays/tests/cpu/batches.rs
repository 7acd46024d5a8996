//! Tests checks, slices and metadata of batches.

use std::collections::HashMap;
use std::sync::Arc;

use crate::common::{Fixture, samples};
use arrow_array::{ArrayRef, Int32Array, StringArray};
use arrow_data::BufferSpec;
use arrow_schema::{DataType, Field, Metadata, Schema};
use crossdock_arrays::layout::layout;
use crossdock_arrays::{BufferKind, DeviceArray, DeviceBatch, export_batch, first_difference, import_batch};
use crossdock_memory::Device;

fn numbers(n: i32) -> ArrayRef {
    Arc::new(Int32Array::from_iter_values(0..n))
}

fn text(n: usize) -> ArrayRef {
    Arc::new(StringArray::from(vec!["text"; n]))
}

#[test]
fn layout_table_agrees_with_arrow_rs() {
    for array in samples::all() {
        let t = array.data_type();
        let (actual, expected) = (layout(t), arrow_data::layout(t));
        assert_eq!(actual.has_validity, expected.can_contain_null_mask, "{t}");
        assert_eq!(actual.variadic, expected.variadic, "{t}");
        assert_eq!(actual.buffers().len(), expected.buffers.len(), "{t}");
        for (kind, spec) in actual.buffers().iter().zip(&expected.buffers) {
            match spec {
                BufferSpec::FixedWidth { byte_width, .. } => {
                    assert_eq!(kind.width(), Some(*byte_width), "{t}")
                }
                BufferSpec::VariableWidth => assert_eq!(*kind, BufferKind::Data, "{t}"),
                BufferSpec::BitMap => assert_eq!(*kind, BufferKind::Bits, "{t}"),
                BufferSpec::AlwaysNull => panic!("{t}"),
            }
        }
    }
}

#[test]
fn rejects_columns_that_do_not_match_schema() {
    let fixture = Fixture::new();
    let batch = fixture.batch(&[numbers(3), text(3)]);
    let error = |len, columns: Vec<DeviceArray>| {
        DeviceBatch::try_new(batch.schema().clone(), len, columns).unwrap_err().message().to_string()
    };
    let [a, b] = [0, 1].map(|i| batch.columns()[i].clone());
    assert_eq!(error(3, vec![a.clone()]), "a batch has 1 columns, but its schema has 2 fields");
    assert_eq!(error(3, vec![b.clone(), a.clone()]), "column 'a' is of type string, expected int32");
    let short = b.slice(0, 2).unwrap();
    assert_eq!(error(3, vec![a.clone(), short]), "column 'b' has 2 values, expected 3, the number of rows");
    let far = batch.move_to(&fixture.cpu, Device::UNTOUCHABLE).unwrap().columns()[1].clone();
    assert_eq!(
        error(3, vec![a, far]),
        "column 'b' is on untouchable, but the columns before it are on cpu: move all columns to one device"
    );
}

#[test]
fn rejects_children_on_two_devices() {
    let fixture = Fixture::new();
    let batch = fixture.batch(&[numbers(3)]);
    let near = batch.columns()[0].clone();
    let far = batch.move_to(&fixture.cpu, Device::UNTOUCHABLE).unwrap().columns()[0].clone();
    let fields = ["x", "y"].map(|name| Field::new(name, DataType::Int32, true)).to_vec();
    let array =
        DeviceArray::try_new(DataType::Struct(fields.into()), 3, 0, None, vec![None], vec![near, far], None);
    assert!(
        array
            .unwrap_err()
            .message()
            .ends_with("the array has buffers on cpu and on untouchable: move them to one device")
    );
}

#[test]
fn rejects_children_with_wrong_type_or_length() {
    let fixture = Fixture::new();
    let child = fixture.batch(&[numbers(3)]).columns()[0].clone();
    let list = |t, len| {
        let t = DataType::FixedSizeList(Arc::new(Field::new("item", t, true)), 2);
        DeviceArray::try_new(t, len, 0, None, vec![None], vec![child.clone()], None)
    };
    assert!(list(DataType::Int32, 1).is_ok());
    assert!(
        list(DataType::Int32, 2)
            .unwrap_err()
            .message()
            .ends_with("a child has 3 values, expected at least 4")
    );
    assert!(
        list(DataType::Int8, 1).unwrap_err().message().ends_with("a child is of type int32, expected int8")
    );
    assert!(list(DataType::Int32, usize::MAX / 2).is_err());
}

#[test]
fn select_keeps_requested_order_and_schema_metadata() {
    let fixture = Fixture::new();
    let batch = fixture.batch(&[numbers(3), text(3)]);
    let schema =
        Schema::clone(batch.schema()).with_metadata(HashMap::from([("k".to_string(), "v".to_string())]));
    let batch = batch.with_schema(Arc::new(schema)).unwrap();
    let selected = batch.select(&[1, 0, 1]).unwrap();
    let names: Vec<&str> = selected.schema().fields().iter().map(|f| f.name().as_str()).collect();
    assert_eq!(names, ["b", "a", "b"]);
    assert_eq!(selected.schema().metadata(), batch.schema().metadata());
    assert_eq!((selected.len(), selected.select(&[]).unwrap().len()), (3, 3));
    assert!(batch.select(&[2]).unwrap_err().message().contains("column 2 does not exist: the batch has 2"));
}

#[test]
fn rejects_slices_beyond_end() {
    let fixture = Fixture::new();
    let batch = fixture.batch(&[numbers(3)]);
    for (offset, len) in [(0, 4), (4, 0), (1, usize::MAX), (usize::MAX, 1)] {
        assert!(batch.slice(offset, len).is_err() && batch.columns()[0].slice(offset, len).is_err());
    }
    assert_eq!(batch.slice(1, 2).unwrap().slice(1, 1).unwrap().columns()[0].offset(), 2);
}

#[test]
fn buffer_bytes_includes_unknown_sizes_only_after_resolve_sizes() {
    let fixture = Fixture::new();
    let mut batch = fixture.batch(&[numbers(3), text(3)]);
    assert_eq!(
        (batch.buffer_bytes(), batch.column_bytes(0), batch.column_bytes(1)),
        (12 + 16, Some(12), None)
    );
    batch.resolve_sizes(&fixture.cpu).unwrap();
    assert_eq!(
        (batch.buffer_bytes(), batch.column_bytes(1), batch.column_bytes(2)),
        (12 + 16 + 12, Some(28), None)
    );
}

#[test]
fn batch_metadata_survives_export_import_and_moves() {
    let fixture = Fixture::new();
    let metadata =
        Metadata::from_iter([("part".to_string(), "one".to_string()), ("ü".to_string(), String::new())]);
    let batch = fixture.batch(&[numbers(3), text(3)]).with_metadata(metadata.clone());
    let raw = export_batch(&batch, false, &fixture.cpu).unwrap();
    let back = import_batch(raw, batch.schema(), fixture.cpu.memory()).unwrap();
    let away = back.move_to(&fixture.cpu, Device::UNTOUCHABLE).unwrap();
    for batch in [&back, &away, &back.slice(1, 1).unwrap(), &away.select(&[1]).unwrap()] {
        assert_eq!(batch.metadata(), &metadata);
    }
    let without = back.clone().with_metadata(Metadata::new());
    let difference = first_difference(&back, &without, &fixture.cpu).unwrap().unwrap();
    assert!(difference.contains("metadata"), "{difference}");
    let raw = export_batch(&without, false, &fixture.cpu).unwrap();
    assert!(raw.metadata.is_null());
}

/// Batches of plain columns without nulls and offsets are exported and imported by faster code.
#[test]
fn fixed_width_batch_keeps_nulls_and_offset_after_export_and_import() {
    let fixture = Fixture::new();
    let with_nulls: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None, Some(3), None]));
    for columns in [vec![numbers(4)], vec![with_nulls.clone()], vec![numbers(4), with_nulls]] {
        let whole = fixture.batch(&columns);
        for (start, len) in [(0, 4), (1, 3), (0, 1), (3, 1), (2, 0)] {
            let part = whole.slice(start, len).unwrap();
            let raw = export_batch(&part, false, &fixture.cpu).unwrap();
            let back = import_batch(raw, part.schema(), &fixture.memory).unwrap();
            assert_eq!(back.len(), len);
            assert_eq!(first_difference(&part, &back, &fixture.cpu), Ok(None), "{start} {len}");
            for (sent, got) in part.columns().iter().zip(back.columns()) {
                assert_eq!(got.count_nulls(&fixture.cpu), sent.recount_nulls(&fixture.cpu), "{start} {len}");
            }
        }
    }
    fixture.host.assert_nothing_leaked();
}

#[test]
fn concatenated_slices_contain_only_their_own_text() {
    let fixture = Fixture::new();
    let batch = fixture.batch(&[text(8)]);
    let parts = [batch.slice(1, 3).unwrap(), batch.slice(4, 2).unwrap()];
    let whole = DeviceBatch::concatenate(&parts, &fixture.cpu).unwrap();
    let lengths: Vec<_> = whole.columns()[0].buffers().iter().flatten().map(|buffer| buffer.len()).collect();
    assert_eq!(lengths, [Some(6 * 4), Some(5 * "text".len())]);
}
