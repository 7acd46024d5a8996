//! Tests of the header of npy files.

use crate::element::Element;
use crate::npy::{header, parse, text_range};
use crate::numpy::read_npy;
use crate::shape::Shape;
use crate::test_source::stored;

/// A file of a version with a header and `data_bytes` bytes.
fn file(version: u8, text: &str, data_bytes: usize) -> Vec<u8> {
    let length = match version {
        1 => (text.len() as u16).to_le_bytes().to_vec(),
        _ => (text.len() as u32).to_le_bytes().to_vec(),
    };
    [b"\x93NUMPY", &[version, 0][..], &length, text.as_bytes(), &vec![0; data_bytes]].concat()
}

fn text(descr: &str, shape: &str) -> String {
    format!("{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}    \n")
}

/// The error of a file whose data has 24 bytes.
fn error_of(version: u8, text: &str) -> String {
    let file = read_npy(&stored(&file(version, text, 24)), "x");
    match file.and_then(|file| file.tensors[0].column().cloned()) {
        Ok(column) => panic!("read as {column:?}"),
        Err(error) => error.message().to_owned(),
    }
}

#[test]
fn reads_every_version_and_form_of_the_header() {
    for version in 1..=3 {
        for header in [
            text("'<f4'", "(2, 3)"),
            "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}".to_owned(),
            "{\"shape\":(2,3,),\"descr\":\"<f4\",\"fortran_order\":False,}".to_owned(),
            text("'<f4'", "(2L, 3L)"),
            text("'=f4'", "( 2 , 3 )"),
        ] {
            let got = read_npy(&stored(&file(version, &header, 24)), "x").unwrap();
            let column = got.tensors[0].column().unwrap();
            assert_eq!((column.shape.dims(), column.is_big_endian), (&[2, 3][..], false), "{header}");
        }
    }
    let got = read_npy(&stored(&file(1, &text("'>i8'", "(3,)"), 24)), "x").unwrap();
    assert!(got.tensors[0].column().unwrap().is_big_endian);
    let got = read_npy(&stored(&file(1, &text("'|S24'", "()"), 24)), "x").unwrap();
    assert_eq!(got.tensors[0].column().unwrap().shape.rows(), 1);
}

#[test]
fn fortran_order_is_read_if_it_equals_c_order() {
    let in_fortran_order = |shape| text("'<f4'", shape).replace("False", "True");
    for shape in ["(6,)", "(1, 6)", "(6, 1)"] {
        let got = read_npy(&stored(&file(1, &in_fortran_order(shape), 24)), "x").unwrap();
        assert!(got.tensors[0].column().is_ok(), "{shape}");
    }
    assert!(
        read_npy(&stored(&file(1, &in_fortran_order("(0, 6)"), 0)), "x").unwrap().tensors[0].column().is_ok()
    );
    let error = error_of(1, &in_fortran_order("(2, 3)"));
    assert!(error.contains("tensor 'x'") && error.contains("ascontiguousarray"), "{error}");
}

#[test]
fn rejects_arrays_that_arrow_does_not_support() {
    for (descr, part) in [
        ("'|O'", "type '|O': it contains Python objects (pickle), which are never read"),
        ("'<c32'", "type '<c32': expected complex64 or complex128"),
        ("'<M8[W]'", "cast the array to datetime64[D]"),
        ("'|V3'", "structured"),
        ("[('a', '<f4'), ('b', [('c', '|O')], (2,))]", "a structured type"),
        ("('<f4', (3,))", "a structured type"),
        ("'<q9'", "not a type string"),
        ("'\u{e9}'", "not a type string"),
        ("''", "not a type string"),
    ] {
        let error = error_of(3, &text(descr, "(3,)"));
        assert!(error.contains(part), "{descr}: {error}");
    }
}

#[test]
fn rejects_shapes_that_do_not_match_the_data() {
    for (shape, part) in [
        ("(5,)", "[5] has 20 bytes, but 24 bytes follow the header: expected one array only"),
        ("(7,)", "[7] has 28 bytes, but 24 bytes follow the header: the array is truncated"),
        ("()", "[] has 4 bytes"),
        ("(0,)", "[0] has 0 bytes"),
        ("(-6,)", "expected the size of a dimension"),
        ("(6.0,)", "expected ')'"),
        ("(6", "expected the size of a dimension"),
        ("6", "expected '('"),
        ("(,)", "expected the size of a dimension"),
        ("(18446744073709551616,)", "expected the size of a dimension"),
        ("(18446744073709551615,)", "overflows int64"),
        ("(4294967296, 4294967296)", "overflows int64"),
    ] {
        let error = error_of(1, &text("'<f4'", shape));
        assert!(error.contains(part), "{shape}: {error}");
    }
    let error = error_of(1, &text("'<f4'", &format!("({})", "1, ".repeat(65))));
    assert!(error.contains("more than 64 dimensions"), "{error}");
}

#[test]
fn rejects_malformed_headers() {
    for (header, part) in [
        ("", "expected '{'"),
        ("{}", "there is no 'descr'"),
        ("{'descr': '<f4', 'fortran_order': False}", "there is no 'shape'"),
        ("{'descr': '<f4', 'descr': '<f4'}", "two values of 'descr'"),
        ("{'dtype': '<f4'}", "unknown key 'dtype'"),
        ("{'descr' '<f4'}", "expected ':'"),
        ("{'descr': '<f4", "expected the end of a string"),
        ("{'descr': '\\x3cf4'}", "expected the end of a string"),
        ("{'fortran_order': 0}", "expected True or False"),
        ("{'descr': [('a', ", "the type is not complete"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (6,)} x", "unexpected text"),
        ("__import__('os')", "expected '{'"),
    ] {
        let error = error_of(1, header);
        assert!(error.contains(part) && error.contains("malformed"), "{header}: {error}");
    }
    assert!(parse(b"{'\xff': 1}").unwrap_err().message().contains("UTF-8"));
    let nested = format!("{{'descr': {}", "[".repeat(60_000));
    assert!(error_of(2, &nested).contains("not complete"));
}

#[test]
fn rejects_other_files_versions_and_long_headers() {
    for (prefix, part) in [
        (&b""[..], "truncated"),
        (b"NUMPY\x93......", "begins with"),
        (b"\x93NUMPY", "truncated"),
        (b"\x93NUMPY\x01\x00\x01", "truncated"),
        (b"\x93NUMPY\x02\x00\x01\x00\x00", "truncated"),
        (b"\x93NUMPY\x04\x00......", "version 4.0"),
        (b"\x93NUMPY\x00\x00......", "version 0.0"),
        (b"\x93NUMPY\x01\x01......", "version 1.1"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff", "4294967295 bytes, expected at most 65536"),
    ] {
        let error = text_range(prefix).unwrap_err();
        assert!(error.message().contains(part), "{prefix:?}: {error}");
    }
    let whole = file(1, &text("'<f4'", "(6,)"), 24);
    for n in 0..whole.len() {
        let got = read_npy(&stored(&whole[..n]), "x");
        assert!(got.is_err(), "{n} bytes");
    }
    assert!(read_npy(&stored(&whole), "x").is_ok());
}

#[test]
fn written_headers_are_aligned_and_read_back() {
    for dims in [vec![0], vec![7], vec![2, 3], vec![u32::MAX.into(), 1, 0], vec![1; 64]] {
        for name in ["|b1", "<f2", "<M8[ns]", "|S9"] {
            let element = Element::from_numpy(&name[1..]).unwrap();
            let shape = Shape::new(dims.clone(), element.width()).unwrap();
            let bytes = header(&element, &shape).unwrap();
            assert_eq!((bytes.len() % 64, bytes.last()), (0, Some(&b'\n')));
            let range = text_range(&bytes[..12]).unwrap();
            assert_eq!(range.end, bytes.len());
            let got = parse(&bytes[range]).unwrap();
            assert_eq!((got.element, got.dims, got.is_fortran), (Ok((element, false)), dims.clone(), false));
        }
    }
    let shape = |dims: &[u64]| Shape::new(dims.to_vec(), 8).unwrap();
    let text = |dims: &[u64]| {
        let bytes = header(&Element::from_numpy("i8").unwrap(), &shape(dims)).unwrap();
        String::from_utf8(bytes[10..].to_vec()).unwrap().trim_end().to_owned()
    };
    assert_eq!(text(&[3]), "{'descr': '<i8', 'fortran_order': False, 'shape': (3,), }");
    assert_eq!(text(&[3, 4]), "{'descr': '<i8', 'fortran_order': False, 'shape': (3, 4), }");
    assert_eq!(text(&[]), "{'descr': '<i8', 'fortran_order': False, 'shape': (), }");
}
