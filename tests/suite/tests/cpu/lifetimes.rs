//! Tests the lifetimes of hosts, sessions and batches, and that hosts and threads are independent
//! of each other.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use crossdock::source::Input;
use crossdock::{Host, ReadOptions, Session};
use crossdock_arrays::{DeviceBatch, first_difference};
use crossdock_memory_backend::Backend;
use crossdock_plugin_api::{Device, Validate};
use crossdock_tests::{built, sample};

fn host() -> Host {
    let backend = Backend::builder().untouchable(true).build();
    Host::builder().backend(backend).plugins(built()).build().unwrap()
}

fn session(host: &Host, device: Device) -> Session {
    host.session().device(device).validate(Validate::Full).open().unwrap()
}

fn read(session: &Session) -> Vec<DeviceBatch> {
    let input = Input::open(sample(), session.cancel_flag()).unwrap();
    session.read(input, &ReadOptions::default()).unwrap().collect::<Result<_, _>>().unwrap()
}

#[test]
fn batches_outlive_session_plugin_and_host() {
    for device in [Device::CPU, Device::UNTOUCHABLE] {
        let host = host();
        let backend = host.backend().clone();
        let session = session(&host, device);
        let batches = read(&session);
        let stream = session.stream().clone();
        drop((session, host));
        assert_eq!(batches.iter().map(DeviceBatch::len).sum::<usize>(), 27_004);
        assert_eq!(first_difference(&batches[0], &batches[0].clone(), &stream).unwrap(), None);
        assert!(!backend.leaks().is_empty(), "the memory of the batches is alive on {device}");
        drop((batches, stream));
        assert!(backend.leaks().is_empty(), "{device}: {:?}", backend.leaks());
    }
}

#[test]
fn two_hosts_in_one_process_have_separate_ledgers() {
    let (one, two) = (host(), host());
    let (first, second) = (session(&one, Device::CPU), session(&two, Device::UNTOUCHABLE));
    let batches = read(&first);
    let bytes = one.ledger().live_bytes();
    assert!(bytes > 0);
    let other = read(&second);
    assert_eq!(
        one.ledger().live_bytes(),
        bytes,
        "work of the second host does not count in the first ledger"
    );
    drop((second, two));
    assert_eq!(batches.len(), other.len());
    let other = other[0].move_to(first.stream(), Device::CPU).unwrap_or_else(|_| batches[0].clone());
    assert_eq!(first_difference(&batches[0], &other, first.stream()).unwrap(), None);
}

#[test]
fn two_threads_read_through_one_session() {
    let host = host();
    let session = session(&host, Device::CPU);
    let rows: Vec<usize> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..4).map(|_| scope.spawn(|| read(&session).iter().map(DeviceBatch::len).sum())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(rows, [27_004; 4]);
    drop(session);
    assert!(host.settle().is_empty(), "{:?}", host.settle());
}

#[test]
fn record_batch_round_trips() {
    let host = host();
    let session = session(&host, Device::UNTOUCHABLE);
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("n", Arc::new(Int64Array::from(vec![Some(1), None, Some(3)]))),
        ("s", Arc::new(StringArray::from(vec![Some("a"), Some(""), None]))),
    ];
    let batch =
        RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, c)| (n, c, true))).unwrap();
    let table = crossdock::Table::from_record_batch(&session, &batch).unwrap();
    assert_eq!(table.to_record_batches().unwrap(), vec![batch]);
}
