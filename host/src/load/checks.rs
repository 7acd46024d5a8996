//! What has to agree between a plugin's build and this host, whichever way the plugin came.

use crossdock_plugin_api::abi;

use crate::metadata::{Entry, Metadata};
use crate::refusal::Refusal;

/// The host's ABI version, as plugins' ranges are held against it.
pub fn host_abi() -> semver::Version {
    semver::Version::new(abi::ABI_MAJOR.into(), abi::ABI_MINOR.into(), 0)
}

/// The names of the ABI structs whose sizes metadata lists, in that order.
pub fn struct_names() -> impl Iterator<Item = &'static str> {
    abi::BUILT_SIZES.iter().map(|size| size.name)
}

/// Versions and struct sizes, as the metadata states them.
pub(super) fn check_metadata(metadata: &Metadata) -> Result<(), Refusal> {
    if metadata.abi != (abi::ABI_MAJOR, abi::ABI_MINOR) {
        return Err(Refusal::AbiVersion { got: metadata.abi });
    }
    let host = host_abi();
    if !metadata.api_range.matches(&host) {
        return Err(Refusal::AbiRange { range: metadata.api_range.clone(), host });
    }
    if metadata.sizes.len() < abi::FEWEST_SIZES {
        return Err(Refusal::StructSizes(format!(
            "it lists {} structs, expected at least {}",
            metadata.sizes.len(),
            abi::FEWEST_SIZES
        )));
    }
    // Within a minor structs grow at their tails: another release's are longer or shorter, and understood.
    let strange = abi::BUILT_SIZES.iter().zip(&metadata.sizes).filter(|(ours, got)| !ours.admits(**got));
    let strange: Vec<String> = strange
        .map(|(ours, got)| {
            let how = if ours.is_open() { "at least " } else { "" };
            format!("{} expected {how}{} bytes, got {got}", ours.name, ours.least)
        })
        .collect();
    if strange.is_empty() { Ok(()) } else { Err(Refusal::StructSizes(strange.join("; "))) }
}

/// The entry, before anything in it is called.
pub(super) fn check_entry(entry: &Entry) -> Result<(), Refusal> {
    let bad = |message: String| Err(Refusal::BadEntry(message));
    if entry.magic != abi::PLUGIN_MAGIC {
        return bad(format!("magic number {:#018x}, expected {:#018x}", entry.magic, abi::PLUGIN_MAGIC));
    }
    let expected = abi::ENTRY_LEAST;
    if entry.struct_size < expected {
        return bad(format!("struct size {} bytes, expected at least {expected}", entry.struct_size));
    }
    if entry.abi != (abi::ABI_MAJOR, abi::ABI_MINOR) {
        return Err(Refusal::AbiVersion { got: entry.abi });
    }
    if entry.flags != 0 {
        return bad(format!("flags {:#x}, of which this host knows none", entry.flags));
    }
    match entry.missing {
        Some(name) => bad(format!("its function '{name}' is NULL")),
        None => Ok(()),
    }
}

/// The entry as a plugin's file has it, before the file is loaded. Returns how many bytes it has.
pub(super) fn check_entry_of_file(entry: Option<(Entry, usize)>) -> Result<usize, Refusal> {
    let (entry, bytes) = entry.ok_or(Refusal::NoEntry)?;
    check_entry(&entry).map(|()| bytes)
}
