//! Seals of files in memory.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::fs::{SealFlags, fcntl_add_seals};
use rustix::io::Errno;

/// All seals of a file. They prevent every change of the file's bytes, its length and its seals.
pub const SEALS: SealFlags =
    SealFlags::SEAL.union(SealFlags::SHRINK).union(SealFlags::GROW).union(SealFlags::WRITE);

/// Seals a file in memory (`memfd_create`), so that no process can change its bytes or its length.
pub fn seal(file: impl AsFd) -> std::io::Result<()> {
    /// The maximum number of attempts. The system itself waits for 150 ms in each attempt.
    const ATTEMPTS: usize = 20;
    for _ in 1..ATTEMPTS {
        match fcntl_add_seals(&file, SEALS) {
            // The system may hold a page for a short time, for example while it migrates memory.
            Err(Errno::BUSY) => std::thread::sleep(Duration::from_millis(5)),
            result => return Ok(result?),
        }
    }
    Ok(fcntl_add_seals(&file, SEALS)?)
}
