//! Creates the control group (Linux, version 2) of a plugin's process, which limits its memory and
//! threads.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crossdock_plugin_api::{Error, Result};

use crate::sandbox::confine;

const CONTROLLERS: [&str; 2] = ["memory", "pids"];
/// The maximum number of threads of a process. A plugin needs fewer threads, and this number of
/// threads does not harm the system.
const MAX_THREADS: u32 = 4096;

/// The control group of one process.
pub struct Group {
    folder: PathBuf,
    memory_bytes: Option<u64>,
}

impl Group {
    /// Creates a group in the group `parent`. The group's memory limit is derived from
    /// `memory_limit_bytes` (0: no limit) as in [`confine::limit_memory`], but also includes files
    /// in memory.
    ///
    /// # Errors
    /// `parent` is not a control group or lacks a controller, or this user has no permission to
    /// create groups in it.
    pub fn new(parent: &Path, memory_limit_bytes: u64, has_cuda: bool) -> Result<Self> {
        let available = read(parent, "cgroup.controllers")?;
        if let Some(missing) = CONTROLLERS.into_iter().find(|name| !has_word(&available, name)) {
            let why = format_args!("the group lacks the controller {missing}, and has: {available}");
            return Err(failed(parent, why));
        }
        let enabled = read(parent, "cgroup.subtree_control")?;
        for name in CONTROLLERS.into_iter().filter(|name| !has_word(&enabled, name)) {
            write(parent, "cgroup.subtree_control", format_args!("+{name}"))?;
        }
        remove_stale_groups(parent);
        let folder = create_group_folder(parent)?;
        let group = Self { folder, memory_bytes: confine::max_memory_bytes(memory_limit_bytes, has_cuda) };
        if let Some(bytes) = group.memory_bytes {
            write(&group.folder, "memory.max", bytes)?;
            // The file does not exist if the system does not account for swap.
            if group.folder.join("memory.swap.max").exists() {
                write(&group.folder, "memory.swap.max", 0)?;
            }
        }
        write(&group.folder, "pids.max", MAX_THREADS)?;
        Ok(group)
    }

    /// Moves a process into the group.
    pub fn add(&self, process: u32) -> Result<()> {
        write(&self.folder, "cgroup.procs", process)
    }

    /// Returns the reason for the process's end if the system killed it because of its memory.
    pub fn out_of_memory_kill(&self) -> Option<String> {
        let events = read(&self.folder, "memory.events").ok()?;
        let kills = events.lines().find_map(|line| line.strip_prefix("oom_kill "))?;
        let max = self.memory_bytes.filter(|_| kills.trim() != "0")?;
        Some(format!("the system killed the process because it exceeded its memory limit of {max} bytes"))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // This fails if the system has not finished the process yet. Then a later host removes the
        // group.
        let _ = std::fs::remove_dir(&self.folder);
    }
}

const PREFIX: &str = "crossdock-";

/// Creates a folder with a new name, because a folder of an earlier host with the same process id
/// may remain.
fn create_group_folder(parent: &Path) -> Result<PathBuf> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = parent.join(format!("{PREFIX}{}-{number}", std::process::id()));
        match std::fs::create_dir(&folder) {
            Ok(()) => return Ok(folder),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed(&folder, error)),
        }
    }
}

/// Removes the groups of hosts that were killed. The system rejects the removal of a group that
/// still contains a process.
fn remove_stale_groups(parent: &Path) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let host_id =
            name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok());
        if host_id.is_some_and(|id: u32| !Path::new("/proc").join(id.to_string()).exists()) {
            let _ = std::fs::remove_dir(entry.path());
        }
    }
}

fn has_word(words: &str, word: &str) -> bool {
    words.split_whitespace().any(|other| other == word)
}

fn read(group: &Path, file: &str) -> Result<String> {
    let path = group.join(file);
    std::fs::read_to_string(&path).map(|text| text.trim().to_owned()).map_err(|error| failed(&path, error))
}

fn write(group: &Path, file: &str, value: impl Display) -> Result<()> {
    let path = group.join(file);
    let failed = |error| failed(&path, format_args!("cannot write {value}: {error}"));
    std::fs::write(&path, value.to_string()).map_err(failed)
}

fn failed(path: &Path, why: impl Display) -> Error {
    Error::unsupported(format!(
        "'{}': {why}; the policy's isolate_cgroup must be a control group (version 2) that this user owns, with the controllers \
         {} and without processes",
        path.display(),
        CONTROLLERS.join(" and ")
    ))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Creates a folder with the files of a control group.
    fn parent(controllers: &str, enabled: &str) -> tempfile::TempDir {
        let parent = tempfile::tempdir().unwrap();
        std::fs::write(parent.path().join("cgroup.controllers"), controllers).unwrap();
        std::fs::write(parent.path().join("cgroup.subtree_control"), enabled).unwrap();
        parent
    }

    #[test]
    fn new_control_group_has_memory_and_thread_limits() {
        let parent = parent("cpu memory pids\n", "memory pids\n");
        let group = Group::new(parent.path(), 1 << 20, false).unwrap();
        let max = confine::max_memory_bytes(1 << 20, false).unwrap();
        assert_eq!(read(&group.folder, "memory.max").unwrap(), max.to_string());
        assert_eq!(read(&group.folder, "pids.max").unwrap(), MAX_THREADS.to_string());
        assert_eq!(read(parent.path(), "cgroup.subtree_control").unwrap(), "memory pids", "unchanged");
        group.add(77).unwrap();
        assert_eq!(read(&group.folder, "cgroup.procs").unwrap(), "77");
        let unlimited = Group::new(parent.path(), 0, false).unwrap();
        assert_ne!(unlimited.folder, group.folder);
        assert!(!unlimited.folder.join("memory.max").exists(), "no limit");
    }

    #[test]
    fn enables_missing_controllers() {
        let parent = parent("memory pids", "memory");
        Group::new(parent.path(), 0, false).unwrap();
        assert_eq!(read(parent.path(), "cgroup.subtree_control").unwrap(), "+pids");
    }

    #[test]
    fn rejects_parent_that_is_no_control_group_or_lacks_a_controller() {
        let empty = tempfile::tempdir().unwrap();
        let error = |parent: &Path| Group::new(parent, 0, false).err().unwrap().message().to_owned();
        let message = error(empty.path());
        assert!(message.contains("cgroup.controllers") && message.contains("isolate_cgroup"), "{message}");
        let message = error(parent("cpu memory", "").path());
        assert!(message.contains("the group lacks the controller pids, and has: cpu memory"), "{message}");
    }

    #[test]
    fn out_of_memory_kill_is_reported_only_if_a_process_was_killed() {
        let parent = parent("memory pids", "memory pids");
        let group = Group::new(parent.path(), 1 << 20, false).unwrap();
        assert_eq!(group.out_of_memory_kill(), None, "there is no file");
        for (events, is_reported) in [("oom 1\noom_kill 0\n", false), ("oom 1\noom_kill 1\n", true)] {
            std::fs::write(group.folder.join("memory.events"), events).unwrap();
            assert_eq!(group.out_of_memory_kill().is_some(), is_reported, "{events}");
        }
    }

    #[test]
    fn removes_groups_of_hosts_that_have_ended() {
        let parent = parent("memory pids", "memory pids");
        let names = ["crossdock-4294967294-0", "crossdock-1-0", "crossdock-mine", "another"];
        names.iter().for_each(|name| std::fs::create_dir(parent.path().join(name)).unwrap());
        drop(Group::new(parent.path(), 0, false).unwrap());
        let exist: Vec<bool> = names.iter().map(|name| parent.path().join(name).exists()).collect();
        assert_eq!(exist, [false, true, true, true]);
    }
}
