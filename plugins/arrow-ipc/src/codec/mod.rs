//! The two compressions of Arrow IPC bodies, through their C libraries.
//!
//! A compressed buffer is eight bytes of uncompressed length, little-endian, then one frame; a length of -1 says that
//! the bytes after it are stored as they are (Arrow columnar format, "Compression").

mod frame;
mod lz4;
mod zstd;

use std::cell::RefCell;

use arrow_ipc::CompressionType;
use crossdock_plugin_api::{Error, Result};

/// Which compression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// LZ4 frames.
    Lz4,
    /// Zstandard frames.
    Zstd,
}

thread_local! {
    /// Where frames are made before anybody knows how long they become. Kept, for fresh memory costs as much as LZ4.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// What a thread keeps of it.
const MOST_SCRATCH_BYTES: usize = 16 << 20;

/// Bytes before the frame.
pub const PREFIX_BYTES: usize = 8;

/// What the prefix of a compressed buffer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// The bytes after the prefix are the content.
    Plain(usize),
    /// A frame of so many bytes when decompressed.
    Frame(usize),
}

impl Stored {
    /// Bytes of content.
    pub fn bytes(self) -> usize {
        match self {
            Self::Plain(n) | Self::Frame(n) => n,
        }
    }
}

impl Codec {
    /// The codec of a message's `BodyCompression`.
    pub fn from_wire(codec: CompressionType) -> Result<Self> {
        match codec {
            CompressionType::LZ4_FRAME => Ok(Self::Lz4),
            CompressionType::ZSTD => Ok(Self::Zstd),
            other => Err(Error::unsupported(format!(
                "body compression number {} is unknown: expected 0 (LZ4 frame) or 1 (ZSTD)",
                other.0
            ))),
        }
    }

    /// Its number in metadata.
    pub fn to_wire(self) -> CompressionType {
        match self {
            Self::Lz4 => CompressionType::LZ4_FRAME,
            Self::Zstd => CompressionType::ZSTD,
        }
    }

    /// Its name in options and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }

    /// Reads a buffer's prefix; `stored` is the length of the whole buffer, prefix included. A length that no frame of
    /// that size can hold is refused here, before anybody allocates it.
    pub fn read_prefix(self, prefix: [u8; PREFIX_BYTES], stored: usize) -> Result<Stored> {
        let after = stored.checked_sub(PREFIX_BYTES).ok_or_else(|| {
            Error::bad_data(format!(
                "a compressed buffer has {stored} bytes, expected at least {PREFIX_BYTES}"
            ))
        })?;
        let claimed = i64::from_le_bytes(prefix);
        if claimed == -1 {
            return Ok(Stored::Plain(after));
        }
        let bytes = usize::try_from(claimed).map_err(|_| {
            Error::bad_data(format!("a compressed buffer claims {claimed} uncompressed bytes"))
        })?;
        let most = match self {
            Self::Lz4 => lz4::most_bytes(after),
            Self::Zstd => zstd::most_bytes(after),
        };
        if bytes > most {
            return Err(Error::bad_data(format!(
                "a buffer of {after} bytes of {} claims {bytes} uncompressed bytes, but can hold {most} at most",
                self.name()
            )));
        }
        Ok(Stored::Frame(bytes))
    }

    /// Fills `to` with what the frames in `from` hold: exactly that many bytes.
    pub fn decompress(self, from: &[u8], to: &mut [u8]) -> Result<()> {
        self.decompress_pieces(from.len(), to, |_, next| next(from))
    }

    /// The same for `bytes` bytes of frames that `read` hands over, in order, in pieces of no more than it is told.
    pub fn decompress_pieces(
        self,
        bytes: usize,
        to: &mut [u8],
        read: impl FnOnce(usize, &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()>,
    ) -> Result<()> {
        let room = to.len();
        let bad = |why| {
            let name = self.name();
            Error::bad_data(format!(
                "a {name} frame of {bytes} bytes that claims {room} uncompressed bytes {why}"
            ))
        };
        match self {
            Self::Lz4 => {
                let mut frame = lz4::Frames::new(to).map_err(bad)?;
                read(lz4::PIECE_BYTES, &mut |piece| frame.add(piece).map_err(bad))?;
                frame.end().map_err(bad)
            }
            // Whole: otherwise the library unpacks into a window of its own, and copies.
            Self::Zstd => read(usize::MAX, &mut |frame| zstd::decompress(frame, to).map_err(bad)),
        }
    }

    /// The buffer to store for `from`, prefix included; stored plain where the frame would not be shorter.
    pub fn compress(self, from: &[u8]) -> Result<Vec<u8>> {
        SCRATCH.with_borrow_mut(|scratch| {
            let frame = match self {
                Self::Lz4 => lz4::compress(from, scratch),
                Self::Zstd => zstd::compress(from, scratch),
            };
            let frame =
                frame.map_err(|why| Error::internal(format!("{} compression failed: {why}", self.name())))?;
            let (prefix, content) = match scratch.get(..frame) {
                Some(frame) if frame.len() < from.len() => (from.len() as i64, frame),
                _ => (-1, from),
            };
            let mut out = Vec::with_capacity(PREFIX_BYTES + content.len());
            out.extend_from_slice(&prefix.to_le_bytes());
            out.extend_from_slice(content);
            if scratch.len() > MOST_SCRATCH_BYTES {
                *scratch = Vec::new();
            }
            Ok(out)
        })
    }
}

#[cfg(test)]
mod tests;
