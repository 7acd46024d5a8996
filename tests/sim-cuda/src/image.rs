//! Checks code images like a real driver does before it loads an image.

use std::collections::HashSet;
use std::ffi::{CStr, c_char, c_void};

use object::read::elf::ElfFile64;
use object::{LittleEndian, Object, ObjectSymbol};

use crate::codes::{INVALID_IMAGE, INVALID_PTX, NO_BINARY_FOR_GPU, Outcome, UNSUPPORTED_PTX_VERSION};

/// A code image. Each variant has the data in which functions are looked up by name.
pub(crate) enum Image {
    /// The symbols of a cubin.
    Symbols(HashSet<String>),
    /// PTX text, in which `.entry` directives declare the functions.
    Ptx(String),
    /// The bytes of a fatbin, which may contain cubins and PTX.
    Fatbin(Vec<u8>),
}

const ELF_MAGIC: &[u8] = b"\x7fELF";
const FATBIN_MAGIC: u32 = 0xba55_ed50;
/// `SHT_NOBITS`.
const SECTION_WITHOUT_BYTES: u32 = 8;
const MACHINE_CUDA: u16 = 190;
/// The first ELF ABI version in which the second byte of a cubin's flags is the architecture. In
/// earlier versions, it is the first byte.
const ABI_OF_CUDA_13: u8 = 8;
/// The maximum size of an image, in bytes.
const MAX_BYTES: u64 = 1 << 30;

impl Image {
    /// Reads an image for a device with the given compute capability and a driver with the given
    /// version.
    ///
    /// # Safety
    /// `image` is null, or points to a whole cubin, a whole fatbin, or PTX that ends with a NUL.
    pub(crate) unsafe fn read(image: *const c_void, capability: u32, version: i32) -> Outcome<Self> {
        if image.is_null() {
            return Err(crate::codes::INVALID_VALUE);
        }
        let bytes = image.cast::<u8>();
        // SAFETY: `take_until_nul` requires 4 readable bytes or a NUL. A cubin or fatbin has at
        // least 4 bytes, and PTX ends with a NUL.
        let magic = unsafe { take_until_nul(bytes) };
        if magic == ELF_MAGIC {
            // SAFETY: the caller passes a whole ELF file; `elf_bytes` computes its length.
            return cubin(unsafe { std::slice::from_raw_parts(bytes, elf_bytes(bytes)?) }, capability);
        }
        if magic == FATBIN_MAGIC.to_le_bytes() {
            // SAFETY: a fatbin's header has 16 bytes: magic, version, length of the header, and
            // length of the rest.
            let (header, rest) = unsafe {
                (bytes.add(6).cast::<u16>().read_unaligned(), bytes.add(8).cast::<u64>().read_unaligned())
            };
            if rest > MAX_BYTES {
                return Err(INVALID_IMAGE);
            }
            // SAFETY: the caller passes a whole fatbin, whose length is the sum of the two lengths
            // in its header.
            let all = unsafe { std::slice::from_raw_parts(bytes, header as usize + rest as usize) };
            return Ok(Self::Fatbin(all.to_vec()));
        }
        // SAFETY: an image that is neither a cubin nor a fatbin is PTX, which ends with a NUL.
        let text = unsafe { CStr::from_ptr(bytes.cast::<c_char>()) };
        ptx(text.to_str().map_err(|_| INVALID_IMAGE)?, capability, version)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        match self {
            Self::Symbols(symbols) => symbols.contains(name),
            Self::Ptx(text) => text.match_indices(".entry").any(|(at, word)| {
                let rest = text[at + word.len()..].trim_start();
                rest.strip_prefix(name).is_some_and(|after| !after.starts_with(is_identifier_char))
            }),
            Self::Fatbin(bytes) => {
                !name.is_empty() && bytes.windows(name.len()).any(|at| at == name.as_bytes())
            }
        }
    }
}

fn is_identifier_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '%')
}

/// # Safety
/// `bytes` is readable up to its first NUL or for 4 bytes.
unsafe fn take_until_nul<'a>(bytes: *const u8) -> &'a [u8] {
    // SAFETY: the iterator reads at most 4 bytes and stops at the first NUL, as this function's
    // contract permits.
    let n = (0..4).take_while(|at| unsafe { *bytes.add(*at) } != 0).count();
    // SAFETY: the iterator above has read the first `n` bytes, so they are readable.
    unsafe { std::slice::from_raw_parts(bytes, n) }
}

/// Returns the length of an ELF file: the end of its last section or header table, in bytes.
fn elf_bytes(bytes: *const u8) -> Outcome<usize> {
    // SAFETY: the caller passes an ELF file, which begins with a header of 64 bytes.
    let header = unsafe { std::slice::from_raw_parts(bytes, 64) };
    let number = |at: usize, n: usize| {
        header[at..at + n].iter().rev().fold(0u64, |sum, byte| (sum << 8) | u64::from(*byte))
    };
    let end_of = |offset: u64, size: u64, count: u64| {
        offset.checked_add(size * count).filter(|end| *end <= MAX_BYTES).ok_or(INVALID_IMAGE)
    };
    let (sections, size, count) = (number(0x28, 8), number(0x3a, 2), number(0x3c, 2));
    let section_table = end_of(sections, size, count)?;
    let program_table = end_of(number(0x20, 8), number(0x36, 2), number(0x38, 2))?;
    if size != 64 || header[4] != 2 || header[5] != 1 {
        return Err(INVALID_IMAGE);
    }
    let mut end = section_table.max(program_table).max(64);
    for section in 0..count {
        let at = (sections + section * size) as usize;
        // SAFETY: according to the header, the section table begins at `sections` and has `count`
        // entries of `size` bytes, so this entry is readable.
        let (kind, offset, length) = unsafe {
            let section = bytes.add(at);
            (
                section.add(4).cast::<u32>().read_unaligned(),
                section.add(0x18).cast::<u64>().read_unaligned(),
                section.add(0x20).cast::<u64>().read_unaligned(),
            )
        };
        if kind != SECTION_WITHOUT_BYTES {
            end = end.max(offset.checked_add(length).ok_or(INVALID_IMAGE)?);
        }
    }
    usize::try_from(end).ok().filter(|end| *end as u64 <= MAX_BYTES).ok_or(INVALID_IMAGE)
}

/// Reads a cubin. A cubin runs only on devices with the same major compute capability and at least
/// the same minor compute capability.
fn cubin(bytes: &[u8], capability: u32) -> Outcome<Image> {
    let number = |at: usize, n: usize| {
        bytes.get(at..at + n).map(|b| b.iter().rev().fold(0u32, |sum, byte| (sum << 8) | u32::from(*byte)))
    };
    let (machine, flags) = (number(0x12, 2), number(0x30, 4).ok_or(INVALID_IMAGE)?);
    if machine != Some(MACHINE_CUDA.into()) {
        return Err(INVALID_IMAGE);
    }
    let architecture = if bytes[8] >= ABI_OF_CUDA_13 { (flags >> 8) & 0xff } else { flags & 0xff };
    if architecture / 10 != capability / 10 || architecture % 10 > capability % 10 {
        return Err(NO_BINARY_FOR_GPU);
    }
    // In a cubin, this field contains the toolkit's version, but the parser expects the ELF
    // version, which is 1.
    let mut bytes = bytes.to_vec();
    bytes[0x14..0x18].copy_from_slice(&1u32.to_le_bytes());
    let file = ElfFile64::<LittleEndian>::parse(bytes.as_slice()).map_err(|_| INVALID_IMAGE)?;
    let names =
        file.symbols().filter(|symbol| !symbol.is_undefined()).filter_map(|symbol| symbol.name().ok());
    Ok(Image::Symbols(names.map(str::to_owned).collect()))
}

/// Reads PTX. It runs on devices with the compute capability of its target or a higher one, if the
/// driver supports its PTX version.
fn ptx(text: &str, capability: u32, version: i32) -> Outcome<Image> {
    let word_after = |directive: &str| {
        let line = text.lines().map(str::trim).find_map(|line| line.strip_prefix(directive));
        line.map(|rest| rest.trim().split([',', ' ', '\t']).next().unwrap_or_default())
    };
    let (isa, target) = word_after(".version").zip(word_after(".target")).ok_or(INVALID_IMAGE)?;
    let (major, minor) = isa.split_once('.').ok_or(INVALID_IMAGE)?;
    let number = |text: &str| text.parse::<i32>().map_err(|_| INVALID_IMAGE);
    let isa = (number(major)?, number(minor)?);
    if isa > newest_isa(version) {
        return Err(UNSUPPORTED_PTX_VERSION);
    }
    let target = target.strip_prefix("sm_").ok_or(INVALID_IMAGE)?;
    // PTX for a target with a letter suffix, such as sm_90a, runs only on exactly this
    // architecture.
    let digits = target.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let architecture = number(digits)? as u32;
    let fits = if digits == target { architecture <= capability } else { architecture == capability };
    if fits { Ok(Image::Ptx(text.to_owned())) } else { Err(INVALID_PTX) }
}

/// The newest PTX version that a driver of the given CUDA version compiles, such as 8.2 for CUDA
/// 12.2. From CUDA 12.6 on, the minor PTX version is the minor CUDA version minus 1.
fn newest_isa(version: i32) -> (i32, i32) {
    let (major, minor) = (version / 1000, version % 1000 / 10);
    match (major, minor) {
        (12, 6..) => (8, minor - 1),
        _ => (major - 4, minor),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &CStr, capability: u32, version: i32) -> Outcome<Image> {
        // SAFETY: a `CStr` ends with a NUL.
        unsafe { Image::read(text.as_ptr().cast(), capability, version) }
    }

    const PTX: &CStr =
        c".version 8.0\n.target sm_75, debug\n.visible .entry cells_copy_2(\n.param .b8 x[8])\n{}";

    #[test]
    fn finds_ptx_function_only_by_its_whole_name() {
        let image = read(PTX, 90, 12020).ok().unwrap();
        assert!(image.has("cells_copy_2") && !image.has("cells_copy") && !image.has("ells_copy_2"));
    }

    #[test]
    fn rejects_ptx_that_device_or_driver_does_not_support() {
        assert!(read(PTX, 75, 12000).is_ok());
        assert_eq!(read(PTX, 70, 12020).err(), Some(INVALID_PTX));
        assert_eq!(read(PTX, 90, 11080).err(), Some(UNSUPPORTED_PTX_VERSION));
        assert_eq!(read(c".version 8.0\n.target sm_90a\n", 100, 12020).err(), Some(INVALID_PTX));
        assert_eq!(read(c"junk", 90, 12020).err(), Some(INVALID_IMAGE));
        assert_eq!(read(c"", 90, 12020).err(), Some(INVALID_IMAGE));
    }
}
