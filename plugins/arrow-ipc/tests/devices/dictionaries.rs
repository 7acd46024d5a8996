//! Tests dictionaries that grow, change, are nested, or are shared.

use std::sync::Arc;

use crate::common::tables::{dictionary, single};
use crate::common::{FORMS, Rig, SOURCE_KINDS, SourceKind, peer_reads, peer_writes, peer_writes_deltas};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int8Type, Int32Type};
use arrow_array::{
    Array, ArrayRef, DictionaryArray, Int8Array, Int32Array, ListArray, RecordBatch, StringArray, StructArray,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, Field, Schema};
use crossdock_arrow_ipc::{FILE, STREAM};
use crossdock_memory::Device;
use crossdock_test_support::devices;

fn encoded(keys: &[Option<i8>], values: &[Option<&str>]) -> RecordBatch {
    let keys = Int8Array::from_iter(keys.iter().copied());
    let values = StringArray::from_iter(values.iter().copied());
    single(Arc::new(DictionaryArray::<Int8Type>::new(keys, Arc::new(values))))
}

/// Returns the values of the rows without dictionary encoding.
fn decoded(batch: &RecordBatch) -> Vec<Option<String>> {
    let array = batch.column(0).as_dictionary::<Int8Type>();
    let values = array.values().as_string::<i32>();
    let value = |key: usize| (!values.is_null(key)).then(|| values.value(key).to_string());
    array.keys().iter().map(|key| key.and_then(|key| value(key as usize))).collect()
}

fn growing() -> Vec<RecordBatch> {
    vec![
        encoded(&[Some(0), Some(1), None], &[Some("a"), Some("b")]),
        encoded(&[Some(2), Some(0), Some(3)], &[Some("a"), Some("b"), Some("c"), None]),
        encoded(
            &[Some(4), Some(3), Some(1)],
            &[Some("a"), Some("b"), Some("c"), None, Some("longer than the others")],
        ),
    ]
}

fn changing() -> Vec<RecordBatch> {
    vec![
        encoded(&[Some(0), Some(1), None], &[Some("a"), Some("b")]),
        encoded(&[Some(1), Some(0), Some(2)], &[Some("b"), Some("x"), Some("a")]),
        encoded(&[Some(0), Some(0)], &[None]),
        encoded(&[Some(0), Some(1), Some(1)], &[Some("x"), Some("b"), Some("z")]),
    ]
}

fn all_decoded(batches: &[RecordBatch]) -> Vec<Vec<Option<String>>> {
    batches.iter().map(decoded).collect()
}

/// Returns the same column with an ordered dictionary.
fn ordered(batch: &RecordBatch) -> RecordBatch {
    let field = batch.schema().field(0).clone().with_dict_is_ordered(true);
    RecordBatch::try_new(Arc::new(Schema::new(vec![field])), batch.columns().to_vec()).unwrap()
}

#[test]
fn file_keeps_order_of_ordered_dictionaries_or_is_rejected() {
    let batch = |values: &[&str]| {
        let keys: Vec<_> = (0..values.len()).map(|key| Some(key as i8)).collect();
        ordered(&encoded(&keys, &values.iter().copied().map(Some).collect::<Vec<_>>()))
    };
    let (low, all) = (["low", "high"], ["low", "mid", "high"]);
    for (first, second, is_writable) in [
        (&low[..], &["low", "high", "top"][..], true),
        (&all, &low, true),
        (&low, &low, true),
        (&low, &all, false),
        (&low, &["high", "low"], false),
    ] {
        let batches = [batch(first), batch(second)];
        let stream = peer_writes(&batches, STREAM, "none");
        for device in devices().iter().copied() {
            let rig = Rig::new();
            let as_stream = rig.convert(&stream, SourceKind::Mapped, device, STREAM, "none").unwrap();
            assert_eq!(all_decoded(&peer_reads(&as_stream)), all_decoded(&batches));
            match rig.convert(&stream, SourceKind::Mapped, device, FILE, "none") {
                Ok(file) => {
                    assert!(is_writable, "{first:?}, {second:?}");
                    assert_eq!(all_decoded(&peer_reads(&file)), all_decoded(&batches));
                }
                Err(error) => {
                    assert!(!is_writable, "{first:?}, {second:?}: {error}");
                    let message = error.to_string();
                    assert!(message.contains("column 'column'") && message.contains("ordered"), "{message}");
                }
            }
        }
    }
}

#[test]
fn joins_deltas_on_every_device() {
    let batches = growing();
    for form in FORMS {
        let from = peer_writes_deltas(&batches, form);
        for device in devices().iter().copied() {
            let rig = Rig::new();
            for how in SOURCE_KINDS {
                let out = rig.convert(&from, how, device, STREAM, "none").unwrap();
                assert_eq!(all_decoded(&peer_reads(&out)), all_decoded(&batches), "{form} {device} {how:?}");
            }
            rig.host.assert_nothing_leaked();
        }
    }
}

#[test]
fn each_batch_uses_the_latest_preceding_dictionary() {
    let batches = changing();
    let from = peer_writes(&batches, STREAM, "none");
    for device in devices().iter().copied() {
        let rig = Rig::new();
        for how in SOURCE_KINDS {
            for codec in crate::common::CODECS {
                let out = rig.convert(&from, how, device, STREAM, codec).unwrap();
                assert_eq!(peer_reads(&out), batches, "{device} {how:?} {codec}");
            }
        }
        rig.host.assert_nothing_leaked();
    }
}

#[test]
fn file_unifies_dictionaries() {
    let batches = changing();
    let from = peer_writes(&batches, STREAM, "none");
    for device in devices().iter().copied() {
        let rig = Rig::new();
        let file = rig.convert(&from, SourceKind::Mapped, device, FILE, "zstd").unwrap();
        let (schema, read) = rig.read(&file, SourceKind::Mapped, Device::CPU).unwrap();
        let back = peer_reads(&rig.write(&schema, &read, STREAM, "none").unwrap());
        assert_eq!(all_decoded(&back), all_decoded(&batches));
        let values = back[3].column(0).as_dictionary::<Int8Type>().values().clone();
        let expected = [Some("a"), Some("b"), Some("x"), None, Some("z")];
        assert_eq!(values.as_string::<i32>().iter().collect::<Vec<_>>(), expected);
    }
}

#[test]
fn writes_grown_dictionaries_as_deltas_and_equal_dictionaries_once() {
    let rig = Rig::new();
    let long: Vec<String> = (0..100).map(|i| format!("a rather long value, number {i}")).collect();
    let values = |n: usize| long.iter().take(n).map(|v| Some(v.as_str())).collect::<Vec<_>>();
    let batches: Vec<_> =
        [60, 80, 80, 100].iter().map(|n| encoded(&[Some(*n as i8 - 1)], &values(*n))).collect();
    let from = peer_writes(&batches, STREAM, "none");
    for form in FORMS {
        let out = rig.convert(&from, SourceKind::Mapped, Device::CPU, form, "none").unwrap();
        let times = |value: &str| out.windows(value.len()).filter(|w| *w == value.as_bytes()).count();
        assert_eq!(times("value, number 59"), 1);
        assert_eq!(times("value, number 79"), 1);
        assert_eq!(times("value, number 99"), 1);
        assert_eq!(
            all_decoded(&peer_reads(
                &rig.convert(&out, SourceKind::Pipe, Device::CPU, STREAM, "none").unwrap()
            )),
            all_decoded(&batches)
        );
    }
}

#[test]
fn rejects_unified_dictionary_too_large_for_the_keys() {
    let rig = Rig::new();
    let batch = |first: usize| {
        let values: Vec<String> = (first..first + 100).map(|i| i.to_string()).collect();
        encoded(&[Some(99)], &values.iter().map(|v| Some(v.as_str())).collect::<Vec<_>>())
    };
    let from = peer_writes(&[batch(0), batch(100)], STREAM, "none");
    let error = rig.convert(&from, SourceKind::Mapped, Device::CPU, FILE, "none").unwrap_err();
    assert!(
        error.message().starts_with("field 'column': ")
            && error.message().contains("write an Arrow IPC stream"),
        "{error}"
    );
    rig.convert(&from, SourceKind::Mapped, Device::CPU, STREAM, "none").unwrap();
}

/// Creates a struct with a plain dictionary and with a dictionary whose values are lists of
/// dictionary-encoded strings.
fn nested(first: usize) -> RecordBatch {
    let inner = dictionary(8, true, first);
    let item = Arc::new(Field::new("item", inner.data_type().clone(), true));
    let lists: ArrayRef = Arc::new(ListArray::new(item, OffsetBuffer::from_lengths([3, 0, 5]), inner, None));
    let outer: ArrayRef =
        Arc::new(DictionaryArray::<Int32Type>::new(Int32Array::from(vec![2, 0, 1, 2]), lists));
    let fields = vec![
        Field::new("outer", outer.data_type().clone(), true),
        Field::new("plain", dictionary(4, false, 0).data_type().clone(), true),
    ];
    single(Arc::new(StructArray::new(fields.into(), vec![outer, dictionary(4, false, first / 2)], None)))
}

#[test]
fn round_trip_keeps_changing_nested_dictionaries() {
    let batches = [nested(0), nested(0), nested(3)];
    let rig = Rig::new();
    for form in FORMS {
        // arrow-rs cannot write nested dictionaries that change, so the test builds the first
        // stream batch by batch.
        let (mut schema, mut read) = (None, Vec::new());
        for batch in &batches {
            let one = rig
                .read(
                    &peer_writes(std::slice::from_ref(batch), STREAM, "none"),
                    SourceKind::Mapped,
                    Device::CPU,
                )
                .unwrap();
            schema = Some(one.0);
            read.extend(one.1);
        }
        let schema = schema.unwrap();
        for how in SOURCE_KINDS {
            let bytes = rig.write(&schema, &read, form, "none").unwrap();
            let (_, back) = rig.read(&bytes, how, Device::CPU).unwrap();
            assert_eq!(back.len(), 3);
            for (batch, expected) in back.iter().zip(&batches) {
                let bytes = rig.write(&schema, std::slice::from_ref(batch), STREAM, "none").unwrap();
                let cast = |b: &RecordBatch| format!("{:?}", plain(b.column(0)));
                assert_eq!(cast(&peer_reads(&bytes)[0]), cast(expected), "{form} {how:?}");
            }
        }
    }
}

/// Returns the rows of a nested array as text. Dictionaries are decoded.
fn plain(array: &ArrayRef) -> Vec<String> {
    let rows = array.as_struct();
    (0..rows.len())
        .map(|i| {
            let outer = rows.column(0).as_dictionary::<Int32Type>();
            let list = outer.values().as_list::<i32>().value(outer.keys().value(i) as usize);
            let inner = decoded(&single(list));
            let beside = decoded(&single(rows.column(1).clone()))[i].clone();
            format!("{inner:?} {beside:?}")
        })
        .collect()
}

#[test]
fn reads_column_of_nulls_without_dictionary() {
    let rig = Rig::new();
    let batch = encoded(&[None, None], &[Some("never used")]);
    let whole = peer_writes(&[batch], STREAM, "none");
    // The second message is the dictionary. Without it, the stream has only the schema and the
    // batch.
    let at = |n: usize| {
        whole.windows(4).enumerate().filter(|(_, w)| *w == [0xff; 4]).map(|(i, _)| i).nth(n).unwrap()
    };
    let without = [&whole[..at(1)], &whole[at(2)..]].concat();
    let (_, batches) = rig.read(&without, SourceKind::Mapped, Device::CPU).unwrap();
    assert_eq!(batches[0].columns()[0].dictionary().unwrap().len(), 0);
    assert_eq!(batches[0].columns()[0].null_count(), Some(2));
}

#[test]
fn reads_columns_that_share_a_dictionary() {
    let Some(folder) = std::env::var_os("ARROW_TEST_DATA") else {
        return println!("skipped: ARROW_TEST_DATA is not set");
    };
    let rig = Rig::new();
    for extension in ["stream", "arrow_file"] {
        let path =
            std::path::Path::new(&folder).join(format!("4.0.0-shareddict/generated_shared_dict.{extension}"));
        let bytes = std::fs::read(path).unwrap();
        let out = rig.convert(&bytes, SourceKind::Mapped, Device::CPU, FILE, "none").unwrap();
        let (actual, expected) = (peer_reads(&out), peer_reads(&bytes));
        assert_eq!(
            actual.iter().map(|b| b.columns().to_vec()).collect::<Vec<_>>(),
            expected.iter().map(|b| b.columns().to_vec()).collect::<Vec<_>>()
        );
    }
}

#[test]
fn error_for_nested_dictionary_names_the_column() {
    let rig = Rig::new();
    let twice = DataType::Dictionary(
        Box::new(DataType::Int8),
        Box::new(DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8))),
    );
    let schema = Schema::new(vec![Field::new("twice", twice, true)]);
    let error = rig.write(&schema, &[], FILE, "none").unwrap_err();
    assert!(error.message().starts_with("field 'twice': Arrow IPC cannot represent a dictionary"), "{error}");
}
