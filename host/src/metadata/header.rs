//! Checks a shared library's headers: it must be for this machine, complete, and laid out
//! unambiguously.

use object::LittleEndian;
use object::elf;
use object::read::ReadRef;
use object::read::elf::{FileHeader as _, ProgramHeader as _};

use super::error::MetadataError;

pub(super) type Header = elf::FileHeader64<LittleEndian>;
pub(super) type Segment = elf::ProgramHeader64<LittleEndian>;

pub(super) const LE: LittleEndian = LittleEndian;

/// The maximum number of program headers. Libraries have a few dozen at most.
const MAX_HEADERS: u64 = 1024;

/// The name and the number of this machine's ELF architecture.
const MACHINE: (&str, elf::Machine) =
    if cfg!(target_arch = "aarch64") { ("aarch64", elf::EM_AARCH64) } else { ("x86-64", elf::EM_X86_64) };

pub(super) fn damaged(what: &str) -> MetadataError {
    MetadataError::Damaged(what.to_string())
}

fn check_ident<'data, R: ReadRef<'data>>(data: R) -> Result<(), MetadataError> {
    match data.read_bytes_at(0, 4) {
        Ok(b"\x7fELF") => {}
        _ => return Err(MetadataError::NotElf),
    }
    let ident = data.read_bytes_at(0, 20).map_err(|()| damaged("the file header is truncated"))?;
    let expected = format!("64-bit little-endian {}", MACHINE.0);
    match (ident[4], ident[5]) {
        (2, 1) => Ok(()),
        (1, _) => Err(MetadataError::WrongMachine { expected, got: "a 32-bit library".into() }),
        (2, 2) => Err(MetadataError::WrongMachine { expected, got: "a big-endian library".into() }),
        _ => Err(damaged("ELF does not define the class or byte order")),
    }
}

fn check_machine(header: &Header) -> Result<(), MetadataError> {
    let machine = header.e_machine.get(LE);
    if machine != MACHINE.1 {
        let got = match machine {
            elf::EM_X86_64 => "x86-64".to_string(),
            elf::EM_AARCH64 => "aarch64".to_string(),
            elf::EM_RISCV => "riscv64".to_string(),
            elf::EM_PPC64 => "ppc64".to_string(),
            elf::EM_S390 => "s390x".to_string(),
            other => format!("machine number {}", other.0),
        };
        return Err(MetadataError::WrongMachine { expected: MACHINE.0.into(), got });
    }
    if header.e_type.get(LE) != elf::ET_DYN {
        return Err(MetadataError::NotAPlugin);
    }
    Ok(())
}

/// Rejects a table with too many entries before it is read. This includes the count `PN_XNUM`,
/// which means that a section header contains the real count.
pub(super) fn check_count(what: &str, n: u64, max: u64) -> Result<(), MetadataError> {
    if n > max {
        return Err(damaged(&format!("the file has {n} {what}, expected at most {max}")));
    }
    Ok(())
}

/// Rejects a truncated file. The loader would map the missing bytes too, and reading them raises
/// SIGBUS or returns zeros.
fn check_whole<'data, R: ReadRef<'data>>(segments: &[Segment], data: R) -> Result<(), MetadataError> {
    let bytes = data.len().map_err(|()| damaged("the length cannot be read"))?;
    let end = |s: &Segment| s.p_offset(LE).checked_add(s.p_filesz(LE));
    let is_inside = |s: &Segment| s.p_type(LE) != elf::PT_LOAD || end(s).is_some_and(|end| end <= bytes);
    match segments.iter().all(is_inside) {
        true => Ok(()),
        false => Err(damaged("the file is truncated: one of its segments is outside the file")),
    }
}

/// Rejects overlapping segments. The loader maps whole pages, and later segments replace pages of
/// earlier segments, so the content of a page in two segments would depend on their order. The ELF
/// specification requires ascending order.
fn check_apart(segments: &[Segment], page_bytes: u64) -> Result<(), MetadataError> {
    let mut end = 0;
    for segment in segments.iter().filter(|s| s.p_type(LE) == elf::PT_LOAD) {
        let start = segment.p_vaddr(LE);
        let first_page = start - start % page_bytes;
        let bytes = segment.p_memsz(LE).max(segment.p_filesz(LE));
        let next = start.checked_add(bytes).filter(|_| first_page >= end);
        end = next.ok_or_else(|| damaged("the segments overlap or are not in ascending order"))?;
    }
    Ok(())
}

fn page_bytes() -> u64 {
    // SAFETY: `sysconf` has no requirements.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).ok().filter(|bytes| *bytes > 0).unwrap_or(4096)
}

/// The program headers.
pub(super) fn segments<'data, R: ReadRef<'data>>(data: R) -> Result<&'data [Segment], MetadataError> {
    check_ident(data)?;
    let header = Header::parse(data).map_err(|_| damaged("the file header is truncated"))?;
    check_machine(header)?;
    check_count("program headers", header.e_phnum.get(LE).into(), MAX_HEADERS)?;
    let segments =
        header.program_headers(LE, data).map_err(|_| damaged("the program headers are truncated"))?;
    check_whole(segments, data)?;
    check_apart(segments, page_bytes())?;
    Ok(segments)
}
