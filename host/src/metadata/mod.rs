//! Who a plugin is, read from its file before a line of its code runs.

mod elf;
mod entry;
mod error;
mod header;
mod needs;

use std::fs::File;

use crossdock_plugin_api::abi;
use object::read::{ReadCache, ReadRef};

use elf::Image;
pub(crate) use entry::Entry;
pub use error::MetadataError;
pub use needs::Needs;
pub(crate) use needs::parse_version;

/// What a plugin says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Its name, by which `--from`, `--to` and `--via` know it.
    pub name: String,
    /// Its own version.
    pub version: semver::Version,
    /// The ABI versions that it works with.
    pub api_range: semver::VersionReq,
    /// The ABI that it was built against: major and minor.
    pub abi: (u32, u32),
    /// An SPDX expression.
    pub licence: String,
    /// "rustc 1.95.0", "gcc 12.2.0".
    pub toolchain: String,
    /// "unwind", "abort" or "none".
    pub panic: String,
    /// Ids of the interfaces that it offers.
    pub interfaces: Vec<String>,
    /// Names of the formats that it reads or writes.
    pub formats: Vec<String>,
    /// Ids of the encodings that it decodes.
    pub encodings: Vec<String>,
    /// One line for people.
    pub description: String,
    /// The sizes of the ABI structs in its build, bytes, in the header's order.
    pub sizes: Vec<u32>,
}

impl Metadata {
    /// Reads the metadata in a shared library's bytes. Nothing of it runs.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, MetadataError> {
        Self::from_image(&Image::open(bytes)?)
    }

    fn from_image<'data, R: ReadRef<'data>>(image: &Image<'data, R>) -> Result<Self, MetadataError> {
        let bytes = image.metadata_bytes()?;
        let mut raw = abi::PluginMeta::default();
        let known = bytes.len().min(size_of::<abi::PluginMeta>());
        // SAFETY: both have that many bytes; the fields are integers and byte arrays, of which any bytes are a value.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), (&raw mut raw).cast(), known) };
        if bytes.len() < abi::META_LEAST {
            // Another version's fields may be others, and fewer.
            let has_head = bytes.len() >= abi::META_HEAD && raw.magic == abi::META_MAGIC;
            if has_head && (raw.abi_major, raw.abi_minor) != (abi::ABI_MAJOR, abi::ABI_MINOR) {
                return Err(MetadataError::OtherAbi(raw.abi_major, raw.abi_minor));
            }
            return Err(MetadataError::Bad(format!(
                "the symbol has {} bytes, expected at least {}",
                bytes.len(),
                abi::META_LEAST
            )));
        }
        // No more than the struct has today was looked for.
        if known < size_of::<abi::PluginMeta>() && raw.struct_size as usize > known {
            return Err(MetadataError::Bad(format!(
                "the symbol has {known} bytes, expected the {} of its struct size",
                raw.struct_size
            )));
        }
        Self::from_raw(&raw)
    }

    /// Checks the raw struct and takes its texts.
    pub fn from_raw(raw: &abi::PluginMeta) -> Result<Self, MetadataError> {
        if raw.magic != abi::META_MAGIC {
            return Err(MetadataError::Bad(format!(
                "its magic number is {:#018x}, expected {:#018x}",
                raw.magic,
                abi::META_MAGIC
            )));
        }
        if (raw.struct_size as usize) < abi::META_LEAST {
            return Err(MetadataError::Bad(format!(
                "its struct size is {} bytes, expected at least {}",
                raw.struct_size,
                abi::META_LEAST
            )));
        }
        // A later version's list may be longer than ours: of that we know the beginning.
        let room = (raw.struct_size as usize - abi::META_LEAST) / size_of::<u32>();
        if raw.n_sizes as usize > room {
            return Err(MetadataError::Bad(format!(
                "it lists {} struct sizes, expected at most {room}",
                raw.n_sizes
            )));
        }
        let sizes = &raw.sizes[..abi::META_SIZES.min(raw.n_sizes as usize)];
        let name = text("name", &raw.name)?;
        if !is_name(&name) {
            return Err(MetadataError::Bad(format!(
                "its name is '{}', expected ASCII letters, digits, '-', '_' and '.'",
                name.escape_debug()
            )));
        }
        Ok(Self {
            version: parse("version", "a semantic version", &raw.version)?,
            api_range: parse("api_range", "a range of versions like ^1.0.0", &raw.api_range)?,
            abi: (raw.abi_major, raw.abi_minor),
            licence: text("licence", &raw.licence)?,
            toolchain: text("toolchain", &raw.toolchain)?,
            panic: text("panic", &raw.panic)?,
            interfaces: list("interfaces", &raw.interfaces)?,
            formats: list("formats", &raw.formats)?,
            encodings: list("encodings", &raw.encodings)?,
            description: text("description", &raw.description)?,
            sizes: sizes.to_vec(),
            name,
        })
    }
}

/// All that a plugin's file says before any of its code runs. No more is read than the tables that lead there.
pub(crate) struct Reading {
    pub metadata: Metadata,
    pub needs: Needs,
    /// Its entry, and how many bytes that has; `None` where it exports none.
    pub entry: Option<(Entry, usize)>,
}

impl Reading {
    pub(crate) fn of(file: &File) -> Result<Self, MetadataError> {
        let cache = ReadCache::new(file);
        let image = Image::open(&cache)?;
        Ok(Self {
            metadata: Metadata::from_image(&image)?,
            needs: Needs::of(&image)?,
            entry: Entry::in_image(&image)?,
        })
    }
}

/// Reads the entry in a shared library's bytes, for `fuzz/`.
#[cfg(fuzzing)]
#[doc(hidden)]
pub fn entry_in(bytes: &[u8]) -> Result<(), MetadataError> {
    Entry::in_image(&Image::open(bytes)?).map(drop)
}

/// Whether a plugin may be called so.
pub(crate) fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

fn text(field: &str, bytes: &[u8]) -> Result<String, MetadataError> {
    let end = bytes.iter().position(|b| *b == 0).ok_or_else(|| {
        MetadataError::Bad(format!("'{field}' has no terminating NUL in its {} bytes", bytes.len()))
    })?;
    let text = bytes.get(..end).unwrap_or_default();
    let text =
        std::str::from_utf8(text).map_err(|e| MetadataError::Bad(format!("'{field}' is not UTF-8: {e}")))?;
    match text.chars().find(|c| c.is_control()) {
        None => Ok(text.to_string()),
        Some(c) => Err(MetadataError::Bad(format!("'{field}' holds the control character {c:?}"))),
    }
}

fn list(field: &str, bytes: &[u8]) -> Result<Vec<String>, MetadataError> {
    Ok(text(field, bytes)?.split_ascii_whitespace().map(str::to_string).collect())
}

fn parse<T: std::str::FromStr<Err = semver::Error>>(
    field: &str,
    expected: &str,
    bytes: &[u8],
) -> Result<T, MetadataError> {
    let text = text(field, bytes)?;
    text.parse().map_err(|e| MetadataError::Bad(format!("'{field}' is '{text}', expected {expected}: {e}")))
}
