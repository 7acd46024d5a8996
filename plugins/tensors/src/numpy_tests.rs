//! Tests of npz files: arrays in archives.

use crossdock_memory::Result;
use crossdock_plugin_api::{BufferedSink, Code};

use crate::element::Element;
use crate::npy;
use crate::numpy::read_npz;
use crate::shape::Shape;
use crate::tensor::File;
use crate::test_source::{sink, stored, with_call};
use crate::zip::{ArchiveWriter, Compression};

/// An npz file with members.
fn npz(members: &[(&str, Vec<u8>)], compression: Compression) -> Vec<u8> {
    let (sink, bytes) = sink();
    let mut out = BufferedSink::new(sink);
    let mut writer = ArchiveWriter::new(compression);
    for (name, data) in members {
        writer.member(&mut out, name, &mut |f| f(data)).unwrap();
    }
    writer.finish(&mut out).unwrap();
    out.flush().unwrap();
    drop(out);
    let written = bytes.lock().unwrap();
    written.clone()
}

/// The bytes of an array of `n` bytes.
fn array(n: u64) -> Vec<u8> {
    let element = Element::from_numpy("u1").unwrap();
    let header = npy::header(&element, &Shape::new(vec![n], 1).unwrap()).unwrap();
    [header, vec![7; n as usize]].concat()
}

fn open(bytes: &[u8]) -> Result<File> {
    with_call(|call| read_npz(call, &stored(bytes)))
}

#[test]
fn two_members_with_one_name_are_an_error() {
    for compression in [Compression::None, Compression::Deflate] {
        let error = open(&npz(&[("a.npy", array(3)), ("a.npy", array(3))], compression)).unwrap_err();
        assert_eq!(error.code(), Code::BAD_DATA);
        assert!(error.message().contains("two tensors named 'a'"), "{error}");
        // The extension is no part of a tensor's name.
        let error = open(&npz(&[("a", array(3)), ("a.npy", array(3))], compression)).unwrap_err();
        assert!(error.message().contains("two tensors named 'a'"), "{error}");
    }
}

#[test]
fn members_that_cannot_be_columns_have_a_reason() {
    let members = [("fine.npy", array(3)), ("/a.npy", array(3)), ("text.txt", b"x".to_vec())];
    let file = open(&npz(&members, Compression::None)).unwrap();
    assert!(file.tensors[0].column().is_ok());
    for (i, part) in [(1, "tensor '/a': the name of the member '/a.npy'"), (2, "tensor 'text.txt': a member")]
    {
        let error = file.tensors[i].column().unwrap_err();
        assert_eq!(error.code(), Code::UNSUPPORTED);
        assert!(error.message().contains(part), "{error}");
    }
}

#[test]
fn malformed_arrays_are_errors_that_name_the_tensor() {
    let long = [&array(3)[..], b"x"].concat();
    for compression in [Compression::None, Compression::Deflate] {
        for (data, part) in [
            (Vec::new(), "truncated"),
            (b"\x93NUMPY\x01\0".to_vec(), "truncated"),
            (b"\x93NUMPY\x01\0\xff\xff{".to_vec(), "expected a header up to byte 65545: it is truncated"),
            (b"\x93NUMPY\x07\0\x01\0{".to_vec(), "version 7.0"),
            (b"\x93NUMPY\x02\0\0\0\x02\0{".to_vec(), "131072 bytes, expected at most 65536"),
            (b"no array at all".to_vec(), "begins with"),
            (array(3)[..130].to_vec(), "the array is truncated"),
            (long.clone(), "expected one array only"),
        ] {
            let error = open(&npz(&[("fine.npy", array(3)), ("b.npy", data)], compression)).unwrap_err();
            assert_eq!(error.code(), if part == "version 7.0" { Code::UNSUPPORTED } else { Code::BAD_DATA });
            assert!(error.message().contains("tensor 'b'"), "{error}");
            assert!(error.message().contains(part), "{part}: {error}");
        }
    }
}
