//! Batches and their parts: what is refused, what is kept.

use std::collections::HashMap;
use std::sync::Arc;

use crate::common::{Dock, samples};
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
fn the_layout_table_agrees_with_arrow_rs_on_buffers_and_validity() {
    for array in samples::all() {
        let t = array.data_type();
        let (ours, theirs) = (layout(t), arrow_data::layout(t));
        assert_eq!(ours.has_validity, theirs.can_contain_null_mask, "{t}");
        assert_eq!(ours.variadic, theirs.variadic, "{t}");
        assert_eq!(ours.buffers().len(), theirs.buffers.len(), "{t}");
        for (kind, spec) in ours.buffers().iter().zip(&theirs.buffers) {
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
fn columns_that_do_not_fit_the_schema_are_refused_by_name() {
    let dock = Dock::new();
    let batch = dock.batch(&[numbers(3), text(3)]);
    let of = |len, columns: Vec<DeviceArray>| {
        DeviceBatch::try_new(batch.schema().clone(), len, columns).unwrap_err().message().to_string()
    };
    let [a, b] = [0, 1].map(|i| batch.columns()[i].clone());
    assert_eq!(of(3, vec![a.clone()]), "a batch has 1 columns, its schema 2 fields");
    assert_eq!(of(3, vec![b.clone(), a.clone()]), "column 'a' is of type Utf8, expected Int32");
    let short = b.slice(0, 2).unwrap();
    assert_eq!(of(3, vec![a.clone(), short]), "column 'b' has 2 values, expected 3 as the batch has rows");
    let far = batch.move_to(&dock.cpu, Device::UNTOUCHABLE).unwrap().columns()[1].clone();
    assert_eq!(
        of(3, vec![a, far]),
        "column 'b' lies on untouchable, the columns before it on cpu: move them to one device"
    );
}

#[test]
fn parts_of_two_devices_make_no_array() {
    let dock = Dock::new();
    let batch = dock.batch(&[numbers(3)]);
    let near = batch.columns()[0].clone();
    let far = batch.move_to(&dock.cpu, Device::UNTOUCHABLE).unwrap().columns()[0].clone();
    let fields = ["x", "y"].map(|name| Field::new(name, DataType::Int32, true)).to_vec();
    let made =
        DeviceArray::try_new(DataType::Struct(fields.into()), 3, 0, None, vec![None], vec![near, far], None);
    assert!(
        made.unwrap_err()
            .message()
            .ends_with("it has buffers on cpu and on untouchable: move them to one device")
    );
}

#[test]
fn children_of_another_type_or_too_short_are_refused() {
    let dock = Dock::new();
    let child = dock.batch(&[numbers(3)]).columns()[0].clone();
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
        list(DataType::Int8, 1).unwrap_err().message().ends_with("a child is of type Int32, expected Int8")
    );
    assert!(list(DataType::Int32, usize::MAX / 2).is_err());
}

#[test]
fn selected_columns_come_in_the_order_asked_for_with_the_schema_s_metadata() {
    let dock = Dock::new();
    let batch = dock.batch(&[numbers(3), text(3)]);
    let schema =
        Schema::clone(batch.schema()).with_metadata(HashMap::from([("k".to_string(), "v".to_string())]));
    let batch = batch.with_schema(Arc::new(schema)).unwrap();
    let selected = batch.select(&[1, 0, 1]).unwrap();
    let names: Vec<&str> = selected.schema().fields().iter().map(|f| f.name().as_str()).collect();
    assert_eq!(names, ["b", "a", "b"]);
    assert_eq!(selected.schema().metadata(), batch.schema().metadata());
    assert_eq!((selected.len(), selected.select(&[]).unwrap().len()), (3, 3));
    assert!(batch.select(&[2]).unwrap_err().message().contains("column 2 was asked for, of a batch with 2"));
}

#[test]
fn slices_beyond_the_end_are_refused() {
    let dock = Dock::new();
    let batch = dock.batch(&[numbers(3)]);
    for (offset, len) in [(0, 4), (4, 0), (1, usize::MAX), (usize::MAX, 1)] {
        assert!(batch.slice(offset, len).is_err() && batch.columns()[0].slice(offset, len).is_err());
    }
    assert_eq!(batch.slice(1, 2).unwrap().slice(1, 1).unwrap().columns()[0].offset(), 2);
}

#[test]
fn bytes_are_those_of_known_length_and_all_of_them_once_resolved() {
    let dock = Dock::new();
    let mut batch = dock.batch(&[numbers(3), text(3)]);
    assert_eq!((batch.bytes(), batch.column_bytes(0), batch.column_bytes(1)), (12 + 16, Some(12), None));
    batch.resolve_sizes(&dock.cpu).unwrap();
    assert_eq!((batch.bytes(), batch.column_bytes(1), batch.column_bytes(2)), (12 + 16 + 12, Some(28), None));
}

#[test]
fn a_batch_keeps_metadata_of_its_own_across_the_boundary_and_between_devices() {
    let dock = Dock::new();
    let own =
        Metadata::from_iter([("part".to_string(), "one".to_string()), ("ü".to_string(), String::new())]);
    let batch = dock.batch(&[numbers(3), text(3)]).with_metadata(own.clone());
    let raw = export_batch(&batch, false, &dock.cpu).unwrap();
    let back = import_batch(raw, batch.schema(), dock.cpu.memory()).unwrap();
    let away = back.move_to(&dock.cpu, Device::UNTOUCHABLE).unwrap();
    for kept in [&back, &away, &back.slice(1, 1).unwrap(), &away.select(&[1]).unwrap()] {
        assert_eq!(kept.metadata(), &own);
    }
    let without = back.clone().with_metadata(Metadata::new());
    let difference = first_difference(&back, &without, &dock.cpu).unwrap().unwrap();
    assert!(difference.contains("metadata"), "{difference}");
    let raw = export_batch(&without, false, &dock.cpu).unwrap();
    assert!(raw.metadata.is_null());
}

/// Columns of numbers from their buffers' beginnings on, without nulls, go a shorter way.
#[test]
fn a_batch_of_numbers_crosses_with_its_nulls_and_its_offset() {
    let dock = Dock::new();
    let with_nulls: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None, Some(3), None]));
    for columns in [vec![numbers(4)], vec![with_nulls.clone()], vec![numbers(4), with_nulls]] {
        let whole = dock.batch(&columns);
        for (start, len) in [(0, 4), (1, 3), (0, 1), (3, 1), (2, 0)] {
            let part = whole.slice(start, len).unwrap();
            let raw = export_batch(&part, false, &dock.cpu).unwrap();
            let back = import_batch(raw, part.schema(), &dock.memory).unwrap();
            assert_eq!(back.len(), len);
            assert_eq!(first_difference(&part, &back, &dock.cpu), Ok(None), "{start} {len}");
            for (sent, got) in part.columns().iter().zip(back.columns()) {
                assert_eq!(got.count_nulls(&dock.cpu), sent.recount_nulls(&dock.cpu), "{start} {len}");
            }
        }
    }
    dock.host.assert_nothing_leaked();
}

#[test]
fn slices_put_together_have_the_bytes_of_their_text_and_no_more() {
    let dock = Dock::new();
    let batch = dock.batch(&[text(8)]);
    let parts = [batch.slice(1, 3).unwrap(), batch.slice(4, 2).unwrap()];
    let whole = DeviceBatch::concatenate(&parts, &dock.cpu).unwrap();
    let lengths: Vec<_> = whole.columns()[0].buffers().iter().flatten().map(|buffer| buffer.len()).collect();
    assert_eq!(lengths, [Some(6 * 4), Some(5 * "text".len())]);
}
