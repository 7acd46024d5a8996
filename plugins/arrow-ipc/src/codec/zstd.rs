//! Zstandard frames.

use std::cell::RefCell;

use super::frame::{is_padding, room};
use zstd_safe::{CCtx, DCtx, get_error_name};

thread_local! {
    static DECOMPRESS: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
    static COMPRESS: RefCell<Option<CCtx<'static>>> = const { RefCell::new(None) };
}

/// The library's own default would be 3; 1 is what Arrow C++ writes with, at three times the speed.
const LEVEL: i32 = 1;

/// The most that a frame of `stored` bytes can hold: blocks have 3 bytes of header, at least one of content, and
/// give 128 KiB at most.
pub fn most_bytes(stored: usize) -> usize {
    (stored / 4 + 1).saturating_mul(128 << 10)
}

/// Fills `to` with what the frames in `from` hold together.
pub fn decompress(from: &[u8], to: &mut [u8]) -> Result<(), String> {
    let (frames, content) = frames(from)?;
    if let Some(content) = content
        && content != to.len() as u64
    {
        return Err(format!("holds {content}"));
    }
    DECOMPRESS.with_borrow_mut(|context| {
        let context = match context {
            Some(context) => context,
            None => context.insert(DCtx::try_create().ok_or("could not be read: out of memory")?),
        };
        match context.decompress(to, frames) {
            Ok(n) if n == to.len() => Ok(()),
            Ok(n) => Err(format!("holds {n}")),
            Err(e) => Err(why(e)),
        }
    })
}

/// The frames in `from`, without padding, and how much they hold together if all of them say so.
fn frames(from: &[u8]) -> Result<(&[u8], Option<u64>), String> {
    let (mut end, mut content) = (0, Some(0u64));
    loop {
        let (frames, rest) = from.split_at_checked(end).ok_or("is cut off")?;
        if end > 0 && is_padding(rest.len(), rest) {
            return Ok((frames, content));
        }
        let bytes = match zstd_safe::find_frame_compressed_size(rest) {
            Ok(bytes) => bytes,
            Err(code) if end == 0 => return Err(why(code)),
            Err(code) => {
                return Err(format!(
                    "is followed by {} more bytes that are no frame: {}",
                    rest.len(),
                    get_error_name(code)
                ));
            }
        };
        let frame = rest.get(..bytes).ok_or("is cut off")?;
        let holds = zstd_safe::get_frame_content_size(frame).ok().flatten();
        content = content.zip(holds).and_then(|(sum, more)| sum.checked_add(more));
        end += bytes;
    }
}

/// Makes a frame in `scratch`; its length.
pub fn compress(from: &[u8], scratch: &mut Vec<u8>) -> Result<usize, String> {
    COMPRESS.with_borrow_mut(|context| {
        let context = match context {
            Some(context) => context,
            None => context.insert(CCtx::try_create().ok_or("out of memory")?),
        };
        context.compress(room(scratch, zstd_safe::compress_bound(from.len())), from, LEVEL).map_err(why)
    })
}

fn why(code: usize) -> String {
    format!("is broken: {}", get_error_name(code))
}
