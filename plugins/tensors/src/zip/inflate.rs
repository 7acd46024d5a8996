//! Decompresses a member in order, and checks its length and its CRC-32.

use crossdock_memory::{Error, Result, StoredSource};
use miniz_oxide::inflate::stream::{InflateState, inflate};
use miniz_oxide::{DataFormat, MZError, MZFlush, MZStatus};

use super::Member;
use crate::crc::Crc32;
use crate::jobs::Check;

/// The number of compressed bytes that are read at once.
const INPUT_BYTES: usize = 64 << 10;

/// The decompression of one member, which reads its bytes in order.
pub struct Inflater {
    state: Box<InflateState>,
    member: Member,
    input: Vec<u8>,
    /// The bytes of `input` that are not decompressed yet.
    pending: std::ops::Range<usize>,
    /// The number of compressed bytes that were read.
    n_read: u64,
    /// The number of bytes that were decompressed.
    n_done: u64,
    crc: Crc32,
    is_checked: bool,
}

impl Inflater {
    /// Begins at the first byte of the member.
    pub fn new(member: &Member) -> Self {
        Self {
            state: InflateState::new_boxed(DataFormat::Raw),
            member: member.clone(),
            input: Vec::new(),
            pending: 0..0,
            n_read: 0,
            n_done: 0,
            crc: Crc32::new(),
            is_checked: false,
        }
    }

    /// Whether all bytes of the member were decompressed and checked.
    pub fn is_at_end(&self) -> bool {
        self.is_checked
    }

    /// The number of bytes that were decompressed.
    pub fn position(&self) -> u64 {
        self.n_done
    }

    /// Fills `to` with the next bytes. After the last byte of the member, checks its CRC-32.
    ///
    /// # Errors
    /// If the member has fewer bytes than it declares, or more, or if it is malformed.
    pub fn read(&mut self, check: &Check<'_>, file: &StoredSource, to: &mut [u8]) -> Result<()> {
        let mut rest = &mut *to;
        while !rest.is_empty() {
            let (written, is_end) = self.step(check, file, rest)?;
            rest = rest.get_mut(written..).unwrap_or_default();
            if is_end && !rest.is_empty() {
                return Err(Error::bad_data(format!(
                    "the compressed data ends after {} bytes, expected {}",
                    self.n_done, self.member.bytes
                )));
            }
        }
        self.crc.add(to);
        if self.n_done == self.member.bytes && !self.is_checked {
            self.check_end(check, file)?;
        }
        Ok(())
    }

    /// Skips bytes.
    ///
    /// # Errors
    /// The errors of [`Self::read`].
    pub fn skip(&mut self, check: &Check<'_>, file: &StoredSource, bytes: u64) -> Result<()> {
        let mut scratch = vec![0; bytes.min(INPUT_BYTES as u64) as usize];
        let mut left = bytes;
        while left > 0 {
            let n = left.min(scratch.len() as u64);
            self.read(check, file, scratch.get_mut(..n as usize).unwrap_or_default())?;
            left -= n;
        }
        Ok(())
    }

    /// Checks that the compressed data ends, and that the bytes have the declared CRC-32.
    fn check_end(&mut self, check: &Check<'_>, file: &StoredSource) -> Result<()> {
        self.is_checked = true;
        let mut more = [0];
        loop {
            let (written, is_end) = self.step(check, file, &mut more)?;
            if written > 0 {
                return Err(Error::bad_data(format!(
                    "the compressed data has more than {} bytes",
                    self.member.bytes
                )));
            }
            if is_end {
                break;
            }
        }
        check_crc(self.crc, &self.member)
    }

    /// Decompresses some bytes. Returns their number, and whether the compressed data ends.
    fn step(&mut self, check: &Check<'_>, file: &StoredSource, to: &mut [u8]) -> Result<(usize, bool)> {
        if self.pending.is_empty() && self.n_read < self.member.stored_bytes {
            check()?;
            let n = (self.member.stored_bytes - self.n_read).min(INPUT_BYTES as u64) as usize;
            self.input.resize(n, 0);
            file.read(self.member.offset + self.n_read, &mut self.input)?;
            self.n_read += n as u64;
            self.pending = 0..n;
        }
        let input = self.input.get(self.pending.clone()).unwrap_or_default();
        let result = inflate(&mut self.state, input, to, MZFlush::None);
        self.pending.start += result.bytes_consumed;
        self.n_done += result.bytes_written as u64;
        let malformed = |what: &str| {
            Error::bad_data(format!(
                "the compressed data is {what} at byte {} of {}",
                self.n_read - self.pending.len() as u64,
                self.member.stored_bytes
            ))
        };
        match result.status {
            Ok(MZStatus::StreamEnd) => Ok((result.bytes_written, true)),
            Ok(_) | Err(MZError::Buf) if result.bytes_written > 0 || result.bytes_consumed > 0 => {
                Ok((result.bytes_written, false))
            }
            Ok(_) | Err(MZError::Buf) => Err(malformed("truncated")),
            Err(_) => Err(malformed("malformed")),
        }
    }
}

/// Compares a checksum with the checksum that the archive declares. Accepts every checksum in a
/// fuzzer, which changes bytes without the checksum.
pub fn check_crc(crc: Crc32, member: &Member) -> Result<()> {
    if crc.value() == member.crc || cfg!(fuzzing) {
        return Ok(());
    }
    Err(Error::bad_data(format!(
        "the bytes have the CRC-32 {:08x}, but the archive declares {:08x}: they are damaged",
        crc.value(),
        member.crc
    )))
}
