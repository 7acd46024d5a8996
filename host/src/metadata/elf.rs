//! Reads a shared library by the tables that the dynamic loader uses: program headers and the
//! dynamic segment. Section headers may be stripped or wrong.

use object::elf;
use object::read::ReadRef;
use object::read::elf::{Dyn as _, GnuHashTable, HashTable, ProgramHeader as _, Rela as _, Sym as _};
use object::{LittleEndian, U64};

use super::error::MetadataError;
use super::header::{self, Header, LE, Segment, check_count, damaged};
use crossdock_plugin_api::abi;

/// The maximum number of entries in the dynamic segment. The segment has one entry for each needed
/// library.
const MAX_DYNAMIC_ENTRIES: u64 = 4096;
/// The maximum number of bytes that are read from a hash table. A hash table has 4 bytes per
/// symbol.
const MAX_HASH_TABLE_BYTES: u64 = 1 << 20;
/// The maximum length in bytes of a table of relocations or symbols.
const MAX_TABLE_BYTES: u64 = 64 << 20;
/// The maximum length in bytes of the name of a library or a version. It is also the maximum length
/// of a path.
const MAX_NAME_BYTES: usize = 4096;

/// A library as its program headers map it.
pub(super) struct Image<'data, R> {
    data: R,
    segments: &'data [Segment],
    dynamic: &'data [elf::Dyn64<LittleEndian>],
}

impl<'data, R: ReadRef<'data>> Image<'data, R> {
    pub(super) fn open(data: R) -> Result<Self, MetadataError> {
        let segments = header::segments(data)?;
        let mut image = Self { data, segments, dynamic: &[] };
        // Like the loader, this function uses the last PT_DYNAMIC header, and reads the bytes at
        // the header's virtual address instead of its file offset.
        if let Some(segment) = segments.iter().rfind(|s| s.p_type(LE) == elf::PT_DYNAMIC) {
            let n = segment.p_filesz(LE) / size_of::<elf::Dyn64<LittleEndian>>() as u64;
            check_count("entries in the dynamic segment", n, MAX_DYNAMIC_ENTRIES)?;
            let entries: &[elf::Dyn64<LittleEndian>] =
                image.table(segment.p_vaddr(LE), n, "the dynamic segment")?;
            // The loader reads up to the DT_NULL entry, whatever length the header declares.
            let end = entries.iter().position(|entry| entry.tag(LE) == elf::DT_NULL);
            let end = end.ok_or_else(|| damaged("the dynamic segment has no DT_NULL entry"))?;
            image.dynamic = &entries[..end];
        }
        Ok(image)
    }

    /// The bytes of the symbol `crossdock_plugin_meta_v1`, up to the size of this version's struct.
    pub(super) fn metadata_bytes(&self) -> Result<&'data [u8], MetadataError> {
        let (address, bytes) = self.find_symbol(abi::META_SYMBOL)?.ok_or(MetadataError::NotAPlugin)?;
        self.check_not_relocated(address, bytes)?;
        self.read(address, bytes.min(size_of::<abi::PluginMeta>() as u64), "the metadata")
    }

    /// Whether the loader would make the stacks of all threads executable. On x86-64, the loader
    /// also does this for a library without `PT_GNU_STACK`.
    pub(super) fn wants_executable_stack(&self) -> bool {
        let stack = self.segments.iter().rfind(|s| s.p_type(LE) == elf::PT_GNU_STACK);
        stack.map_or(cfg!(target_arch = "x86_64"), |stack| stack.p_flags(LE).contains(elf::PF_X))
    }

    /// The values of all dynamic entries with this tag.
    pub(super) fn dynamic_values(&self, tag: elf::DynamicTag) -> impl DoubleEndedIterator<Item = u64> {
        self.dynamic.iter().filter(move |d| d.tag(LE) == tag).map(|d| d.val(LE))
    }

    /// The last value with this tag, because the loader uses the last value.
    pub(super) fn dynamic_value(&self, tag: elf::DynamicTag) -> Option<u64> {
        self.dynamic_values(tag).next_back()
    }

    /// The string at `offset` of the string table.
    pub(super) fn string(&self, offset: u64) -> Result<String, MetadataError> {
        let bad = || damaged("a name is outside the string table");
        let strings = self.strings()?.ok_or_else(bad)?;
        let rest = usize::try_from(offset).ok().and_then(|o| strings.get(o..)).ok_or_else(bad)?;
        let end = rest.iter().take(MAX_NAME_BYTES).position(|b| *b == 0).ok_or_else(bad)?;
        let name = String::from_utf8_lossy(&rest[..end]);
        // Messages contain the name, so it must not contain characters that control a terminal.
        if name.chars().any(char::is_control) {
            return Err(damaged(&format!("the name '{}' has control characters", name.escape_debug())));
        }
        Ok(name.into_owned())
    }

    fn strings(&self) -> Result<Option<&'data [u8]>, MetadataError> {
        match (self.dynamic_value(elf::DT_STRTAB), self.dynamic_value(elf::DT_STRSZ)) {
            (Some(address), Some(bytes)) => self.read(address, bytes, "the string table").map(Some),
            _ => Ok(None),
        }
    }

    /// The file offset of the byte at `address`, and the number of mapped bytes of the file from
    /// this offset on.
    fn file_range(&self, address: u64) -> Option<(u64, u64)> {
        self.segments.iter().filter(|s| s.p_type(LE) == elf::PT_LOAD).find_map(|s| {
            let within = address.checked_sub(s.p_vaddr(LE))?;
            let remaining = s.p_filesz(LE).checked_sub(within).filter(|remaining| *remaining > 0)?;
            Some((s.p_offset(LE).checked_add(within)?, remaining))
        })
    }

    pub(super) fn read(&self, address: u64, bytes: u64, what: &str) -> Result<&'data [u8], MetadataError> {
        let outside = || damaged(&format!("{what} is outside the file"));
        let (offset, remaining) = self.file_range(address).ok_or_else(outside)?;
        if bytes > remaining || bytes > MAX_TABLE_BYTES {
            return Err(outside());
        }
        self.data.read_bytes_at(offset, bytes).map_err(|()| outside())
    }

    pub(super) fn table<T: object::Pod>(
        &self,
        address: u64,
        n: u64,
        what: &str,
    ) -> Result<&'data [T], MetadataError> {
        let bytes =
            n.checked_mul(size_of::<T>() as u64).ok_or_else(|| damaged(&format!("{what} is too long")))?;
        let bytes = self.read(address, bytes, what)?;
        object::pod::slice_from_all_bytes(bytes).map_err(|()| damaged(&format!("{what} is misaligned")))
    }

    fn symbol_count(&self) -> Result<u64, MetadataError> {
        // The hash table's length is known only from its last entry. Therefore, this closure
        // returns the bytes up to the next table or the end of the segment.
        let tail = |address: u64| {
            let remaining = self.file_range(address).map_or(0, |(_, remaining)| remaining);
            let tables = [elf::DT_SYMTAB, elf::DT_STRTAB, elf::DT_RELA, elf::DT_JMPREL, elf::DT_VERSYM];
            let starts = tables.into_iter().filter_map(|tag| self.dynamic_value(tag)?.checked_sub(address));
            let bytes = starts.filter(|bytes| *bytes > 0).min().unwrap_or(remaining);
            self.read(address, remaining.min(bytes).min(MAX_HASH_TABLE_BYTES), "the symbol hash table")
        };
        let bad = |_| damaged("the symbol hash table is malformed");
        if let Some(address) = self.dynamic_value(elf::DT_GNU_HASH) {
            let table = GnuHashTable::<Header>::parse(LE, tail(address)?).map_err(bad)?;
            // `None` for a table without symbols and for a truncated table, because neither
            // contains the metadata.
            return Ok(table.symbol_table_length(LE).unwrap_or(0).into());
        }
        if let Some(address) = self.dynamic_value(elf::DT_HASH) {
            let table = HashTable::<Header>::parse(LE, tail(address)?).map_err(bad)?;
            return Ok(table.symbol_table_length().into());
        }
        Ok(0)
    }

    /// The address and the size of a defined data symbol.
    pub(super) fn find_symbol(&self, name: &str) -> Result<Option<(u64, u64)>, MetadataError> {
        let n = self.symbol_count()?;
        let (Some(symbols), Some(strings)) = (self.dynamic_value(elf::DT_SYMTAB), self.strings()?) else {
            return Ok(None);
        };
        let symbols: &[elf::Sym64<LittleEndian>] = self.table(symbols, n, "the symbol table")?;
        let named = |symbol: &&elf::Sym64<LittleEndian>| {
            strings
                .get(symbol.st_name(LE) as usize..)
                .and_then(|s| s.strip_prefix(name.as_bytes()))
                .is_some_and(|rest| rest.first() == Some(&0))
        };
        Ok(symbols
            .iter()
            .filter(|s| s.st_shndx(LE) != elf::SHN_UNDEF && s.st_type() == elf::STT_OBJECT)
            .find(named)
            .map(|s| (s.st_value(LE), s.st_size(LE))))
    }

    /// Rejects metadata that the loader would change after it was read from the file.
    fn check_not_relocated(&self, address: u64, bytes: u64) -> Result<(), MetadataError> {
        let end = address.saturating_add(bytes);
        // A relocation writes at most 16 bytes (a TLS descriptor).
        if self.is_relocated(|at| at < end && at.saturating_add(16) > address)? {
            return Err(MetadataError::Bad(
                "the metadata contains pointers, which the loader relocates; expected plain bytes".into(),
            ));
        }
        Ok(())
    }

    /// Whether the loader writes to an address that satisfies `is_match`.
    pub(super) fn is_relocated(&self, is_match: impl Fn(u64) -> bool) -> Result<bool, MetadataError> {
        Ok(self.rela(elf::DT_RELA, elf::DT_RELASZ)?.iter().any(|r| is_match(r.r_offset(LE)))
            || self.rela(elf::DT_JMPREL, elf::DT_PLTRELSZ)?.iter().any(|r| is_match(r.r_offset(LE)))
            || self.relr_addresses()?.any(is_match))
    }

    fn rela(
        &self,
        start: elf::DynamicTag,
        size: elf::DynamicTag,
    ) -> Result<&'data [elf::Rela64<LittleEndian>], MetadataError> {
        match (self.dynamic_value(start), self.dynamic_value(size)) {
            (Some(start), Some(bytes)) if bytes > 0 => self.table(
                start,
                bytes / size_of::<elf::Rela64<LittleEndian>>() as u64,
                "the relocation table",
            ),
            _ => Ok(&[]),
        }
    }

    /// The addresses in the compact table of relative relocations (DT_RELR). In this table, an even
    /// word is an address, and an odd word is a bitmap of the 63 words that follow.
    fn relr_addresses(&self) -> Result<impl Iterator<Item = u64>, MetadataError> {
        let words: &[U64<LittleEndian>] =
            match (self.dynamic_value(elf::DT_RELR), self.dynamic_value(elf::DT_RELRSZ)) {
                (Some(start), Some(bytes)) => self.table(start, bytes / 8, "the relocation table")?,
                _ => &[],
            };
        let mut next = 0u64;
        Ok(words.iter().flat_map(move |word| {
            let word = word.get(LE);
            let (base, bits) = if word & 1 == 0 {
                next = word.wrapping_add(8);
                (word, 1)
            } else {
                let base = next;
                next = next.wrapping_add(63 * 8);
                (base, word >> 1)
            };
            (0..63u64).filter(move |i| bits >> i & 1 == 1).map(move |i| base.wrapping_add(i * 8))
        }))
    }
}
