//! Writes an archive in order.

use crossdock_memory::{Error, Result};
use crossdock_plugin_api::BufferedSink;
use miniz_oxide::deflate::core::{
    CompressorOxide, TDEFLFlush, TDEFLStatus, compress, create_comp_flags_from_zip_params,
};

use super::{
    CENTRAL_HEADER, DATA_DESCRIPTOR, DEFLATED, END, END_64, END_64_BYTES, END_64_LOCATOR, EXTRA_64,
    HAS_DESCRIPTOR, IS_UTF8, LOCAL_HEADER, LOCAL_HEADER_BYTES, STORED,
};
use crate::crc::Crc32;

/// The version of the format that has 64-bit sizes.
const VERSION_64: u16 = 45;
/// The time that all members have, 1980-01-01 00:00, so that equal tables result in equal files.
const DATE: u16 = 1 << 5 | 1;
/// The id of the extra field that aligns data, and its minimum size.
const EXTRA_PADDING: u16 = 0xd935;
const MIN_PADDING_BYTES: u64 = 6;
/// The size of the extra field with two 64-bit sizes.
const EXTRA_64_BYTES: u64 = 20;
/// The data of stored members begins at a multiple of this number of bytes.
const ALIGNMENT: u64 = 64;
/// The compression level, from 0 to 10. It is zlib's default.
const LEVEL: i32 = 6;
/// A raw stream, without the header of zlib.
const RAW: i32 = -15;
/// The size of the buffer for compressed bytes.
const BUFFER_BYTES: usize = 64 << 10;

/// The compression of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    None,
    Deflate,
}

/// Passes the bytes of a member, in order and in parts, to a function. It is called twice if the
/// member is stored.
pub type Data<'a> = dyn FnMut(&mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> + 'a;

/// Writes the members of an archive.
pub struct ArchiveWriter {
    compression: Compression,
    members: Vec<Written>,
}

struct Written {
    name: String,
    flags: u16,
    method: u16,
    crc: u32,
    stored_bytes: u64,
    bytes: u64,
    offset: u64,
}

impl ArchiveWriter {
    /// An archive without members.
    pub fn new(compression: Compression) -> Self {
        Self { compression, members: Vec::new() }
    }

    /// Writes a member with the bytes of `data`.
    ///
    /// # Errors
    /// Unsupported if the name is too long; the errors of the output and of `data`.
    pub fn member(&mut self, out: &mut BufferedSink, name: &str, data: &mut Data<'_>) -> Result<()> {
        let name_bytes = u16::try_from(name.len()).map_err(|_| {
            Error::unsupported(format!(
                "a name of {} bytes, expected at most {} in a zip archive",
                name.len(),
                u16::MAX
            ))
        })?;
        let mut member = Written {
            name: name.to_owned(),
            flags: if name.is_ascii() { 0 } else { IS_UTF8 },
            method: STORED,
            crc: 0,
            stored_bytes: 0,
            bytes: 0,
            offset: out.position(),
        };
        match self.compression {
            Compression::None => {
                let mut crc = Crc32::new();
                data(&mut |bytes| {
                    crc.add(bytes);
                    member.bytes += bytes.len() as u64;
                    Ok(())
                })?;
                (member.crc, member.stored_bytes) = (crc.value(), member.bytes);
                member.write_local_header(out, name_bytes)?;
                data(&mut |bytes| out.write(bytes))?;
            }
            Compression::Deflate => {
                member.flags |= HAS_DESCRIPTOR;
                member.method = DEFLATED;
                member.write_local_header(out, name_bytes)?;
                member.deflate(out, data)?;
                out.write(&DATA_DESCRIPTOR)?;
                out.write(&member.crc.to_le_bytes())?;
                out.write(&member.stored_bytes.to_le_bytes())?;
                out.write(&member.bytes.to_le_bytes())?;
            }
        }
        self.members.push(member);
        Ok(())
    }

    /// Writes the central directory.
    ///
    /// # Errors
    /// The errors of the output.
    pub fn finish(self, out: &mut BufferedSink) -> Result<()> {
        let begin = out.position();
        for member in &self.members {
            member.write_central_header(out)?;
        }
        let end = out.position();
        let (bytes, n) = (end - begin, self.members.len() as u64);
        let (short_n, short_bytes, short_begin) =
            (u16::try_from(n).unwrap_or(u16::MAX), short(bytes), short(begin));
        if short_n == u16::MAX || short_bytes == u32::MAX || short_begin == u32::MAX {
            out.write(&END_64)?;
            out.write(&(END_64_BYTES - 12).to_le_bytes())?;
            out.write(&VERSION_64.to_le_bytes())?;
            out.write(&VERSION_64.to_le_bytes())?;
            // The numbers of this disk and of the directory's disk.
            out.write(&[0; 8])?;
            for number in [n, n, bytes, begin] {
                out.write(&number.to_le_bytes())?;
            }
            out.write(&END_64_LOCATOR)?;
            out.write(&[0; 4])?;
            out.write(&end.to_le_bytes())?;
            out.write(&1u32.to_le_bytes())?;
        }
        out.write(&END)?;
        out.write(&[0; 4])?;
        out.write(&short_n.to_le_bytes())?;
        out.write(&short_n.to_le_bytes())?;
        out.write(&short_bytes.to_le_bytes())?;
        out.write(&short_begin.to_le_bytes())?;
        out.write(&[0; 2])
    }
}

/// A number in a field of 32 bits. `u32::MAX` if the number is in a field of 64 bits.
fn short(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl Written {
    /// The fields that the local and the central header have in common, up to the time.
    fn write_common(&self, out: &mut BufferedSink) -> Result<()> {
        for field in [VERSION_64, self.flags, self.method, 0, DATE] {
            out.write(&field.to_le_bytes())?;
        }
        out.write(&self.crc.to_le_bytes())
    }

    /// The sizes are always in an extra field, because the size of compressed data is not known.
    fn write_local_header(&self, out: &mut BufferedSink, name_bytes: u16) -> Result<()> {
        let padding = match self.method {
            STORED => self.padding(),
            _ => 0,
        };
        out.write(&LOCAL_HEADER)?;
        self.write_common(out)?;
        out.write(&[0xff; 8])?;
        out.write(&name_bytes.to_le_bytes())?;
        out.write(&((EXTRA_64_BYTES + padding) as u16).to_le_bytes())?;
        out.write(self.name.as_bytes())?;
        out.write(&EXTRA_64.to_le_bytes())?;
        out.write(&16u16.to_le_bytes())?;
        out.write(&self.bytes.to_le_bytes())?;
        out.write(&self.stored_bytes.to_le_bytes())?;
        if padding > 0 {
            out.write(&EXTRA_PADDING.to_le_bytes())?;
            out.write(&((padding - 4) as u16).to_le_bytes())?;
            out.write(&(ALIGNMENT as u16).to_le_bytes())?;
            out.write(&vec![0; (padding - MIN_PADDING_BYTES) as usize])?;
        }
        Ok(())
    }

    /// The size of the extra field after which the data is aligned.
    fn padding(&self) -> u64 {
        let unpadded = self.offset + LOCAL_HEADER_BYTES + self.name.len() as u64 + EXTRA_64_BYTES;
        match unpadded.next_multiple_of(ALIGNMENT) - unpadded {
            0 => 0,
            n if n < MIN_PADDING_BYTES => n + ALIGNMENT,
            n => n,
        }
    }

    fn deflate(&mut self, out: &mut BufferedSink, data: &mut Data<'_>) -> Result<()> {
        let mut compressor = Box::new(CompressorOxide::new(create_comp_flags_from_zip_params(LEVEL, RAW, 0)));
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut crc = Crc32::new();
        let begin = out.position();
        let mut run = |out: &mut BufferedSink, mut input: &[u8], flush: TDEFLFlush| loop {
            let (status, consumed, written) = compress(&mut compressor, input, &mut buffer, flush);
            out.write(buffer.get(..written).unwrap_or_default())?;
            input = input.get(consumed..).unwrap_or_default();
            match status {
                TDEFLStatus::Done => return Ok(()),
                TDEFLStatus::Okay if input.is_empty() && matches!(flush, TDEFLFlush::None) => return Ok(()),
                TDEFLStatus::Okay if consumed > 0 || written > 0 => {}
                _ => return Err(Error::internal("the compressor stopped")),
            }
        };
        data(&mut |bytes| {
            crc.add(bytes);
            self.bytes += bytes.len() as u64;
            run(out, bytes, TDEFLFlush::None)
        })?;
        run(out, &[], TDEFLFlush::Finish)?;
        (self.crc, self.stored_bytes) = (crc.value(), out.position() - begin);
        Ok(())
    }

    fn write_central_header(&self, out: &mut BufferedSink) -> Result<()> {
        let sizes = [self.bytes, self.stored_bytes, self.offset];
        let long: Vec<u64> = sizes.into_iter().filter(|size| short(*size) == u32::MAX).collect();
        let extra_bytes = if long.is_empty() { 0 } else { 4 + 8 * long.len() };
        out.write(&CENTRAL_HEADER)?;
        out.write(&VERSION_64.to_le_bytes())?;
        self.write_common(out)?;
        out.write(&short(self.stored_bytes).to_le_bytes())?;
        out.write(&short(self.bytes).to_le_bytes())?;
        // `member` checked the length of the name.
        out.write(&(self.name.len() as u16).to_le_bytes())?;
        out.write(&(extra_bytes as u16).to_le_bytes())?;
        // The length of the comment, the number of the disk, and the attributes.
        out.write(&[0; 10])?;
        out.write(&short(self.offset).to_le_bytes())?;
        out.write(self.name.as_bytes())?;
        if !long.is_empty() {
            out.write(&EXTRA_64.to_le_bytes())?;
            out.write(&((extra_bytes - 4) as u16).to_le_bytes())?;
            for size in long {
                out.write(&size.to_le_bytes())?;
            }
        }
        Ok(())
    }
}
