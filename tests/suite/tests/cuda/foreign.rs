//! What others have of a device's memory.

use crossdock::api::Device;

use crate::{GPU, setting};

const BYTES: usize = 64 << 20;
/// A GPU's driver counts in steps of 2 MiB, and takes a little for itself now and then.
const LITTLE: u64 = BYTES as u64 / 4;

#[test]
fn what_a_stranger_takes_of_a_device_is_foreign_and_what_the_pool_takes_is_not() {
    let Some((stranger, host, session)) = setting("what_a_stranger_takes_of_a_device") else { return };
    let foreign = || host.backend().foreign_bytes(GPU).unwrap().unwrap();
    let (start, block) = (foreign(), session.memory().alloc(session.stream(), BYTES).unwrap());
    assert!(foreign().abs_diff(start) < LITTLE, "the pool's own block is told to be somebody else's");
    let theirs = stranger.alloc(BYTES);
    assert!(foreign().abs_diff(start + BYTES as u64) < LITTLE, "{} after {start}", foreign());
    stranger.free(theirs);
    drop(block);
    assert!(foreign().abs_diff(start) < LITTLE, "what went back is told to be somebody's");
    for other in [Device::CPU, Device::cuda(99)] {
        assert_eq!(host.backend().foreign_bytes(other).unwrap(), None, "{other}");
    }
}
