//! What the kernels' tests share.

mod emulated;

use std::io::Write;
use std::path::PathBuf;

use crossdock_memory::{Buffer, Device, Stream};
use crossdock_test_support::{TestHost, devices};

/// Bytes on the stream's device, beginning at an odd address.
pub fn buffer(stream: &Stream, bytes: &[u8]) -> Buffer {
    let fill = |to: &mut [u8]| {
        to[1..].copy_from_slice(bytes);
        Ok(())
    };
    let whole = stream.memory().alloc_with(stream, bytes.len() + 1, fill).unwrap().freeze(stream).unwrap();
    whole.slice(1, bytes.len()).unwrap()
}

/// Runs a test with a stream of each device that there is, and of one that emulates the CUDA sources.
pub fn on_every_device(test: impl Fn(&Stream) + Sync) {
    on_each_device(|stream, _| test(stream));
}

/// The same; the test is told whether the device is emulated, and thus slow. That goes on beside the others, and where there
/// is a CUDA device nothing needs to stand for it.
pub fn on_each_device(test: impl Fn(&Stream, bool) + Sync) {
    let host = TestHost::new();
    let emulate = || match emulated::stream(&host) {
        Ok(stream) => test(&stream, true),
        Err(why) => drop(writeln!(std::io::stderr(), "skipped: emulated kernels: {why}")),
    };
    std::thread::scope(|scope| {
        if !devices().contains(&Device::cuda(0)) {
            scope.spawn(emulate);
        }
        devices().iter().for_each(|device| test(&host.stream(*device), false));
    });
    host.assert_nothing_leaked();
}

/// The package's folder: where it was built, or where a test that was carried elsewhere runs.
pub fn folder() -> Option<PathBuf> {
    let places = [env!("CARGO_MANIFEST_DIR"), "."].map(PathBuf::from);
    places.into_iter().find(|place| place.join("cuda/crossdock.cuh").exists())
}

pub fn bit(bytes: &[u8], i: usize) -> bool {
    bytes[i / 8] >> (i % 8) & 1 == 1
}

/// 40 bytes without a pattern.
pub fn noise() -> Vec<u8> {
    (0..40u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}
