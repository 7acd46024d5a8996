//! Tests import and export of valid and malformed schemas.

use std::ffi::{CStr, CString, c_char};
use std::sync::Arc;

use crate::common::{c_schema, samples};
use arrow_array::ffi::FFI_ArrowSchema;
use arrow_schema::{DataType, Field, IntervalUnit, Schema, TimeUnit};
use crossdock_arrays::layout::{format_of, layout, plain_types};
use crossdock_arrays::{
    Error, export_field, export_schema, import_field, import_field_replacing, import_schema,
};
use crossdock_plugin_api::{Owned, abi};

/// A schema with every property that the C interface can represent.
fn schema() -> Schema {
    let types = samples::all().into_iter().map(|array| array.data_type().clone());
    let plain = plain_types().iter().cloned();
    let mut fields: Vec<Field> = types
        .chain(plain)
        .enumerate()
        .map(|(i, t)| {
            Field::new(format!("field {i} ö"), t, i % 2 == 0).with_metadata(
                [("ARROW:extension:name", "example.type"), ("", "empty key")]
                    .map(|(k, v)| (k.to_string(), v.to_string()))
                    .into_iter()
                    .collect::<std::collections::HashMap<_, _>>(),
            )
        })
        .collect();
    let dictionary = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
    fields.push(Field::new("ordered", dictionary, true).with_dict_is_ordered(true));
    Schema::new(fields)
        .with_metadata(std::collections::HashMap::from([("key".to_string(), "täglich".to_string())]))
}

#[test]
fn round_trip_keeps_types_flags_and_metadata() {
    let schema = schema();
    let back = import_schema(&export_schema(&schema).unwrap()).unwrap();
    assert_eq!(back, schema);
    // arrow-rs ignores the order of dictionaries when it compares fields, so the test compares the
    // order itself.
    let ordered =
        |schema: &Schema| schema.fields().iter().filter_map(|f| f.dict_is_ordered()).collect::<Vec<_>>();
    assert_eq!(ordered(&back), ordered(&schema));
    assert!(ordered(&back).contains(&true) && ordered(&back).contains(&false));
}

#[test]
fn exchanges_schemas_with_arrow_rs() {
    let schema = schema();
    assert_eq!(import_schema(&c_schema(&schema)).unwrap(), schema);
    let raw = export_schema(&schema).unwrap().into_raw();
    // SAFETY: both types have the layout of the C interface's struct.
    let imported = unsafe { std::mem::transmute::<abi::ArrowSchema, FFI_ArrowSchema>(raw) };
    assert_eq!(Schema::try_from(&imported).unwrap(), schema);
}

#[test]
fn moved_child_outlives_its_schema() {
    let schema = Schema::new(vec![Field::new("kept", DataType::new_list(DataType::Int8, true), true)]);
    let mut raw = export_schema(&schema).unwrap();
    // SAFETY: the schema has one child, which the consumer may move.
    let child = unsafe { Owned::take(*(*raw.as_mut_ptr()).children) };
    drop(raw);
    assert_eq!(import_field(&child).unwrap(), *schema.field(0));
}

#[test]
fn rejects_types_without_format_string() {
    for t in [DataType::Time32(TimeUnit::Nanosecond), DataType::Time64(TimeUnit::Second)] {
        assert!(format_of(&t).unwrap_err().message().contains("has no format string"), "{t}");
        assert_eq!(layout(&t).n_buffers(), 2);
    }
    assert_eq!(format_of(&DataType::Interval(IntervalUnit::DayTime)).unwrap(), "tiD");
}

/// A schema that the test creates field by field. Its release does not release children, because it
/// must not recurse through malformed trees.
struct RawSchema {
    node: abi::ArrowSchema,
    _format: CString,
}

unsafe extern "C" fn nothing(schema: *mut abi::ArrowSchema) {
    // SAFETY: the caller passes an unreleased schema that this file created.
    unsafe { (*schema).release = None };
}

fn raw_schema(format: impl Into<Vec<u8>>) -> RawSchema {
    let _format = CString::new(format).unwrap();
    let node = abi::ArrowSchema { format: _format.as_ptr(), release: Some(nothing), ..Default::default() };
    RawSchema { node, _format }
}

fn import(node: &abi::ArrowSchema) -> Result<Field, Error> {
    // SAFETY: the pointers that the import follows are valid or NULL, and the copy's release frees
    // nothing.
    import_field(&unsafe { Owned::new(std::ptr::read(node)) })
}

fn import_error(node: &abi::ArrowSchema) -> String {
    import(node).unwrap_err().message().to_string()
}

#[test]
fn rejects_malformed_format_strings() {
    let formats: [&[u8]; 32] = [
        b"",
        b"q",
        b"ii",
        b"w:",
        b"w:-1",
        b"w:99999999999",
        b"d:",
        b"d:0,0",
        b"d:39,0",
        b"d:10,2,16",
        b"d:10,2,32",
        b"d:a,b",
        b"d:10",
        b"d:10,2,128,1",
        b"ts",
        b"tsx:",
        b"tsq",
        b"tdX",
        b"+w:x",
        b"+l",
        b"+L",
        b"+vl",
        b"+m",
        b"+r",
        b"+us:0",
        b"+ud:-1",
        b"+us:x",
        b"+",
        b"+q",
        b"vx",
        b"\xff\xfe",
        b"i:",
    ];
    for format in formats {
        assert!(import(&raw_schema(format).node).is_err(), "{}", String::from_utf8_lossy(format));
    }
    assert_eq!(
        import_error(&raw_schema("x".repeat(10_000)).node).len(),
        120 + "'' is not a format string of Arrow's C data interface".len()
    );
}

#[test]
fn rejects_released_schema_and_null_format() {
    assert!(import_error(&abi::ArrowSchema::default()).contains("released already"));
    let node = abi::ArrowSchema { release: Some(nothing), ..Default::default() };
    assert!(import_error(&node).contains("format is NULL"));
}

#[test]
fn rejects_wrong_numbers_of_children() {
    for n in [-1, i64::MIN, i64::MAX, 1 << 40, 3] {
        let node = abi::ArrowSchema { n_children: n, ..static_schema(c"+s") };
        assert!(import(&node).is_err(), "{n}");
    }
    let mut none = [std::ptr::null_mut(); 2];
    let node = abi::ArrowSchema { n_children: 2, children: none.as_mut_ptr(), ..static_schema(c"+s") };
    assert!(import_error(&node).contains("child 0 of 2 is NULL"));
}

fn static_schema(format: &'static CStr) -> abi::ArrowSchema {
    abi::ArrowSchema { format: format.as_ptr(), release: Some(nothing), ..Default::default() }
}

#[test]
fn rejects_children_that_do_not_match_format() {
    let mut int = static_schema(c"i");
    let mut text = static_schema(c"u");
    for (format, n, expected) in [
        (c"i", 1, "expected 0"),
        (c"tsu:UTC", 1, "expected 0"),
        (c"+l", 2, "expected 1"),
        (c"+m", 1, "expected a struct of 2 fields"),
        (c"+r", 1, "expected 2"),
        (c"+us:0", 2, "1 type ids for 2 children"),
        (c"+us:1,1", 2, "duplicate"),
        (c"+us:1,-2", 2, "non-negative"),
        (c"+us:1,200", 2, "is not a type id"),
    ] {
        let mut children = [&raw mut int, &raw mut int];
        let node =
            abi::ArrowSchema { n_children: n, children: children.as_mut_ptr(), ..static_schema(format) };
        assert!(import_error(&node).contains(expected), "{format:?}: {}", import_error(&node));
    }
    let mut children = [&raw mut text, &raw mut int];
    let node = abi::ArrowSchema { n_children: 2, children: children.as_mut_ptr(), ..static_schema(c"+r") };
    assert!(import_error(&node).contains("run ends are of type string"));
    let node = abi::ArrowSchema { dictionary: &mut text, ..static_schema(c"f") };
    assert!(import_error(&node).contains("keys are of type float"));
}

#[test]
fn rejects_schema_100_000_levels_deep_without_stack_overflow() {
    for dictionary in [false, true] {
        let mut nodes: Vec<abi::ArrowSchema> =
            (0..100_000).map(|_| static_schema(if dictionary { c"i" } else { c"+l" })).collect();
        let mut lists: Vec<*mut abi::ArrowSchema> =
            nodes.iter_mut().skip(1).map(|node| &raw mut *node).collect();
        lists.push(std::ptr::null_mut());
        for (node, next) in nodes.iter_mut().zip(&mut lists) {
            if next.is_null() {
                node.format = c"i".as_ptr();
            } else if dictionary {
                node.dictionary = *next;
            } else {
                node.n_children = 1;
                node.children = next;
            }
        }
        assert_eq!(
            import_error(&nodes[0]).rsplit(": ").next().unwrap(),
            "a schema nests deeper than 64 levels"
        );
    }
}

#[test]
fn accepts_schemas_of_64_levels_and_rejects_deeper_schemas() {
    let deep = |levels: usize| {
        let list =
            (1..levels).fold(DataType::Int8, |t, _| DataType::List(Arc::new(Field::new("item", t, true))));
        Schema::new(vec![Field::new("c", list, true)])
    };
    let schema = deep(64);
    assert_eq!(import_schema(&export_schema(&schema).unwrap()).unwrap(), schema);
    assert!(export_schema(&deep(66)).is_err());
}

#[test]
fn rejects_metadata_with_impossible_lengths() {
    let blob = |parts: &[&[u8]]| parts.concat();
    let n = |n: i32| n.to_ne_bytes();
    for (bytes, expected) in [
        (blob(&[&n(-1)]), "number of pairs is -1"),
        (blob(&[&n(1), &n(-5)]), "length is -5"),
        (blob(&[&n(1), &n(i32::MAX)]), "longer than"),
    ] {
        let node = abi::ArrowSchema { metadata: bytes.as_ptr().cast::<c_char>(), ..static_schema(c"i") };
        assert!(import_error(&node).contains(expected), "{expected}: {}", import_error(&node));
    }
}

#[test]
fn round_trip_keeps_metadata_bytes() {
    let n = |n: usize| i32::try_from(n).unwrap().to_ne_bytes();
    let blob = |pairs: &[(&[u8], &[u8])]| {
        let mut bytes = n(pairs.len()).to_vec();
        for text in pairs.iter().flat_map(|(key, value)| [key, value]) {
            bytes.extend(n(text.len()));
            bytes.extend(*text);
        }
        bytes
    };
    let cases: [&[(&[u8], &[u8])]; 4] = [
        &[(b"k", b"\xff\x00")],
        &[(b"\xff\xff", b"")],
        &[(b"k", b"a"), (b"k", b"b"), (b"k", b"a")],
        &[(b"a", b"&=%"), (b"crossdock.metadata:extra_pairs", b"a=b")],
    ];
    for pairs in cases {
        let bytes = blob(pairs);
        let node = abi::ArrowSchema { metadata: bytes.as_ptr().cast::<c_char>(), ..static_schema(c"i") };
        let back = export_field(&import(&node).unwrap()).unwrap();
        // SAFETY: the metadata of an exported schema has the number of bytes that its lengths
        // imply.
        let written = unsafe { std::slice::from_raw_parts(back.metadata.cast::<u8>(), bytes.len()) };
        assert_eq!(written, bytes, "{pairs:?}");
    }
}

#[test]
fn round_trip_keeps_metadata_of_dictionary_values() {
    let dictionary = |t| DataType::Dictionary(Box::new(DataType::Int8), Box::new(t));
    let n = |n: i32| n.to_ne_bytes();
    let blob = [&n(1)[..], &n(20), b"ARROW:extension:name", &n(10), b"arrow.uuid"].concat();
    for outer in [dictionary(DataType::Utf8), dictionary(dictionary(DataType::Utf8))] {
        let mut raw = export_field(&Field::new("c", outer.clone(), true)).unwrap();
        // SAFETY: the exported schema is valid, and its release does not free the metadata that the
        // test sets in this block.
        unsafe {
            let mut values = (*raw.as_mut_ptr()).dictionary;
            while !(*values).dictionary.is_null() {
                values = (*values).dictionary;
            }
            (*values).metadata = blob.as_ptr().cast();
        }
        let field = import_field(&raw).unwrap();
        assert_eq!(*field.data_type(), outer);
        let exported =
            export_field(&Field::new("list", DataType::List(Arc::new(field.clone())), true)).unwrap();
        let DataType::List(item) = import_field(&exported).unwrap().data_type().clone() else { panic!() };
        assert_eq!(*item, field);
        // SAFETY: the exported schema is valid and has one child. The innermost values have
        // metadata, because the test set it.
        let written = unsafe {
            let mut values = &**exported.children;
            assert!(values.metadata.is_null(), "the keys have none");
            while !values.dictionary.is_null() {
                values = &*values.dictionary;
            }
            std::slice::from_raw_parts(values.metadata.cast::<u8>(), blob.len())
        };
        assert_eq!(written, blob);
    }
}

#[test]
fn error_for_name_that_is_not_utf8_shows_name() {
    let name = CString::new(b"caf\xe9".to_vec()).unwrap();
    let node = abi::ArrowSchema { name: name.as_ptr(), ..static_schema(c"i") };
    let message = import_error(&node);
    assert!(
        message.contains("caf") && message.contains("not UTF-8") && message.contains("rename"),
        "{message}"
    );
}

#[test]
fn import_field_replacing_replaces_and_returns_invalid_names() {
    let name = CString::new(b"caf\xe9".to_vec()).unwrap();
    let mut inner = abi::ArrowSchema { name: name.as_ptr(), ..static_schema(c"i") };
    let mut valid = abi::ArrowSchema { name: c"valid".as_ptr(), ..static_schema(c"i") };
    let mut children = [&raw mut inner, &raw mut valid];
    let outer = abi::ArrowSchema {
        name: c"outer".as_ptr(),
        n_children: 2,
        children: children.as_mut_ptr(),
        ..static_schema(c"+s")
    };
    // SAFETY: the struct's release frees nothing, and all its pointers refer to objects that
    // outlive it.
    let (field, replaced) = import_field_replacing(&unsafe { Owned::new(outer) }).unwrap();
    let DataType::Struct(fields) = field.data_type() else { panic!("{field}") };
    assert_eq!(
        fields.iter().map(|field| field.name().as_str()).collect::<Vec<_>>(),
        ["caf\u{fffd}", "valid"]
    );
    assert_eq!(replaced, ["outer.caf\u{fffd}"]);
}
