//! What streams wait for, where work takes its time.

use crossdock_memory::{Device, ForeignOwner, Ready};
use crossdock_test_support::NotingHost;

#[test]
fn a_stream_waits_in_the_device_s_own_way_for_each_kind_of_moment() {
    let host = NotingHost::new();
    let stream = host.stream(Device::CPU);
    assert_eq!(stream.native(), NotingHost::native());
    let ours = stream.record().unwrap();
    let owner = ForeignOwner::new(());
    // SAFETY: nobody looks at what the host does not.
    let foreign = unsafe { Ready::from_sync_event(std::ptr::without_provenance_mut(8), &owner) };
    for (ready, expected) in
        [(&Ready::Now, &[][..]), (&ours, &["stream_wait"]), (&foreign, &["stream_wait_raw"])]
    {
        stream.wait(ready).unwrap();
        assert_eq!(host.waits(), expected);
    }
    stream.synchronize().unwrap();
    assert_eq!(host.waits(), ["stream_synchronize"]);
}
