//! Helpers of the kernels' tests.

mod emulated;

use std::io::Write;
use std::path::PathBuf;

use crossdock_memory::{Buffer, Device, Stream};
use crossdock_test_support::{TestHost, devices};

/// Copies bytes to the stream's device, at an odd address.
pub fn buffer(stream: &Stream, bytes: &[u8]) -> Buffer {
    let fill = |to: &mut [u8]| {
        to[1..].copy_from_slice(bytes);
        Ok(())
    };
    let whole = stream.memory().alloc_with(stream, bytes.len() + 1, fill).unwrap().freeze(stream).unwrap();
    whole.slice(1, bytes.len()).unwrap()
}

/// Runs a test with a stream of each available device. If there is no CUDA device, the test also
/// runs with a stream of the device that emulates the CUDA sources.
pub fn on_every_device(test: impl Fn(&Stream) + Sync) {
    on_each_device(|stream, _| test(stream));
}

/// Like [`on_every_device`], but also passes to the test whether the device is emulated. An
/// emulated device is slow, so a test may run fewer cases on it. If there is no CUDA device, the
/// test also runs on the emulated device, concurrently with the other devices.
pub fn on_each_device(test: impl Fn(&Stream, bool) + Sync) {
    let host = TestHost::new();
    let emulate = || match emulated::stream(&host) {
        Ok(stream) => test(&stream, true),
        Err(reason) => drop(writeln!(std::io::stderr(), "skipped: emulated kernels: {reason}")),
    };
    std::thread::scope(|scope| {
        if !devices().contains(&Device::cuda(0)) {
            scope.spawn(emulate);
        }
        devices().iter().for_each(|device| test(&host.stream(*device), false));
    });
    host.assert_nothing_leaked();
}

/// The package's folder. This is the folder in which the package was built or, if the test was
/// copied elsewhere, the current folder.
pub fn folder() -> Option<PathBuf> {
    let folders = [env!("CARGO_MANIFEST_DIR"), "."].map(PathBuf::from);
    folders.into_iter().find(|folder| folder.join("cuda/crossdock.cuh").exists())
}

pub fn bit(bytes: &[u8], i: usize) -> bool {
    bytes[i / 8] >> (i % 8) & 1 == 1
}

/// 40 pseudorandom bytes.
pub fn noise() -> Vec<u8> {
    (0..40u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}
