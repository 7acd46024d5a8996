//! Tests the count of device memory that other libraries and processes use.

use crossdock::api::Device;

use crate::{GPU, setup};

const BYTES: usize = 64 << 20;
/// The accepted deviation: the driver counts in steps of 2 MiB, and sometimes allocates a few bytes
/// for itself.
const TOLERANCE: u64 = BYTES as u64 / 4;

#[test]
fn external_bytes_include_other_libraries_and_exclude_the_pool() {
    let Some((external, host, session)) =
        setup("external_bytes_include_other_libraries_and_exclude_the_pool")
    else {
        return;
    };
    let external_bytes = || host.backend().external_bytes(GPU).unwrap().unwrap();
    let (start, block) = (external_bytes(), session.memory().alloc(session.stream(), BYTES).unwrap());
    assert!(external_bytes().abs_diff(start) < TOLERANCE, "a block of the pool counts as external");
    let address = external.alloc(BYTES);
    assert!(
        external_bytes().abs_diff(start + BYTES as u64) < TOLERANCE,
        "{} after {start}",
        external_bytes()
    );
    external.free(address);
    drop(block);
    assert!(external_bytes().abs_diff(start) < TOLERANCE, "freed memory counts as external");
    for other in [Device::CPU, Device::cuda(99)] {
        assert_eq!(host.backend().external_bytes(other).unwrap(), None, "{other}");
    }
}
