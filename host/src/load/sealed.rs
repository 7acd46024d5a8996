//! Copies files to sealed memory. An opened file can still be rewritten in place, and the dynamic
//! loader maps its current content; a sealed copy cannot change between the checks and the mapping.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::FromRawFd;
use std::os::unix::fs::FileExt;

const CHUNK_BYTES: usize = 256 << 10;
/// The maximum number of bytes that are copied. Plugins have a few megabytes, but a sparse file can
/// declare any length.
const MAX_BYTES: u64 = 1 << 30;

/// A sealed copy in memory of the first `bytes` bytes of `file`.
pub(super) fn copy(file: &File, bytes: u64) -> io::Result<File> {
    if bytes > MAX_BYTES {
        return Err(io::Error::other(format!("the file has {bytes} bytes, expected at most {MAX_BYTES}")));
    }
    let mut copy = create()?;
    // The copy starts at the beginning of the file, regardless of the file's position, and ends
    // after `bytes` bytes, even if the file grows.
    let mut from = FromStart { file, at: 0 }.take(bytes);
    io::copy(&mut from, &mut copy)?;
    crossdock_isolation::seal(&copy)?;
    Ok(copy)
}

fn create() -> io::Result<File> {
    // The copy is mapped, not executed. Some systems require the flag MFD_NOEXEC_SEAL, but kernels
    // before 6.3 reject the flag.
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    match memfd(flags | libc::MFD_NOEXEC_SEAL) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => memfd(flags),
        result => result,
    }
}

fn memfd(flags: libc::c_uint) -> io::Result<File> {
    // SAFETY: the name is a NUL-terminated constant.
    match unsafe { libc::memfd_create(c"crossdock-plugin".as_ptr(), flags) } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: the call returned a new descriptor, which has no other owner.
        descriptor => Ok(unsafe { File::from_raw_fd(descriptor) }),
    }
}

/// Calls `take` with every byte of the file, in order.
pub(super) fn for_each_chunk(file: &File, mut take: impl FnMut(&[u8])) -> io::Result<()> {
    let mut from = FromStart { file, at: 0 };
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        match from.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(n) => take(&chunk[..n]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Reads a file without moving its position.
struct FromStart<'a> {
    file: &'a File,
    at: u64,
}

impl Read for FromStart<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read_at(to, self.at)?;
        self.at += n as u64;
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, Write};

    use super::*;

    #[test]
    fn sealed_copy_cannot_be_changed() -> io::Result<()> {
        let mut file = memfd(libc::MFD_CLOEXEC)?;
        file.write_all(b"what was checked")?;
        let mut copy = copy(&file, 16)?;
        file.rewind()?;
        file.write_all(b"WHAT IS")?;
        let mut bytes = Vec::new();
        for_each_chunk(&copy, |chunk| bytes.extend_from_slice(chunk))?;
        assert_eq!(bytes, b"what was checked");
        copy.rewind()?;
        assert_eq!(copy.write(b"W").map_err(|error| error.raw_os_error()), Err(Some(libc::EPERM)));
        assert_eq!(copy.set_len(3).map_err(|error| error.raw_os_error()), Err(Some(libc::EPERM)));
        assert_eq!(copy.set_len(99).map_err(|error| error.raw_os_error()), Err(Some(libc::EPERM)));
        Ok(())
    }

    #[test]
    fn copies_only_the_length_that_was_checked() -> io::Result<()> {
        let mut file = memfd(libc::MFD_CLOEXEC)?;
        file.write_all(b"sixteen of more than that")?;
        assert_eq!(copy(&file, 16)?.metadata()?.len(), 16);
        Ok(())
    }
}
