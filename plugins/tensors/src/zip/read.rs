//! Reads the central directory of an archive.

use crossdock_memory::{Error, Result, StoredSource};

use super::{
    CENTRAL_HEADER, CENTRAL_HEADER_BYTES, DEFLATED, END, END_64, END_64_BYTES, END_64_LOCATOR,
    END_64_LOCATOR_BYTES, END_BYTES, EXTRA_64, IS_ENCRYPTED, IS_UTF8, LOCAL_HEADER, LOCAL_HEADER_BYTES,
    Member, STORED, check_name,
};

/// The maximum length of the comment of an archive.
const MAX_COMMENT_BYTES: u64 = u16::MAX as u64;
/// The maximum size of a central directory and the maximum number of members. They bound the memory
/// that a malformed archive can request.
const MAX_DIRECTORY_BYTES: u64 = 64 << 20;
const MAX_MEMBERS: u64 = 1 << 16;
/// The maximum ratio of DEFLATE: a match of 258 bytes has at least 2 bits.
const MAX_RATIO: u64 = 1032;
/// The size of a block's header and of its end, which contain no matches, rounded up.
const BLOCK_BYTES: u64 = 64;

/// A member of an archive. Folders have no members.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry {
    pub name: String,
    /// The reason if the member's name, compression or encryption is not supported.
    pub member: std::result::Result<Member, String>,
}

/// Reads the list of members, in the order of the central directory. Checks that the members do not
/// overlap, so that the size of the decompressed members is bounded by the size of the archive.
pub fn read(file: &StoredSource) -> Result<Vec<Entry>> {
    let directory = Directory::find(file)?;
    let headers = file.with(directory.offset, directory.bytes as usize, |bytes| directory.headers(bytes))?;
    let mut entries = Vec::with_capacity(headers.len());
    let mut ranges = Vec::with_capacity(headers.len());
    for header in headers {
        let in_member = |error: Error| error.context(format_args!("member '{}'", header.name));
        let begin = header.data_begin(file, directory.offset).map_err(in_member)?;
        // The range is within the directory's offset, so its end does not overflow.
        ranges.push((header.offset, begin + header.stored_bytes, header.name.clone()));
        if !header.is_folder() {
            let member = header.member(begin).map_err(in_member)?;
            entries.push(Entry { name: header.name, member });
        }
    }
    ranges.sort();
    for (before, after) in ranges.iter().zip(ranges.iter().skip(1)) {
        if after.0 < before.1 {
            return Err(Error::bad_data(format!(
                "the members '{}' and '{}' of the archive overlap at byte {}",
                before.2, after.2, after.0
            ))
            .with_offset(after.0));
        }
    }
    Ok(entries)
}

/// The place of the central directory.
struct Directory {
    offset: u64,
    bytes: u64,
    n_members: u64,
}

impl Directory {
    fn find(file: &StoredSource) -> Result<Self> {
        let len = file.len();
        let find_in = |tail_bytes: u64| {
            let begin = len.saturating_sub(tail_bytes);
            let find = |tail: &[u8]| Ok(find_end(tail).map(|at| begin + at as u64));
            file.with(begin, (len - begin) as usize, find)
        };
        // Most archives have no comment.
        let end = match find_in(END_BYTES)? {
            None => find_in(END_BYTES + MAX_COMMENT_BYTES)?,
            end => end,
        };
        let end = end.ok_or_else(|| {
            Error::bad_data(format!(
                "there is no end of a central directory at the end of the {len} bytes: it is not a zip archive, or it \
                 is truncated"
            ))
        })?;
        let mut fields = [0; END_BYTES as usize];
        file.read_unmapped(end, &mut fields)?;
        let mut fields = Fields(&fields);
        fields.skip(4)?;
        let (disk, directory_disk) = (fields.u16()?, fields.u16()?);
        let (_, n_members) = (fields.u16()?, fields.u16()?);
        let (bytes, offset) = (fields.u32()?, fields.u32()?);
        let mut directory = Self { offset: offset.into(), bytes: bytes.into(), n_members: n_members.into() };
        let mut limit = end;
        let is_long = n_members == u16::MAX || bytes == u32::MAX || offset == u32::MAX;
        let is_on_other_disk = |disk| disk != 0 && !(is_long && disk == u16::MAX);
        if is_on_other_disk(disk) || is_on_other_disk(directory_disk) {
            return Err(Error::unsupported("an archive of several disks"));
        }
        if let Some(at) = end.checked_sub(END_64_LOCATOR_BYTES).filter(|_| is_long) {
            let mut locator = [0; END_64_LOCATOR_BYTES as usize];
            file.read_unmapped(at, &mut locator)?;
            if locator.starts_with(&END_64_LOCATOR) {
                let mut locator = Fields(&locator);
                locator.skip(8)?;
                limit = locator.u64()?;
                directory = Self::read_64(file, limit)?;
            }
        }
        let is_within = directory.offset.checked_add(directory.bytes).is_some_and(|end| end <= limit);
        if !is_within || directory.bytes > MAX_DIRECTORY_BYTES || directory.n_members > MAX_MEMBERS {
            return Err(Error::bad_data(format!(
                "the central directory has {} bytes at offset {} and {} members, expected at most \
                 {MAX_DIRECTORY_BYTES} bytes before offset {limit} and {MAX_MEMBERS} members",
                directory.bytes, directory.offset, directory.n_members
            )));
        }
        Ok(directory)
    }

    /// Reads the end of a directory with 64-bit sizes.
    fn read_64(file: &StoredSource, at: u64) -> Result<Self> {
        let mut fields = [0; END_64_BYTES as usize];
        file.check(at, END_64_BYTES)?;
        file.read_unmapped(at, &mut fields)?;
        if !fields.starts_with(&END_64) {
            return Err(Error::bad_data(format!("at byte {at}: expected the end of a zip64 directory"))
                .with_offset(at));
        }
        let mut fields = Fields(&fields);
        fields.skip(16)?;
        if (fields.u32()?, fields.u32()?) != (0, 0) {
            return Err(Error::unsupported("an archive of several disks"));
        }
        let (_, n_members) = (fields.u64()?, fields.u64()?);
        Ok(Self { n_members, bytes: fields.u64()?, offset: fields.u64()? })
    }

    fn headers(&self, bytes: &[u8]) -> Result<Vec<Header>> {
        let mut fields = Fields(bytes);
        let mut headers = Vec::new();
        while !fields.0.is_empty() {
            let at = self.offset + (bytes.len() - fields.0.len()) as u64;
            let header = Header::read(&mut fields).map_err(|error| error.at_byte(at))?;
            headers.push(header);
        }
        if headers.len() as u64 == self.n_members {
            return Ok(headers);
        }
        Err(Error::bad_data(format!(
            "the central directory has {} members, expected {}",
            headers.len(),
            self.n_members
        )))
    }
}

/// Finds the end of the directory in the last bytes of an archive. Its comment must end with the
/// archive.
fn find_end(tail: &[u8]) -> Option<usize> {
    let last = tail.len().checked_sub(END_BYTES as usize)?;
    (0..=last).rev().find(|at| {
        let fields = tail.get(*at..).unwrap_or_default();
        let comment = fields.get(END_BYTES as usize - 2..END_BYTES as usize);
        fields.starts_with(&END) && comment == Some(&(((last - at) as u16).to_le_bytes()))
    })
}

/// A header of the central directory.
struct Header {
    name: String,
    flags: u16,
    method: u16,
    crc: u32,
    stored_bytes: u64,
    bytes: u64,
    /// The offset of the local header.
    offset: u64,
}

impl Header {
    fn read(fields: &mut Fields<'_>) -> Result<Self> {
        let mut fixed = Fields(fields.take(CENTRAL_HEADER_BYTES)?);
        if fixed.take(4)? != CENTRAL_HEADER {
            return Err(Error::bad_data("expected the header of a member"));
        }
        fixed.skip(4)?;
        let (flags, method) = (fixed.u16()?, fixed.u16()?);
        fixed.skip(4)?;
        let crc = fixed.u32()?;
        let (mut stored_bytes, mut bytes) = (u64::from(fixed.u32()?), u64::from(fixed.u32()?));
        let (name, extra, comment) = (fixed.u16()?, fixed.u16()?, fixed.u16()?);
        fixed.skip(8)?;
        let mut offset = u64::from(fixed.u32()?);
        let name = fields.take(name.into())?;
        let is_text = name.is_ascii() || flags & IS_UTF8 != 0;
        let name = std::str::from_utf8(name).ok().filter(|_| is_text);
        let name = name.ok_or_else(|| Error::bad_data("the name of a member is not UTF-8"))?.to_owned();
        let mut extra = Fields(fields.take(extra.into())?);
        fields.skip(comment.into())?;
        while extra.0.len() >= 4 {
            let (id, n) = (extra.u16()?, extra.u16()?);
            let mut long = Fields(extra.take(n.into())?);
            if id == EXTRA_64 {
                for size in [&mut bytes, &mut stored_bytes, &mut offset] {
                    if *size == u64::from(u32::MAX) {
                        *size = long.u64()?;
                    }
                }
            }
        }
        Ok(Self { name, flags, method, crc, stored_bytes, bytes, offset })
    }

    fn is_folder(&self) -> bool {
        self.name.ends_with('/') && self.bytes == 0
    }

    /// Reads the local header, and returns the offset of the data. The members end at `limit`.
    fn data_begin(&self, file: &StoredSource, limit: u64) -> Result<u64> {
        let at = |error: Error| error.or_offset(self.offset);
        let known = LOCAL_HEADER_BYTES as usize + self.name.len();
        file.check(self.offset, known as u64).map_err(at)?;
        let (method, n_names, n_extra) = file.with(self.offset, known, |bytes| {
            let mut fields = Fields(bytes);
            if fields.take(4)? != LOCAL_HEADER {
                return Err(Error::bad_data(format!("there is no local header at byte {}", self.offset)));
            }
            fields.skip(4)?;
            let method = fields.u16()?;
            fields.skip(16)?;
            let (n_names, n_extra) = (fields.u16()?, fields.u16()?);
            if usize::from(n_names) != self.name.len() || fields.0 != self.name.as_bytes() {
                return Err(Error::bad_data("the local header has another name than the central directory"));
            }
            Ok((method, n_names, n_extra))
        })?;
        if method != self.method {
            return Err(at(Error::bad_data(format!(
                "the local header has compression method {method}, but the central directory {}",
                self.method
            ))));
        }
        let begin = self.offset + LOCAL_HEADER_BYTES + u64::from(n_names) + u64::from(n_extra);
        if begin.checked_add(self.stored_bytes).is_none_or(|end| end > limit) {
            return Err(at(Error::bad_data(format!(
                "it has {} bytes at offset {begin}, but the central directory is at offset {limit}",
                self.stored_bytes
            ))));
        }
        Ok(begin)
    }

    /// `begin` is the offset of the data.
    fn member(&self, begin: u64) -> Result<std::result::Result<Member, String>> {
        if let Err(why) = check_name(&self.name) {
            return Ok(Err(format!("the name of the member '{}' is not supported: {why}", self.name)));
        }
        if self.flags & IS_ENCRYPTED != 0 {
            return Ok(Err("an encrypted member of the archive".to_owned()));
        }
        let Self { stored_bytes, bytes, crc, .. } = *self;
        let is_deflated = match self.method {
            STORED => false,
            DEFLATED => true,
            other => {
                return Ok(Err(format!("compression method {other}, expected 0 (stored) or 8 (deflated)")));
            }
        };
        let max_bytes = match is_deflated {
            true => stored_bytes.saturating_mul(MAX_RATIO).saturating_add(BLOCK_BYTES),
            false => stored_bytes,
        };
        if bytes > max_bytes || (!is_deflated && bytes != stored_bytes) {
            return Err(Error::bad_data(format!(
                "it declares {bytes} bytes, but the archive contains {stored_bytes}, which are at most {max_bytes} \
                 bytes"
            ))
            .with_offset(self.offset));
        }
        Ok(Ok(Member { offset: begin, stored_bytes, bytes, crc, is_deflated }))
    }
}

/// Little-endian numbers.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(n).ok_or_else(|| {
            Error::bad_data(format!(
                "the zip header is truncated: expected {n} more bytes, got {}",
                self.0.len()
            ))
        })?;
        self.0 = rest;
        Ok(taken)
    }

    fn skip(&mut self, n: usize) -> Result<()> {
        self.take(n).map(|_| ())
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.take(N)?.try_into().map_err(|_| Error::internal("a field has another size"))
    }

    fn u16(&mut self) -> Result<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }
}
