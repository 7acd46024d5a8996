//! Reads what a library needs from the dynamic loader and the system.

use object::LittleEndian;
use object::elf;
use object::read::ReadRef;

use super::elf::Image;
use super::error::MetadataError;
use super::header::{LE, damaged};

/// The dynamic entries that make the loader map another library, whose constructors then run too.
const LIBRARY_TAGS: [elf::DynamicTag; 5] =
    [elf::DT_NEEDED, elf::DT_FILTER, elf::DT_AUXILIARY, elf::DT_AUDIT, elf::DT_DEPAUDIT];

/// The maximum number of versions that a library needs. A table with more versions contains a
/// cycle.
const MAX_VERSIONS: usize = 1 << 12;

/// What a library needs from the dynamic loader and the system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// The names of the libraries that the loader loads together with this library.
    pub libraries: Vec<String>,
    /// The paths in which the loader searches for the library's needs (`DT_RPATH`, `DT_RUNPATH`).
    pub search_paths: Vec<String>,
    /// The newest glibc version that the library needs: major and minor.
    pub glibc: Option<(u32, u32)>,
    /// Whether the library makes the stacks of all threads executable.
    pub executable_stack: bool,
}

impl Needs {
    /// Reads the needs from a shared library's bytes.
    ///
    /// # Errors
    /// The bytes are not a shared library for this machine, or are malformed.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, MetadataError> {
        Self::from_image(&Image::open(bytes)?)
    }

    pub(super) fn from_image<'data, R: ReadRef<'data>>(
        image: &Image<'data, R>,
    ) -> Result<Self, MetadataError> {
        let texts = |tags: &[elf::DynamicTag]| -> Result<Vec<String>, MetadataError> {
            tags.iter().flat_map(|tag| image.dynamic_values(*tag)).map(|at| image.string(at)).collect()
        };
        let libraries = texts(&LIBRARY_TAGS)?;
        let search_paths = texts(&[elf::DT_RPATH, elf::DT_RUNPATH])?;
        let executable_stack = image.wants_executable_stack();
        Ok(Self { libraries, search_paths, glibc: glibc(image)?, executable_stack })
    }
}

/// The highest GLIBC_x.y among the versions that the library's symbols need.
fn glibc<'data, R: ReadRef<'data>>(image: &Image<'data, R>) -> Result<Option<(u32, u32)>, MetadataError> {
    let what = "the table of needed versions";
    let malformed = || damaged("the table of needed versions is malformed");
    let (Some(mut at), Some(n)) =
        (image.dynamic_value(elf::DT_VERNEED), image.dynamic_value(elf::DT_VERNEEDNUM))
    else {
        return Ok(None);
    };
    let step = |at: u64, by: u32| at.checked_add(by.into()).ok_or_else(malformed);
    let mut highest = None;
    let mut remaining = MAX_VERSIONS;
    for _ in 0..n {
        remaining = remaining.checked_sub(1).ok_or_else(malformed)?;
        let [need]: &[elf::Verneed<LittleEndian>] = image.table(at, 1, what)? else { break };
        let mut version_at = step(at, need.vn_aux.get(LE))?;
        for _ in 0..need.vn_cnt.get(LE) {
            remaining = remaining.checked_sub(1).ok_or_else(malformed)?;
            let [version]: &[elf::Vernaux<LittleEndian>] = image.table(version_at, 1, what)? else { break };
            highest = highest.max(parse_glibc(&image.string(version.vna_name.get(LE).into())?));
            match version.vna_next.get(LE) {
                0 => break,
                next => version_at = step(version_at, next)?,
            }
        }
        match need.vn_next.get(LE) {
            0 => break,
            next => at = step(at, next)?,
        }
    }
    Ok(highest)
}

/// Parses "GLIBC_2.34" as 2 and 34. Returns `None` for other versions (GLIBC_PRIVATE), which the
/// loader checks.
fn parse_glibc(version: &str) -> Option<(u32, u32)> {
    parse_version(version.strip_prefix("GLIBC_")?)
}

/// Returns the first two numbers of a version.
pub(crate) fn parse_version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn glibc_versions_compare_as_numbers() {
        assert_eq!(parse_glibc("GLIBC_2.2.5"), Some((2, 2)));
        assert!(parse_glibc("GLIBC_2.4") < parse_glibc("GLIBC_2.34"));
        assert_eq!(["GLIBC_PRIVATE", "GCC_3.0", "GLIBC_2"].map(parse_glibc), [None; 3]);
    }
}
