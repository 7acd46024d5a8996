//! Reads a plugin's metadata from its file, without running its code.

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

/// A plugin's description of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// The plugin's name, for `--from`, `--to` and `--via`.
    pub name: String,
    /// The plugin's own version.
    pub version: semver::Version,
    /// The ABI versions that the plugin supports.
    pub api_range: semver::VersionReq,
    /// The ABI version that the plugin was built for: major and minor.
    pub abi: (u32, u32),
    /// The plugin's licence, as an SPDX expression.
    pub licence: String,
    /// The plugin's compiler, for example "rustc 1.95.0" or "gcc 12.2.0".
    pub toolchain: String,
    /// The plugin's panic strategy: "unwind", "abort" or "none".
    pub panic: String,
    /// The ids of the plugin's interfaces.
    pub interfaces: Vec<String>,
    /// The names of the formats that the plugin reads or writes.
    pub formats: Vec<String>,
    /// The ids of the encodings that the plugin decodes.
    pub encodings: Vec<String>,
    /// The ids of the host's interfaces without which the plugin cannot create an instance.
    pub required: Vec<String>,
    /// A description in one line.
    pub description: String,
    /// The sizes in bytes of the ABI structs that the plugin was built with, in the header's order.
    pub sizes: Vec<u32>,
}

impl Metadata {
    /// Reads the metadata from a shared library's bytes.
    ///
    /// # Errors
    /// The bytes are not a shared library for this machine, or have no valid metadata.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, MetadataError> {
        Self::from_image(&Image::open(bytes)?)
    }

    fn from_image<'data, R: ReadRef<'data>>(image: &Image<'data, R>) -> Result<Self, MetadataError> {
        let bytes = image.metadata_bytes()?;
        let mut raw = abi::PluginMeta::default();
        let known = bytes.len().min(size_of::<abi::PluginMeta>());
        // SAFETY: `known` is at most the length of the source and of the struct. The struct's
        // fields are integers and byte arrays, for which all bytes are valid.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), (&raw mut raw).cast(), known) };
        if bytes.len() < abi::MIN_META_BYTES {
            // The struct of another ABI version may be shorter and have other fields.
            let has_head = bytes.len() >= abi::META_HEAD_BYTES && raw.magic == abi::META_MAGIC;
            if has_head && (raw.abi_major, raw.abi_minor) != (abi::ABI_MAJOR, abi::ABI_MINOR) {
                return Err(MetadataError::OtherAbi(raw.abi_major, raw.abi_minor));
            }
            return Err(MetadataError::Bad(format!(
                "the symbol has {} bytes, expected at least {}",
                bytes.len(),
                abi::MIN_META_BYTES
            )));
        }
        // The struct of a later version may be longer than `known`, because `metadata_bytes`
        // returns at most the size of this version's struct.
        if known < size_of::<abi::PluginMeta>() && raw.struct_size as usize > known {
            return Err(MetadataError::Bad(format!(
                "the symbol has {known} bytes, expected {}, the struct size",
                raw.struct_size
            )));
        }
        Self::from_raw(&raw)
    }

    /// Checks the raw struct and converts it.
    ///
    /// # Errors
    /// A field is not valid.
    pub fn from_raw(raw: &abi::PluginMeta) -> Result<Self, MetadataError> {
        if raw.magic != abi::META_MAGIC {
            return Err(MetadataError::Bad(format!(
                "the magic number is {:#018x}, expected {:#018x}",
                raw.magic,
                abi::META_MAGIC
            )));
        }
        if (raw.struct_size as usize) < abi::MIN_META_BYTES {
            return Err(MetadataError::Bad(format!(
                "the struct size is {} bytes, expected at least {}",
                raw.struct_size,
                abi::MIN_META_BYTES
            )));
        }
        // The list of a later version may be longer, but begins with the entries of this version's
        // list.
        let room = (raw.struct_size as usize - abi::MIN_META_BYTES) / size_of::<u32>();
        if raw.n_sizes as usize > room {
            return Err(MetadataError::Bad(format!(
                "the metadata lists {} struct sizes, expected at most {room}",
                raw.n_sizes
            )));
        }
        let sizes = &raw.sizes[..abi::META_SIZES.min(raw.n_sizes as usize)];
        let name = text("name", &raw.name)?;
        if !is_name(&name) {
            return Err(MetadataError::Bad(format!(
                "the name is '{}', expected ASCII letters, digits, '-', '_' and '.'",
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
            required: list("required", &raw.required)?,
            description: text("description", &raw.description)?,
            sizes: sizes.to_vec(),
            name,
        })
    }
}

/// The parts of a plugin's file that are read before the file is loaded. In addition to these
/// parts, only the tables that locate them are read.
pub(crate) struct Reading {
    pub metadata: Metadata,
    pub needs: Needs,
    /// The entry, and its size in bytes; `None` if the file exports no entry.
    pub entry: Option<(Entry, usize)>,
}

impl Reading {
    pub(crate) fn from_file(file: &File) -> Result<Self, MetadataError> {
        let cache = ReadCache::new(file);
        let image = Image::open(&cache)?;
        Ok(Self {
            metadata: Metadata::from_image(&image)?,
            needs: Needs::from_image(&image)?,
            entry: Entry::in_image(&image)?,
        })
    }
}

/// Reads the entry in a shared library's bytes, for the fuzz targets in `fuzz/`.
#[cfg(fuzzing)]
#[doc(hidden)]
pub fn entry_in(bytes: &[u8]) -> Result<(), MetadataError> {
    Entry::in_image(&Image::open(bytes)?).map(drop)
}

/// Whether `text` is a valid name for a plugin.
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
        Some(c) => Err(MetadataError::Bad(format!("'{field}' contains the control character {c:?}"))),
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
