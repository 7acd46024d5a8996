//! Compresses and decompresses Zstandard frames.

use std::cell::RefCell;

use super::frame::{is_padding, with_capacity};
use zstd_safe::{CCtx, DCtx, get_error_name};

thread_local! {
    static DECOMPRESS: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
    static COMPRESS: RefCell<Option<CCtx<'static>>> = const { RefCell::new(None) };
}

/// The compression level. It is the level of Arrow C++, and three times as fast as level 3, the
/// library's default.
const LEVEL: i32 = 1;

/// Maximum number of content bytes in a frame of `stored` bytes. A block consists of at least 4
/// stored bytes, 3 of which are its header, and decompresses to at most 128 KiB.
pub fn max_bytes(stored: usize) -> usize {
    (stored / 4 + 1).saturating_mul(128 << 10)
}

/// Decompresses all frames in `from` to exactly `to`.
pub fn decompress(from: &[u8], to: &mut [u8]) -> Result<(), String> {
    let (frames, content) = frames(from)?;
    if let Some(content) = content
        && content != to.len() as u64
    {
        return Err(format!("has {content} bytes of content"));
    }
    DECOMPRESS.with_borrow_mut(|context| {
        let context = match context {
            Some(context) => context,
            None => context.insert(DCtx::try_create().ok_or("could not be read: out of memory")?),
        };
        match context.decompress(to, frames) {
            Ok(n) if n == to.len() => Ok(()),
            Ok(n) => Err(format!("has {n} bytes of content")),
            Err(e) => Err(error_text(e)),
        }
    })
}

/// Returns the frames in `from` without padding, and the size of their content if all frames
/// declare it.
fn frames(from: &[u8]) -> Result<(&[u8], Option<u64>), String> {
    let (mut end, mut content) = (0, Some(0u64));
    loop {
        let (frames, rest) = from.split_at_checked(end).ok_or("is truncated")?;
        if end > 0 && is_padding(rest.len(), rest) {
            return Ok((frames, content));
        }
        let bytes = match zstd_safe::find_frame_compressed_size(rest) {
            Ok(bytes) => bytes,
            Err(code) if end == 0 => return Err(error_text(code)),
            Err(code) => {
                return Err(format!(
                    "is followed by {} bytes that are not a frame: {}",
                    rest.len(),
                    get_error_name(code)
                ));
            }
        };
        let frame = rest.get(..bytes).ok_or("is truncated")?;
        let frame_content = zstd_safe::get_frame_content_size(frame).ok().flatten();
        content = content.zip(frame_content).and_then(|(sum, more)| sum.checked_add(more));
        end += bytes;
    }
}

/// Compresses `from` to a frame in `scratch`. Returns the frame's length.
pub fn compress(from: &[u8], scratch: &mut Vec<u8>) -> Result<usize, String> {
    COMPRESS.with_borrow_mut(|context| {
        let context = match context {
            Some(context) => context,
            None => context.insert(CCtx::try_create().ok_or("out of memory")?),
        };
        context
            .compress(with_capacity(scratch, zstd_safe::compress_bound(from.len())), from, LEVEL)
            .map_err(error_text)
    })
}

fn error_text(code: usize) -> String {
    format!("is invalid: {}", get_error_name(code))
}
