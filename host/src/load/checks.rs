//! Compares a plugin's build with this host.

use crossdock_plugin_api::abi;

use crate::host_object::INTERFACES;
use crate::metadata::{Entry, Metadata};
use crate::refusal::Refusal;

/// The host's ABI version with the number of its additions, which plugins' version ranges must
/// contain.
pub fn host_abi() -> semver::Version {
    semver::Version::new(abi::ABI_MAJOR.into(), abi::ABI_MINOR.into(), abi::ABI_PATCH.into())
}

/// Returns the names of the ABI structs, in the order in which metadata lists their sizes.
pub fn struct_names() -> impl Iterator<Item = &'static str> {
    abi::BUILT_SIZES.iter().map(|size| size.name)
}

/// Checks the versions and struct sizes in a plugin's metadata.
pub(super) fn check_metadata(metadata: &Metadata) -> Result<(), Refusal> {
    if metadata.abi != (abi::ABI_MAJOR, abi::ABI_MINOR) {
        return Err(Refusal::AbiVersion { got: metadata.abi });
    }
    let host = host_abi();
    if !metadata.api_range.matches(&host) {
        return Err(Refusal::AbiRange { range: metadata.api_range.clone(), host });
    }
    let is_offered = |id: &String| INTERFACES.iter().any(|offered| offered.to_bytes() == id.as_bytes());
    if let Some(missing) = metadata.required.iter().find(|id| !is_offered(id)) {
        return Err(Refusal::MissingInterface(missing.clone()));
    }
    if metadata.sizes.len() < abi::MIN_META_SIZES {
        return Err(Refusal::StructSizes(format!(
            "the plugin lists {} structs, expected at least {}",
            metadata.sizes.len(),
            abi::MIN_META_SIZES
        )));
    }
    // Within a version, structs grow only at their ends, so the sizes of other releases of the same
    // version are compatible.
    let wrong = abi::BUILT_SIZES.iter().zip(&metadata.sizes).filter(|(host, got)| !host.accepts(**got));
    let wrong: Vec<String> = wrong
        .map(|(host, got)| {
            let how = if host.can_grow() { "at least " } else { "" };
            format!("{}: expected {how}{} bytes, got {got}", host.name, host.min_bytes)
        })
        .collect();
    if wrong.is_empty() { Ok(()) } else { Err(Refusal::StructSizes(wrong.join("; "))) }
}

/// Checks the entry before the host calls one of the entry's functions.
pub(super) fn check_entry(entry: &Entry) -> Result<(), Refusal> {
    let bad = |message: String| Err(Refusal::BadEntry(message));
    if entry.magic != abi::PLUGIN_MAGIC {
        return bad(format!(
            "the magic number is {:#018x}, expected {:#018x}",
            entry.magic,
            abi::PLUGIN_MAGIC
        ));
    }
    let expected = abi::MIN_ENTRY_BYTES;
    if entry.struct_size < expected {
        return bad(format!("the struct size is {} bytes, expected at least {expected}", entry.struct_size));
    }
    if entry.abi != (abi::ABI_MAJOR, abi::ABI_MINOR) {
        return Err(Refusal::AbiVersion { got: entry.abi });
    }
    if entry.flags != 0 {
        return bad(format!("the flags are {:#x}, expected 0", entry.flags));
    }
    match entry.missing {
        Some(name) => bad(format!("the function '{name}' is NULL")),
        None => Ok(()),
    }
}

/// Checks the entry in a plugin's file before the file is loaded. Returns the entry's size in
/// bytes.
pub(super) fn check_entry_of_file(entry: Option<(Entry, usize)>) -> Result<usize, Refusal> {
    let (entry, bytes) = entry.ok_or(Refusal::NoEntry)?;
    check_entry(&entry).map(|()| bytes)
}
