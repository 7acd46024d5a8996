//! Compresses and decompresses LZ4 frames.

use std::cell::Cell;
use std::ffi::{CStr, c_void};

use lz4_sys::{
    LZ4F_VERSION, LZ4F_createDecompressionContext, LZ4F_decompress, LZ4F_freeDecompressionContext,
    LZ4F_getErrorName, LZ4F_isError, LZ4F_resetDecompressionContext, LZ4FDecompressOptions,
    LZ4FDecompressionContext, LZ4FPreferences,
};

thread_local! {
    /// An unused context.
    static DECOMPRESS: Cell<Option<Decompressor>> = const { Cell::new(None) };
}

// Functions of the library that its crate does not declare.
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

/// Size of the pieces of a frame that is not in memory, so that each is in the core's cache when it
/// is decompressed.
pub const PIECE_BYTES: usize = 256 << 10;

/// The maximum size of the content of a frame of `stored` bytes: each byte of a match length adds
/// at most 255.
pub fn max_bytes(stored: usize) -> usize {
    stored.saturating_mul(255).saturating_add(64 << 10)
}

/// Compresses `from` to a frame in `scratch`. Returns the frame's length. A reused context might
/// find other matches, so a single call without a context makes the output deterministic.
pub fn compress(from: &[u8], scratch: &mut Vec<u8>) -> Result<usize, String> {
    // SAFETY: a pure function of its arguments, for which NULL preferences are allowed.
    let out = super::frame::with_capacity(scratch, unsafe {
        LZ4F_compressFrameBound(from.len(), std::ptr::null())
    });
    let (to, room) = (out.as_mut_ptr().cast(), out.len());
    // SAFETY: the pointers and lengths are those of the slices `out` and `from`.
    checked(unsafe { LZ4F_compressFrame(to, room, from.as_ptr().cast(), from.len(), std::ptr::null()) })
}

/// Incremental decompression of concatenated frames.
pub struct Frames<'a> {
    to: &'a mut [u8],
    written: usize,
    /// Whether the last frame is complete.
    ended: bool,
    /// Bytes of padding after the last frame.
    after: usize,
    /// Returned to the thread's cache on drop.
    context: Option<Decompressor>,
}

impl<'a> Frames<'a> {
    /// The content of all frames must fill `to` exactly.
    pub fn new(to: &'a mut [u8]) -> Result<Self, String> {
        let context = match DECOMPRESS.take() {
            Some(context) => context.reset(),
            None => Decompressor::new()?,
        };
        Ok(Self { to, written: 0, ended: false, after: 0, context: Some(context) })
    }

    /// Decompresses the next bytes of the frames.
    pub fn add(&mut self, mut from: &[u8]) -> Result<(), String> {
        while let Some(first) = from.first() {
            // No frame begins with a zero byte.
            if self.ended && (self.after > 0 || *first == 0) {
                self.after += from.len();
                if super::frame::is_padding(self.after, from) {
                    return Ok(());
                }
                return Err(format!("is followed by {} bytes that are not padding", self.after));
            }
            let Some(context) = &mut self.context else { break };
            let (read, written, ended) = context.run(from, self.to, self.written)?;
            if read == 0 && written == 0 {
                return Err("has more content".into());
            }
            from = from.get(read..).unwrap_or_default();
            self.written += written;
            self.ended = ended;
        }
        Ok(())
    }

    /// Checks that the frames are complete and have filled the output.
    pub fn end(self) -> Result<(), String> {
        match (self.ended, self.written) {
            (false, _) => Err("is truncated".into()),
            (true, written) if written != self.to.len() => Err(format!("has {written} bytes of content")),
            (true, _) => Ok(()),
        }
    }
}

impl Drop for Frames<'_> {
    fn drop(&mut self) {
        DECOMPRESS.set(self.context.take());
    }
}

struct Decompressor(LZ4FDecompressionContext);

impl Decompressor {
    fn new() -> Result<Self, String> {
        let mut context = LZ4FDecompressionContext(std::ptr::null_mut());
        // SAFETY: `context` is a valid out parameter; `checked` handles an error.
        checked(unsafe { LZ4F_createDecompressionContext(&mut context, LZ4F_VERSION) })?;
        Ok(Self(context))
    }

    /// Discards the state of an incomplete frame.
    fn reset(self) -> Self {
        // SAFETY: the library created the context, which `self` owns.
        unsafe { LZ4F_resetDecompressionContext(self.0) };
        self
    }

    /// Decompresses a part of `from` to `to`, after its first `written` bytes. Returns the numbers
    /// of bytes read and written, and whether the frame has ended.
    fn run(&mut self, from: &[u8], to: &mut [u8], written: usize) -> Result<(usize, usize, bool), String> {
        // `to` stays in place until the frame ends, so the library needs no window of its own.
        let options = LZ4FDecompressOptions { stable_dst: 1, reserved: [0; 3] };
        let to = to.get_mut(written..).unwrap_or_default();
        let (mut n_from, mut n_to) = (from.len(), to.len());
        // SAFETY: the pointers and lengths are those of the slices; the library updates the lengths
        // to what it used.
        let hint = checked(unsafe {
            LZ4F_decompress(self.0, to.as_mut_ptr(), &mut n_to, from.as_ptr(), &mut n_from, &options)
        })?;
        Ok((n_from, n_to, hint == 0))
    }
}

impl Drop for Decompressor {
    fn drop(&mut self) {
        // SAFETY: the library created the context, and only this drop frees it.
        unsafe { LZ4F_freeDecompressionContext(self.0) };
    }
}

fn checked(code: usize) -> Result<usize, String> {
    // SAFETY: both are pure functions of the code; the error name is a static NUL-terminated
    // string.
    unsafe {
        if LZ4F_isError(code) == 0 {
            return Ok(code);
        }
        Err(format!("is invalid: {}", CStr::from_ptr(LZ4F_getErrorName(code)).to_string_lossy()))
    }
}
