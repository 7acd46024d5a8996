//! Tests which functions of the host a stream calls to wait.

use crossdock_memory::{Device, ForeignOwner, Ready};
use crossdock_test_support::RecordingHost;

#[test]
fn stream_waits_for_host_events_and_foreign_events_with_different_functions() {
    let host = RecordingHost::new();
    let stream = host.stream(Device::CPU);
    assert_eq!(stream.native(), RecordingHost::native());
    let host_event = stream.record().unwrap();
    let owner = ForeignOwner::new(());
    // SAFETY: the recording host never dereferences an event, and `owner` owns no memory.
    let foreign_event = unsafe { Ready::from_sync_event(std::ptr::without_provenance_mut(8), &owner) };
    for (ready, expected) in
        [(&Ready::Now, &[][..]), (&host_event, &["stream_wait"]), (&foreign_event, &["stream_wait_raw"])]
    {
        stream.wait(ready).unwrap();
        assert_eq!(host.waits(), expected);
    }
    stream.synchronize().unwrap();
    assert_eq!(host.waits(), ["stream_synchronize"]);
}
