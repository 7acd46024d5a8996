//! Maps plugin files. A file is mapped once, with one set of statics, for all hosts of the process.

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

/// Identifies a plugin's file among the mapped files.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Identity {
    Inode {
        device: u64,
        number: u64,
    },
    /// Identifies a sealed copy. Each copy has its own inode, but copies of the same bytes are the
    /// same plugin.
    Bytes(Sha256),
}

/// The state of a file, by which a change of the file is detected.
#[derive(Clone, Copy, PartialEq, Eq)]
struct State {
    bytes: u64,
    modified: (i64, i64),
}

impl State {
    fn from_metadata(stat: &std::fs::Metadata) -> Self {
        Self { bytes: stat.size(), modified: (stat.mtime(), stat.mtime_nsec()) }
    }
}

/// The file to map: a plugin's file, or a sealed copy of it.
pub(super) struct Content {
    pub file: File,
    identity: Identity,
    /// The file's state at the time of the checks. `None` for sealed copies, which cannot change.
    state: Option<State>,
}

/// A mapped file. The descriptor stays open until the process ends, like the mapping, because the
/// loader identifies images by name, then by inode. If the descriptor were closed, its number could
/// be reused, and the loader would return this image for another file.
struct Image {
    content: Content,
    entry: Result<&'static abi::PluginEntry, String>,
}

static IMAGES: ProcessWide<HashMap<Identity, Image>> = ProcessWide::new();

impl Content {
    /// A file with its state at the time of `stat`.
    pub(super) fn from_file(file: File, stat: &std::fs::Metadata) -> Self {
        let identity = Identity::Inode { device: stat.dev(), number: stat.ino() };
        Self { file, identity, state: Some(State::from_metadata(stat)) }
    }

    /// A sealed copy with this hash.
    pub(super) fn from_copy(file: File, sha256: Sha256) -> Self {
        Self { file, identity: Identity::Bytes(sha256), state: None }
    }

    /// A name for the file's current content. The name changes when the content changes.
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

    /// Maps the file, unless it is already mapped, and returns the plugin's entry, which has
    /// `entry_bytes` bytes in the file.
    pub(super) fn map(
        self,
        entry_bytes: usize,
        first_run: &FirstRun,
    ) -> Result<&'static abi::PluginEntry, Refusal> {
        // The lock is held while the library's constructors run, so that two threads do not load
        // one file twice. A constructor that loads Crossdock plugins would deadlock, but no plugin
        // needs to do this.
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
        // The mark is created after the lock is taken, so that a crash in another plugin's
        // constructors is not attributed to this plugin.
        let mark = first_run.begin("its constructors");
        // SAFETY: the file passed all checks, which is the condition for running its constructors.
        // The image is never unloaded (RTLD_NODELETE), so its functions and data stay valid.
        let library = unsafe { Library::open(Some(&name), RTLD_NOW | RTLD_LOCAL | libc::RTLD_NODELETE) };
        drop(mark);
        let library = library.map_err(|error| Refusal::Dlopen(loader_message(&error, &name)))?;
        // SAFETY: the checks found a data symbol of this name that is at least as long as the entry
        // struct.
        let entry = unsafe { library.get::<*const abi::PluginEntry>(abi::ENTRY_SYMBOL) };
        let entry = match entry.map(|symbol| symbol.into_raw().cast::<abi::PluginEntry>()) {
            Ok(raw) if raw.is_null() || !raw.is_aligned() => {
                Err(format!("the address {raw:p} is misaligned"))
            }
            // SAFETY: `copy_entry` requires `entry_bytes` bytes of constant data at `raw`. The
            // checks found these bytes, and `raw` is aligned.
            Ok(raw) => Ok(unsafe { copy_entry(raw, entry_bytes) }),
            Err(error) => Err(loader_message(&error, &name)),
        };
        // The library is not dropped, because a drop would only decrement the loader's count of an
        // image that stays mapped.
        std::mem::forget(library);
        images.insert(self.identity, Image { content: self, entry: entry.clone() });
        entry.map_err(Refusal::BadEntry)
    }

    /// Returns a sealed copy, for a process that may not open files.
    pub(super) fn into_sealed(self) -> Result<File, Refusal> {
        let Some(state) = self.state else { return Ok(self.file) };
        self.check_unchanged()?;
        sealed::copy(&self.file, state.bytes).map_err(Refusal::Copy)
    }

    /// Returns an error if a file that is not a sealed copy was rewritten since the checks.
    fn check_unchanged(&self) -> Result<(), Refusal> {
        let Some(state) = self.state else { return Ok(()) };
        let now = self.file.metadata().map_err(Refusal::Unreadable)?;
        if State::from_metadata(&now) == state { Ok(()) } else { Err(Refusal::Changed) }
    }
}

/// The path by which the loader opens the file. It contains this process's id instead of `self`,
/// because debuggers and backtraces read the path from other processes. If `/proc` belongs to
/// another pid namespace, as in some containers, that path would be another process's file.
fn descriptor_name(file: &File, process: u32) -> String {
    let descriptor = file.as_raw_fd();
    let name = format!("/proc/{process}/fd/{descriptor}");
    let identity = |stat: std::io::Result<std::fs::Metadata>| stat.ok().map(|stat| (stat.dev(), stat.ino()));
    match identity(std::fs::metadata(&name)) {
        named if named.is_some() && named == identity(file.metadata()) => name,
        _ => format!("/proc/self/fd/{descriptor}"),
    }
}

/// Returns a leaked copy of an entry. The copy contains the fields that both the entry and this
/// version of the struct have.
///
/// # Safety
/// `entry` points at `bytes` bytes that stay valid and constant during the call.
unsafe fn copy_entry(entry: *const abi::PluginEntry, bytes: usize) -> &'static abi::PluginEntry {
    let copy = Box::leak(Box::new(abi::PluginEntry::default()));
    // SAFETY: every version's entry begins with its magic number and its size. The checks required
    // at least the bytes of these two fields.
    let declared = unsafe { (*entry).struct_size }.max(std::mem::offset_of!(abi::PluginEntry, abi_major));
    let bytes = bytes.min(declared).min(size_of::<abi::PluginEntry>());
    // SAFETY: `bytes` is at most the length of the source and of the copy. The fields of the copy
    // after `bytes` stay zero, which is a valid value: None.
    unsafe { std::ptr::copy_nonoverlapping(entry.cast::<u8>(), std::ptr::from_mut(copy).cast(), bytes) };
    copy
}

/// The loader's message, without the descriptor's path, which means nothing to users.
fn loader_message(error: &libloading::Error, name: &str) -> String {
    let message = match error {
        libloading::Error::DlOpen { source } | libloading::Error::DlSym { source } => source.to_string(),
        other => other.to_string(),
    };
    let message = message.strip_prefix(name).unwrap_or(&message);
    message.trim_start_matches([':', ' ']).to_string()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn descriptor_name_never_names_the_file_of_another_process() {
        let file = File::open("/proc/self/exe").unwrap();
        let (descriptor, own) = (file.as_raw_fd(), std::process::id());
        assert_eq!(descriptor_name(&file, own), format!("/proc/{own}/fd/{descriptor}"));
        // Process 1 does not have this descriptor open, or this process may not read the
        // descriptors of process 1.
        assert_eq!(descriptor_name(&file, 1), format!("/proc/self/fd/{descriptor}"));
    }
}
