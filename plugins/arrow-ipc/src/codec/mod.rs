//! Compresses and decompresses the buffers of Arrow IPC bodies.
//!
//! A compressed buffer consists of the uncompressed length as eight little-endian bytes, and of one
//! frame. If the length is -1, uncompressed bytes follow instead of a frame (Arrow columnar format,
//! "Compression").

mod frame;
pub mod lz4;
mod zstd;

use std::cell::RefCell;

use arrow_ipc::CompressionType;
use crossdock_plugin_api::{Error, Result};

/// A method of compressing buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// LZ4 frames.
    Lz4,
    /// Zstandard frames.
    Zstd,
}

thread_local! {
    /// Scratch memory for the output of a compression. It is reused because allocating new memory
    /// takes as long as compressing with LZ4.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Maximum size of the scratch memory that is kept after use, in bytes. Larger scratch memory is
/// freed.
const MAX_SCRATCH_BYTES: usize = 16 << 20;

/// Size of a buffer's prefix in bytes. The prefix contains the uncompressed length.
pub const PREFIX_BYTES: usize = 8;

/// The content of a compressed buffer, as its prefix declares it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredBuffer {
    /// The buffer is not compressed. This many bytes of content follow the prefix.
    Plain(usize),
    /// A frame follows the prefix. It decompresses to this many bytes.
    Frame(usize),
}

impl StoredBuffer {
    /// Size of the uncompressed content in bytes.
    pub fn bytes(self) -> usize {
        match self {
            Self::Plain(n) | Self::Frame(n) => n,
        }
    }
}

impl Codec {
    /// Returns the codec that a message's `BodyCompression` names.
    pub fn from_wire(codec: CompressionType) -> Result<Self> {
        match codec {
            CompressionType::LZ4_FRAME => Ok(Self::Lz4),
            CompressionType::ZSTD => Ok(Self::Zstd),
            other => Err(Error::unsupported(format!(
                "unknown body compression {}, expected 0 (LZ4 frame) or 1 (ZSTD)",
                other.0
            ))),
        }
    }

    /// The number of the codec in the metadata of a message.
    pub fn to_wire(self) -> CompressionType {
        match self {
            Self::Lz4 => CompressionType::LZ4_FRAME,
            Self::Zstd => CompressionType::ZSTD,
        }
    }

    /// The name of the codec in options and error messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }

    /// Reads a buffer's prefix. `stored` is the length of the buffer including the prefix.
    ///
    /// # Errors
    /// Returns an error if a frame of this size cannot contain as many bytes as the prefix
    /// declares. The caller can therefore safely allocate the declared length.
    pub fn read_prefix(self, prefix: [u8; PREFIX_BYTES], stored: usize) -> Result<StoredBuffer> {
        let after = stored.checked_sub(PREFIX_BYTES).ok_or_else(|| {
            Error::bad_data(format!(
                "a compressed buffer has {stored} bytes, expected at least {PREFIX_BYTES}"
            ))
        })?;
        let declared = i64::from_le_bytes(prefix);
        if declared == -1 {
            return Ok(StoredBuffer::Plain(after));
        }
        let bytes = usize::try_from(declared).map_err(|_| {
            Error::bad_data(format!(
                "a compressed buffer declares {declared} uncompressed bytes, expected 0 or more, or -1"
            ))
        })?;
        let max = match self {
            Self::Lz4 => lz4::max_bytes(after),
            Self::Zstd => zstd::max_bytes(after),
        };
        if bytes > max {
            return Err(Error::bad_data(format!(
                "a buffer with a frame of {after} bytes in {} declares {bytes} uncompressed bytes, expected at most {max}",
                self.name()
            )));
        }
        Ok(StoredBuffer::Frame(bytes))
    }

    /// Decompresses all frames in `from` to exactly `to`.
    pub fn decompress(self, from: &[u8], to: &mut [u8]) -> Result<()> {
        self.decompress_pieces(from.len(), to, |_, next| next(from))
    }

    /// Decompresses frames of `bytes` bytes in total. `read(max_bytes, f)` must call `f` with
    /// successive parts of the frames. A part has at most `max_bytes` bytes.
    pub fn decompress_pieces(
        self,
        bytes: usize,
        to: &mut [u8],
        read: impl FnOnce(usize, &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()>,
    ) -> Result<()> {
        let capacity = to.len();
        let bad_data = |why| {
            let name = self.name();
            Error::bad_data(format!(
                "a {name} frame of {bytes} bytes, which should contain {capacity} uncompressed bytes, {why}"
            ))
        };
        match self {
            Self::Lz4 => {
                let mut frame = lz4::Frames::new(to).map_err(bad_data)?;
                read(lz4::PIECE_BYTES, &mut |piece| frame.add(piece).map_err(bad_data))?;
                frame.end().map_err(bad_data)
            }
            // The frames are read as one part. For several parts, the library would decompress to a
            // separate window and copy the content from the window.
            Self::Zstd => read(usize::MAX, &mut |frame| zstd::decompress(frame, to).map_err(bad_data)),
        }
    }

    /// Returns the bytes to store for `from`, including the prefix. The bytes are stored
    /// uncompressed if the frame would be at least as long as `from`.
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
            if scratch.len() > MAX_SCRATCH_BYTES {
                *scratch = Vec::new();
            }
            Ok(out)
        })
    }
}

#[cfg(test)]
mod tests;
