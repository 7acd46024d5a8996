//! Tests of elements that are converted on the host: compressed, big-endian, or of another form.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::ThreadId;
use std::time::Duration;

use crossdock_memory::{Device, Error, Result};
use crossdock_plugin_api::{ByteSource, CallSettings, CancelFlag, Code, Options, Selection};
use crossdock_tensors::{NPY, NPZ, SAFETENSORS};
use crossdock_test_support::devices;

use crate::{Rig, aligned_tensors};

/// More bytes than one thread converts alone.
const ROWS: usize = 20_000;

/// An npz file whose three members are compressed.
fn compressed(rig: &Rig) -> Vec<u8> {
    let all = Selection::default();
    let (schema, batches) = rig.read(&aligned_tensors(ROWS), (SAFETENSORS, true), Device::CPU, &all).unwrap();
    rig.write((&schema, &batches), NPZ, &Options::new().with("compression", "deflate")).unwrap()
}

#[test]
fn large_compressed_columns_are_equal_in_batches_and_as_a_whole() {
    let rig = Rig::new();
    let bytes = compressed(&rig);
    let (_, expected) =
        rig.read(&aligned_tensors(ROWS), (SAFETENSORS, true), Device::CPU, &Selection::default()).unwrap();
    for &device in devices() {
        for batch_rows in [0, 7001] {
            let selection = Selection { batch_rows, ..Selection::default() };
            let (_, batches) = rig.read(&bytes, (NPZ, true), device, &selection).unwrap();
            let mut at = 0;
            for batch in &batches {
                assert_eq!(batch.device(), device);
                rig.assert_equal(batch, &expected[0].slice(at, batch.len()).unwrap());
                at += batch.len();
            }
            assert_eq!((at, batches.len()), (ROWS, if batch_rows == 0 { 1 } else { 3 }));
        }
    }
    drop(expected);
    rig.host.assert_nothing_leaked();
}

#[test]
fn rows_of_a_compressed_column_before_those_of_the_last_batch_are_decompressed_again() {
    let rig = Rig::new();
    let everything = Selection::default();
    let whole = rig.read(&aligned_tensors(ROWS), (SAFETENSORS, true), Device::CPU, &everything).unwrap().1;
    let selection = Selection { rows: Some(vec![9000..9500, 100..200]), ..Selection::default() };
    let (_, batches) = rig.read(&compressed(&rig), (NPZ, true), Device::CPU, &selection).unwrap();
    rig.assert_equal(&batches[0], &whole[0].slice(9000, 500).unwrap());
    rig.assert_equal(&batches[1], &whole[0].slice(100, 100).unwrap());
}

/// The offsets of the headers of an archive's central directory.
fn central_headers(bytes: &[u8]) -> Vec<usize> {
    bytes.windows(4).enumerate().filter(|(_, window)| *window == b"PK\x01\x02").map(|(at, _)| at).collect()
}

#[test]
fn error_names_the_first_damaged_column_of_several() {
    let rig = Rig::new();
    let all = Selection::default();
    let plain = {
        let (schema, batches) =
            rig.read(&aligned_tensors(ROWS), (SAFETENSORS, true), Device::CPU, &all).unwrap();
        rig.write((&schema, &batches), NPZ, &Options::new()).unwrap()
    };
    for mut bytes in [compressed(&rig), plain] {
        let headers = central_headers(&bytes);
        assert_eq!(headers.len(), 3);
        for header in &headers[1..] {
            bytes[header + 16] ^= 1;
        }
        for &device in devices() {
            for _ in 0..5 {
                let error = rig.read(&bytes, (NPZ, true), device, &all).unwrap_err();
                assert_eq!(error.code(), Code::BAD_DATA);
                let message = error.message();
                assert!(message.contains("'test input': tensor 'b'"), "{message}");
                assert!(message.contains("CRC-32") && !message.contains("'c'"), "{message}");
            }
        }
    }
    rig.host.assert_nothing_leaked();
}

/// A source that cancels its call when a part of it is read.
struct Cancelling {
    bytes: Vec<u8>,
    part: Range<u64>,
    cancel: CancelFlag,
    /// The number of reads after the cancellation.
    n_later: AtomicUsize,
}

impl ByteSource for Cancelling {
    fn name(&self) -> &str {
        "test input"
    }
    fn len(&self) -> Option<u64> {
        Some(self.bytes.len() as u64)
    }
    fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<usize> {
        if self.cancel.is_cancelled() {
            self.n_later.fetch_add(1, Ordering::Relaxed);
        }
        if self.part.contains(&offset) {
            self.cancel.cancel();
        }
        let rest = self.bytes.get(offset as usize..).unwrap_or_default();
        let n = to.len().min(rest.len());
        to[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }
}

#[test]
fn call_that_is_cancelled_during_decompression_ends() {
    let rig = Rig::new();
    let bytes = compressed(&rig);
    for &device in devices() {
        let settings = CallSettings::new(device);
        // The first member's data after the part that is read for its header.
        let part = 70_000..200_000;
        let cancel = settings.cancel.clone();
        let source =
            Arc::new(Cancelling { bytes: bytes.clone(), part, cancel, n_later: AtomicUsize::new(0) });
        let error = rig.read_from(source.clone(), NPZ, &settings, &Selection::default()).unwrap_err();
        assert_eq!(error.code(), Code::CANCELLED);
        // Each of the three members may be read once after its last check of the flag.
        assert!(source.n_later.load(Ordering::Relaxed) <= 2);
    }
    rig.host.assert_nothing_leaked();
}

/// A source whose reads wait for a read of another thread.
struct Meeting {
    bytes: Vec<u8>,
    is_waiting: AtomicBool,
    readers: Mutex<Vec<ThreadId>>,
    changed: Condvar,
}

impl ByteSource for Meeting {
    fn name(&self) -> &str {
        "test input"
    }
    fn len(&self) -> Option<u64> {
        Some(self.bytes.len() as u64)
    }
    fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<usize> {
        if self.is_waiting.load(Ordering::Relaxed) {
            let mut readers = self.readers.lock().unwrap();
            readers.push(std::thread::current().id());
            self.changed.notify_all();
            let is_alone = |readers: &mut Vec<ThreadId>| readers.iter().all(|reader| *reader == readers[0]);
            let (_readers, wait) =
                self.changed.wait_timeout_while(readers, Duration::from_secs(20), is_alone).unwrap();
            if wait.timed_out() {
                return Err(Error::io("no other thread reads"));
            }
        }
        let rest = self.bytes.get(offset as usize..).unwrap_or_default();
        let n = to.len().min(rest.len());
        to[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }
}

#[test]
fn members_are_decompressed_by_several_threads() {
    if std::thread::available_parallelism().map_or(1, |n| n.get()) < 2 {
        eprintln!("skipped: members_are_decompressed_by_several_threads: the machine has one core");
        return;
    }
    let rig = Rig::new();
    let source = Arc::new(Meeting {
        bytes: compressed(&rig),
        is_waiting: AtomicBool::new(false),
        readers: Mutex::default(),
        changed: Condvar::new(),
    });
    let settings = CallSettings::new(Device::CPU);
    let mut stream = rig.open(source.clone(), NPZ, &settings, &Selection::default()).unwrap();
    source.is_waiting.store(true, Ordering::Relaxed);
    assert!(settings.enter(|call| stream.next(call)).unwrap().is_some());
}

/// An npy file.
fn array(descr: &str, shape: &str, values: &[i64], is_big_endian: bool) -> Vec<u8> {
    let order = if is_big_endian { '>' } else { '<' };
    let header = format!("{{'descr': '{order}{descr}', 'fortran_order': False, 'shape': ({shape}), }}");
    let header = format!("{header:<117}\n");
    let bytes =
        values.iter().map(|value| if is_big_endian { value.to_be_bytes() } else { value.to_le_bytes() });
    let data: Vec<u8> = bytes.flatten().collect();
    [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), &data].concat()
}

const NAT: i64 = i64::MIN;

#[test]
fn nat_is_null_and_null_is_written_as_nat() {
    let rig = Rig::new();
    let [least, greatest] = [i32::MIN, i32::MAX].map(i64::from);
    for (descr, shape, values, n_null) in [
        ("M8[D]", "6,", &[0, NAT, -1, greatest, least, NAT][..], 2),
        ("M8[D]", "3, 2", &[0, NAT, -1, greatest, least, NAT], 2),
        ("M8[D]", "2,", &[7, 8], 0),
        ("M8[us]", "4,", &[NAT, 5, -6, i64::MAX], 1),
        ("m8[s]", "2, 2, 1", &[NAT, NAT, -6, NAT + 1], 2),
    ] {
        for &device in devices() {
            for is_big_endian in [false, true] {
                let bytes = array(descr, shape, values, is_big_endian);
                let (schema, batches) = rig.read(&bytes, (NPY, true), device, &Selection::default()).unwrap();
                let column = &batches[0].columns()[0];
                let elements = column.children().first().unwrap_or(column);
                let nulls = crossdock_arrays::count_nulls(&[elements], &rig.host.stream(device)).unwrap();
                assert_eq!(nulls, [n_null], "{descr}");
                let written = rig.write((&schema, &batches), NPY, &Options::new()).unwrap();
                assert!(written == array(descr, shape, values, false), "{descr} {shape} on {device}");
            }
        }
    }
    rig.host.assert_nothing_leaked();
}

#[test]
fn rows_of_a_table_with_nat_are_written_from_their_place() {
    let rig = Rig::new();
    let values = [1, NAT, 3, NAT, NAT, 6, 7, 8, NAT, 10, 11];
    for descr in ["M8[D]", "m8[ns]"] {
        let bytes = array(descr, "11,", &values, false);
        let (schema, batches) = rig.read(&bytes, (NPY, true), Device::CPU, &Selection::default()).unwrap();
        let parts = [(1, 3), (4, 0), (4, 7)].map(|(at, n)| batches[0].slice(at, n).unwrap());
        let written = rig.write((&schema, &parts), NPY, &Options::new()).unwrap();
        assert!(written == array(descr, "10,", &values[1..], false), "{descr}");
    }
}

#[test]
fn days_that_do_not_fit_are_errors_that_name_the_row() {
    let rig = Rig::new();
    for day in [i64::from(i32::MAX) + 1, i64::from(i32::MIN) - 1, NAT + 1] {
        let bytes = array("M8[D]", "3, 2", &[0, 1, 2, 3, day, 5], false);
        for &device in devices() {
            let selection = Selection { rows: Some(vec![1..3]), ..Selection::default() };
            let error = rig.read(&bytes, (NPY, true), device, &selection).unwrap_err();
            assert_eq!((error.code(), error.row()), (Code::UNSUPPORTED, Some(2)));
            let expected =
                format!("tensor 'values': row 2 is {day} days from 1970-01-01, expected -2147483648 to");
            assert!(error.message().contains(&expected), "{error}");
        }
    }
}
