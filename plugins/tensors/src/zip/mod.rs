//! Reads and writes zip archives (PKWARE's APPNOTE 6.3.9): members that are stored or deflated, on
//! one disk, with 64-bit sizes, without encryption.

mod inflate;
mod read;
#[cfg(test)]
mod tests;
mod write;

pub use inflate::{Inflater, check_crc};
pub use read::read;
pub use write::{ArchiveWriter, Compression};

/// The bytes at the beginning of an archive, and those of an empty archive.
pub const MAGICS: [&[u8]; 2] = [b"PK\x03\x04", b"PK\x05\x06"];

const LOCAL_HEADER: [u8; 4] = *b"PK\x03\x04";
const DATA_DESCRIPTOR: [u8; 4] = *b"PK\x07\x08";
const CENTRAL_HEADER: [u8; 4] = *b"PK\x01\x02";
const END: [u8; 4] = *b"PK\x05\x06";
const END_64: [u8; 4] = *b"PK\x06\x06";
const END_64_LOCATOR: [u8; 4] = *b"PK\x06\x07";

/// The sizes of the fixed parts of headers in bytes.
const LOCAL_HEADER_BYTES: u64 = 30;
const CENTRAL_HEADER_BYTES: usize = 46;
const END_BYTES: u64 = 22;
const END_64_BYTES: u64 = 56;
const END_64_LOCATOR_BYTES: u64 = 20;

/// The id of the extra field with 64-bit sizes.
const EXTRA_64: u16 = 1;
/// The compression methods.
const STORED: u16 = 0;
const DEFLATED: u16 = 8;
/// Flag bits: encrypted, sizes in a data descriptor, name in UTF-8.
const IS_ENCRYPTED: u16 = 1;
const HAS_DESCRIPTOR: u16 = 1 << 3;
const IS_UTF8: u16 = 1 << 11;

/// Returns the reason if a program that extracts the archive could write a member with this name
/// outside of the folder that it extracts to.
pub fn check_name(name: &str) -> Result<(), &'static str> {
    let is_drive = |bytes: &[u8]| matches!(bytes, [drive, b':', ..] if drive.is_ascii_alphabetic());
    if name.starts_with(['/', '\\']) || is_drive(name.as_bytes()) {
        return Err("it is an absolute path, expected a relative one");
    }
    match name.split(['/', '\\']).any(|part| part == "..") {
        true => Err("it contains the part '..', which leads out of the archive's folder"),
        false => Ok(()),
    }
}

/// The data of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The offset of the first byte of the data.
    pub offset: u64,
    /// The number of bytes in the archive.
    pub stored_bytes: u64,
    /// The number of bytes after decompression.
    pub bytes: u64,
    /// The CRC-32 of the decompressed bytes.
    pub crc: u32,
    /// Whether the data is compressed with DEFLATE. Otherwise it is stored as it is.
    pub is_deflated: bool,
}
