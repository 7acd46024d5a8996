//! What the kernels' tests share.
#![allow(clippy::unwrap_used, clippy::panic, dead_code)]

mod emulated;

use std::io::Write;

use crossdock_memory::{Buffer, Stream};
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
pub fn on_every_device(test: impl Fn(&Stream)) {
    let host = TestHost::new();
    devices().iter().for_each(|device| test(&host.stream(*device)));
    match emulated::stream(&host) {
        Ok(stream) => test(&stream),
        Err(why) => writeln!(std::io::stderr(), "skipped: emulated kernels: {why}").unwrap(),
    }
    host.assert_nothing_leaked();
}

pub fn bit(bytes: &[u8], i: usize) -> bool {
    bytes[i / 8] >> (i % 8) & 1 == 1
}

/// 40 bytes without a pattern.
pub fn noise() -> Vec<u8> {
    (0..40u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}
