//! Compresses and decompresses LZ4 frames.

use std::cell::Cell;
use std::ffi::{CStr, c_void};

use lz4_sys::{
    BlockChecksum, BlockMode, BlockSize, ContentChecksum, FrameType, LZ4F_VERSION,
    LZ4F_createDecompressionContext, LZ4F_decompress, LZ4F_freeDecompressionContext, LZ4F_getErrorName,
    LZ4F_getFrameInfo, LZ4F_isError, LZ4F_resetDecompressionContext, LZ4FDecompressOptions,
    LZ4FDecompressionContext, LZ4FFrameInfo, LZ4FPreferences,
};

thread_local! {
    /// The thread's decompression context; `None` while it is in use and before its first use.
    static DECOMPRESS: Cell<Option<Decompressor>> = const { Cell::new(None) };
}

// The crate `lz4_sys` does not declare these functions of the LZ4 library.
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

/// If a frame is not in memory, it is read in parts of this many bytes. A part fits into the cache
/// of a core, so the part is still in the cache when it is decompressed.
pub const PIECE_BYTES: usize = 256 << 10;

/// Maximum number of content bytes in a frame of `stored` bytes. Each stored byte that extends the
/// length of a match adds at most 255 bytes.
pub fn max_bytes(stored: usize) -> usize {
    stored.saturating_mul(255).saturating_add(64 << 10)
}

/// Compresses `from` to a frame in `scratch`. Returns the frame's length. The blocks are
/// independent, so that a device can decompress them at the same time. Does not reuse a context,
/// because a reused context may find different matches, and the output must be deterministic.
pub fn compress(from: &[u8], scratch: &mut Vec<u8>) -> Result<usize, String> {
    let preferences = LZ4FPreferences {
        frame_info: LZ4FFrameInfo { block_mode: BlockMode::Independent, ..frame_info() },
        compression_level: 0,
        auto_flush: 0,
        favor_dec_speed: 0,
        reserved: [0; 3],
    };
    // SAFETY: the result depends only on the arguments.
    let bound = unsafe { LZ4F_compressFrameBound(from.len(), &preferences) };
    let out = super::frame::with_capacity(scratch, bound);
    let (to, room) = (out.as_mut_ptr().cast(), out.len());
    // SAFETY: the pointers and lengths are those of the slices `out` and `from`.
    checked(unsafe { LZ4F_compressFrame(to, room, from.as_ptr().cast(), from.len(), &preferences) })
}

/// The library's defaults: blocks of up to 64 KiB that are linked, and no checksums.
fn frame_info() -> LZ4FFrameInfo {
    LZ4FFrameInfo {
        block_size_id: BlockSize::Max64KB,
        block_mode: BlockMode::Linked,
        content_checksum_flag: ContentChecksum::NoChecksum,
        frame_type: FrameType::Frame,
        content_size: 0,
        dict_id: 0,
        block_checksum_flag: BlockChecksum::NoBlockChecksum,
    }
}

/// Maximum size of the header of a frame in bytes.
pub const MAX_HEADER_BYTES: usize = 19;

/// What a device needs to know of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Size of the header in bytes.
    pub bytes: usize,
    /// Maximum size of a block's content in bytes.
    pub block_bytes: usize,
    /// Whether blocks may refer to the blocks before.
    pub are_linked: bool,
}

impl FrameHeader {
    /// Reads the header of a frame with `content` bytes of content. Returns `None` if the header is
    /// malformed, or if only the host decompresses such a frame: one with checksums, a dictionary
    /// or a wrong length, or a skippable one.
    pub fn read(from: &[u8], content: usize) -> Option<Self> {
        let context = take_context().ok()?;
        let (mut info, mut bytes) = (frame_info(), from.len());
        // SAFETY: the pointer and the length are those of `from`. The library sets `info` to valid
        // values of the enumerations, and `bytes` to the header's size.
        let code = unsafe { LZ4F_getFrameInfo(context.0, &mut info, from.as_ptr(), &mut bytes) };
        DECOMPRESS.set(Some(context));
        checked(code).ok()?;
        let is_plain = matches!(
            (info.frame_type, info.content_checksum_flag, info.block_checksum_flag, info.dict_id),
            (FrameType::Frame, ContentChecksum::NoChecksum, BlockChecksum::NoBlockChecksum, 0)
        );
        let has_length = info.content_size == 0 || info.content_size == content as u64;
        let block_bytes = info.block_size_id.get_size();
        let are_linked = matches!(info.block_mode, BlockMode::Linked) && content > block_bytes;
        (is_plain && has_length).then_some(Self { bytes, block_bytes, are_linked })
    }
}

/// The thread's context, without the state of an incomplete frame.
fn take_context() -> Result<Decompressor, String> {
    match DECOMPRESS.take() {
        Some(context) => Ok(context.reset()),
        None => Decompressor::new(),
    }
}

/// Decompresses concatenated frames step by step.
pub struct Frames<'a> {
    to: &'a mut [u8],
    written: usize,
    /// Whether the last frame that was begun is complete.
    ended: bool,
    /// Number of bytes of padding after the last frame.
    after: usize,
    /// The decompression context. Dropping the frames returns it to the thread's cache.
    context: Option<Decompressor>,
}

impl<'a> Frames<'a> {
    /// Creates a decompressor. The content of all frames together must fill `to` exactly.
    pub fn new(to: &'a mut [u8]) -> Result<Self, String> {
        Ok(Self { to, written: 0, ended: false, after: 0, context: Some(take_context()?) })
    }

    /// Decompresses the next bytes of the frames.
    pub fn add(&mut self, mut from: &[u8]) -> Result<(), String> {
        while let Some(first) = from.first() {
            // A zero byte is padding, because no frame begins with a zero byte.
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

    /// Returns an error unless the frames are complete and have filled the output.
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
        // SAFETY: `context` is a valid out parameter, and `checked` returns if the library reports
        // an error.
        checked(unsafe { LZ4F_createDecompressionContext(&mut context, LZ4F_VERSION) })?;
        Ok(Self(context))
    }

    /// Discards the state of an incomplete frame.
    fn reset(self) -> Self {
        // SAFETY: the library created the context, which `self` owns.
        unsafe { LZ4F_resetDecompressionContext(self.0) };
        self
    }

    /// Decompresses a part of `from` to `to`, beginning at byte `written` of `to`. Returns the
    /// number of bytes read, the number of bytes written, and whether the frame has ended.
    fn run(&mut self, from: &[u8], to: &mut [u8], written: usize) -> Result<(usize, usize, bool), String> {
        // `to` does not move before the frame ends. Therefore the library can use the output as its
        // window and needs no separate window.
        let options = LZ4FDecompressOptions { stable_dst: 1, reserved: [0; 3] };
        let to = to.get_mut(written..).unwrap_or_default();
        let (mut n_from, mut n_to) = (from.len(), to.len());
        // SAFETY: the pointers and lengths are those of the slices. The library sets the lengths to
        // the numbers of bytes that it used.
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
    // SAFETY: both functions accept any code and use no memory of the caller. The error name is a
    // static NUL-terminated string.
    unsafe {
        if LZ4F_isError(code) == 0 {
            return Ok(code);
        }
        Err(format!("is invalid: {}", CStr::from_ptr(LZ4F_getErrorName(code)).to_string_lossy()))
    }
}
