//! The control group (Linux, version 2) of a plugin's process: memory and threads that it cannot go beyond by any way of allocating.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crossdock_plugin_api::{Error, Result};

use crate::confine;

const CONTROLLERS: [&str; 2] = ["memory", "pids"];
/// So many threads are nobody's need, and no danger to a system.
const MOST_THREADS: u32 = 4096;

/// A group for one process.
pub struct Group {
    folder: PathBuf,
    memory_bytes: Option<u64>,
}

impl Group {
    /// One below `parent`, whose process may have what [`confine::limit`] leaves it of its host's limit (bytes; 0: none), and
    /// memory that is no data of its: files that it makes.
    ///
    /// # Errors
    /// `parent` is no control group, or not this user's to make others in.
    pub fn new(parent: &Path, memory_limit_bytes: u64, has_cuda: bool) -> Result<Self> {
        let there = read(parent, "cgroup.controllers")?;
        if let Some(lacking) = CONTROLLERS.into_iter().find(|name| !has_word(&there, name)) {
            return Err(failed(parent, format_args!("the controller {lacking} is not there, only: {there}")));
        }
        let given = read(parent, "cgroup.subtree_control")?;
        for name in CONTROLLERS.into_iter().filter(|name| !has_word(&given, name)) {
            write(parent, "cgroup.subtree_control", format_args!("+{name}"))?;
        }
        forget_the_dead(parent);
        let folder = made_below(parent)?;
        let group = Self { folder, memory_bytes: confine::most_bytes(memory_limit_bytes, has_cuda) };
        if let Some(bytes) = group.memory_bytes {
            write(&group.folder, "memory.max", bytes)?;
            // Where swap is not accounted for there is no such file, and nothing that could be limited.
            if group.folder.join("memory.swap.max").exists() {
                write(&group.folder, "memory.swap.max", 0)?;
            }
        }
        write(&group.folder, "pids.max", MOST_THREADS)?;
        Ok(group)
    }

    /// Takes this process in.
    pub fn take(&self, process: u32) -> Result<()> {
        write(&self.folder, "cgroup.procs", process)
    }

    /// What to say of a process that the system ended for its memory; `None` where it did not.
    pub fn ended_for_memory(&self) -> Option<String> {
        let events = read(&self.folder, "memory.events").ok()?;
        let kills = events.lines().find_map(|line| line.strip_prefix("oom_kill "))?;
        let most = self.memory_bytes.filter(|_| kills.trim() != "0")?;
        Some(format!("the system ended it: it had more than the {most} bytes of memory that are its limit"))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // It fails where the process has not quite gone; a later host sees to that.
        let _ = std::fs::remove_dir(&self.folder);
    }
}

const PREFIX: &str = "crossdock-";

/// The next whose name is free: one may be left of a host that had the same number.
fn made_below(parent: &Path) -> Result<PathBuf> {
    static MADE: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let folder = parent.join(format!("{PREFIX}{}-{number}", std::process::id()));
        match std::fs::create_dir(&folder) {
            Ok(()) => return Ok(folder),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed(&folder, error)),
        }
    }
}

/// Groups of hosts that were ended before they could remove them. One that is not empty cannot be removed.
fn forget_the_dead(parent: &Path) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let host = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok());
        if host.is_some_and(|host: u32| !Path::new("/proc").join(host.to_string()).exists()) {
            let _ = std::fs::remove_dir(entry.path());
        }
    }
}

fn has_word(words: &str, word: &str) -> bool {
    words.split_whitespace().any(|one| one == word)
}

fn read(group: &Path, file: &str) -> Result<String> {
    let path = group.join(file);
    std::fs::read_to_string(&path).map(|text| text.trim().to_owned()).map_err(|error| failed(&path, error))
}

fn write(group: &Path, file: &str, what: impl Display) -> Result<()> {
    let path = group.join(file);
    let failed = |error| failed(&path, format_args!("cannot write {what}: {error}"));
    std::fs::write(&path, what.to_string()).map_err(failed)
}

fn failed(path: &Path, why: impl Display) -> Error {
    Error::unsupported(format!(
        "'{}': {why}; the policy's isolate_cgroup is to be a control group (version 2) of this user's, without processes of its \
         own, that has the controllers {}",
        path.display(),
        CONTROLLERS.join(" and ")
    ))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// A folder with the files that the kernel would show of a group.
    fn parent(controllers: &str, given: &str) -> tempfile::TempDir {
        let parent = tempfile::tempdir().unwrap();
        std::fs::write(parent.path().join("cgroup.controllers"), controllers).unwrap();
        std::fs::write(parent.path().join("cgroup.subtree_control"), given).unwrap();
        parent
    }

    #[test]
    fn a_group_has_its_limits_before_it_has_its_process() {
        let parent = parent("cpu memory pids\n", "memory pids\n");
        let group = Group::new(parent.path(), 1 << 20, false).unwrap();
        let most = confine::most_bytes(1 << 20, false).unwrap();
        assert_eq!(read(&group.folder, "memory.max").unwrap(), most.to_string());
        assert_eq!(read(&group.folder, "pids.max").unwrap(), MOST_THREADS.to_string());
        assert_eq!(read(parent.path(), "cgroup.subtree_control").unwrap(), "memory pids", "it had both");
        group.take(77).unwrap();
        assert_eq!(read(&group.folder, "cgroup.procs").unwrap(), "77");
        let another = Group::new(parent.path(), 0, false).unwrap();
        assert_ne!(another.folder, group.folder);
        assert!(!another.folder.join("memory.max").exists(), "a host without a limit sets none");
    }

    #[test]
    fn controllers_are_handed_down_where_they_were_not() {
        let parent = parent("memory pids", "memory");
        Group::new(parent.path(), 0, false).unwrap();
        assert_eq!(read(parent.path(), "cgroup.subtree_control").unwrap(), "+pids");
    }

    #[test]
    fn what_is_no_such_group_is_refused_with_what_it_is_to_be() {
        let none = tempfile::tempdir().unwrap();
        let words = |parent: &Path| Group::new(parent, 0, false).err().unwrap().message().to_owned();
        let said = words(none.path());
        assert!(said.contains("cgroup.controllers") && said.contains("isolate_cgroup"), "{said}");
        let said = words(parent("cpu memory", "").path());
        assert!(said.contains("the controller pids is not there, only: cpu memory"), "{said}");
    }

    #[test]
    fn a_process_that_had_too_much_is_told_from_one_that_somebody_ended() {
        let parent = parent("memory pids", "memory pids");
        let group = Group::new(parent.path(), 1 << 20, false).unwrap();
        assert_eq!(group.ended_for_memory(), None, "nothing is known");
        for (events, is_told) in [("oom 1\noom_kill 0\n", false), ("oom 1\noom_kill 1\n", true)] {
            std::fs::write(group.folder.join("memory.events"), events).unwrap();
            assert_eq!(group.ended_for_memory().is_some(), is_told, "{events}");
        }
    }

    #[test]
    fn groups_of_hosts_that_are_gone_go_too_and_no_others() {
        let parent = parent("memory pids", "memory pids");
        let made = ["crossdock-4294967294-0", "crossdock-1-0", "crossdock-mine", "another"];
        made.iter().for_each(|name| std::fs::create_dir(parent.path().join(name)).unwrap());
        drop(Group::new(parent.path(), 0, false).unwrap());
        let left: Vec<bool> = made.iter().map(|name| parent.path().join(name).exists()).collect();
        assert_eq!(left, [false, true, true, true]);
    }
}
