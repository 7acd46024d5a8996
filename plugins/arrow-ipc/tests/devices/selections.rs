//! Tests reading only some columns and rows.

use std::ops::Range;
use std::sync::Arc;

use crate::common::tables::everything;
use crate::common::{CODECS, FORMS, Rig, SOURCE_KINDS, peer_reads, peer_writes};
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, StructArray};
use arrow_schema::{DataType, Field, Schema};
use crossdock_plugin_api::{Device, Selection};
use crossdock_test_support::devices;

fn path(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

/// The parts of `rows` in each batch, in order.
fn slices(batches: &[RecordBatch], rows: &[Range<usize>]) -> Vec<RecordBatch> {
    let mut begin = 0;
    let mut all = Vec::new();
    for batch in batches {
        let end = begin + batch.num_rows();
        for range in rows {
            let (from, to) = (range.start.max(begin), range.end.min(end));
            if from < to {
                all.push(batch.slice(from - begin, to - from));
            }
        }
        begin = end;
    }
    all
}

/// The first struct column of the table, without all fields but `field`.
fn with_one_field(batch: &RecordBatch, column: usize, field: usize) -> RecordBatch {
    let array = batch.column(column).as_struct();
    let fields = vec![array.fields()[field].clone()].into();
    let data = StructArray::new(fields, vec![array.column(field).clone()], array.nulls().cloned());
    let schema = batch.schema();
    let old = schema.field(column);
    let new = Field::new(old.name(), data.data_type().clone(), old.is_nullable());
    RecordBatch::try_new(
        Arc::new(Schema::new(vec![new]).with_metadata(schema.metadata().clone())),
        vec![Arc::new(data)],
    )
    .unwrap()
}

#[test]
fn reads_selected_columns_and_rows_of_every_type() {
    let tables = [everything(100, true), everything(33, false), everything(70, true)];
    let schema = tables[0].schema();
    let rows = [5..6, 99..101, 130..200];
    let n = schema.fields().len();
    let struct_column = schema.fields().iter().position(|f| matches!(f.data_type(), DataType::Struct(_)));
    let struct_column = struct_column.unwrap();
    for form in FORMS {
        for codec in CODECS {
            let from = peer_writes(&tables, form, codec);
            for device in devices().iter().copied() {
                let rig = Rig::new();
                for (i, how) in SOURCE_KINDS.into_iter().enumerate() {
                    for column in (i..n).step_by(3) {
                        let selection = Selection {
                            columns: Some(vec![path(&[schema.field(column).name()])]),
                            rows: Some(rows.iter().map(|r| r.start as u64..r.end as u64).collect()),
                            ..Selection::default()
                        };
                        let read = rig.convert_selected(&from, how, device, &selection).unwrap();
                        let projected: Vec<_> =
                            tables.iter().map(|batch| batch.project(&[column]).unwrap()).collect();
                        let expected = slices(&projected, &rows);
                        assert_eq!(peer_reads(&read), expected, "{form} {codec} {device} {how:?} {column}");
                    }
                    let name = schema.field(struct_column).name();
                    let DataType::Struct(fields) = schema.field(struct_column).data_type() else { panic!() };
                    let last = fields.len() - 1;
                    let selection = Selection {
                        columns: Some(vec![path(&[name, fields[last].name()])]),
                        ..Selection::default()
                    };
                    let read = rig.convert_selected(&from, how, device, &selection).unwrap();
                    let expected: Vec<_> =
                        tables.iter().map(|batch| with_one_field(batch, struct_column, last)).collect();
                    assert_eq!(peer_reads(&read), expected, "{form} {codec} {device} {how:?}");
                }
                rig.host.assert_nothing_leaked();
            }
        }
    }
}

#[test]
fn only_requested_columns_are_copied_to_the_device() {
    let rows = 10_000;
    let column = |i: i64| Int64Array::from_iter_values((0..rows).map(|n| n * i));
    let columns = (1..9).map(|i| (format!("c{i}"), Arc::new(column(i)) as ArrayRef));
    let table = RecordBatch::try_from_iter(columns).unwrap();
    let selection = Selection { columns: Some(vec![path(&["c3"])]), ..Selection::default() };
    for (form, codec) in FORMS.into_iter().flat_map(|form| CODECS.map(|codec| (form, codec))) {
        let from = peer_writes(&[table.clone(), table.clone()], form, codec);
        for device in devices().iter().copied().filter(|device| *device != Device::CPU) {
            for how in SOURCE_KINDS {
                let rig = Rig::new();
                let (_, batches) = rig.read_selected(&from, how, device, &selection).unwrap();
                assert_eq!(batches.iter().map(|batch| batch.len()).sum::<usize>(), 20_000);
                let copied = rig.host.backend().ledger().copied().host_to_device.bytes;
                assert_eq!(copied, 2 * 8 * rows as u64, "{form} {codec} {device} {how:?}");
            }
        }
    }
}
