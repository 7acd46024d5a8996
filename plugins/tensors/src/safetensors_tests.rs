//! Tests of the header of safetensors files.

use arrow_schema::Metadata;

use crate::element::Element;
use crate::safetensors::{Outgoing, header, read};
use crate::shape::Shape;
use crate::tensor::{Data, File};
use crate::test_source::stored;

fn file(json: &str, data_bytes: usize) -> Vec<u8> {
    [&(json.len() as u64).to_le_bytes()[..], json.as_bytes(), &vec![0; data_bytes]].concat()
}

fn open(json: &str, data_bytes: usize) -> crossdock_memory::Result<File> {
    read(&stored(&file(json, data_bytes)))
}

#[track_caller]
fn assert_rejected(json: &str, data_bytes: usize, parts: &[&str]) {
    let error = open(json, data_bytes).unwrap_err();
    for part in parts {
        assert!(error.message().contains(part), "{part:?} is not in {:?}", error.message());
    }
}

const A: &str = r#""a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}"#;

#[test]
fn reads_tensors_in_the_order_of_the_header() {
    let json = r#"{"b":{"dtype":"U8","shape":[4],"data_offsets":[8,12]},"__metadata__":{"x":"1"},
        "a":{"data_offsets":[0,8],"shape":[],"dtype":"F64"},"c":{"dtype":"F4","shape":[12],"data_offsets":[12,18]}} "#;
    let got = open(json, 18).unwrap();
    assert_eq!(got.tensors.iter().map(|tensor| tensor.name.as_str()).collect::<Vec<_>>(), ["b", "a", "c"]);
    assert_eq!(got.metadata, Metadata::from([("x", "1")]));
    let column = got.tensors[1].column().unwrap();
    assert_eq!((column.shape.rows(), column.shape.bytes()), (1, 8));
    let begin = 8 + json.len() as u64;
    assert!(matches!(column.data, Data::Plain { offset, member: None } if offset == begin));
    let error = got.tensors[2].column().unwrap_err();
    assert!(error.message().contains("tensor 'c': type F4"), "{error}");
}

#[test]
fn empty_files_have_no_tensors() {
    assert!(open("{}", 0).unwrap().tensors.is_empty());
    assert!(open(r#"{"__metadata__":{}}"#, 0).unwrap().tensors.is_empty());
}

#[test]
fn tensors_without_bytes_may_be_anywhere_between_others() {
    let json = r#"{"a":{"dtype":"I8","shape":[0],"data_offsets":[2,2]},"b":{"dtype":"I8","shape":[2],"data_offsets":[0,2]},
        "c":{"dtype":"I8","shape":[7,0],"data_offsets":[0,0]}}"#;
    assert_eq!(open(json, 2).unwrap().tensors.len(), 3);
}

#[test]
fn rejects_files_that_are_too_short() {
    for n in 0..8 {
        let error = read(&stored(&vec![0; n])).unwrap_err();
        assert!(error.message().contains("expected at least 8"), "{error}");
    }
    let whole = file(&format!("{{{A}}}"), 24);
    for n in 8..whole.len() {
        assert!(read(&stored(&whole[..n])).is_err(), "{n} bytes");
    }
    assert!(read(&stored(&whole)).is_ok());
}

#[test]
fn rejects_huge_headers() {
    for n in [u64::MAX, 100_000_001, 1 << 32] {
        let error = read(&stored(&n.to_le_bytes())).unwrap_err();
        assert!(error.message().contains("expected at most 100000000"), "{error}");
    }
    let error = read(&stored(&1_000_000u64.to_le_bytes())).unwrap_err();
    assert!(error.message().contains("truncated"), "{error}");
}

#[test]
fn rejects_ranges_that_overlap_or_leave_gaps() {
    let tensor = |name: &str, first, end| {
        format!(r#""{name}":{{"dtype":"I8","shape":[{}],"data_offsets":[{first},{end}]}}"#, end - first)
    };
    let two =
        |a: (u32, u32), b: (u32, u32)| format!("{{{},{}}}", tensor("a", a.0, a.1), tensor("b", b.0, b.1));
    assert!(open(&two((0, 4), (4, 8)), 8).is_ok());
    assert!(open(&two((4, 8), (0, 4)), 8).is_ok());
    assert_rejected(&two((0, 5), (4, 8)), 8, &["tensor 'b'", "4..8", "tensor 'a' ends at byte 5"]);
    assert_rejected(&two((0, 8), (0, 8)), 8, &["tensor 'b'", "0..8", "tensor 'a' ends at byte 8"]);
    assert_rejected(&two((0, 3), (4, 8)), 8, &["tensor 'b'", "no tensor has the bytes 3..4"]);
    assert_rejected(&two((1, 4), (4, 8)), 8, &["tensor 'a'", "no tensor has the bytes 0..1"]);
    assert_rejected(&two((0, 4), (4, 9)), 8, &["tensor 'b'", "within the 8 bytes"]);
    assert_rejected(&two((0, 4), (4, 7)), 8, &["8 bytes of data, but the tensors end at byte 7"]);
    assert_rejected("{}", 1, &["1 bytes of data"]);
    assert_rejected(r#"{"a":{"dtype":"I8","shape":[1],"data_offsets":[5,4]}}"#, 8, &["5..4"]);
    let far = u64::MAX;
    let json = format!(r#"{{"a":{{"dtype":"I8","shape":[1],"data_offsets":[{},{far}]}}}}"#, far - 1);
    assert_rejected(&json, 8, &["within the 8 bytes"]);
}

#[test]
fn rejects_sizes_that_do_not_match_the_shape() {
    let json = |shape: &str| format!(r#"{{"a":{{"dtype":"F32","shape":{shape},"data_offsets":[0,8]}}}}"#);
    assert!(open(&json("[2]"), 8).is_ok());
    assert_rejected(&json("[3]"), 8, &["tensor 'a'", "[3] has 12 bytes", "0..8"]);
    assert_rejected(&json("[]"), 8, &["[] has 4 bytes"]);
    assert_rejected(&json("[0,2]"), 8, &["has 0 bytes"]);
    assert_rejected(&json("[-2]"), 8, &["malformed", "-2"]);
    assert_rejected(&json("[2.0]"), 8, &["malformed"]);
    assert_rejected(&json("[18446744073709551616]"), 8, &["malformed"]);
    assert_rejected(&json("[18446744073709551615]"), 8, &["tensor 'a'", "overflows int64"]);
    assert_rejected(&json("[4294967296,4294967296]"), 8, &["overflows int64"]);
    assert_rejected(&json(&format!("[{}1]", "1,".repeat(64))), 8, &["more than 64 dimensions"]);
    assert_rejected(&json(&format!("[{}1]", "1,".repeat(1 << 20))), 8, &["more than 64 dimensions"]);
}

#[test]
fn rejects_malformed_json() {
    let tensors = |n: usize| {
        let tensor = |i| format!(r#""{i}":{{"dtype":"I8","shape":[0],"data_offsets":[0,0]}}"#);
        format!("{{{}}}", (0..n).map(tensor).collect::<Vec<_>>().join(","))
    };
    assert!(open(&tensors(1000), 0).is_ok());
    for (json, part) in [
        ("", "EOF"),
        ("[]", "expected an object"),
        ("7", "expected an object"),
        ("{", "EOF"),
        ("{}x", "trailing characters"),
        (r#"{"a":7}"#, "malformed"),
        (r#"{"a":{"dtype":"I8","shape":[0]}}"#, "missing field `data_offsets`"),
        (r#"{"a":{"dtype":"I8","shape":[0],"data_offsets":[0]}}"#, "malformed"),
        (r#"{"a":{"dtype":"I8","shape":[0],"data_offsets":[0,0],"x":1}}"#, "unknown field `x`"),
        (r#"{"a":{"dtype":"I8","dtype":"I8","shape":[0],"data_offsets":[0,0]}}"#, "duplicate field `dtype`"),
        (r#"{"__metadata__":{"a":1}}"#, "malformed"),
        (r#"{"__metadata__":{"a":"1","a":"2"}}"#, "two values of a key"),
        (r#"{"__metadata__":{},"__metadata__":{}}"#, "two values of __metadata__"),
        (&format!("{{{A},{A}}}"), "tensor 'a'"),
        (&tensors((1 << 16) + 1), "more than 65536 tensors"),
        (&format!(r#"{{"a":{}"#, "[".repeat(100_000)), "malformed"),
        (&format!(r#"{{"a":{{"dtype":{}"#, "{\"x\":".repeat(100_000)), "malformed"),
    ] {
        assert_rejected(json, 0, &[part]);
    }
    let twice = r#"{"a":{"dtype":"I8","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"I8","shape":[0],"data_offsets":[0,0]}}"#;
    assert_rejected(twice, 0, &["two tensors named 'a'"]);
    let mut bytes = file("{}", 0);
    bytes[8] = 0xff;
    assert!(read(&stored(&bytes)).unwrap_err().message().contains("malformed"));
}

#[test]
fn written_header_is_aligned_and_keeps_the_order_of_columns() {
    let outgoing = |name, dtype, dims: &[u64]| {
        let width = Element::from_safetensors(dtype).unwrap().width();
        Outgoing { name, dtype, shape: Shape::new(dims.to_vec(), width).unwrap() }
    };
    let tensors = [
        outgoing("flags", "BOOL", &[3]),
        outgoing("wide \"\n\u{e9}", "F64", &[3, 2]),
        outgoing("half", "F16", &[3]),
    ];
    let metadata = Metadata::from([("k\u{1}", "v\"")]);
    let (bytes, order) = header(&tensors, &metadata).unwrap();
    assert_eq!(order, [1, 2, 0]);
    assert_eq!(bytes.len() % 64, 0);
    let got = read(&stored(&[&bytes[..], &[0; 48 + 6 + 3]].concat())).unwrap();
    assert_eq!(got.metadata, metadata);
    let offsets = |i: usize| match got.tensors[i].column().unwrap().data {
        Data::Plain { offset, .. } => offset - bytes.len() as u64,
        Data::Deflated { .. } => panic!("compressed"),
    };
    assert_eq!(
        got.tensors.iter().map(|t| t.name.as_str()).collect::<Vec<_>>(),
        ["flags", tensors[1].name, "half"]
    );
    assert_eq!([offsets(0), offsets(1), offsets(2)], [54, 0, 48]);
    assert_eq!(header(&[], &Metadata::new()).unwrap().0.len(), 64);
}
