//! Tests round trips of types, types written by Vortex 0.91, and malformed types.

use std::sync::Arc;

use arrow_schema::{DataType, Field, TimeUnit};
use flatbuffers::{FlatBufferBuilder, WIPOffset};

use crossdock_arrays::metadata::{from_pairs, with_dictionary_values};

use crate::dtype::{self, EXTENSION_METADATA, EXTENSION_METADATA_HEX, EXTENSION_NAME, MAX_DEPTH};
use crate::dtype_write::write;

fn hex(digits: &str) -> Vec<u8> {
    (0..digits.len()).step_by(2).map(|i| u8::from_str_radix(&digits[i..i + 2], 16).unwrap()).collect()
}

fn field(data_type: DataType, nullable: bool) -> Field {
    Field::new("", data_type, nullable)
}

fn item(data_type: DataType, nullable: bool) -> Arc<Field> {
    Arc::new(Field::new("item", data_type, nullable))
}

fn map() -> DataType {
    let pair = [Field::new("key", DataType::Utf8View, false), Field::new("value", DataType::Int8, true)];
    let entries = Field::new("entries", DataType::Struct(pair.into_iter().collect()), false);
    DataType::Map(Arc::new(entries), true)
}

fn message_of(bytes: &[u8]) -> String {
    dtype::read(bytes).unwrap_err().message().to_owned()
}

#[test]
fn types_round_trip() {
    use DataType::*;
    let pair =
        vec![Field::new("x", Int8, true), Field::new("long name, é", List(item(Utf8View, false)), false)];
    let zone = Some(Arc::from("Europe/Berlin"));
    let mut types = vec![Boolean, Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64];
    types.extend([Float16, Float32, Float64, Decimal128(1, 0), Decimal128(38, -3), Decimal256(39, 7)]);
    types.extend([Decimal256(76, 0), Utf8View, BinaryView, Date32, Date64, Time32(TimeUnit::Second)]);
    types.extend([
        Time32(TimeUnit::Millisecond),
        Time64(TimeUnit::Microsecond),
        Time64(TimeUnit::Nanosecond),
    ]);
    types.extend([Timestamp(TimeUnit::Nanosecond, None), Timestamp(TimeUnit::Second, zone)]);
    types.extend([FixedSizeList(item(Float32, false), 0), FixedSizeList(item(Date32, true), 7)]);
    types.extend([List(item(Null, true)), Struct(pair.into()), Struct(Default::default()), map()]);
    for data_type in types {
        for nullable in [false, true] {
            let expected = field(data_type.clone(), nullable);
            assert_eq!(dtype::read(&write(&expected).unwrap()).unwrap(), expected);
        }
    }
    assert_eq!(dtype::read(&write(&field(Null, true)).unwrap()).unwrap(), field(Null, true));
}

#[test]
fn physical_types_become_logical_types() {
    use DataType::*;
    let ends = Arc::new(Field::new("run_ends", Int32, false));
    let runs = |nullable| RunEndEncoded(ends.clone(), Arc::new(Field::new("values", Int8, nullable)));
    for (physical, logical) in [
        (field(Utf8, true), field(Utf8View, true)),
        (field(LargeBinary, false), field(BinaryView, false)),
        (field(Decimal32(9, 1), false), field(Decimal128(9, 1), false)),
        (field(LargeList(item(Int8, true)), true), field(List(item(Int8, true)), true)),
        (field(ListView(item(Int8, true)), true), field(List(item(Int8, true)), true)),
        (field(Dictionary(Box::new(Int8), Box::new(Utf8)), true), field(Utf8View, true)),
        (field(runs(true), false), field(Int8, true)),
        (field(runs(false), false), field(Int8, false)),
    ] {
        assert_eq!(dtype::read(&write(&physical).unwrap()).unwrap(), logical, "{physical}");
    }
    for none in [FixedSizeBinary(4), Duration(TimeUnit::Second)] {
        let inside = field(List(item(none.clone(), true)), true);
        let error = write(&inside).unwrap_err();
        assert_eq!(error.message(), format!("field 'item': Vortex has no type for Arrow's {none}"));
    }
}

#[test]
fn extension_types_keep_name_and_metadata() {
    let plain = field(DataType::Int32, true);
    for pairs in [
        vec![(EXTENSION_NAME, "own.type")],
        vec![(EXTENSION_NAME, "own.type"), (EXTENSION_METADATA, "{\"a\": 1}")],
    ] {
        let pairs = pairs.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned()));
        let expected = plain.clone().with_metadata(pairs.collect::<arrow_schema::Metadata>());
        assert_eq!(dtype::read(&write(&expected).unwrap()).unwrap(), expected);
    }
    let name = EXTENSION_NAME.as_bytes();
    let bytes = [(name, b"own.type".as_slice()), (EXTENSION_METADATA.as_bytes(), b"\0\xff\x10")];
    let expected = plain.clone().with_metadata(from_pairs(bytes));
    assert_eq!(dtype::read(&write(&expected).unwrap()).unwrap(), expected);
    // Releases before 0.3 wrote such metadata as hexadecimal digits.
    let digits = [(name, b"own.type".as_slice()), (EXTENSION_METADATA_HEX.as_bytes(), b"00ff10")];
    let digits = plain.clone().with_metadata(from_pairs(digits));
    assert_eq!(dtype::read(&write(&digits).unwrap()).unwrap(), expected);
    let dictionary = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Int32));
    let dictionary = field(dictionary, true)
        .with_metadata(with_dictionary_values(arrow_schema::Metadata::new(), expected.metadata()));
    assert_eq!(dtype::read(&write(&dictionary).unwrap()).unwrap(), expected);
    let odd = [(EXTENSION_NAME, "own.type"), (EXTENSION_METADATA_HEX, "0g")];
    let odd = plain.clone().with_metadata(odd.map(|(k, v)| (k.to_owned(), v.to_owned())));
    assert!(write(&odd).unwrap_err().message().contains("pairs of hexadecimal digits"));
}

#[test]
fn uuids_and_json_have_the_names_of_arrow() {
    let extension = |data_type, name: &str| {
        let pairs = [(EXTENSION_NAME.to_owned(), name.to_owned())];
        field(data_type, true).with_metadata(pairs.into_iter().collect::<arrow_schema::Metadata>())
    };
    let has = |bytes: &[u8], text: &str| bytes.windows(text.len()).any(|part| part == text.as_bytes());
    let uuid = extension(DataType::FixedSizeBinary(16), "arrow.uuid");
    let json = extension(DataType::Utf8View, "arrow.json");
    for (field, name) in [(&uuid, "vortex.uuid"), (&json, "vortex.json")] {
        let bytes = write(field).unwrap();
        assert!(has(&bytes, name) && !has(&bytes, "arrow."), "{name}");
        assert_eq!(dtype::read(&bytes).unwrap(), *field);
    }
    // Vortex's metadata is not that of Arrow, and is kept for Vortex.
    let mut version = uuid.clone();
    version.metadata_mut().insert(EXTENSION_METADATA_HEX.to_owned(), "04ff".to_owned());
    assert_eq!(dtype::read(&write(&version).unwrap()).unwrap(), version);
    // With other storage, these are other types.
    for other in [
        extension(DataType::Int32, "vortex.uuid"),
        extension(DataType::Int32, "arrow.uuid"),
        extension(DataType::BinaryView, "arrow.json"),
    ] {
        assert_eq!(dtype::read(&write(&other).unwrap()).unwrap(), other);
    }
}

#[test]
fn reads_types_written_by_vortex() {
    use DataType::*;
    let pair = vec![Field::new("x", Int8, true), Field::new("y", Utf8View, true)];
    let timestamp = || Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    for (bytes, expected) in [
        (
            "0c00000008000c000700080008000000000000030c00000008000800060007000800000000000601",
            field(Int32, true),
        ),
        ("0c00000008000c00070008000800000000000005080000000400040004000000", field(Utf8View, false)),
        (
            "04000000ccffffff000000091000000000000a001000040008000c000a0000003c0000001c000000 \
             0400000006000000010300555443000008000e000700080008000000000000030c00000000000600 \
             08000700060000000000000710000000766f727465782e74696d657374616d7000000000",
            field(timestamp(), false),
        ),
        (
            "04000000d0ffffff000000091000000000000a001000040008000c000a0000003800000018000000 \
             04000000010000000400000008000e000700080008000000000000030c0000000000060008000700 \
             06000000000000060b000000766f727465782e6461746500",
            field(Date32, false),
        ),
        (
            "0c00000008000c000700080008000000000000040c00000008000800060007000800000000003c02",
            field(Decimal256(60, 2), false),
        ),
        (
            "0c00000008000e000700080008000000000000080c0000000000060008000400060000000c000000 \
             08000c000700080008000000000000030c00000008000800060007000800000000000401",
            field(List(item(Int8, true)), false),
        ),
        (
            "04000000e0ffffff0000000a0c00000008000c000400080008000000100000000200000008000c00 \
             0700080008000000000000030c00000008000800060007000800000000000401",
            field(FixedSizeList(item(Int8, true), 2), false),
        ),
        (
            "04000000b0ffffff000000070c00000008000c0004000800080000005c0000000400000002000000 \
             340000000c00000008000e000700080008000000000000050c000000000006000800070006000000 \
             0000000108000c000700080008000000000000030c00000008000800060007000800000000000401 \
             02000000100000000400000001000000790000000100000078000000",
            field(Struct(pair.into()), false),
        ),
        (
            "0c00000008000e0007000800080000000000000d1000000000000a00100008000c0007000a000000 \
             000000012c00000004000000e4ffffff000000030c00000008000800060007000800000000000401 \
             08000c00070008000800000000000005080000000400040004000000",
            field(map(), false),
        ),
    ] {
        assert_eq!(dtype::read(&hex(&bytes.replace(' ', ""))).unwrap(), expected);
    }
}

#[test]
fn truncated_and_mutated_types_never_panic() {
    let timestamp = DataType::Timestamp(TimeUnit::Second, Some("UTC".into()));
    let pair = vec![Field::new("x", timestamp, true), Field::new("y", map(), false)];
    let bytes = write(&field(DataType::Struct(pair.into()), true)).unwrap();
    for n in 0..bytes.len() {
        let _ = dtype::read(&bytes[..n]);
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut changed = bytes.clone();
            changed[n] = value;
            if let Ok(read) = dtype::read(&changed) {
                assert_eq!(dtype::read(&write(&read).unwrap()).unwrap(), read);
            }
        }
    }
    assert!(message_of(&[]).contains("outside of the flatbuffer"));
    assert!(message_of(&[255; 8]).contains("outside of the flatbuffer"));
}

#[test]
fn rejects_types_nested_too_deep_on_write() {
    let nested = |depth| (1..depth).fold(DataType::Int8, |t, _| DataType::List(item(t, true)));
    let most = field(nested(MAX_DEPTH), true);
    let bytes = write(&most).unwrap();
    assert_eq!(dtype::read(&bytes).unwrap(), most);
    assert!(write(&field(nested(MAX_DEPTH + 1), true)).unwrap_err().message().contains("64 levels deep"));
}

#[test]
fn rejects_types_nested_too_deep_on_read() {
    let nested = |depth| {
        let mut b = FlatBufferBuilder::new();
        let start = b.start_table();
        let leaf = b.end_table(start);
        let mut inner = dtype_of(&mut b, 1, leaf);
        for _ in 1..depth {
            let start = b.start_table();
            b.push_slot_always(4, inner);
            let kind = b.end_table(start);
            inner = dtype_of(&mut b, 8, kind);
        }
        b.finish_minimal(inner);
        b.finished_data().to_vec()
    };
    assert!(dtype::read(&nested(MAX_DEPTH)).is_ok());
    assert!(message_of(&nested(MAX_DEPTH + 1)).contains("64 levels deep"));
    assert!(message_of(&nested(20_000)).contains("64 levels deep"));
}

/// Nested structs in which both fields refer to the same struct. Each level takes only a few bytes,
/// but the whole type has 2^levels fields.
fn doubling(levels: usize) -> Vec<u8> {
    let mut b = FlatBufferBuilder::new();
    let start = b.start_table();
    let leaf = b.end_table(start);
    let mut inner = dtype_of(&mut b, 1, leaf);
    for _ in 0..levels {
        let name = b.create_string("");
        let names = b.create_vector(&[name, name]);
        let dtypes = b.create_vector(&[inner, inner]);
        let start = b.start_table();
        b.push_slot_always(4, names);
        b.push_slot_always(6, dtypes);
        let kind = b.end_table(start);
        inner = dtype_of(&mut b, 7, kind);
    }
    b.finish_minimal(inner);
    b.finished_data().to_vec()
}

type Written = WIPOffset<flatbuffers::TableFinishedWIPOffset>;

fn dtype_of(b: &mut FlatBufferBuilder<'_>, tag: u8, kind: Written) -> Written {
    let start = b.start_table();
    b.push_slot_always(4, tag);
    b.push_slot_always(6, kind);
    b.end_table(start)
}

#[test]
fn rejects_types_that_expand_excessively() {
    assert!(dtype::read(&doubling(3)).is_ok());
    let error = message_of(&doubling(60));
    assert!(error.contains("refers to the same parts repeatedly"), "{error}");
    // A few fields that share one long name.
    let named = |fields| {
        let mut b = FlatBufferBuilder::new();
        let name = b.create_string(&"n".repeat(10_000));
        let names = b.create_vector(&vec![name; fields]);
        let start = b.start_table();
        let leaf = b.end_table(start);
        let leaf = dtype_of(&mut b, 1, leaf);
        let dtypes = b.create_vector(&vec![leaf; fields]);
        let start = b.start_table();
        b.push_slot_always(4, names);
        b.push_slot_always(6, dtypes);
        let kind = b.end_table(start);
        let root = dtype_of(&mut b, 7, kind);
        b.finish_minimal(root);
        b.finished_data().to_vec()
    };
    assert!(dtype::read(&named(10)).is_ok());
    assert!(message_of(&named(20)).contains("refers to the same parts repeatedly"));
}

#[test]
fn rejects_invalid_lengths_and_names() {
    let mut b = FlatBufferBuilder::new();
    let name = b.create_string("a\0b");
    let names = b.create_vector(&[name]);
    let start = b.start_table();
    b.push_slot_always(4, names);
    let kind = b.end_table(start);
    let root = dtype_of(&mut b, 7, kind);
    b.finish_minimal(root);
    assert!(message_of(b.finished_data()).contains("1 names for 0 fields"));

    let mut b = FlatBufferBuilder::new();
    let start = b.start_table();
    b.push_slot_always(4, 77u8);
    let kind = b.end_table(start);
    let root = dtype_of(&mut b, 4, kind);
    b.finish_minimal(root);
    assert!(message_of(b.finished_data()).contains("precision 77"));

    for (tag, expected) in [(0, "type number 0"), (14, "type number 14"), (11, "a variant"), (12, "a union")]
    {
        let mut b = FlatBufferBuilder::new();
        let start = b.start_table();
        let kind = b.end_table(start);
        let root = dtype_of(&mut b, tag, kind);
        b.finish_minimal(root);
        assert!(message_of(b.finished_data()).contains(expected), "{tag}");
    }
}

fn temporal(id: &str, metadata: &[u8], ptype: u8) -> Vec<u8> {
    let mut b = FlatBufferBuilder::new();
    let (id, metadata) = (b.create_string(id), b.create_vector(metadata));
    let start = b.start_table();
    b.push_slot_always(4, ptype);
    let kind = b.end_table(start);
    let storage = dtype_of(&mut b, 3, kind);
    let start = b.start_table();
    b.push_slot_always(4, id);
    b.push_slot_always(6, storage);
    b.push_slot_always(8, metadata);
    let kind = b.end_table(start);
    let root = dtype_of(&mut b, 9, kind);
    b.finish_minimal(root);
    b.finished_data().to_vec()
}

#[test]
fn rejects_invalid_units_and_storage_of_temporal_types() {
    let (i32, i64) = (6, 7);
    let read = |id, metadata: &[u8], ptype| dtype::read(&temporal(id, metadata, ptype));
    assert_eq!(*read("vortex.date", &[4], i32).unwrap().data_type(), DataType::Date32);
    assert_eq!(
        *read("vortex.timestamp", &[2, 0, 0, 9], i64).unwrap().data_type(),
        DataType::Timestamp(TimeUnit::Millisecond, None)
    );
    for (id, metadata, ptype, expected) in [
        ("vortex.date", &[][..], i32, "metadata is empty"),
        ("vortex.date", &[3], i32, "unit number 3"),
        ("vortex.date", &[4], i64, "expected int32"),
        ("vortex.time", &[4], i32, "unit number 4"),
        ("vortex.time", &[0], i32, "expected int64"),
        ("vortex.timestamp", &[5, 0, 0], i64, "unit number 5"),
        ("vortex.timestamp", &[3, 0], i64, "metadata of 2 bytes"),
        ("vortex.timestamp", &[3, 4, 0, 65, 66, 67], i64, "declares 4 bytes, but 3 are left"),
        ("vortex.timestamp", &[3, 1, 0, 0xff], i64, "not valid UTF-8"),
        ("vortex.timestamp", &[3, 1, 0, 0], i64, "contains a NUL"),
        ("", &[], i64, "has no name"),
    ] {
        let error = read(id, metadata, ptype).unwrap_err();
        assert!(error.message().contains(expected), "{error}");
    }
}
