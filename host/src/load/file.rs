//! Plugins in files: opened once, checked, and loaded through the very descriptor that was checked.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crossdock_plugin_api::abi;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use super::{Inspection, Load, Loaded, Refusal, Refused, checks, trust};
use crate::metadata::Metadata;

/// A file that may be a plugin.
#[derive(Clone, Debug)]
pub struct PluginFile {
    path: PathBuf,
}

impl PluginFile {
    /// Looks at nothing yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn open(&self) -> Result<Opened, Refusal> {
        // O_NONBLOCK, so that a named pipe of that name cannot make us wait for a writer.
        let file =
            File::options().read(true).custom_flags(libc::O_CLOEXEC | libc::O_NONBLOCK).open(&self.path);
        let file = file.map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Refusal::Missing,
            _ => Refusal::Unreadable(error),
        })?;
        let stat = file.metadata().map_err(Refusal::Unreadable)?;
        check_type(&stat.file_type())?;
        Ok(Opened { file, stat })
    }

    /// See [`super::inspect`].
    pub fn inspect(&self) -> Result<Inspection, Refused> {
        let look = || {
            let opened = self.open()?;
            let metadata = Metadata::from_file(&opened.file)?;
            let refusal = self.check_trust(&opened).and_then(|()| checks::check_metadata(&metadata)).err();
            Ok(Inspection { metadata, refusal })
        };
        look().map_err(|reason: Refusal| reason.of(self.who()))
    }

    fn check_trust(&self, opened: &Opened) -> Result<(), Refusal> {
        trust::check_file(&opened.stat)?;
        trust::check_directories(&self.path)
    }

    /// Everything that can be checked without the file's code.
    fn judge(&self) -> Result<(Opened, Metadata, Option<u64>), Refusal> {
        let opened = self.open()?;
        self.check_trust(&opened)?;
        let (metadata, entry_bytes) = crate::metadata::with_entry_bytes(&opened.file)?;
        checks::check_metadata(&metadata)?;
        Ok((opened, metadata, entry_bytes))
    }

    fn try_load(&self) -> Result<(Metadata, &'static abi::PluginEntry), Refusal> {
        let (opened, metadata, entry_bytes) = self.judge()?;
        let entry_bytes = entry_bytes.and_then(|n| usize::try_from(n).ok());
        let entry_bytes = entry_bytes.filter(|n| *n >= abi::ENTRY_LEAST).ok_or(Refusal::NoEntry)?;
        let entry = opened.image(entry_bytes)?;
        checks::check_entry(entry)?;
        Ok((metadata, entry))
    }
}

impl Load for PluginFile {
    fn who(&self) -> String {
        self.path.display().to_string()
    }

    fn metadata(&self) -> Result<Metadata, Refused> {
        self.judge().map(|(_, metadata, _)| metadata).map_err(|reason| reason.of(self.who()))
    }

    fn load(&self) -> Result<Loaded, Refused> {
        let (metadata, entry) = self.try_load().map_err(|reason| reason.of(self.who()))?;
        Ok(Loaded { who: self.who(), metadata: Arc::new(metadata), entry })
    }
}

fn check_type(kind: &std::fs::FileType) -> Result<(), Refusal> {
    let got = match () {
        () if kind.is_file() => return Ok(()),
        () if kind.is_dir() => "a directory",
        () if kind.is_fifo() => "a named pipe",
        () if kind.is_socket() => "a socket",
        () => "a device",
    };
    Err(Refusal::NotAFile { got })
}

/// By which a change of the file since it was loaded shows.
#[derive(PartialEq, Eq)]
struct State {
    bytes: u64,
    modified: (i64, i64),
}

impl State {
    fn of(stat: &std::fs::Metadata) -> Self {
        Self { bytes: stat.size(), modified: (stat.mtime(), stat.mtime_nsec()) }
    }
}

struct Opened {
    file: File,
    stat: std::fs::Metadata,
}

/// A mapped file. The loader finds images by name first, then by inode: were the descriptor closed, the next file that
/// got its number would silently yield this image again. So it stays open for ever, as the image stays mapped.
struct Image {
    _file: File,
    state: State,
    entry: Result<&'static abi::PluginEntry, String>,
}

fn images() -> &'static Mutex<HashMap<(u64, u64), Image>> {
    static IMAGES: OnceLock<Mutex<HashMap<(u64, u64), Image>>> = OnceLock::new();
    IMAGES.get_or_init(Mutex::default)
}

impl Opened {
    /// The entry of the mapped file, which is mapped now if it was not before. One inode is one image, with one set of
    /// statics, whoever loads it. Its entry has `entry_bytes` bytes.
    fn image(self, entry_bytes: usize) -> Result<&'static abi::PluginEntry, Refusal> {
        // Held while the library's constructors run, so that two threads do not load one file twice. A constructor
        // that loads Crossdock plugins itself would wait for ever; there is no use for one.
        let mut images = images().lock().unwrap_or_else(PoisonError::into_inner);
        let (inode, state) = ((self.stat.dev(), self.stat.ino()), State::of(&self.stat));
        if let Some(image) = images.get(&inode) {
            return match &image.entry {
                _ if image.state != state => Err(Refusal::Changed),
                Ok(entry) => Ok(entry),
                Err(message) => Err(Refusal::BadEntry(message.clone())),
            };
        }
        // The process id rather than `self`: debuggers and backtraces read this name from other processes.
        let name = format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd());
        // SAFETY: the file's constructors run here, which is what loading a trusted plugin means. The image is never
        // unloaded (RTLD_NODELETE), so nothing that it hands out dangles.
        let library = unsafe { Library::open(Some(&name), RTLD_NOW | RTLD_LOCAL | libc::RTLD_NODELETE) };
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
        images.insert(inode, Image { _file: self.file, state, entry: entry.clone() });
        entry.map_err(Refusal::BadEntry)
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
