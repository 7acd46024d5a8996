//! Tests full validation on every device. Valid arrays must pass. If an array violates a rule, the
//! error must name the column.

use std::sync::Arc;

use crate::common::{Fixture, samples};
use arrow_schema::{DataType, Field, Schema, UnionFields, UnionMode};
use crossdock_arrays::{DeviceArray, DeviceBatch, Level, Result, StartedValidation, validate};
use crossdock_memory::{Buffer, Error, Stream};
use crossdock_plugin_api::Tasks;
use crossdock_test_support::devices;

/// Copies bytes to the stream's device.
fn buffer(stream: &Stream, bytes: &[u8]) -> Option<Buffer> {
    let fill = |to: &mut [u8]| {
        to.copy_from_slice(bytes);
        Ok(())
    };
    Some(stream.memory().alloc_with(stream, bytes.len(), fill).unwrap().freeze(stream).unwrap())
}

fn i32s(stream: &Stream, values: &[i32]) -> Option<Buffer> {
    buffer(stream, &values.iter().flat_map(|v| v.to_ne_bytes()).collect::<Vec<u8>>())
}

fn array(t: DataType, len: usize, buffers: Vec<Option<Buffer>>, children: Vec<DeviceArray>) -> DeviceArray {
    DeviceArray::try_new(t, len, 0, None, buffers, children, None).unwrap()
}

fn numbers(stream: &Stream, n: usize) -> DeviceArray {
    array(DataType::Int32, n, vec![None, i32s(stream, &vec![7; n])], vec![])
}

fn check(column: DeviceArray, stream: &Stream) -> Result<()> {
    let schema = Arc::new(Schema::new(vec![Field::new("c", column.data_type().clone(), true)]));
    let batch = DeviceBatch::try_new(schema, column.len(), vec![column]).unwrap();
    validate(&batch, Level::Full, stream)
}

/// Creates a column on each device and asserts that its validation fails with `message`.
fn assert_rejected(message: &str, column: impl Fn(&Stream) -> DeviceArray) {
    let fixture = Fixture::new();
    for device in devices().iter().copied() {
        let stream = fixture.host.stream(device);
        let error = check(column(&stream), &stream).unwrap_err();
        assert_eq!(error.message(), message, "{device}");
    }
    fixture.host.assert_nothing_leaked();
}

#[test]
fn accepts_every_sample_and_its_slices() {
    let fixture = Fixture::new();
    for array in &samples::all() {
        for device in devices().iter().copied() {
            let stream = fixture.host.stream(device);
            let batch = fixture.batch(std::slice::from_ref(array)).move_to(&stream, device).unwrap();
            for (offset, len) in [(0, 11), (3, 5), (0, 0), (10, 1)] {
                let checked = validate(&batch.slice(offset, len).unwrap(), Level::Full, &stream);
                assert_eq!(checked, Ok(()), "{} {offset} {len}", array.data_type());
            }
        }
    }
}

#[test]
fn rejects_descending_offsets() {
    assert_rejected("column c[2]: the offset is 1, expected 2 to 3", |s| {
        array(DataType::Utf8, 3, vec![None, i32s(s, &[0, 2, 1, 3]), buffer(s, b"abc")], vec![])
    });
}

#[test]
fn rejects_offsets_beyond_data() {
    assert_rejected("column c[3]: the offset is 4, expected 2 to 3", |s| {
        array(DataType::Binary, 3, vec![None, i32s(s, &[0, 2, 2, 4]), buffer(s, b"abc")], vec![])
    });
}

#[test]
fn rejects_negative_list_offsets() {
    assert_rejected("column c[0]: the offset is -1, expected 0 to 2", |s| {
        let list = DataType::new_list(DataType::Int32, true);
        array(list, 1, vec![None, i32s(s, &[-1, 2])], vec![numbers(s, 2)])
    });
}

#[test]
fn rejects_value_that_ends_within_character() {
    assert_rejected("column c[0]: the text is not UTF-8", |s| {
        array(DataType::Utf8, 2, vec![None, i32s(s, &[0, 2, 3]), buffer(s, "aö".as_bytes())], vec![])
    });
}

#[test]
fn accepts_any_bytes_of_null_value() {
    let fixture = Fixture::new();
    for device in devices().iter().copied() {
        let s = fixture.host.stream(device);
        let buffers = vec![buffer(&s, &[0b01]), i32s(&s, &[0, 1, 2]), buffer(&s, b"a\xff")];
        assert_eq!(check(array(DataType::Utf8, 2, buffers, vec![]), &s), Ok(()));
    }
}

#[test]
fn rejects_null_count_that_differs_from_bitmap() {
    assert_rejected("column c: the null count is 1, but the validity bitmap has 2 nulls", |s| {
        let buffers = vec![buffer(s, &[0b001]), i32s(s, &[1, 2, 3])];
        DeviceArray::try_new(DataType::Int32, 3, 0, Some(1), buffers, vec![], None).unwrap()
    });
}

#[test]
fn rejects_non_null_key_out_of_range() {
    let keys = |s: &Stream, validity: u8| {
        let t = DataType::Dictionary(Box::new(DataType::UInt8), Box::new(DataType::Int32));
        let buffers = vec![buffer(s, &[validity]), buffer(s, &[0, 1, 255])];
        DeviceArray::try_new(t, 3, 0, None, buffers, vec![], Some(numbers(s, 2))).unwrap()
    };
    assert_rejected("column c[2]: the dictionary key is 255, expected 0 or more and below 2", |s| {
        keys(s, 0b111)
    });
    let fixture = Fixture::new();
    assert_eq!(check(keys(&fixture.cpu, 0b011), &fixture.cpu), Ok(()));
}

fn view(len: i32, prefix: &[u8; 4], buffer: i32, offset: i32) -> Vec<u8> {
    [&len.to_ne_bytes()[..], prefix, &buffer.to_ne_bytes(), &offset.to_ne_bytes()].concat()
}

#[test]
fn rejects_views_with_wrong_prefix_range_or_padding() {
    let data = b"a text of 20 letters";
    let wrong = [
        view(20, b"A te", 0, 0),
        view(20, b"a te", 0, 1),
        view(20, b"a te", 1, 0),
        view(-1, b"a te", 0, 0),
        view(2, b"abc\0", 0, 0),
    ];
    let fixture = Fixture::new();
    for device in devices().iter().copied() {
        let s = fixture.host.stream(device);
        let with = |view: &[u8]| {
            check(array(DataType::Utf8View, 1, vec![None, buffer(&s, view), buffer(&s, data)], vec![]), &s)
        };
        assert_eq!(with(&view(20, b"a te", 0, 0)), Ok(()));
        for view in &wrong {
            assert!(with(view).unwrap_err().message().starts_with("column c[0]: the view of "), "{view:?}");
        }
    }
}

#[test]
fn only_string_views_must_be_utf8() {
    let short = view(3, b"a\xffb\0", 0, 0);
    let long = view(20, b"a te", 0, 0);
    let data = b"a text of 20 \xffetters";
    let with = |s: &Stream, t, view: &[u8]| {
        check(array(t, 1, vec![None, buffer(s, view), buffer(s, data)], vec![]), s)
    };
    let fixture = Fixture::new();
    for device in devices().iter().copied() {
        let s = fixture.host.stream(device);
        for view in [&short, &long] {
            assert_eq!(with(&s, DataType::BinaryView, view), Ok(()), "{device}");
            let error = with(&s, DataType::Utf8View, view).unwrap_err();
            assert!(error.message().starts_with("column c[0]: the view of "), "{device}: {error}");
        }
    }
}

fn union(s: &Stream, ids: &[u8], offsets: &[i32]) -> DeviceArray {
    let fields = [Field::new("x", DataType::Int32, true), Field::new("y", DataType::Int32, true)];
    let t = DataType::Union(UnionFields::try_new([3, 9], fields).unwrap(), UnionMode::Dense);
    array(t, ids.len(), vec![buffer(s, ids), i32s(s, offsets)], vec![numbers(s, 2), numbers(s, 1)])
}

#[test]
fn rejects_unknown_type_ids_and_dense_offsets_out_of_range() {
    assert_rejected("column c[1]: the type id is 4, expected one of 3, 9", |s| union(s, &[3, 4], &[0, 0]));
    assert_rejected("column c[2]: the offset is 1, but child 9 has 1 values", |s| {
        union(s, &[3, 3, 9], &[0, 1, 1])
    });
}

fn runs(s: &Stream, ends: &[i32], len: usize) -> DeviceArray {
    let field = |name: &str| Arc::new(Field::new(name, DataType::Int32, name == "values"));
    let ends = array(DataType::Int32, ends.len(), vec![None, i32s(s, ends)], vec![]);
    let values = numbers(s, ends.len());
    array(DataType::RunEndEncoded(field("run_ends"), field("values")), len, vec![], vec![ends, values])
}

#[test]
fn rejects_run_ends_that_do_not_ascend_or_are_too_small() {
    assert_rejected("column c[1]: the run end is 3, expected more than 3", |s| runs(s, &[3, 3, 5], 5));
    assert_rejected("column c[3]: the runs end at 5, expected at least 6", |s| runs(s, &[1, 3, 5], 6));
}

#[test]
fn rejects_list_view_beyond_child() {
    assert_rejected("column c[1]: the list has 3 elements from 1 on, but its child has 3 values", |s| {
        let item = Arc::new(Field::new("item", DataType::Int32, true));
        let buffers = vec![None, i32s(s, &[0, 1]), i32s(s, &[3, 3])];
        array(DataType::ListView(item), 2, buffers, vec![numbers(s, 3)])
    });
}

#[test]
fn rejects_list_view_with_negative_offset_or_size() {
    for (offset, size) in [(-1, 1), (2, -1)] {
        assert_rejected(
            &format!(
                "column c[0]: the list has {size} elements from {offset} on, but its child has 3 values"
            ),
            |s| {
                let item = Arc::new(Field::new("item", DataType::Int32, true));
                let buffers = vec![None, i32s(s, &[offset]), i32s(s, &[size])];
                array(DataType::ListView(item), 1, buffers, vec![numbers(s, 3)])
            },
        );
    }
}

/// A map with two entries. If `entry_is_null`, the second entry is null, else its key is null.
fn map(s: &Stream, entry_is_null: bool) -> DeviceArray {
    let bits = || buffer(s, &[0b01]);
    let key =
        array(DataType::Int32, 2, vec![if entry_is_null { None } else { bits() }, i32s(s, &[1, 2])], vec![]);
    let fields = [Field::new("key", DataType::Int32, false), Field::new("value", DataType::Int32, true)];
    let entries = DataType::Struct(fields.into_iter().collect());
    let validity = if entry_is_null { bits() } else { None };
    let children = vec![key, numbers(s, 2)];
    let rows = array(entries.clone(), 2, vec![validity], children);
    let t = DataType::Map(Arc::new(Field::new("entries", entries, false)), false);
    array(t, 1, vec![None, i32s(s, &[0, 2])], vec![rows])
}

#[test]
fn rejects_map_with_null_entry_or_key() {
    let what = "1 entries or keys of a map are null, expected none";
    assert_rejected(&format!("column c: {what}"), |s| map(s, true));
    assert_rejected(&format!("column c: {what}"), |s| map(s, false));
}

#[test]
fn error_names_path_of_nested_column() {
    assert_rejected("column c.item.deep[0]: the text is not UTF-8", |s| {
        let deep = array(DataType::Utf8, 1, vec![None, i32s(s, &[0, 1]), buffer(s, b"\xff")], vec![]);
        let item = DataType::Struct(vec![Field::new("deep", DataType::Utf8, true)].into());
        let item = array(item, 1, vec![None], vec![deep]);
        let list = DataType::new_list(item.data_type().clone(), true);
        array(list, 1, vec![None, i32s(s, &[0, 1])], vec![item])
    });
}

#[test]
fn slice_uses_validity_bits_at_its_offset() {
    let fixture = Fixture::new();
    for device in devices().iter().copied() {
        let s = fixture.host.stream(device);
        let t = DataType::Dictionary(Box::new(DataType::UInt8), Box::new(DataType::Int32));
        let keys = |validity: u8| {
            let buffers = vec![buffer(&s, &[validity]), buffer(&s, &[9, 0, 1, 255])];
            let whole =
                DeviceArray::try_new(t.clone(), 4, 0, None, buffers, vec![], Some(numbers(&s, 2))).unwrap();
            check(whole.slice(1, 3).unwrap(), &s)
        };
        assert_eq!(keys(0b0111), Ok(()));
        assert!(keys(0b1011).unwrap_err().message().starts_with("column c[2]: the dictionary key is 255"));
    }
}

/// Validates a column whose field is not nullable.
fn check_not_nullable(column: DeviceArray, stream: &Stream) -> Result<()> {
    let schema = Arc::new(Schema::new(vec![Field::new("c", column.data_type().clone(), false)]));
    let batch = DeviceBatch::try_new(schema, column.len(), vec![column]).unwrap();
    validate(&batch, Level::Full, stream)
}

/// Integers. Every second integer is null.
fn half_null(stream: &Stream, n: usize) -> DeviceArray {
    let bits = vec![0b0101_0101; n.div_ceil(8)];
    array(DataType::Int32, n, vec![buffer(stream, &bits), i32s(stream, &vec![7; n])], vec![])
}

fn x() -> Field {
    Field::new("x", DataType::Int32, false)
}

#[test]
fn rejects_nulls_in_fields_that_are_not_nullable() {
    type Make = fn(&Stream) -> DeviceArray;
    let cases: [(&str, Make); 7] = [
        ("column c: the null count is 2, but its field is not nullable", |s| half_null(s, 4)),
        ("column c.x: the null count is 2, but its field is not nullable", |s| {
            array(DataType::Struct(vec![x()].into()), 4, vec![None], vec![half_null(s, 4)])
        }),
        // The child has two nulls. One of them is in a null row of the struct, so only the second
        // null counts.
        ("column c.x: the null count is 1, but its field is not nullable", |s| {
            let bits = buffer(s, &[0b1101]);
            array(DataType::Struct(vec![x()].into()), 4, vec![bits], vec![half_null(s, 4)])
                .slice(2, 2)
                .unwrap()
        }),
        ("column c.x: the null count is 1, but its field is not nullable", |s| {
            let list = DataType::List(Arc::new(x()));
            array(list, 2, vec![None, i32s(s, &[0, 1, 2])], vec![half_null(s, 4)])
        }),
        ("column c.x: the null count is 2, but its field is not nullable", |s| {
            array(DataType::FixedSizeList(Arc::new(x()), 2), 2, vec![None], vec![half_null(s, 4)])
        }),
        ("column c: the null count is 1, but its field is not nullable", |s| {
            let dictionary = DataType::Dictionary(DataType::Int32.into(), DataType::Int32.into());
            let keys = vec![None, i32s(s, &[0, 1, 2])];
            let values = Some(half_null(s, 4));
            DeviceArray::try_new(dictionary, 3, 0, None, keys, vec![], values).unwrap()
        }),
        ("column c: the null count is 3, but its field is not nullable", |s| {
            let ends = Field::new("run_ends", DataType::Int32, false);
            let runs =
                DataType::RunEndEncoded(ends.into(), Field::new("values", DataType::Int32, true).into());
            let ends = array(DataType::Int32, 2, vec![None, i32s(s, &[2, 5])], vec![]);
            array(runs, 5, vec![], vec![ends, half_null(s, 2)])
        }),
    ];
    let fixture = Fixture::new();
    for device in devices().iter().copied() {
        let stream = fixture.host.stream(device);
        for (expected, make) in cases {
            let error = check_not_nullable(make(&stream), &stream).unwrap_err();
            assert_eq!(error.message(), expected, "{device}");
        }
    }
    fixture.host.assert_nothing_leaked();
}

#[test]
fn accepts_nulls_that_no_valid_row_refers_to() {
    type Make = fn(&Stream) -> DeviceArray;
    let cases: [Make; 5] = [
        // The nulls are in a null struct.
        |s| array(DataType::Struct(vec![x()].into()), 4, vec![buffer(s, &[0b0101])], vec![half_null(s, 4)]),
        // The nulls are in a struct whose parent is in a null struct.
        |s| {
            let inner = DataType::Struct(vec![x()].into());
            let outer = DataType::Struct(vec![Field::new("s", inner.clone(), false)].into());
            let inner = array(inner, 4, vec![None], vec![half_null(s, 4)]);
            array(outer, 4, vec![buffer(s, &[0b0101])], vec![inner])
        },
        // The nulls are in elements that no list-view refers to.
        |s| {
            let views = vec![None, i32s(s, &[0, 2]), i32s(s, &[1, 1])];
            array(DataType::ListView(Arc::new(x())), 2, views, vec![half_null(s, 4)])
        },
        // The nulls are in a null list.
        |s| {
            let offsets = vec![buffer(s, &[0b01]), i32s(s, &[0, 1, 4])];
            array(DataType::List(Arc::new(x())), 2, offsets, vec![half_null(s, 4)])
        },
        // The first child of the union has nulls only in rows that use the second child.
        |s| {
            let fields = UnionFields::from_fields(vec![x(), Field::new("y", DataType::Int32, false)]);
            let ids = buffer(s, &[0, 1, 0, 1]);
            let union = DataType::Union(fields, UnionMode::Sparse);
            array(union, 4, vec![ids], vec![half_null(s, 4), numbers(s, 4)])
        },
    ];
    let fixture = Fixture::new();
    for device in devices().iter().copied() {
        let stream = fixture.host.stream(device);
        for (case, make) in cases.into_iter().enumerate() {
            assert_eq!(check(make(&stream), &stream), Ok(()), "case {case}, {device}");
        }
    }
}

/// Batches of one column of texts and one of numbers. The texts of some batches are not UTF-8.
fn texts(stream: &Stream, bytes: usize, wrong: &[usize]) -> Vec<DeviceBatch> {
    let batch = |i: usize| {
        let mut text = vec![b'x'; bytes];
        if wrong.contains(&i) {
            text[bytes / 2] = 0xff;
        }
        let offsets = i32s(stream, &[0, (bytes / 3) as i32, bytes as i32]);
        let columns = vec![
            numbers(stream, 2),
            array(DataType::Utf8, 2, vec![None, offsets, buffer(stream, &text)], vec![]),
        ];
        let fields = ["n", "t"].iter().zip(&columns);
        let fields = fields.map(|(name, column)| Field::new(*name, column.data_type().clone(), true));
        DeviceBatch::try_new(Arc::new(Schema::new(fields.collect::<Vec<_>>())), 2, columns).unwrap()
    };
    (0..5).map(batch).collect()
}

#[test]
fn started_validation_returns_the_result_of_each_batch() {
    let fixture = Fixture::new();
    let tasks = Tasks::from_host(&fixture.host.host()).unwrap();
    for device in devices().iter().copied() {
        let stream = fixture.host.stream(device);
        // Short texts are validated at once, and long ones in tasks.
        for (bytes, wrong) in [(30, vec![]), (30, vec![4]), (300_000, vec![]), (300_000, vec![1, 3])] {
            let batches = texts(&stream, bytes, &wrong);
            let validation = StartedValidation::start(&batches, &tasks, &stream).unwrap();
            for i in [0, 4, 1, 3, 2, 1] {
                let result = validation.finish(i, || Ok(()));
                let is_correct = match &result {
                    Ok(()) => !wrong.contains(&i),
                    Err(error) => wrong.contains(&i) && error.message().starts_with("column t["),
                };
                assert!(is_correct, "{device} {bytes} {wrong:?} {i}: {result:?}");
            }
            let batches = texts(&stream, bytes, &wrong);
            let validation = StartedValidation::start(&batches, &tasks, &stream).unwrap();
            let cancelled = validation.finish(0, || Err(Error::cancelled("cancelled")));
            // A cancelled wait is not the result of a later one.
            assert!(cancelled.is_ok() || cancelled.unwrap_err().message() == "cancelled");
            assert_eq!(validation.finish(1, || Ok(())).is_ok(), !wrong.contains(&1));
        }
    }
    fixture.host.assert_nothing_leaked();
}
