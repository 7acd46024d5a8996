//! Mapped files. One file is one image, with one set of statics, whoever loads it.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

use crossdock_memory_backend::ProcessWide;
use crossdock_plugin_api::abi;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use super::quarantine::FirstRun;
use super::{Refusal, sealed};
use crate::hash::Sha256;

/// By which a file is known again.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Identity {
    Inode {
        device: u64,
        number: u64,
    },
    /// A sealed copy's: each has an inode of its own, and those of the same bytes are the same plugin.
    Bytes(Sha256),
}

/// By which a change of the file since it was looked at shows.
#[derive(Clone, Copy, PartialEq, Eq)]
struct State {
    bytes: u64,
    modified: (i64, i64),
}

impl State {
    fn of(stat: &std::fs::Metadata) -> Self {
        Self { bytes: stat.size(), modified: (stat.mtime(), stat.mtime_nsec()) }
    }
}

/// What is to be mapped: a plugin's file, or a sealed copy of it.
pub(super) struct Content {
    pub file: File,
    identity: Identity,
    /// As it was looked at. A sealed copy stays as it is.
    state: Option<State>,
}

/// The loader finds images by name first, then by inode: were the descriptor closed, the next file that got its number
/// would silently yield this image again. So it stays open for ever, as the image stays mapped.
struct Image {
    content: Content,
    entry: Result<&'static abi::PluginEntry, String>,
}

static IMAGES: ProcessWide<HashMap<Identity, Image>> = ProcessWide::new();

impl Content {
    /// A file as it was when `stat` was taken of it.
    pub(super) fn of_file(file: File, stat: &std::fs::Metadata) -> Self {
        let identity = Identity::Inode { device: stat.dev(), number: stat.ino() };
        Self { file, identity, state: Some(State::of(stat)) }
    }

    /// A sealed copy with this hash.
    pub(super) fn of_copy(file: File, sha256: Sha256) -> Self {
        Self { file, identity: Identity::Bytes(sha256), state: None }
    }

    /// A name for it as it is: another one where it is changed.
    pub(super) fn key(&self) -> String {
        let state = self.state.as_ref();
        match &self.identity {
            Identity::Bytes(sha256) => format!("sha256-{sha256}"),
            Identity::Inode { device, number } => {
                let (bytes, (s, ns)) = state.map(|state| (state.bytes, state.modified)).unwrap_or_default();
                format!("{device:x}-{number:x}-{bytes:x}-{s:x}-{ns:x}")
            }
        }
    }

    /// The entry of the mapped file, which is mapped now if it was not before. It has `entry_bytes` bytes.
    pub(super) fn map(
        self,
        entry_bytes: usize,
        first_run: &FirstRun,
    ) -> Result<&'static abi::PluginEntry, Refusal> {
        // Held while the library's constructors run, so that two threads do not load one file twice. A constructor
        // that loads Crossdock plugins itself would wait for ever; there is no use for one.
        let mut images = IMAGES.lock();
        if let Some(image) = images.get(&self.identity) {
            return match &image.entry {
                _ if image.content.state != self.state => Err(Refusal::Changed),
                Ok(entry) => Ok(entry),
                Err(message) => Err(Refusal::BadEntry(message.clone())),
            };
        }
        self.check_unchanged()?;
        let name = descriptor_name(&self.file, std::process::id());
        // Not before others' constructors have run, whose crash would be taken for this one's.
        let mark = first_run.begin("its constructors");
        // SAFETY: the file's constructors run here, which is what loading a trusted plugin means. The image is never
        // unloaded (RTLD_NODELETE), so nothing that it hands out dangles.
        let library = unsafe { Library::open(Some(&name), RTLD_NOW | RTLD_LOCAL | libc::RTLD_NODELETE) };
        drop(mark);
        let library = library.map_err(|error| Refusal::Dlopen(loader_words(&error, &name)))?;
        // SAFETY: the ELF file declares a data object of this name, at least as long as the entry struct.
        let entry = unsafe { library.get::<*const abi::PluginEntry>(abi::ENTRY_SYMBOL) };
        let entry = match entry.map(|symbol| symbol.into_raw().cast::<abi::PluginEntry>()) {
            Ok(raw) if raw.is_null() || !raw.is_aligned() => Err(format!("it lies at {raw:p}")),
            // SAFETY: aligned, and constant data of that many bytes.
            Ok(raw) => Ok(unsafe { known(raw, entry_bytes) }),
            Err(error) => Err(loader_words(&error, &name)),
        };
        // Dropping it would only lower the loader's count of an image that stays anyway.
        std::mem::forget(library);
        images.insert(self.identity, Image { content: self, entry: entry.clone() });
        entry.map_err(Refusal::BadEntry)
    }

    /// A sealed copy, for a process that may look at no file below any path.
    pub(super) fn into_sealed(self) -> Result<File, Refusal> {
        let Some(state) = self.state else { return Ok(self.file) };
        self.check_unchanged()?;
        sealed::copy(&self.file, state.bytes).map_err(Refusal::Copy)
    }

    /// A file that is no copy may have been rewritten since; this finds those that were before the loader maps it.
    fn check_unchanged(&self) -> Result<(), Refusal> {
        let Some(state) = self.state else { return Ok(()) };
        let now = self.file.metadata().map_err(Refusal::Unreadable)?;
        if State::of(&now) == state { Ok(()) } else { Err(Refusal::Changed) }
    }
}

/// What the loader is to open, by the number of this process rather than `self`: debuggers and backtraces read this name from other
/// processes. Where `/proc` is one of other numbers, as in a container that has its host's, that would be another process's file.
fn descriptor_name(file: &File, process: u32) -> String {
    let descriptor = file.as_raw_fd();
    let name = format!("/proc/{process}/fd/{descriptor}");
    let identity = |stat: std::io::Result<std::fs::Metadata>| stat.ok().map(|stat| (stat.dev(), stat.ino()));
    match identity(std::fs::metadata(&name)) {
        named if named.is_some() && named == identity(file.metadata()) => name,
        _ => format!("/proc/self/fd/{descriptor}"),
    }
}

/// As much of an entry as it has, and as we know, for ever: the image that it is of stays for ever too.
///
/// # Safety
/// `entry` points at `bytes` bytes.
unsafe fn known(entry: *const abi::PluginEntry, bytes: usize) -> &'static abi::PluginEntry {
    let ours = Box::leak(Box::new(abi::PluginEntry::default()));
    // SAFETY: magic number and size come first in every version.
    let told = unsafe { (*entry).struct_size }.max(std::mem::offset_of!(abi::PluginEntry, abi_major));
    let bytes = bytes.min(told).min(size_of::<abi::PluginEntry>());
    // SAFETY: both have that many bytes; what a shorter one lacks stays zero, which is no function.
    unsafe { std::ptr::copy_nonoverlapping(entry.cast::<u8>(), std::ptr::from_mut(ours).cast(), bytes) };
    ours
}

/// The loader's own message, which names an unresolved symbol, without the descriptor's path that nobody knows.
fn loader_words(error: &libloading::Error, name: &str) -> String {
    let words = match error {
        libloading::Error::DlOpen { source } | libloading::Error::DlSym { source } => source.to_string(),
        other => other.to_string(),
    };
    let words = words.strip_prefix(name).unwrap_or(&words);
    words.trim_start_matches([':', ' ']).to_string()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_not_opened_by_a_name_that_is_another_process_s() {
        let file = File::open("/proc/self/exe").unwrap();
        let (descriptor, own) = (file.as_raw_fd(), std::process::id());
        assert_eq!(descriptor_name(&file, own), format!("/proc/{own}/fd/{descriptor}"));
        // The first process has no such file, or is none of ours to look into.
        assert_eq!(descriptor_name(&file, 1), format!("/proc/self/fd/{descriptor}"));
    }
}
