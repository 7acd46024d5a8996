//! Tests the texts of types. `tests/python/package/test_type_names.py` compares the printed texts
//! with those of pyarrow.

use std::sync::Arc;

use arrow_schema::TimeUnit::{Microsecond, Millisecond, Nanosecond, Second};
use arrow_schema::{DataType, Field, FieldRef, IntervalUnit, UnionFields, UnionMode};
use crossdock_arrays::layout::plain_types;
use crossdock_arrays::{MAX_DEPTH, field_type_name, parse_type, type_name};
use proptest::prelude::*;

use crate::common::samples;

fn field(name: &str, data_type: DataType, nullable: bool) -> FieldRef {
    Arc::new(Field::new(name, data_type, nullable))
}

fn map(entries: &str, key: &str, value: &str, sorted: bool) -> DataType {
    let (key, value) = (field(key, DataType::Utf8, false), field(value, DataType::Int64, true));
    DataType::Map(field(entries, DataType::Struct(vec![key, value].into()), false), sorted)
}

fn dictionary(keys: DataType, values: DataType) -> DataType {
    DataType::Dictionary(Box::new(keys), Box::new(values))
}

fn union(mode: UnionMode) -> DataType {
    let fields = [Field::new("a", DataType::Int64, true), Field::new("b", DataType::Utf8, false)];
    DataType::Union(UnionFields::try_new([5, 7], fields).unwrap(), mode)
}

#[test]
fn prints_and_reads_each_kind_of_type() {
    let item = |data_type| field("item", data_type, true);
    let struct_of = |fields: &[FieldRef]| DataType::Struct(fields.into());
    let ordered =
        Field::new("item", dictionary(DataType::Int8, DataType::Utf8), true).with_dict_is_ordered(true);
    let runs = (field("run_ends", DataType::Int32, false), field("values", DataType::Utf8, true));
    let cases = [
        ("null", DataType::Null),
        ("halffloat", DataType::Float16),
        ("float", DataType::Float32),
        ("double", DataType::Float64),
        ("date32[day]", DataType::Date32),
        ("date64[ms]", DataType::Date64),
        ("time32[ms]", DataType::Time32(Millisecond)),
        ("time64[ns]", DataType::Time64(Nanosecond)),
        ("timestamp[us]", DataType::Timestamp(Microsecond, None)),
        ("timestamp[s, tz=Europe/Berlin]", DataType::Timestamp(Second, Some("Europe/Berlin".into()))),
        ("duration[ns]", DataType::Duration(Nanosecond)),
        ("month_interval", DataType::Interval(IntervalUnit::YearMonth)),
        ("fixed_size_binary[16]", DataType::FixedSizeBinary(16)),
        ("decimal64(10, -2)", DataType::Decimal64(10, -2)),
        ("decimal256(76, 0)", DataType::Decimal256(76, 0)),
        ("list<item: int32>", DataType::List(item(DataType::Int32))),
        ("large_list<x: int32 not null>", DataType::LargeList(field("x", DataType::Int32, false))),
        ("list_view<item: bool>", DataType::ListView(item(DataType::Boolean))),
        ("large_list_view<item: bool>", DataType::LargeListView(item(DataType::Boolean))),
        ("fixed_size_list<item: float>[3]", DataType::FixedSizeList(item(DataType::Float32), 3)),
        ("struct<>", struct_of(&[])),
        (
            "struct<a: int64, b, c>: string not null, : null>",
            struct_of(&[
                field("a", DataType::Int64, true),
                field("b, c>", DataType::Utf8, false),
                field("", DataType::Null, true),
            ]),
        ),
        ("map<string, int64>", map("entries", "key", "value", false)),
        ("map<string ('keys'), int64 ('v'), keys_sorted ('e')>", map("e", "keys", "v", true)),
        ("dictionary<values=string, indices=int32, ordered=0>", dictionary(DataType::Int32, DataType::Utf8)),
        (
            "list<item: dictionary<values=string, indices=int8, ordered=1>>",
            DataType::List(Arc::new(ordered.clone())),
        ),
        ("run_end_encoded<run_ends: int32, values: string>", DataType::RunEndEncoded(runs.0, runs.1)),
        ("dense_union<a: int64=5, b: string not null=7>", union(UnionMode::Dense)),
        ("sparse_union<a: int64=5, b: string not null=7>", union(UnionMode::Sparse)),
    ];
    for (text, data_type) in cases {
        assert_eq!(type_name(&data_type), text);
        assert_eq!(parse_type(text).unwrap(), data_type, "{text}");
        assert_eq!(type_name(&parse_type(text).unwrap()), text);
    }
    // Only the field states that the outermost dictionary is ordered.
    assert_eq!(field_type_name(&ordered), "dictionary<values=string, indices=int8, ordered=1>");
    assert_eq!(type_name(ordered.data_type()), "dictionary<values=string, indices=int8, ordered=0>");
    assert_eq!(type_name(&DataType::Timestamp(Second, Some("".into()))), "timestamp[s]");
}

#[test]
fn reads_the_printed_text_of_every_sample() {
    let samples = samples::all().into_iter().map(|array| array.data_type().clone());
    for data_type in samples.chain(plain_types().iter().cloned()) {
        let text = type_name(&data_type);
        let read = parse_type(&text).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(type_name(&read), text);
        let names_arrow_rs = ["Utf8", "Int32", "Float32", "Float64", "Boolean", "Struct("];
        assert!(!names_arrow_rs.iter().any(|name| text.contains(name)), "{text}");
    }
}

#[test]
fn reads_aliases_and_other_spellings() {
    let cases = [
        ("float16", "halffloat"),
        ("float32", "float"),
        ("Float64", "double"),
        ("boolean", "bool"),
        ("STR", "string"),
        ("utf8", "string"),
        ("large_utf8", "large_string"),
        ("i4", "int32"),
        ("u8", "uint64"),
        ("f2", "halffloat"),
        ("date32", "date32[day]"),
        ("date64", "date64[ms]"),
        (" int8 ", "int8"),
        ("decimal128(10,2)", "decimal128(10, 2)"),
        ("timestamp[ms,tz=UTC]", "timestamp[ms, tz=UTC]"),
        ("struct<a: utf8,b: f4>", "struct<a: string, b: float>"),
        ("dictionary<values=str, indices=i1>", "dictionary<values=string, indices=int8, ordered=0>"),
    ];
    for (text, printed) in cases {
        assert_eq!(type_name(&parse_type(text).unwrap()), printed, "{text}");
    }
}

#[test]
fn errors_state_what_was_expected_where() {
    let cases = [
        (
            "",
            "expected a type, such as int64, string, timestamp[us] or list<item: double> at character 1, got the end",
        ),
        ("int65", "at character 1, got 'int65'"),
        ("int64 x", "expected the end of the type at character 6, got ' x'"),
        ("int64[", "expected ']' at character 7, got the end"),
        ("time32[us]", "at character 1, got 'time32[us]'"),
        ("timestamp[m]", "expected a unit: s, ms, us or ns at character 11, got 'm]'"),
        ("timestamp[s, UTC]", "expected 'tz=' at character 14, got 'UTC]'"),
        ("timestamp[s, tz=]", "expected a time zone at character 17"),
        ("decimal32(10, 2)", "expected a number from 1 to 9 at character 11, got '10, 2)'"),
        ("decimal128(10, 200)", "expected a number from -128 to 127 at character 16"),
        ("fixed_size_binary[-1]", "expected a number from 0 to 2147483647 at character 19"),
        ("list<int32>", "expected a name and a type, such as \"a: int64\" at character 6, got 'int32>'"),
        ("list<item: int32", "expected '>' at character 17, got the end"),
        ("struct<ä: int32 b: int8>", "expected ',' at character 16, got ' b: int8>'"),
        ("map<string ('k, int8>", "expected a name that ends with \"')\" at character 14"),
        (
            "dictionary<values=string, indices=float>",
            "expected an integer type at character 35, got 'float>'",
        ),
        ("run_end_encoded<run_ends: int8, values: null>", "expected int16, int32 or int64 at character 27"),
        (
            "dense_union<a: null=1, b: null=1>",
            "expected a different type code for each field at character 12",
        ),
        ("dense_union<a: null=-1>", "expected a number from 0 to 127"),
    ];
    for (text, expected) in cases {
        let error = parse_type(text).unwrap_err();
        assert!(error.message().contains(expected), "{text}: {error}");
    }
}

#[test]
fn depth_is_limited() {
    let nested = |levels: usize| format!("{}null{}", "list<x: ".repeat(levels - 1), ">".repeat(levels - 1));
    assert_eq!(type_name(&parse_type(&nested(MAX_DEPTH)).unwrap()), nested(MAX_DEPTH));
    for levels in [MAX_DEPTH + 1, 100_000] {
        let error = parse_type(&nested(levels)).unwrap_err();
        assert!(error.message().contains("nests deeper than 64 levels"), "{error}");
    }
}

/// Types whose text contains everything, which a few names and unusual fields prevent.
fn types() -> impl Strategy<Value = DataType> {
    let name = || {
        "[a-z<>,'=()\\[\\] ö]{0,4}"
            .prop_filter("ambiguous", |name| !name.contains(": ") && !name.starts_with('>'))
    };
    let leaf = prop_oneof![
        proptest::sample::select(plain_types().to_vec()),
        any::<u16>().prop_map(|width| DataType::FixedSizeBinary(width.into())),
        (1u8..=38, any::<i8>()).prop_map(|(precision, scale)| DataType::Decimal128(precision, scale)),
        "[A-Za-z/+:0-9 ]{1,6}".prop_map(|zone| DataType::Timestamp(Millisecond, Some(zone.into()))),
    ];
    leaf.prop_recursive(4, 24, 3, move |inner| {
        let child = (name(), inner.clone(), any::<bool>())
            .prop_map(|(name, data_type, nullable)| field(&name, data_type, nullable));
        prop_oneof![
            child.clone().prop_map(DataType::List),
            (child.clone(), any::<u16>()).prop_map(|(child, n)| DataType::FixedSizeList(child, n.into())),
            proptest::collection::vec(child.clone(), 0..3).prop_map(|fields| DataType::Struct(fields.into())),
            proptest::collection::vec(child, 0..3)
                .prop_map(|fields| DataType::Union(UnionFields::from_fields(fields), UnionMode::Dense)),
            (inner.clone(), inner.clone(), any::<bool>()).prop_map(|(key, value, sorted)| {
                let fields = vec![field("key", key, false), field("value", value, true)];
                DataType::Map(field("entries", DataType::Struct(fields.into()), false), sorted)
            }),
            inner.clone().prop_map(|values| dictionary(DataType::UInt16, values)),
            inner.prop_map(|values| {
                DataType::RunEndEncoded(
                    field("run_ends", DataType::Int16, false),
                    field("values", values, true),
                )
            }),
        ]
    })
}

proptest! {
    #[test]
    fn reads_what_it_prints(data_type in types()) {
        prop_assert_eq!(parse_type(&type_name(&data_type)).unwrap(), data_type);
    }

    #[test]
    fn no_text_panics(text in "\\PC{0,40}") {
        let _ = parse_type(&text);
    }

    #[test]
    fn no_changed_text_panics(data_type in types(), at in any::<prop::sample::Index>(), with in "\\PC{0,3}") {
        let mut text: Vec<char> = type_name(&data_type).chars().collect();
        let at = at.index(text.len());
        text.splice(at..=at, with.chars());
        let _ = parse_type(&text.into_iter().collect::<String>());
    }
}
