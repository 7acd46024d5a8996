//! Reads the checked fields of a plugin's entry, from its file or from memory.

use std::mem::offset_of;

use crossdock_plugin_api::abi;
use object::read::ReadRef;

use super::elf::Image;
use super::error::MetadataError;

/// The fields of an entry that are checked before the host calls one of the entry's functions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub magic: u64,
    pub struct_size: usize,
    pub abi: (u32, u32),
    pub flags: u64,
    /// The name of the first required function whose pointer is NULL.
    pub missing: Option<&'static str>,
}

const FUNCTIONS: [(&str, usize); 3] = [
    ("create", offset_of!(abi::PluginEntry, create)),
    ("destroy", offset_of!(abi::PluginEntry, destroy)),
    ("get_interface", offset_of!(abi::PluginEntry, get_interface)),
];

impl Entry {
    /// The fields of a mapped entry.
    pub(crate) fn from_mapped(entry: &abi::PluginEntry) -> Self {
        let are_set = [entry.create.is_some(), entry.destroy.is_some(), entry.get_interface.is_some()];
        let missing = FUNCTIONS.iter().zip(are_set).find(|(_, is_set)| !is_set);
        Self {
            magic: entry.magic,
            struct_size: entry.struct_size,
            abi: (entry.abi_major, entry.abi_minor),
            flags: entry.flags,
            missing: missing.map(|((name, _), _)| *name),
        }
    }

    /// The fields of the entry in a file, and the size of its symbol in bytes. `None` if the file
    /// has no such data symbol, or if the symbol is too short. A function counts as set if the
    /// loader relocates its pointer.
    pub(super) fn in_image<'data, R: ReadRef<'data>>(
        image: &Image<'data, R>,
    ) -> Result<Option<(Self, usize)>, MetadataError> {
        let Some((address, length)) = image.find_symbol(abi::ENTRY_SYMBOL)? else { return Ok(None) };
        let Some(length) = usize::try_from(length).ok().filter(|length| *length >= abi::MIN_ENTRY_BYTES)
        else {
            return Ok(None);
        };
        let bytes = image.read(address, abi::MIN_ENTRY_BYTES as u64, "the entry")?;
        let number = |at: usize, length: usize| {
            let bytes = bytes.get(at..at + length).unwrap_or_default();
            bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
        };
        let half = |at| number(at, size_of::<u32>()) as u32;
        let mut missing = None;
        for (name, at) in FUNCTIONS {
            let pointer = address.checked_add(at as u64);
            let is_set =
                number(at, size_of::<usize>()) != 0 || image.is_relocated(|at| pointer == Some(at))?;
            missing = missing.or((!is_set).then_some(name));
        }
        let entry = Self {
            magic: number(offset_of!(abi::PluginEntry, magic), size_of::<u64>()),
            struct_size: number(offset_of!(abi::PluginEntry, struct_size), size_of::<usize>()) as usize,
            abi: (
                half(offset_of!(abi::PluginEntry, abi_major)),
                half(offset_of!(abi::PluginEntry, abi_minor)),
            ),
            flags: number(offset_of!(abi::PluginEntry, flags), size_of::<u64>()),
            missing,
        };
        Ok(Some((entry, length)))
    }
}
