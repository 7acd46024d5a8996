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

/// Numbers without a pattern, the same each time.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn word(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.word() >> 11) as usize % n.max(1)
    }

    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| (self.word() >> 56) as u8).collect()
    }
}
