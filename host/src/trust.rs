//! Who may decide what runs in this process: root and its own user, and nobody else.

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

/// Opens a regular file, once: everything else is asked of the descriptor.
pub(crate) fn open(path: &Path) -> Result<(File, Metadata), Refusal> {
    // O_NONBLOCK, so that a named pipe of that name cannot make us wait for a writer.
    let file = File::options().read(true).custom_flags(libc::O_CLOEXEC | libc::O_NONBLOCK).open(path);
    let file = file.map_err(missing_or_unreadable)?;
    let stat = file.metadata().map_err(Refusal::Unreadable)?;
    check_type(&stat.file_type())?;
    Ok((file, stat))
}

/// A file may vanish at any moment, also between two looks at its path.
fn missing_or_unreadable(error: std::io::Error) -> Refusal {
    match error.kind() {
        std::io::ErrorKind::NotFound => Refusal::Missing,
        _ => Refusal::Unreadable(error),
    }
}

/// Where an open file lies, whatever was put in the place of its path since. A deleted one's has a note to that effect.
pub(crate) fn place(file: &File) -> std::io::Result<PathBuf> {
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

/// Whoever owns the file or may write it decides what is in it.
pub(crate) fn check_file(file: &Metadata) -> Result<(), Refusal> {
    if let Some(user) = stranger_to(file) {
        return Err(Refusal::Owner { user, owner: file.uid() });
    }
    if file.mode() & GROUP_OR_OTHERS_WRITE != 0 {
        return Err(Refusal::Writable { mode: file.mode() & 0o777 });
    }
    Ok(())
}

/// The user of this process, where neither that nor root owns the file.
fn stranger_to(file: &Metadata) -> Option<u32> {
    // SAFETY: geteuid has no conditions and cannot fail.
    let user = unsafe { libc::geteuid() };
    (file.uid() != 0 && file.uid() != user).then_some(user)
}

/// The program at `path`, which this process would start.
pub(crate) fn check_program(path: &Path) -> Result<(), Refusal> {
    let (_, stat) = open(path)?;
    check_file(&stat)?;
    check_directories(path)
}

/// Whoever owns the directory in which `path` or a link on the way to its file lies, or may replace files there, decides which
/// file it is; so does whoever owns such a link.
pub(crate) fn check_directories(path: &Path) -> Result<(), Refusal> {
    /// As the system has it.
    const MOST_LINKS: usize = 40;
    let mut links = 0;
    // A process whose own directory is gone still has absolute paths.
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
        // An absolute link begins anew.
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
        if links > MOST_LINKS {
            return Err(Refusal::Unreadable(std::io::Error::from_raw_os_error(libc::ELOOP)));
        }
        check_directory(&at)?;
        if let Some(user) = stranger_to(&stat) {
            return Err(Refusal::LinkOwner { link: next.display().to_string(), user, owner: stat.uid() });
        }
        let target = match std::fs::read_link(&next) {
            Ok(target) => target,
            // No link any more: it was replaced meanwhile, and is looked at again.
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

/// Of those who may write it only directories that all the world may are refused, and those not where the sticky bit leaves
/// files to their owners: a group may be its user's private one, as some distributions have it for every user.
fn check_directory(directory: &Path) -> Result<(), Refusal> {
    let stat = std::fs::metadata(directory).map_err(missing_or_unreadable)?;
    let name = || directory.display().to_string();
    if let Some(user) = stranger_to(&stat) {
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
    fn a_file_that_vanishes_once_it_is_open_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plugin.so");
        std::fs::write(&path, "a plugin").unwrap();
        let opened = open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        check_file(&opened.1).unwrap();
        assert_eq!(check_directories(&path).unwrap_err().id(), "missing");
    }

    #[test]
    fn what_is_no_file_is_named_for_what_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("file"), "").unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        let pipe = std::ffi::CString::new(at("pipe").into_os_string().into_encoded_bytes()).unwrap();
        // SAFETY: a path that ends with a NUL.
        assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o600) }, 0);
        let got = |path: &std::path::Path| match check_type(&std::fs::metadata(path).unwrap().file_type()) {
            Ok(()) => "a file",
            Err(Refusal::NotAFile { got }) => got,
            Err(_) => "refused for something else",
        };
        assert_eq!(got(&at("file")), "a file");
        assert_eq!(got(folder.path()), "a directory");
        assert_eq!(got(&at("pipe")), "a named pipe");
        assert_eq!(got(&at("socket")), "a socket");
        assert_eq!(got("/dev/null".as_ref()), "a device");
    }
}
