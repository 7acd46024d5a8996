//! LZ4 frames.

use std::cell::RefCell;
use std::ffi::{CStr, c_void};

use lz4_sys::{
    LZ4F_VERSION, LZ4F_createDecompressionContext, LZ4F_decompress, LZ4F_freeDecompressionContext,
    LZ4F_getErrorName, LZ4F_isError, LZ4F_resetDecompressionContext, LZ4FDecompressOptions,
    LZ4FDecompressionContext, LZ4FPreferences,
};

thread_local! {
    static DECOMPRESS: RefCell<Option<Decompressor>> = const { RefCell::new(None) };
}

// Parts of the same library that its crate leaves out.
unsafe extern "C" {
    fn LZ4F_compressFrameBound(bytes: usize, preferences: *const LZ4FPreferences) -> usize;
    fn LZ4F_compressFrame(
        to: *mut c_void,
        room: usize,
        from: *const c_void,
        bytes: usize,
        preferences: *const LZ4FPreferences,
    ) -> usize;
}

/// The most that a frame of `stored` bytes can hold: each byte of a match length adds 255 at most.
pub fn most_bytes(stored: usize) -> usize {
    stored.saturating_mul(255).saturating_add(64 << 10)
}

pub fn decompress(from: &[u8], to: &mut [u8]) -> Result<(), String> {
    DECOMPRESS.with_borrow_mut(|context| match context {
        Some(context) => context.run(from, to),
        None => context.insert(Decompressor::new()?).run(from, to),
    })
}

/// Makes a frame in `scratch`; its length. In one call, because a context that was used before may find other matches: the
/// same bytes always make the same frame.
pub fn compress(from: &[u8], scratch: &mut Vec<u8>) -> Result<usize, String> {
    // SAFETY: a pure function of its arguments; null preferences are the defaults.
    let out = super::room(scratch, unsafe { LZ4F_compressFrameBound(from.len(), std::ptr::null()) });
    let (to, room) = (out.as_mut_ptr().cast(), out.len());
    // SAFETY: it reads `from` and writes into `out`, both of the lengths that it is told.
    checked(unsafe { LZ4F_compressFrame(to, room, from.as_ptr().cast(), from.len(), std::ptr::null()) })
}

struct Decompressor(LZ4FDecompressionContext);

impl Decompressor {
    fn new() -> Result<Self, String> {
        let mut context = LZ4FDecompressionContext(std::ptr::null_mut());
        // SAFETY: the library writes a context into the out parameter, which is checked.
        checked(unsafe { LZ4F_createDecompressionContext(&mut context, LZ4F_VERSION) })?;
        Ok(Self(context))
    }

    fn run(&mut self, from: &[u8], to: &mut [u8]) -> Result<(), String> {
        // SAFETY: a context of this library's; this makes it forget a frame that an earlier error broke off.
        unsafe { LZ4F_resetDecompressionContext(self.0) };
        // The target stays where it is until the frame ends, so the library need not keep a window of its own.
        let options = LZ4FDecompressOptions { stable_dst: 1, reserved: [0; 3] };
        let (mut read, mut written) = (0, 0);
        loop {
            let (mut n_from, mut n_to) = (from.len() - read, to.len() - written);
            // SAFETY: both ranges are what is left of the slices; the library reads and writes no more than that, and
            // tells how much it did.
            let hint = checked(unsafe {
                LZ4F_decompress(
                    self.0,
                    to[written..].as_mut_ptr(),
                    &mut n_to,
                    from[read..].as_ptr(),
                    &mut n_from,
                    &options,
                )
            })?;
            read += n_from;
            written += n_to;
            if hint == 0 {
                break;
            }
            if n_from == 0 && n_to == 0 {
                return Err(if read == from.len() { "is cut off".into() } else { "holds more".into() });
            }
        }
        if written != to.len() {
            return Err(format!("holds {written}"));
        }
        if !super::is_padding(&from[read..]) {
            return Err(format!("is followed by {} more bytes", from.len() - read));
        }
        Ok(())
    }
}

impl Drop for Decompressor {
    fn drop(&mut self) {
        // SAFETY: made by this library, freed once.
        unsafe { LZ4F_freeDecompressionContext(self.0) };
    }
}

fn checked(code: usize) -> Result<usize, String> {
    // SAFETY: pure functions of the code; the name is a constant string.
    unsafe {
        if LZ4F_isError(code) == 0 {
            return Ok(code);
        }
        Err(format!("is broken: {}", CStr::from_ptr(LZ4F_getErrorName(code)).to_string_lossy()))
    }
}
