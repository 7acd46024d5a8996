//! LZ4 frames.

use std::cell::Cell;
use std::ffi::{CStr, c_void};

use lz4_sys::{
    LZ4F_VERSION, LZ4F_createDecompressionContext, LZ4F_decompress, LZ4F_freeDecompressionContext,
    LZ4F_getErrorName, LZ4F_isError, LZ4F_resetDecompressionContext, LZ4FDecompressOptions,
    LZ4FDecompressionContext, LZ4FPreferences,
};

thread_local! {
    /// One that no frame uses.
    static DECOMPRESS: Cell<Option<Decompressor>> = const { Cell::new(None) };
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

/// How much of a frame is read at once where it is not in memory: blocks of it, that are in the core's cache when they are
/// unpacked.
pub const PIECE_BYTES: usize = 256 << 10;

/// The most that a frame of `stored` bytes can hold: each byte of a match length adds 255 at most.
pub fn most_bytes(stored: usize) -> usize {
    stored.saturating_mul(255).saturating_add(64 << 10)
}

/// Makes a frame in `scratch`; its length. In one call, because a context that was used before may find other matches: the
/// same bytes always make the same frame.
pub fn compress(from: &[u8], scratch: &mut Vec<u8>) -> Result<usize, String> {
    // SAFETY: a pure function of its arguments; null preferences are the defaults.
    let out = super::frame::room(scratch, unsafe { LZ4F_compressFrameBound(from.len(), std::ptr::null()) });
    let (to, room) = (out.as_mut_ptr().cast(), out.len());
    // SAFETY: it reads `from` and writes into `out`, both of the lengths that it is told.
    checked(unsafe { LZ4F_compressFrame(to, room, from.as_ptr().cast(), from.len(), std::ptr::null()) })
}

/// Frames, one after another, that are unpacked while their bytes come in.
pub struct Frames<'a> {
    to: &'a mut [u8],
    written: usize,
    /// Whether the last one that began has ended.
    ended: bool,
    /// Bytes of padding after it.
    after: usize,
    /// Given back in the end.
    context: Option<Decompressor>,
}

impl<'a> Frames<'a> {
    /// They shall hold exactly as many bytes together as `to` has.
    pub fn new(to: &'a mut [u8]) -> Result<Self, String> {
        let context = match DECOMPRESS.take() {
            Some(context) => context.reset(),
            None => Decompressor::new()?,
        };
        Ok(Self { to, written: 0, ended: false, after: 0, context: Some(context) })
    }

    /// The next bytes of them.
    pub fn add(&mut self, mut from: &[u8]) -> Result<(), String> {
        while let Some(first) = from.first() {
            // No frame begins with a zero.
            if self.ended && (self.after > 0 || *first == 0) {
                self.after += from.len();
                if super::frame::is_padding(self.after, from) {
                    return Ok(());
                }
                return Err(format!("is followed by {} more bytes", self.after));
            }
            let Some(context) = &mut self.context else { break };
            let (read, written, ended) = context.run(from, self.to, self.written)?;
            if read == 0 && written == 0 {
                return Err("holds more".into());
            }
            from = from.get(read..).unwrap_or_default();
            self.written += written;
            self.ended = ended;
        }
        Ok(())
    }

    /// Whether they were whole.
    pub fn end(self) -> Result<(), String> {
        match (self.ended, self.written) {
            (false, _) => Err("is cut off".into()),
            (true, written) if written != self.to.len() => Err(format!("holds {written}")),
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
        // SAFETY: the library writes a context into the out parameter, which is checked.
        checked(unsafe { LZ4F_createDecompressionContext(&mut context, LZ4F_VERSION) })?;
        Ok(Self(context))
    }

    /// Makes it forget a frame that an error broke off.
    fn reset(self) -> Self {
        // SAFETY: a context of this library's.
        unsafe { LZ4F_resetDecompressionContext(self.0) };
        self
    }

    /// Unpacks some of `from` behind the first `written` bytes of `to`: how much was read, how much written, and whether
    /// the frame ended there.
    fn run(&mut self, from: &[u8], to: &mut [u8], written: usize) -> Result<(usize, usize, bool), String> {
        // The target stays where it is until the frame ends, so the library need not keep a window of its own.
        let options = LZ4FDecompressOptions { stable_dst: 1, reserved: [0; 3] };
        let to = to.get_mut(written..).unwrap_or_default();
        let (mut n_from, mut n_to) = (from.len(), to.len());
        // SAFETY: the library reads and writes no more than the slices have, and tells how much it did.
        let hint = checked(unsafe {
            LZ4F_decompress(self.0, to.as_mut_ptr(), &mut n_to, from.as_ptr(), &mut n_from, &options)
        })?;
        Ok((n_from, n_to, hint == 0))
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
