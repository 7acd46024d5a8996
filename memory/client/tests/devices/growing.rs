//! Bytes that come one after another, in the host's memory.

use crossdock_memory::{Code, Device, Growing};
use crossdock_memory_backend::Backend;
use crossdock_test_support::TestHost;

#[test]
fn bytes_are_kept_in_order_and_belong_to_the_host() {
    let host = TestHost::new();
    let mut growing = Growing::new(&host.memory()).unwrap();
    assert!(growing.is_empty() && growing.bytes().unwrap().is_empty());
    let expected: Vec<u8> = (0..100_000u32).map(|i| (i % 251) as u8).collect();
    // Pieces of all lengths, none among them.
    let (mut at, mut piece) = (0, 0);
    while at < expected.len() {
        let end = (at + piece).min(expected.len());
        growing.extend(&expected[at..end]).unwrap();
        (at, piece) = (end, (piece * 3 + 1) % 4099);
    }
    growing.bytes().unwrap()[7] = 0xff;
    assert!(host.backend().ledger().live_bytes() >= expected.len() as u64);
    let buffer = growing.freeze().unwrap();
    let view = buffer.host_view(&host.stream(Device::CPU)).unwrap();
    assert_eq!((view.len(), view[7]), (expected.len(), 0xff));
    assert!(view[..7] == expected[..7] && view[8..] == expected[8..]);
    drop(view);
    assert_eq!(Growing::new(&host.memory()).unwrap().freeze().unwrap().len(), Some(0));
    drop(buffer);
    host.assert_nothing_leaked();
}

#[test]
fn where_the_budget_ends_what_is_there_stays() {
    let host = TestHost::over(Backend::builder().limit_bytes(64 << 10).pool_bytes(0).build());
    let mut growing = Growing::new(&host.memory()).unwrap();
    let error = loop {
        if let Err(error) = growing.extend(&[7; 1000]) {
            break error;
        }
    };
    assert_eq!(error.code(), Code::OUT_OF_MEMORY);
    let len = growing.len();
    assert!(len > 0 && len <= 64 << 10, "{len}");
    assert!(growing.bytes().unwrap().iter().all(|byte| *byte == 7));
    assert_eq!(growing.reserve(usize::MAX).unwrap_err().code(), Code::OUT_OF_MEMORY);
    assert_eq!(growing.freeze().unwrap().len(), Some(len));
    host.assert_nothing_leaked();
}
