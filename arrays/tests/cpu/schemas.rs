//! Schemas across the C interface, sound and hostile.

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

/// Fields with every property that the C interface carries.
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
        .with_metadata(std::collections::HashMap::from([("who".to_string(), "täglich".to_string())]))
}

#[test]
fn a_schema_of_every_type_comes_back_with_flags_and_metadata() {
    let schema = schema();
    let back = import_schema(&export_schema(&schema).unwrap()).unwrap();
    assert_eq!(back, schema);
    // Fields that differ in this are equal to arrow-rs.
    let ordered =
        |schema: &Schema| schema.fields().iter().filter_map(|f| f.dict_is_ordered()).collect::<Vec<_>>();
    assert_eq!(ordered(&back), ordered(&schema));
    assert!(ordered(&back).contains(&true) && ordered(&back).contains(&false));
}

#[test]
fn arrow_rs_reads_our_schemas_and_we_read_its() {
    let schema = schema();
    assert_eq!(import_schema(&c_schema(&schema)).unwrap(), schema);
    let raw = export_schema(&schema).unwrap().into_raw();
    // SAFETY: both structs are the C interface's.
    let theirs = unsafe { std::mem::transmute::<abi::ArrowSchema, FFI_ArrowSchema>(raw) };
    assert_eq!(Schema::try_from(&theirs).unwrap(), schema);
}

#[test]
fn a_child_that_is_moved_out_outlives_its_schema() {
    let schema = Schema::new(vec![Field::new("kept", DataType::new_list(DataType::Int8, true), true)]);
    let mut raw = export_schema(&schema).unwrap();
    // SAFETY: the first of one child, moved as the specification says.
    let child = unsafe { Owned::take(*(*raw.as_mut_ptr()).children) };
    drop(raw);
    assert_eq!(import_field(&child).unwrap(), *schema.field(0));
}

#[test]
fn types_that_arrow_does_not_have_do_not_go_out() {
    for t in [DataType::Time32(TimeUnit::Nanosecond), DataType::Time64(TimeUnit::Second)] {
        assert!(format_of(&t).unwrap_err().message().contains("has no format string"), "{t}");
        assert_eq!(layout(&t).n_buffers(), 2);
    }
    assert_eq!(format_of(&DataType::Interval(IntervalUnit::DayTime)).unwrap(), "tiD");
}

/// A schema built by hand. Its release frees its own texts only: hostile shapes must not recurse.
struct Hand {
    node: abi::ArrowSchema,
    _format: CString,
}

unsafe extern "C" fn nothing(schema: *mut abi::ArrowSchema) {
    // SAFETY: a schema of this file, alive.
    unsafe { (*schema).release = None };
}

fn hand(format: impl Into<Vec<u8>>) -> Hand {
    let _format = CString::new(format).unwrap();
    let node = abi::ArrowSchema { format: _format.as_ptr(), release: Some(nothing), ..Default::default() };
    Hand { node, _format }
}

fn import(node: &abi::ArrowSchema) -> Result<Field, Error> {
    // SAFETY: valid as far as what is read goes; the copy's release does nothing.
    import_field(&unsafe { Owned::new(std::ptr::read(node)) })
}

fn refusal(node: &abi::ArrowSchema) -> String {
    import(node).unwrap_err().message().to_string()
}

#[test]
fn wrong_format_strings_are_refused() {
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
        assert!(import(&hand(format).node).is_err(), "{}", String::from_utf8_lossy(format));
    }
    assert_eq!(
        refusal(&hand("x".repeat(10_000)).node).len(),
        120 + "format string '' is none that Arrow defines".len()
    );
}

#[test]
fn a_schema_that_is_released_or_has_no_format_is_refused() {
    assert!(refusal(&abi::ArrowSchema::default()).contains("released already"));
    let node = abi::ArrowSchema { release: Some(nothing), ..Default::default() };
    assert!(refusal(&node).contains("format is NULL"));
}

#[test]
fn child_counts_that_lie_are_refused() {
    for n in [-1, i64::MIN, i64::MAX, 1 << 40, 3] {
        let node = abi::ArrowSchema { n_children: n, ..hand_static(c"+s") };
        assert!(import(&node).is_err(), "{n}");
    }
    let mut none = [std::ptr::null_mut(); 2];
    let node = abi::ArrowSchema { n_children: 2, children: none.as_mut_ptr(), ..hand_static(c"+s") };
    assert!(refusal(&node).contains("child 0 of 2 is NULL"));
}

fn hand_static(format: &'static CStr) -> abi::ArrowSchema {
    abi::ArrowSchema { format: format.as_ptr(), release: Some(nothing), ..Default::default() }
}

#[test]
fn wrong_numbers_and_types_of_children_are_refused() {
    let mut int = hand_static(c"i");
    let mut text = hand_static(c"u");
    for (format, n, expected) in [
        (c"i", 1, "expected 0"),
        (c"tsu:UTC", 1, "expected 0"),
        (c"+l", 2, "expected 1"),
        (c"+m", 1, "expected a struct of 2 fields"),
        (c"+r", 1, "expected 2"),
        (c"+us:0", 2, "1 type ids for 2 children"),
        (c"+us:1,1", 2, "duplicate"),
        (c"+us:1,-2", 2, "non-negative"),
        (c"+us:1,200", 2, "is no type id"),
    ] {
        let mut children = [&raw mut int, &raw mut int];
        let node = abi::ArrowSchema { n_children: n, children: children.as_mut_ptr(), ..hand_static(format) };
        assert!(refusal(&node).contains(expected), "{format:?}: {}", refusal(&node));
    }
    let mut children = [&raw mut text, &raw mut int];
    let node = abi::ArrowSchema { n_children: 2, children: children.as_mut_ptr(), ..hand_static(c"+r") };
    assert!(refusal(&node).contains("run ends are of type Utf8"));
    let node = abi::ArrowSchema { dictionary: &mut text, ..hand_static(c"f") };
    assert!(refusal(&node).contains("keys are of type Float32"));
}

#[test]
fn a_schema_100_000_levels_deep_is_an_error_and_no_overflow() {
    for dictionary in [false, true] {
        let mut nodes: Vec<abi::ArrowSchema> =
            (0..100_000).map(|_| hand_static(if dictionary { c"i" } else { c"+l" })).collect();
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
        assert_eq!(refusal(&nodes[0]).rsplit(": ").next().unwrap(), "a schema nests deeper than 64 levels");
    }
}

#[test]
fn a_schema_64_levels_deep_is_read_and_one_of_65_is_not_written() {
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
fn metadata_whose_lengths_lie_is_refused() {
    let blob = |parts: &[&[u8]]| parts.concat();
    let n = |n: i32| n.to_ne_bytes();
    for (bytes, expected) in [
        (blob(&[&n(-1)]), "number of pairs is -1"),
        (blob(&[&n(1), &n(-5)]), "length is -5"),
        (blob(&[&n(1), &n(i32::MAX)]), "longer than"),
    ] {
        let node = abi::ArrowSchema { metadata: bytes.as_ptr().cast::<c_char>(), ..hand_static(c"i") };
        assert!(refusal(&node).contains(expected), "{expected}: {}", refusal(&node));
    }
}

#[test]
fn metadata_that_no_map_of_strings_holds_comes_back_byte_for_byte() {
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
        let node = abi::ArrowSchema { metadata: bytes.as_ptr().cast::<c_char>(), ..hand_static(c"i") };
        let back = export_field(&import(&node).unwrap()).unwrap();
        // SAFETY: an exported schema's metadata have as many bytes as their lengths say.
        let written = unsafe { std::slice::from_raw_parts(back.metadata.cast::<u8>(), bytes.len()) };
        assert_eq!(written, bytes, "{pairs:?}");
    }
}

#[test]
fn the_values_of_a_dictionary_keep_their_metadata() {
    let dictionary = |t| DataType::Dictionary(Box::new(DataType::Int8), Box::new(t));
    let n = |n: i32| n.to_ne_bytes();
    let blob = [&n(1)[..], &n(20), b"ARROW:extension:name", &n(10), b"arrow.uuid"].concat();
    for outer in [dictionary(DataType::Utf8), dictionary(dictionary(DataType::Utf8))] {
        let mut raw = export_field(&Field::new("c", outer.clone(), true)).unwrap();
        // SAFETY: the innermost values of a schema of ours, which does not release what their metadata point at.
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
        // SAFETY: a list's child, and the innermost values of it.
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
fn a_name_that_is_not_utf8_is_refused_with_what_can_be_read_of_it() {
    let name = CString::new(b"caf\xe9".to_vec()).unwrap();
    let node = abi::ArrowSchema { name: name.as_ptr(), ..hand_static(c"i") };
    let refusal = refusal(&node);
    assert!(
        refusal.contains("caf") && refusal.contains("not UTF-8") && refusal.contains("rename"),
        "{refusal}"
    );
}

#[test]
fn a_name_that_is_not_utf8_is_replaced_where_that_is_asked_for_and_told() {
    let name = CString::new(b"caf\xe9".to_vec()).unwrap();
    let mut inner = abi::ArrowSchema { name: name.as_ptr(), ..hand_static(c"i") };
    let mut sound = abi::ArrowSchema { name: c"sound".as_ptr(), ..hand_static(c"i") };
    let mut children = [&raw mut inner, &raw mut sound];
    let outer = abi::ArrowSchema {
        name: c"outer".as_ptr(),
        n_children: 2,
        children: children.as_mut_ptr(),
        ..hand_static(c"+s")
    };
    // SAFETY: the struct's release does nothing, and what it points at outlives it.
    let (field, replaced) = import_field_replacing(&unsafe { Owned::new(outer) }).unwrap();
    let DataType::Struct(fields) = field.data_type() else { panic!("{field}") };
    assert_eq!(
        fields.iter().map(|field| field.name().as_str()).collect::<Vec<_>>(),
        ["caf\u{fffd}", "sound"]
    );
    assert_eq!(replaced, ["outer.caf\u{fffd}"]);
}
