//! Reads and writes the prefix of messages and the head and tail of files.

use crossdock_plugin_api::{Error, Result};

use crate::limits::MAX_METADATA_BYTES;

/// The first and last bytes of a file.
pub const MAGIC: &[u8; 6] = b"ARROW1";
/// Number of bytes before the first message of a file, which contain the magic and its padding.
pub const FILE_HEAD_BYTES: u64 = 8;
/// Maximum size of the magic and its padding, in bytes. Some writers pad more than necessary.
pub const MAX_HEAD_BYTES: u64 = 72;
/// The marker that precedes the length of each message since Arrow 0.15.
pub const CONTINUATION: [u8; 4] = [0xff; 4];
/// The end of a stream.
pub const END_OF_STREAM: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];
/// Size of the tail of a file in bytes. The tail consists of the footer's length and the magic.
pub const FILE_TAIL_BYTES: u64 = 10;

/// Whether the first message of a file has no prefix and begins with its flatbuffer, as in files of
/// Polars. In this case, `word`, which is the first word of the message, is the offset of the root
/// table, which is less than the length of any message.
pub fn is_unprefixed(word: [u8; 4]) -> bool {
    u32::from_le_bytes(word) < 32
}

/// The prefix of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefix {
    /// The stream ends.
    End,
    /// A prefix of `prefix_bytes` bytes, which `metadata_bytes` bytes of metadata follow.
    Message { prefix_bytes: usize, metadata_bytes: usize },
}

/// Reads the first four bytes of a prefix. Returns `None` if they are a continuation marker. In
/// that case, the prefix has four more bytes.
pub fn read_first(word: [u8; 4]) -> Result<Option<Prefix>> {
    if word == CONTINUATION { Ok(None) } else { length(word, 4).map(Some) }
}

/// Reads the four bytes after a continuation marker.
pub fn read_second(word: [u8; 4]) -> Result<Prefix> {
    length(word, 8)
}

fn length(word: [u8; 4], prefix_bytes: usize) -> Result<Prefix> {
    let declared = i32::from_le_bytes(word);
    match usize::try_from(declared) {
        Ok(0) => Ok(Prefix::End),
        Ok(metadata_bytes) if metadata_bytes <= MAX_METADATA_BYTES => {
            Ok(Prefix::Message { prefix_bytes, metadata_bytes })
        }
        _ => Err(Error::bad_data(format!(
            "a message declares {declared} bytes of metadata, expected 1 to {MAX_METADATA_BYTES}"
        ))),
    }
}

/// Number of bytes that identify a stream without continuation markers.
pub const LEGACY_HEAD_BYTES: usize = 16;

/// Bytes that identify a stream without continuation markers (before Arrow 0.15), each with the
/// offset of the bytes in the stream. Such a stream begins with a length below 16 MiB and the
/// flatbuffer of a message. The flatbuffer begins with the offset of its root table, padding, and
/// the size of the table's vtable. The vtable precedes the table and has entries for the first 3, 4
/// or 5 fields.
pub fn legacy_magics() -> Vec<(i64, Vec<u8>)> {
    const OFFSET: i64 = 3;
    let mut magics = Vec::new();
    for vtable in [10u8, 12, 14] {
        for padding in [0u8, 2, 4, 6] {
            let mut magic = vec![0, 4 + padding + vtable, 0, 0, 0];
            magic.resize(magic.len() + usize::from(padding), 0);
            magic.extend([vtable, 0]);
            magics.push((OFFSET, magic));
        }
    }
    magics
}

/// The data that follows the end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Following {
    /// The source ends.
    Nothing,
    /// This many bytes of padding or further end markers follow.
    Padding(usize),
    /// Another stream follows.
    Stream,
    /// A file follows.
    File,
    /// Bytes follow that are neither padding nor Arrow IPC.
    Other,
}

/// Identifies the data that follows a stream by its first bytes. `head` has at least
/// [`LEGACY_HEAD_BYTES`] bytes unless the source ends.
pub fn following(head: &[u8]) -> Following {
    let zeros = head.iter().take_while(|byte| **byte == 0).count();
    // A length is at a multiple of four bytes and may begin with a zero byte, so only multiples of
    // four zeros are padding.
    let padding = if zeros == head.len() { zeros } else { zeros / 4 * 4 };
    let is_legacy = || {
        let begins = |(offset, magic): (i64, Vec<u8>)| {
            head.get(offset as usize..).is_some_and(|rest| rest.starts_with(&magic))
        };
        legacy_magics().into_iter().any(begins)
    };
    match head {
        [] => Following::Nothing,
        _ if padding > 0 => Following::Padding(padding),
        _ if head.starts_with(&END_OF_STREAM) => Following::Padding(END_OF_STREAM.len()),
        _ if head.starts_with(&CONTINUATION) => Following::Stream,
        _ if head.starts_with(MAGIC) => Following::File,
        _ if is_legacy() => Following::Stream,
        _ => Following::Other,
    }
}

/// Returns the number of bytes at the beginning of `gap` that are padding and end markers. `gap`
/// contains the bytes that follow a message.
pub fn padding(gap: &[u8]) -> usize {
    let mut rest = gap;
    loop {
        let zeros = rest.iter().take_while(|byte| **byte == 0).count();
        let after = rest.get(zeros..).unwrap_or_default();
        rest = match after.strip_prefix(&END_OF_STREAM) {
            Some(rest) => rest,
            None => return gap.len() - after.len(),
        };
    }
}

/// Reads the footer's length from the last [`FILE_TAIL_BYTES`] bytes of a file. `tail_start` is the
/// position of these bytes.
pub fn read_tail(tail: [u8; FILE_TAIL_BYTES as usize], tail_start: u64) -> Result<usize> {
    if &tail[4..] != MAGIC {
        return Err(Error::bad_data(format!(
            "the input ends with '{}', expected 'ARROW1': it is truncated, or not an Arrow IPC file",
            tail[4..].escape_ascii()
        )));
    }
    let declared = i32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]);
    usize::try_from(declared)
        .ok()
        .filter(|n| *n > 0 && *n as u64 <= tail_start && *n <= MAX_METADATA_BYTES)
        .ok_or_else(|| {
            Error::bad_data(format!("the footer declares {declared} bytes, expected 1 to {tail_start}"))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_both_framings() {
        let message = |prefix_bytes| Prefix::Message { prefix_bytes, metadata_bytes: 16 };
        assert_eq!(read_first([16, 0, 0, 0]).unwrap(), Some(message(4)));
        assert_eq!(read_first([0xff; 4]).unwrap(), None);
        assert_eq!(read_second([16, 0, 0, 0]).unwrap(), message(8));
        assert_eq!(read_first([0; 4]).unwrap(), Some(Prefix::End));
        assert_eq!(read_second([0; 4]).unwrap(), Prefix::End);
    }

    #[test]
    fn rejects_invalid_lengths() {
        assert!(read_first([0xfe, 0xff, 0xff, 0xff]).is_err());
        assert!(read_second([0xff; 4]).is_err());
        assert!(read_second([0, 0, 0, 0x7f]).is_err());
    }

    #[test]
    fn classifies_the_bytes_after_a_stream() {
        let legacy = [0, 1, 0, 0, 16, 0, 0, 0, 0, 0, 10, 0, 12, 0, 6, 0];
        assert_eq!(following(&[]), Following::Nothing);
        assert_eq!(following(&[0, 0, 0]), Following::Padding(3));
        assert_eq!(following(&[&[0; 4][..], &legacy].concat()), Following::Padding(4));
        assert_eq!(following(&legacy), Following::Stream);
        assert_eq!(following(&END_OF_STREAM), Following::Padding(8));
        assert_eq!(following(&[0xff, 0xff, 0xff, 0xff, 16, 0, 0, 0]), Following::Stream);
        assert_eq!(following(b"ARROW1\0\0"), Following::File);
        assert_eq!(following(&[0, 0, 1]), Following::Other);
        assert_eq!(following(b"PAR1"), Following::Other);
        assert!(legacy_magics().iter().all(|(at, magic)| *at as usize + magic.len() <= LEGACY_HEAD_BYTES));
    }

    #[test]
    fn rejects_footers_larger_than_the_file() {
        let tail = |n: i32| {
            let mut tail = [0; 10];
            tail[..4].copy_from_slice(&n.to_le_bytes());
            tail[4..].copy_from_slice(MAGIC);
            tail
        };
        assert_eq!(read_tail(tail(100), 100).unwrap(), 100);
        assert!(read_tail(tail(101), 100).is_err());
        assert!(read_tail(tail(0), 100).is_err());
        assert!(read_tail(tail(-1), 100).is_err());
        assert!(read_tail([0; 10], 100).is_err());
    }
}
