//! Tests of tables for host applications.

use std::sync::Arc;

use crate::common::mini;
use arrow_array::{
    Array, BooleanArray, Int32Array, RecordBatch, StringArray, types::TimestampMicrosecondType,
};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use crossdock::api::Device;
use crossdock::registry::Way;
use crossdock::sink::{Output, VecSink};
use crossdock::{ColumnSlice, Error, Session, Table, WriteOptions};
use crossdock_test_support::{device_pairs, devices};

fn session(device: Device) -> Session {
    mini::host().session().device(device).open().unwrap()
}

fn one(data_type: DataType, nullable: bool) -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("price", data_type, nullable)]))
}

/// The usage error of building a table of one column.
fn usage_error(data_type: DataType, nullable: bool, column: ColumnSlice<'_>) -> String {
    let error =
        Table::from_columns(&session(Device::CPU), one(data_type, nullable), &[column]).err().unwrap();
    assert!(matches!(error, Error::Usage(_)), "{error:?}");
    let text = error.to_string();
    assert!(text.starts_with("column 'price': "), "{text}");
    text
}

#[test]
fn builds_tables_from_slices_of_every_kind_on_every_device() {
    let schema = Arc::new(Schema::new(vec![
        Field::new("i", DataType::Int32, true),
        Field::new("t", DataType::Timestamp(TimeUnit::Microsecond, None), false),
        Field::new("f", DataType::Float16, false),
        Field::new("b", DataType::Boolean, true),
        Field::new("s", DataType::Utf8, true),
        Field::new("o", DataType::Utf8, false),
    ]));
    for device in devices().iter().copied() {
        let session = session(device);
        let columns = [
            ColumnSlice::new(&[1i32, 2, 3][..]).with_validity(&[true, false, true]),
            ColumnSlice::new(&[10i64, 20, 30][..]),
            ColumnSlice::raw(&[0x00, 0x3c, 0x00, 0x40, 0x00, 0x42]),
            ColumnSlice::new(&[true, false, true][..]).with_validity_bits(&[0b110]),
            ColumnSlice::new(&["a", "", "déf"][..]),
            ColumnSlice::with_offsets(&[0, 1, 1, 3], b"xyz"),
        ];
        let table = Table::from_columns(&session, schema.clone(), &columns).unwrap();
        assert_eq!(table.rows(), 3);
        // Three values of 4, 8 and 2 bytes, 3 bits, strings of 5 and 3 bytes with 4 offsets each,
        // and three bitmaps.
        assert_eq!(table.bytes(), 3 * 14 + 1 + (4 * 4 + 5) + (4 * 4 + 3) + 2);
        assert_eq!(table.batches()[0].device(), device);
        let batch = table.to_record_batches().unwrap().remove(0);
        assert_eq!(batch.schema(), schema);
        let ints = batch.column(0).as_any().downcast_ref::<Int32Array>().unwrap();
        assert_eq!(ints.iter().collect::<Vec<_>>(), [Some(1), None, Some(3)]);
        let times =
            batch.column(1).as_any().downcast_ref::<arrow_array::PrimitiveArray<TimestampMicrosecondType>>();
        assert_eq!(times.unwrap().values(), &[10, 20, 30]);
        let floats = batch.column(2).to_data();
        assert_eq!(floats.buffers()[0].as_slice(), [0x00, 0x3c, 0x00, 0x40, 0x00, 0x42]);
        let bools = batch.column(3).as_any().downcast_ref::<BooleanArray>().unwrap();
        assert_eq!(bools.iter().collect::<Vec<_>>(), [None, Some(false), Some(true)]);
        let strings = batch.column(4).as_any().downcast_ref::<StringArray>().unwrap();
        assert_eq!(strings.iter().flatten().collect::<Vec<_>>(), ["a", "", "déf"]);
        let offsets = batch.column(5).as_any().downcast_ref::<StringArray>().unwrap();
        assert_eq!(offsets.iter().flatten().collect::<Vec<_>>(), ["x", "", "yz"]);
    }
}

#[test]
fn error_for_a_wrong_column_count_states_both_counts() {
    let error = Table::from_columns(&session(Device::CPU), one(DataType::Int32, false), &[]).err().unwrap();
    assert!(
        error.to_string().contains("expected 1 columns") && error.to_string().contains("got 0"),
        "{error}"
    );
}

#[test]
fn error_for_columns_of_different_lengths_states_name_and_lengths() {
    let schema = Arc::new(Schema::new(vec![
        Field::new("a", DataType::Int32, false),
        Field::new("price", DataType::Int32, false),
    ]));
    let columns = [ColumnSlice::new(&[1i32, 2][..]), ColumnSlice::new(&[1i32, 2, 3][..])];
    let error = Table::from_columns(&session(Device::CPU), schema, &columns).err().unwrap().to_string();
    assert!(error.contains("column 'price': expected 2 values") && error.contains("got 3"), "{error}");
}

#[test]
fn rejects_values_of_another_width_or_type() {
    let text = usage_error(DataType::Int32, false, ColumnSlice::new(&[1i64][..]));
    assert!(
        text.contains("expected values of Int32, 4 bytes each, got values of Int64, 8 bytes each"),
        "{text}"
    );
    let text = usage_error(DataType::Int32, false, ColumnSlice::new(&[1f32][..]));
    assert!(text.contains("got values of Float32"), "{text}");
    let text = usage_error(DataType::Date32, false, ColumnSlice::new(&[1u32][..]));
    assert!(text.contains("expected values of Date32"), "{text}");
    let text = usage_error(DataType::Int32, false, ColumnSlice::raw(&[0; 7]));
    assert!(text.contains("a multiple of 4 bytes") && text.contains("got 7 bytes"), "{text}");
    let text = usage_error(DataType::Utf8, false, ColumnSlice::raw(&[0; 8]));
    assert!(text.contains("expected strings") && text.contains("got raw bytes"), "{text}");
    let text = usage_error(DataType::Int32, false, ColumnSlice::new(&["a"][..]));
    assert!(text.contains("got strings"), "{text}");
    let list = DataType::new_list(DataType::Int32, true);
    assert!(usage_error(list, false, ColumnSlice::raw(&[0; 8])).contains("which slices support"));
}

#[test]
fn error_for_malformed_offsets_has_the_index_of_the_first_malformed_offset() {
    let offsets = |offsets: &'static [i32], data: &'static [u8]| {
        usage_error(DataType::Utf8, false, ColumnSlice::with_offsets(offsets, data))
    };
    assert!(offsets(&[], b"").contains("one more offset than values"));
    assert!(offsets(&[0, 2, 1], b"ab").contains("offset 2 is 1, expected 2 to 2"));
    assert!(offsets(&[0, 9], b"ab").contains("offset 1 is 9"));
    assert!(offsets(&[-1, 1], b"ab").contains("offset 0 is -1"));
    assert!(offsets(&[0, 1, 2], "é".as_bytes()).contains("value 0 is not UTF-8"));
}

#[test]
fn rejects_validity_that_does_not_fit() {
    let values = &[1i32, 2, 3][..];
    let text = usage_error(DataType::Int32, true, ColumnSlice::new(values).with_validity(&[true]));
    assert!(text.contains("validity for 3 values, got validity for 1"), "{text}");
    let text = usage_error(DataType::Int32, true, ColumnSlice::new(values).with_validity_bits(&[]));
    assert!(text.contains("expected 1 bytes of validity bits"), "{text}");
    let text =
        usage_error(DataType::Int32, false, ColumnSlice::new(values).with_validity(&[true, false, true]));
    assert!(text.contains("value 1 is null"), "{text}");
}

#[test]
fn record_batches_survive_a_round_trip_on_every_device() {
    let schema = Arc::new(Schema::new_with_metadata(
        vec![Field::new("v", DataType::Int32, true), Field::new("s", DataType::Utf8, true)],
        [("owner".to_string(), "us".to_string())],
    ));
    let ints = Arc::new(Int32Array::from(vec![Some(1), None, Some(3), Some(4)]));
    let texts = Arc::new(StringArray::from(vec![None, Some("b"), Some(""), Some("d")]));
    let batch = RecordBatch::try_new(schema.clone(), vec![ints, texts]).unwrap();
    for device in devices().iter().copied() {
        let session = session(device);
        let pieces = [batch.clone(), batch.slice(1, 2)];
        let table = Table::from_record_batches(&session, schema.clone(), &pieces).unwrap();
        assert_eq!(table.to_record_batches().unwrap(), pieces);
    }
}

#[test]
fn record_batch_without_columns_keeps_its_rows() {
    let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(5));
    let empty = Arc::new(Schema::empty());
    let batch = RecordBatch::try_new_with_options(empty, vec![], &options).unwrap();
    let table = Table::from_record_batch(&session(Device::CPU), &batch).unwrap();
    assert_eq!(table.rows(), 5);
    assert_eq!(table.to_record_batches().unwrap()[0].num_rows(), 5);
}

#[test]
fn rejects_a_record_batch_of_another_schema() {
    let array: Arc<dyn Array> = Arc::new(Int32Array::from(vec![1]));
    let batch = RecordBatch::try_new(one(DataType::Int32, false), vec![array]).unwrap();
    let other = one(DataType::Int64, false);
    assert!(Table::from_record_batches(&session(Device::CPU), other, &[batch]).is_err());
}

#[test]
fn reads_and_writes_files_of_a_plugins_format() {
    let directory = crate::common::temporary();
    let path = directory.path().join("t.mini");
    let session = session(Device::CPU);
    let columns = [ColumnSlice::new(&[1i32, 2, 3, 4, 5][..])];
    let table = Table::from_columns(&session, mini::schema(), &columns).unwrap();
    table.write(&path).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), mini::bytes(&[1, 2, 3, 4, 5]));
    let again = Table::read(&session, &path).unwrap();
    assert_eq!((again.rows(), again.batches().len()), (5, 2));
}

#[test]
fn error_for_missing_arrow_ipc_plugin_names_the_plugin() {
    let error = Table::from_ipc_bytes(&session(Device::CPU), vec![0; 8]).err().unwrap();
    assert!(error.to_string().contains("arrow-ipc"), "{error}");
}

/// Numbers 0 to 7 and their names, in batches of 3, 0, 4 and 1 rows.
fn in_batches(session: &Session) -> Table {
    let batch = |rows: std::ops::Range<i32>| {
        let names: Vec<_> = rows.clone().map(|n| n.to_string()).collect();
        let columns: Vec<(&str, Arc<dyn Array>)> = vec![
            ("n", Arc::new(Int32Array::from_iter_values(rows))),
            ("name", Arc::new(StringArray::from(names))),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    };
    let batches = [batch(0..3), batch(3..3), batch(3..7), batch(7..8)];
    Table::from_record_batches(session, batches[0].schema(), &batches).unwrap()
}

fn numbers(table: &Table) -> Vec<i32> {
    let batches = table.to_record_batches().unwrap();
    let column = |batch: &RecordBatch| {
        let n = batch.column_by_name("n").unwrap().as_any().downcast_ref::<Int32Array>().unwrap();
        n.values().to_vec()
    };
    batches.iter().flat_map(column).collect()
}

#[test]
fn table_slice_spans_batches_and_ends_with_the_table() {
    for device in devices().iter().copied() {
        let session = session(device);
        let table = in_batches(&session);
        for (offset, rows, expected) in
            [(0, 8, 0..8), (2, 3, 2..5), (3, 4, 3..7), (6, 99, 6..8), (8, 1, 8..8)]
        {
            let slice = table.slice(offset, rows).unwrap();
            assert_eq!(
                numbers(&slice),
                expected.clone().collect::<Vec<_>>(),
                "{offset}..+{rows} on {device}"
            );
            assert_eq!(slice.rows(), expected.len() as u64);
        }
        assert_eq!(table.slice(u64::MAX, u64::MAX).unwrap().rows(), 0);
    }
}

#[test]
fn select_orders_columns_and_rejects_indices_out_of_range() {
    let session = session(Device::CPU);
    let table = in_batches(&session);
    let chosen = table.select(&[1, 0, 1]).unwrap();
    let names: Vec<_> = chosen.schema().fields().iter().map(|field| field.name().as_str()).collect();
    assert_eq!((names, chosen.rows()), (vec!["name", "n", "name"], 8));
    let error = table.select(&[2]).err().unwrap();
    assert!(matches!(error, Error::Usage(_)) && error.to_string().contains("indices below 2"), "{error}");
}

#[test]
fn tables_move_to_every_device_and_back() {
    for (from, to) in device_pairs() {
        let session = session(from);
        let table = in_batches(&session);
        let moved = table.move_to(to).unwrap();
        assert!(moved.batches().iter().filter(|batch| !batch.is_empty()).all(|batch| batch.device() == to));
        assert_eq!(numbers(&moved.move_to(from).unwrap()), numbers(&table), "{from} to {to}");
    }
}

#[test]
fn cancel_flag_stops_only_its_own_task() {
    let session = session(Device::CPU);
    let table = in_batches(&session).slice(0, 3).unwrap();
    let flag = crossdock::api::CancelFlag::new();
    let cancelled = session.with_cancel_flag(flag.clone());
    flag.cancel();
    let options = WriteOptions { to: Some("mini".into()), ..Default::default() };
    let write = |session: &Session| {
        let table = Table::from_batches(session, table.schema().clone(), table.batches().to_vec()).unwrap();
        table.select(&[0]).unwrap().write_to(Output::Memory(VecSink::new()), &options)
    };
    assert!(matches!(write(&cancelled), Err(Error::Cancelled)));
    write(&session).unwrap();
}

#[test]
fn panicked_instance_is_replaced() {
    let session = session(Device::CPU);
    let write = |name: &str| {
        let schema = Arc::new(Schema::new(vec![Field::new(name, DataType::Int32, false)]));
        let table = Table::from_columns(&session, schema.clone(), &[ColumnSlice::new(&[1i32][..])]).unwrap();
        let format = session.capsule_format("mini-capsules", Way::Out).unwrap();
        format.write(&schema, &Default::default())?.write(table.batches()[0].clone())
    };
    assert_eq!(write("n").unwrap().len(), 2);
    let error = write("panic").err().unwrap();
    assert!(error.one_line().contains("panicked"), "{error:?}");
    assert_eq!(write("n").unwrap().len(), 2, "with another instance");
}
