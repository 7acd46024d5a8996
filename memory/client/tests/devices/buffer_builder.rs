//! Tests `BufferBuilder`.

use crossdock_memory::{BufferBuilder, Code, Device};
use crossdock_memory_backend::Backend;
use crossdock_test_support::TestHost;

#[test]
fn appends_pieces_of_any_length_in_host_memory() {
    let host = TestHost::new();
    let mut builder = BufferBuilder::new(&host.memory()).unwrap();
    assert!(builder.is_empty() && builder.bytes().unwrap().is_empty());
    let expected: Vec<u8> = (0..100_000u32).map(|i| (i % 251) as u8).collect();
    // Appends pieces of many lengths, including 0 bytes.
    let (mut at, mut piece) = (0, 0);
    while at < expected.len() {
        let end = (at + piece).min(expected.len());
        builder.extend(&expected[at..end]).unwrap();
        (at, piece) = (end, (piece * 3 + 1) % 4099);
    }
    builder.bytes().unwrap()[7] = 0xff;
    assert!(host.backend().ledger().live_bytes() >= expected.len() as u64);
    let buffer = builder.freeze().unwrap();
    let view = buffer.host_view(&host.stream(Device::CPU)).unwrap();
    assert_eq!((view.len(), view[7]), (expected.len(), 0xff));
    assert!(view[..7] == expected[..7] && view[8..] == expected[8..]);
    drop(view);
    assert_eq!(BufferBuilder::new(&host.memory()).unwrap().freeze().unwrap().len(), Some(0));
    drop(buffer);
    host.assert_nothing_leaked();
}

#[test]
fn keeps_its_bytes_when_the_budget_is_exhausted() {
    let host = TestHost::over(Backend::builder().limit_bytes(64 << 10).pool_bytes(0).build());
    let mut builder = BufferBuilder::new(&host.memory()).unwrap();
    let error = loop {
        if let Err(error) = builder.extend(&[7; 1000]) {
            break error;
        }
    };
    assert_eq!(error.code(), Code::OUT_OF_MEMORY);
    let len = builder.len();
    assert!(len > 0 && len <= 64 << 10, "{len}");
    assert!(builder.bytes().unwrap().iter().all(|byte| *byte == 7));
    assert_eq!(builder.reserve(usize::MAX).unwrap_err().code(), Code::OUT_OF_MEMORY);
    assert_eq!(builder.freeze().unwrap().len(), Some(len));
    host.assert_nothing_leaked();
}
