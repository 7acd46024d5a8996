//! Records plugins that ended a process while they were loaded, so that later processes refuse
//! them.
//!
//! Before a plugin's code first runs in a process, the host creates a mark, which is a locked file
//! in a folder. The mark is removed when the code has returned. The system releases the lock when
//! the process ends. So an unlocked mark means that a process ended while the code ran. If a
//! process ends later, its mark has already been removed. If a process is still loading the plugin,
//! its mark is locked. A process that the plugin started inherits the lock and may live longer, so
//! the name of the mark also identifies the process that created it.

use std::collections::BTreeSet;
use std::fs::{File, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use crossdock_memory_backend::ProcessWide;

use super::{Refusal, alive};

/// The first run of a plugin's file in this process.
pub(crate) struct FirstRun {
    /// The folder of marks. `None`: no marks are created.
    folder: Option<PathBuf>,
    /// Identifies the file's current content.
    key: String,
    /// Whether all plugin code of the first run has returned.
    is_over: AtomicBool,
}

/// The folders and keys of plugins whose first run is over in this process. All hosts of the
/// process share them.
static OVER: ProcessWide<BTreeSet<(PathBuf, String)>> = ProcessWide::new();

/// A mark, which exists while a plugin's code runs.
pub(crate) struct Mark {
    path: PathBuf,
    locked: File,
}

impl Drop for Mark {
    fn drop(&mut self) {
        // The mark is removed before the lock is released, because an unlocked mark means a crash.
        // A failure to remove it cannot be handled.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl FirstRun {
    pub(super) fn new(folder: Option<PathBuf>, key: String) -> Self {
        Self { folder, key, is_over: AtomicBool::new(false) }
    }

    /// Refuses a plugin that has a mark of a process that ended while the plugin's code ran.
    pub(super) fn check(&self) -> Result<(), Refusal> {
        let Some(folder) = &self.folder else { return Ok(()) };
        match marks(folder, &self.key).find_map(|path| abandoned(&path)) {
            Some((step, ago)) => Err(Refusal::Quarantined { step, ago: describe(ago) }),
            None => Ok(()),
        }
    }

    /// Creates a mark that names `step` of the plugin as the cause if the process ends before the
    /// mark is dropped. `None` if the mark cannot be written, or the first run is over.
    pub(crate) fn begin(&self, step: &str) -> Option<Mark> {
        let folder = self.folder.as_deref().filter(|_| !self.is_over.load(Ordering::Relaxed))?;
        if OVER.lock().contains(&(folder.to_path_buf(), self.key.clone())) {
            self.is_over.store(true, Ordering::Relaxed);
            return None;
        }
        let mark = mark(folder, &self.key, step);
        mark.inspect_err(|error| {
            tracing::debug!("cannot create a mark in '{}' before loading: {error}", folder.display())
        })
        .ok()
    }

    /// Ends the first run: no more marks are created in this process.
    pub(crate) fn finish(&self) {
        if let Some(folder) = &self.folder
            && !self.is_over.swap(true, Ordering::Relaxed)
        {
            OVER.lock().insert((folder.clone(), self.key.clone()));
        }
    }

    /// Removes abandoned marks. Returns the number of removed marks.
    pub(super) fn forget(&self) -> io::Result<usize> {
        let Some(folder) = &self.folder else { return Ok(0) };
        let abandoned: Vec<_> = marks(folder, &self.key).filter(|path| abandoned(path).is_some()).collect();
        abandoned.iter().try_for_each(std::fs::remove_file)?;
        Ok(abandoned.len())
    }
}

fn mark(folder: &Path, key: &str, step: &str) -> io::Result<Mark> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let signature = alive::process_signature();
    loop {
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let suffix = signature.as_deref().map(|signature| format!(".{signature}")).unwrap_or_default();
        let path = folder.join(format!("{key}.{}.{n}{suffix}", std::process::id()));
        let mark = match File::create_new(&path) {
            // The file is wrapped in a `Mark` at once, so that an error in the next lines removes
            // it. A mark with a truncated step must not remain.
            Ok(locked) => Mark { path, locked },
            // An earlier process with the same id left the file.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            Err(error) => return Err(error),
        };
        // The mark is locked while it is still empty, because readers ignore empty marks.
        mark.locked.lock()?;
        (&mark.locked).write_all(step.as_bytes())?;
        return Ok(mark);
    }
}

fn marks(folder: &Path, key: &str) -> impl Iterator<Item = PathBuf> {
    let prefix = format!("{key}.");
    let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let of_key = move |entry: &std::fs::DirEntry| {
        entry.file_name().to_str().is_some_and(|name| name.starts_with(&prefix))
    };
    entries.filter(of_key).map(|entry| entry.path())
}

/// Whether the process that created a mark has certainly ended, even if the mark is locked.
fn creator_has_ended(path: &Path) -> bool {
    let parse = || {
        // The name is KEY.PROCESS.NUMBER, with .SIGNATURE appended if the process has a signature.
        let (rest, signature) = path.file_name()?.to_str()?.rsplit_once('.')?;
        let process = rest.rsplit('.').nth(1)?.parse().ok()?;
        Some((process, signature))
    };
    parse().is_some_and(|(process, signature)| alive::has_ended(process, signature))
}

/// The step and the age of an abandoned mark. `None` if the mark is not abandoned.
fn abandoned(path: &Path) -> Option<(String, Duration)> {
    let mut file = File::open(path).ok()?;
    // The lock is shared, so that several readers do not exclude each other. The creator's lock is
    // exclusive.
    match file.try_lock_shared() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) if creator_has_ended(path) => {}
        Err(TryLockError::WouldBlock | TryLockError::Error(_)) => return None,
    }
    // The creator may have removed the mark since it was listed.
    let stat = file.metadata().ok().filter(|stat| stat.nlink() > 0 && stat.len() > 0)?;
    let mut step = String::new();
    file.read_to_string(&mut step).ok()?;
    Some((step, stat.modified().ok()?.elapsed().unwrap_or_default()))
}

fn describe(ago: Duration) -> String {
    match ago.as_secs() {
        s @ 0..120 => format!("{s} s ago"),
        s @ 120..7200 => format!("{} min ago", s / 60),
        s @ 7200..172_800 => format!("{} h ago", s / 3600),
        s => format!("{} days ago", s / 86_400),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn first_run(folder: &Path) -> FirstRun {
        FirstRun::new(Some(folder.join("marks")), "key".into())
    }

    /// Puts a mark in the state that remains when the process of the mark ends.
    fn abandon(mark: Mark) {
        let (path, step) = (mark.path.clone(), std::fs::read(&mark.path).unwrap());
        drop(mark);
        std::fs::write(path, step).unwrap();
    }

    #[test]
    fn plugin_with_unlocked_quarantine_mark_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let run = first_run(folder.path());
        assert!(run.check().is_ok(), "the folder does not exist yet");
        let mark = run.begin("create").unwrap();
        assert!(first_run(folder.path()).check().is_ok(), "the plugin is being loaded");
        abandon(mark);
        let refused = run.check().unwrap_err();
        assert_eq!(refused.id(), "quarantined");
        assert!(refused.to_string().contains("during create"), "{refused}");
        let path = marks(&folder.path().join("marks"), "key").next().unwrap();
        let other = File::open(path).unwrap();
        other.lock_shared().unwrap();
        assert!(run.check().is_err(), "another reader has a shared lock");
        drop(other);
        assert!(FirstRun::new(run.folder.clone(), "key2".into()).check().is_ok(), "another file");
        assert_eq!((run.forget().unwrap(), run.forget().unwrap()), (1, 0));
        assert!(run.check().is_ok());
    }

    #[test]
    fn finished_first_run_leaves_and_creates_no_quarantine_marks() {
        let folder = tempfile::tempdir().unwrap();
        let run = first_run(folder.path());
        drop(run.begin("load").unwrap());
        assert!(run.check().is_ok());
        assert_eq!(marks(&folder.path().join("marks"), "key").count(), 0);
        let other_host = first_run(folder.path());
        run.finish();
        assert!(run.begin("create").is_none());
        assert!(other_host.begin("create").is_none() && first_run(folder.path()).begin("load").is_none());
    }

    #[test]
    fn unwritable_folder_disables_quarantine_marks() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("marks"), "a file").unwrap();
        let run = first_run(folder.path());
        assert!(run.begin("load").is_none() && run.check().is_ok());
    }
}
