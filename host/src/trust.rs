//! Checks that only root and this process's user can decide which code runs in this process.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{File, FileType, Metadata};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::refusal::Refusal;

const GROUP_OR_OTHERS_WRITE: u32 = 0o022;
const OTHERS_WRITE: u32 = 0o002;
const STICKY: u32 = 0o1000;

/// Opens a regular file. All further checks must use the returned descriptor and metadata.
pub(crate) fn open(path: &Path) -> Result<(File, Metadata), Refusal> {
    // With O_NONBLOCK, opening a named pipe does not wait for a writer.
    let file = File::options().read(true).custom_flags(libc::O_CLOEXEC | libc::O_NONBLOCK).open(path);
    let file = file.map_err(missing_or_unreadable)?;
    let stat = file.metadata().map_err(Refusal::Unreadable)?;
    check_type(&stat.file_type())?;
    Ok((file, stat))
}

/// Returns the refusal for a failed system call. Any call may report a missing file, because a file
/// may be deleted between two system calls for its path.
fn missing_or_unreadable(error: std::io::Error) -> Refusal {
    match error.kind() {
        std::io::ErrorKind::NotFound => Refusal::Missing,
        _ => Refusal::Unreadable(error),
    }
}

/// Returns the current path of an open file, even if another file now has its former path. The path
/// of a deleted file ends with a note that the file is deleted.
pub(crate) fn path_of(file: &File) -> std::io::Result<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn check_type(kind: &FileType) -> Result<(), Refusal> {
    let got = match () {
        () if kind.is_file() => return Ok(()),
        () if kind.is_dir() => "a directory",
        () if kind.is_fifo() => "a named pipe",
        () if kind.is_socket() => "a socket",
        () => "a device",
    };
    Err(Refusal::NotAFile { got })
}

/// Checks that only root and this user can change the file.
pub(crate) fn check_file(file: &Metadata) -> Result<(), Refusal> {
    if let Some(user) = untrusted_owner(file) {
        return Err(Refusal::Owner { user, owner: file.uid() });
    }
    if file.mode() & GROUP_OR_OTHERS_WRITE != 0 {
        return Err(Refusal::Writable { mode: file.mode() & 0o777 });
    }
    Ok(())
}

/// Returns the id of this process's user, if the file's owner is neither this user nor root.
fn untrusted_owner(file: &Metadata) -> Option<u32> {
    // SAFETY: `geteuid` has no requirements and cannot fail.
    let user = unsafe { libc::geteuid() };
    (file.uid() != 0 && file.uid() != user).then_some(user)
}

/// Checks a program that this process starts.
pub(crate) fn check_program(path: &Path) -> Result<(), Refusal> {
    let (_, stat) = open(path)?;
    check_file(&stat)?;
    check_directories(path)
}

/// Checks that only root and this user can change which file is at `path`. Other users could do so
/// by replacing files in its directory, or in the directory of a symbolic link on the way, or by
/// owning such a link.
pub(crate) fn check_directories(path: &Path) -> Result<(), Refusal> {
    /// The maximum number of symbolic links that are followed, as in Linux.
    const MAX_LINKS: usize = 40;
    let mut links = 0;
    // Only a relative path needs the current directory, which may be deleted.
    let mut at = match path.is_absolute() {
        true => PathBuf::new(),
        false => std::env::current_dir().map_err(Refusal::Unreadable)?,
    };
    let mut rest: VecDeque<OsString> = path.components().map(|part| part.as_os_str().to_owned()).collect();
    while let Some(part) = rest.pop_front() {
        if part == ".." {
            at.pop();
            continue;
        }
        // If the target of a link is absolute, `join` starts at the root.
        let next = at.join(&part);
        let stat = std::fs::symlink_metadata(&next).map_err(missing_or_unreadable)?;
        if !stat.is_symlink() {
            if rest.is_empty() {
                check_directory(&at)?;
            }
            at = next;
            continue;
        }
        links += 1;
        if links > MAX_LINKS {
            return Err(Refusal::Unreadable(std::io::Error::from_raw_os_error(libc::ELOOP)));
        }
        check_directory(&at)?;
        if let Some(user) = untrusted_owner(&stat) {
            return Err(Refusal::LinkOwner { link: next.display().to_string(), user, owner: stat.uid() });
        }
        let target = match std::fs::read_link(&next) {
            Ok(target) => target,
            // The link was replaced by another file, which is checked in the next iteration.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                rest.push_front(part);
                continue;
            }
            Err(error) => return Err(missing_or_unreadable(error)),
        };
        for part in target.components().rev() {
            rest.push_front(part.as_os_str().to_owned());
        }
    }
    Ok(())
}

/// Rejects directories of other owners, and directories that all users can write, unless the sticky
/// bit protects the files in them. Directories that a group can write are accepted, because some
/// distributions give each user a private group.
fn check_directory(directory: &Path) -> Result<(), Refusal> {
    let stat = std::fs::metadata(directory).map_err(missing_or_unreadable)?;
    let name = || directory.display().to_string();
    if let Some(user) = untrusted_owner(&stat) {
        return Err(Refusal::DirectoryOwner { directory: name(), user, owner: stat.uid() });
    }
    let mode = stat.mode();
    if mode & OTHERS_WRITE != 0 && mode & STICKY == 0 {
        return Err(Refusal::DirectoryMode { directory: name(), mode: mode & 0o777 });
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn file_deleted_after_opening_is_refused_as_missing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plugin.so");
        std::fs::write(&path, "a plugin").unwrap();
        let opened = open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        check_file(&opened.1).unwrap();
        assert_eq!(check_directories(&path).unwrap_err().id(), "missing");
    }

    #[test]
    fn refusal_names_the_type_of_a_file_that_is_not_regular() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("file"), "").unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        let pipe = std::ffi::CString::new(at("pipe").into_os_string().into_encoded_bytes()).unwrap();
        // SAFETY: the path is NUL-terminated.
        assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o600) }, 0);
        let got = |path: &std::path::Path| match check_type(&std::fs::metadata(path).unwrap().file_type()) {
            Ok(()) => "a file",
            Err(Refusal::NotAFile { got }) => got,
            Err(_) => "refused for another reason",
        };
        assert_eq!(got(&at("file")), "a file");
        assert_eq!(got(folder.path()), "a directory");
        assert_eq!(got(&at("pipe")), "a named pipe");
        assert_eq!(got(&at("socket")), "a socket");
        assert_eq!(got("/dev/null".as_ref()), "a device");
    }
}
