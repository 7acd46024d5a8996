//! Plugins whose loading ended the process, remembered from one process to the next.
//!
//! Before a plugin's code runs for the first time in a process, a mark is put into a folder and kept locked; it goes when that code
//! has returned. A mark that nobody holds a lock of is one of a process that ended in between: the system takes the lock away,
//! however a process ends. So neither the end of a process later on counts, nor a process that loads the plugin just now. A process
//! that the plugin's code started has the lock too, and may live on: so the mark's name also says whose it is.

use std::collections::BTreeSet;
use std::fs::{File, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use crossdock_memory_backend::ProcessWide;

use super::{Refusal, alive};

/// A plugin's file, as it is now, and where it is marked.
pub(crate) struct FirstRun {
    /// `None`: nothing is marked.
    folder: Option<PathBuf>,
    /// Another one where the file is another one.
    key: String,
    /// All of its code that runs at the beginning has returned once.
    is_over: AtomicBool,
}

/// Those that are over in this process, whichever of its hosts loaded them: by where they are marked, and their keys.
static OVER: ProcessWide<BTreeSet<(PathBuf, String)>> = ProcessWide::new();

/// What is there while code runs.
pub(crate) struct Mark {
    path: PathBuf,
    locked: File,
}

impl Drop for Mark {
    fn drop(&mut self) {
        // Before the lock goes. One that stays would say that the process had ended here, so this is tried and hoped.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl FirstRun {
    pub(super) fn new(folder: Option<PathBuf>, key: String) -> Self {
        Self { folder, key, is_over: AtomicBool::new(false) }
    }

    /// Refuses a plugin of which there is a mark that nobody holds.
    pub(super) fn check(&self) -> Result<(), Refusal> {
        let Some(folder) = &self.folder else { return Ok(()) };
        match marks(folder, &self.key).find_map(|path| left_behind(&path)) {
            Some((step, ago)) => Err(Refusal::Quarantined { step, ago: words(ago) }),
            None => Ok(()),
        }
    }

    /// While this lives, `step` of the plugin is what would have ended the process. `None` where nothing can be written, or where it
    /// has returned before.
    pub(crate) fn begin(&self, step: &str) -> Option<Mark> {
        let folder = self.folder.as_deref().filter(|_| !self.is_over.load(Ordering::Relaxed))?;
        if OVER.lock().contains(&(folder.to_path_buf(), self.key.clone())) {
            self.is_over.store(true, Ordering::Relaxed);
            return None;
        }
        let mark = mark(folder, &self.key, step);
        mark.inspect_err(|error| {
            tracing::debug!("cannot mark what is loaded in '{}': {error}", folder.display())
        })
        .ok()
    }

    /// From now on nothing is marked in this process.
    pub(crate) fn is_over(&self) {
        if let Some(folder) = &self.folder
            && !self.is_over.swap(true, Ordering::Relaxed)
        {
            OVER.lock().insert((folder.clone(), self.key.clone()));
        }
    }

    /// Takes away the marks that nobody holds. Returns how many there were.
    pub(super) fn forget(&self) -> io::Result<usize> {
        let Some(folder) = &self.folder else { return Ok(0) };
        let left: Vec<_> = marks(folder, &self.key).filter(|path| left_behind(path).is_some()).collect();
        left.iter().try_for_each(std::fs::remove_file)?;
        Ok(left.len())
    }
}

fn mark(folder: &Path, key: &str, step: &str) -> io::Result<Mark> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let sign = alive::own_sign();
    loop {
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let sign = sign.as_deref().map(|sign| format!(".{sign}")).unwrap_or_default();
        let path = folder.join(format!("{key}.{}.{n}{sign}", std::process::id()));
        let mark = match File::create_new(&path) {
            // It goes where the rest fails too: half of a word would be a step.
            Ok(locked) => Mark { path, locked },
            // Another process had this number.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            Err(error) => return Err(error),
        };
        // An empty one says nothing yet.
        mark.locked.lock()?;
        (&mark.locked).write_all(step.as_bytes())?;
        return Ok(mark);
    }
}

fn marks(folder: &Path, key: &str) -> impl Iterator<Item = PathBuf> {
    let begin = format!("{key}.");
    let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let of_key = move |entry: &std::fs::DirEntry| {
        entry.file_name().to_str().is_some_and(|name| name.starts_with(&begin))
    };
    entries.filter(of_key).map(|entry| entry.path())
}

/// Whether the process that made a mark is known to be gone, whoever holds it.
fn maker_has_ended(path: &Path) -> bool {
    let of = || {
        // Behind the plugin's key: the number of the process, that of the mark, and the sign where one could be had.
        let (rest, sign) = path.file_name()?.to_str()?.rsplit_once('.')?;
        let process = rest.rsplit('.').nth(1)?.parse().ok()?;
        Some((process, sign))
    };
    of().is_some_and(|(process, sign)| alive::has_ended(process, sign))
}

/// Of a mark that nobody holds, what it says and how old it is.
fn left_behind(path: &Path) -> Option<(String, Duration)> {
    let mut file = File::open(path).ok()?;
    // Shared, so that others may look at it meanwhile; whoever made it holds it alone.
    match file.try_lock_shared() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) if maker_has_ended(path) => {}
        Err(TryLockError::WouldBlock | TryLockError::Error(_)) => return None,
    }
    // Its process may have taken it away since it was listed.
    let stat = file.metadata().ok().filter(|stat| stat.nlink() > 0 && stat.len() > 0)?;
    let mut step = String::new();
    file.read_to_string(&mut step).ok()?;
    Some((step, stat.modified().ok()?.elapsed().unwrap_or_default()))
}

fn words(ago: Duration) -> String {
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

    /// As the end of a process leaves it.
    fn leave(mark: Mark) {
        let (path, step) = (mark.path.clone(), std::fs::read(&mark.path).unwrap());
        drop(mark);
        std::fs::write(path, step).unwrap();
    }

    #[test]
    fn a_mark_that_nobody_holds_is_of_a_process_that_ended() {
        let folder = tempfile::tempdir().unwrap();
        let run = first_run(folder.path());
        assert!(run.check().is_ok(), "there is no folder yet");
        let mark = run.begin("create").unwrap();
        assert!(first_run(folder.path()).check().is_ok(), "it is being loaded, by whomever");
        leave(mark);
        let refused = run.check().unwrap_err();
        assert_eq!(refused.id(), "quarantined");
        assert!(refused.to_string().contains("in 'create'"), "{refused}");
        let path = marks(&folder.path().join("marks"), "key").next().unwrap();
        let other = File::open(path).unwrap();
        other.lock_shared().unwrap();
        assert!(run.check().is_err(), "another process looks at it just now");
        drop(other);
        assert!(FirstRun::new(run.folder.clone(), "key2".into()).check().is_ok(), "another file");
        assert_eq!((run.forget().unwrap(), run.forget().unwrap()), (1, 0));
        assert!(run.check().is_ok());
    }

    #[test]
    fn what_returns_leaves_no_mark_and_is_not_marked_again() {
        let folder = tempfile::tempdir().unwrap();
        let run = first_run(folder.path());
        drop(run.begin("load").unwrap());
        assert!(run.check().is_ok());
        assert_eq!(marks(&folder.path().join("marks"), "key").count(), 0);
        let of_another_host = first_run(folder.path());
        run.is_over();
        assert!(run.begin("create").is_none());
        assert!(
            of_another_host.begin("create").is_none() && first_run(folder.path()).begin("load").is_none()
        );
    }

    #[test]
    fn where_nothing_can_be_written_nothing_is_marked() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("marks"), "a file").unwrap();
        let run = first_run(folder.path());
        assert!(run.begin("load").is_none() && run.check().is_ok());
    }
}
