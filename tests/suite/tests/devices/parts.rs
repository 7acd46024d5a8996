//! Tests that tables and encoded arrays are taken apart and rebuilt on every device, and that
//! damaged parts are errors.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use crossdock::api::{Device, EncodedArray, Options, Validate};
use crossdock::source::Input;
use crossdock::{ColumnSlice, Error, Host, Parts, Rebuilt, Session, Table, received_bytes};
use crossdock_memory::{Buffer, ForeignOwner, Ready};
use crossdock_test_support::devices;
use crossdock_tests::golden::one_of_each;
use crossdock_tests::sample_tree;

use crate::tables::{assert_equal, host, session};

fn schema() -> SchemaRef {
    let metadata = HashMap::from([("created by".to_string(), "test".to_string())]);
    let unit = HashMap::from([("unit".to_string(), "m".to_string())]);
    let fields = vec![
        Field::new("n", DataType::Int64, true).with_metadata(unit),
        Field::new("word", DataType::Utf8, true),
        Field::new("flag", DataType::Boolean, false),
    ];
    Arc::new(Schema::new_with_metadata(fields, metadata))
}

/// A table of two batches of `rows` rows.
fn table(session: &Session, rows: usize) -> Table {
    let part = |first: usize| {
        let numbers: Vec<i64> = (first..first + rows).map(|n| n as i64 * 7).collect();
        let words: Vec<String> = (first..first + rows).map(|n| format!("word {n}")).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let valid: Vec<bool> = (0..rows).map(|i| i % 3 != 1).collect();
        let flags: Vec<bool> = (0..rows).map(|i| i % 2 == 0).collect();
        let columns = [
            ColumnSlice::new(&numbers[..]).with_validity(&valid),
            ColumnSlice::new(&words[..]),
            ColumnSlice::new(&flags[..]),
        ];
        Table::from_columns(session, schema(), &columns).unwrap()
    };
    let batches = [part(0), part(rows)].iter().flat_map(|t| t.batches().to_vec()).collect();
    Table::from_batches(session, schema(), batches).unwrap()
}

/// Copies the buffers, as a transport does. The copies begin `shift` bytes behind an aligned
/// address.
fn sent(buffers: &[Buffer], session: &Session, shift: usize) -> Vec<Buffer> {
    let stream = session.memory().default_stream(Device::CPU).unwrap();
    let copy = |buffer: &Buffer| {
        let bytes = buffer.host_view(&stream).unwrap();
        let whole: Vec<u8> = vec![0; shift].into_iter().chain(bytes.iter().copied()).collect();
        let mut words = vec![0u64; whole.len().div_ceil(8)];
        for (word, bytes) in words.iter_mut().zip(whole.chunks(8)) {
            let mut padded = [0; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_ne_bytes(padded);
        }
        let address = words.as_ptr() as u64 + shift as u64;
        let owner = ForeignOwner::new(words);
        // SAFETY: `owner` keeps the words, which contain the bytes from `shift` on.
        unsafe { Buffer::foreign(&owner, Device::CPU, address, Some(bytes.len() as u64), Ready::Now) }
    };
    buffers.iter().map(copy).collect()
}

#[test]
fn tables_are_rebuilt_on_every_device() {
    for device in devices().iter().copied() {
        let host = host();
        let session = session(&host, device);
        let whole = table(&session, 1000);
        for table in [whole.clone(), whole.slice(990, 500).unwrap(), whole.slice(3, 0).unwrap()] {
            let parts = table.to_parts().unwrap();
            for shift in [0, 1, 4] {
                let buffers = sent(&parts.buffers, &session, shift);
                let again = Table::from_parts(&session, &parts.header, buffers).unwrap();
                assert!(again.batches().iter().all(|batch| batch.device() == device));
                assert_equal(&again, &table);
            }
        }
        drop(whole);
        assert_eq!(host.settle(), []);
    }
}

#[test]
fn parts_share_host_memory_and_slices_have_only_their_rows() {
    let host = host();
    let session = session(&host, Device::CPU);
    let whole = table(&session, 10_000);
    let copied = |host: &Host| host.ledger().copied().bytes();
    let before = copied(&host);
    let parts = whole.to_parts().unwrap();
    let again = Table::from_parts(&session, &parts.header, parts.buffers.clone()).unwrap();
    assert_eq!(copied(&host), before, "parts of whole batches are not copied");
    let address = |table: &Table| table.batches()[1].columns()[0].buffers()[1].as_ref().unwrap().address();
    assert_eq!(address(&again), address(&whole));
    let parts = whole.slice(15_000, 1000).unwrap().to_parts().unwrap();
    let bytes: usize = parts.buffers.iter().map(|buffer| buffer.len().unwrap()).sum();
    // 8 bytes of numbers, 10 of words and 4 of their offsets, and two bits per row.
    assert!(bytes <= 1000 * 23 + 200, "{bytes} bytes");
    assert!(parts.header.len() <= 1000, "{} bytes", parts.header.len());
}

#[test]
fn damaged_parts_are_errors() {
    let host = host();
    let session = session(&host, Device::CPU);
    let parts = table(&session, 100).to_parts().unwrap();
    let rebuild = |header: &[u8], buffers: Vec<Buffer>| {
        let error = Table::from_parts(&session, header, buffers).err().expect("an error");
        assert!(matches!(error, Error::Data { .. }), "{error:?}");
        error.one_line()
    };
    let mut short = parts.buffers.clone();
    short.pop();
    let message = rebuild(&parts.header, short);
    assert!(message.contains(&format!(
        "expected {0} buffers, got {1}",
        parts.buffers.len(),
        parts.buffers.len() - 1
    )));
    let mut short = parts.buffers.clone();
    short[1] = short[1].slice(0, 8).unwrap();
    let message = rebuild(&parts.header, short);
    assert!(message.contains("buffer 1: expected") && message.contains("got 8 bytes"), "{message}");
    assert!(rebuild(b"no header", Vec::new()).contains("not the header of parts"));
    let mut other = parts.header.clone();
    other[8] = 7;
    assert!(rebuild(&other, parts.buffers.clone()).contains("version 7"));
    let field = Parts::of_schema(&schema()).unwrap();
    assert!(rebuild(&field.header, field.buffers).contains("expected a table, got a schema"));
    // No change of one byte of the header reads memory outside of the buffers.
    for i in 0..parts.header.len() {
        for change in [1, 0x80, 0xff] {
            let mut changed = parts.header.clone();
            changed[i] ^= change;
            if let Ok(table) = Table::from_parts(&session, &changed, parts.buffers.clone()) {
                let full = host.session().validate(Validate::Full).open().unwrap();
                let _ = Table::from_parts(&full, &changed, parts.buffers.clone());
                drop(table);
            }
        }
    }
}

#[test]
fn full_validation_finds_invalid_contents() {
    let host = host();
    let parts = table(&session(&host, Device::CPU), 100).to_parts().unwrap();
    let mut buffers = parts.buffers.clone();
    let offsets = buffers.iter().position(|buffer| buffer.len() == Some(404)).unwrap();
    buffers[offsets] = received_bytes(vec![0x7f; 404].into());
    assert!(Table::from_parts(&session(&host, Device::CPU), &parts.header, buffers.clone()).is_ok());
    let full = host.session().validate(Validate::Full).open().unwrap();
    let error = Table::from_parts(&full, &parts.header, buffers).err().unwrap();
    assert!(error.one_line().contains("word"), "{}", error.one_line());
}

fn rebuilt(session: &Session, parts: Parts) -> EncodedArray {
    match session.from_parts(&parts.header, parts.buffers).unwrap() {
        Rebuilt::Encoded(tree) => tree,
        _ => panic!("another object"),
    }
}

#[test]
fn encoded_arrays_stay_encoded() {
    for device in devices().iter().copied() {
        let host = host();
        let session = session(&host, device);
        let trees = one_of_each().into_iter().map(|golden| (golden.name, golden.tree));
        for (name, bytes) in trees.chain([("a sample".to_owned(), sample_tree())]) {
            let read = || session.read_encoded(&Input::bytes(bytes.clone())).unwrap();
            let tree = rebuilt(&session, session.encoded_to_parts(read()).unwrap());
            assert_eq!(session.encoded_to_bytes(tree).unwrap(), bytes, "{name}");
            let mut parts = session.encoded_to_parts(read()).unwrap();
            parts.buffers = sent(&parts.buffers, &session, 1);
            let tree = rebuilt(&session, parts);
            assert_eq!(session.encoded_to_bytes(tree).unwrap(), bytes, "{name}, not aligned");
        }
        assert_eq!(host.settle(), []);
    }
}

#[test]
fn encoded_arrays_on_devices_are_copied_to_the_host() {
    for device in devices().iter().copied() {
        let host = host();
        let session = session(&host, device);
        let numbers: Vec<i32> = (0..3000).map(|n| n * 3).collect();
        let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int32, false)]));
        let table = Table::from_columns(&session, schema, &[ColumnSlice::new(&numbers[..])]).unwrap();
        let encode = || session.encode(&table.batches()[0], "fastlanes.for", &Options::new()).unwrap();
        let parts = session.encoded_to_parts(encode()).unwrap();
        assert!(parts.buffers.iter().all(|buffer| buffer.device() == Device::CPU));
        let again = session.encoded_to_bytes(rebuilt(&session, parts)).unwrap();
        assert_eq!(again, session.encoded_to_bytes(encode()).unwrap());
        drop(table);
        assert_eq!(host.settle(), []);
    }
}

/// Parts of version 1: the number of parts and the length of each part as 8 bytes, then the parts.
const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/golden");

fn packed(parts: &Parts, session: &Session) -> Vec<u8> {
    let stream = session.memory().default_stream(Device::CPU).unwrap();
    let views: Vec<_> = parts.buffers.iter().map(|buffer| buffer.host_view(&stream).unwrap()).collect();
    let all: Vec<&[u8]> = [&parts.header[..]].into_iter().chain(views.iter().map(|view| &**view)).collect();
    let mut bytes = (all.len() as u64).to_le_bytes().to_vec();
    bytes.extend(all.iter().flat_map(|part| (part.len() as u64).to_le_bytes()));
    bytes.extend(all.concat());
    bytes
}

fn unpacked(bytes: &[u8]) -> Parts {
    let number = |i: usize| u64::from_le_bytes(bytes[8 * i..8 * i + 8].try_into().unwrap()) as usize;
    let n = number(0);
    let mut at = 8 * (n + 1);
    let mut parts = (1..=n).map(|i| {
        let part = bytes[at..at + number(i)].to_vec();
        at += part.len();
        part
    });
    let header = parts.next().unwrap();
    Parts { header, buffers: parts.map(|part| received_bytes(part.into())).collect() }
}

/// The parts in a golden file. `CROSSDOCK_WRITE_GOLDEN=1` writes the file first.
fn golden(name: &str, session: &Session, parts: impl FnOnce() -> Parts) -> Parts {
    let path = format!("{GOLDEN}/{name}");
    if std::env::var_os("CROSSDOCK_WRITE_GOLDEN").is_some() {
        std::fs::write(&path, packed(&parts(), session)).unwrap();
    }
    unpacked(&std::fs::read(path).unwrap())
}

#[test]
fn reads_parts_of_the_first_version() {
    let host = host();
    let session = session(&host, Device::CPU);
    let expected = table(&session, 5);
    let Parts { header, buffers } = golden("parts-1.bin", &session, || expected.to_parts().unwrap());
    assert_equal(&Table::from_parts(&session, &header, buffers).unwrap(), &expected);
}

#[test]
fn reads_encoded_parts_of_the_first_version() {
    let host = host();
    let session = session(&host, Device::CPU);
    let tree = || session.read_encoded(&Input::bytes(sample_tree())).unwrap();
    let parts = golden("encoded-parts-1.bin", &session, || session.encoded_to_parts(tree()).unwrap());
    assert_eq!(session.encoded_to_bytes(rebuilt(&session, parts)).unwrap(), sample_tree());
}
