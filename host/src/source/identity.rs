//! What identifies an input, so that a token of another input is noticed.

use std::fmt;
use std::os::unix::fs::MetadataExt;

use crossdock_plugin_api::Error as ApiError;
use sha2::Digest;

use super::{FileSource, Input};
use crate::error::{Error, Result};

/// The bytes at the beginning and at the end that identify an input without a file.
const SAMPLE_BYTES: u64 = 4096;

/// What identifies an input and its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Identity {
    /// A regular file. The system changes the time with every write to the file.
    File { bytes: u64, inode: u64, changed_s: i64, changed_ns: i64 },
    /// Other bytes: their number, and a hash of the first and the last 4096 of them.
    Bytes { bytes: u64, hash: [u8; 16] },
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { bytes, inode, changed_s, changed_ns } => {
                write!(
                    f,
                    "a file of {bytes} bytes with the inode {inode}, changed at {changed_s}.{changed_ns:09} s"
                )
            }
            Self::Bytes { bytes, hash } => {
                write!(f, "{bytes} bytes with the hash ")?;
                hash.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    }
}

impl Input {
    /// # Errors
    /// [`Error::Usage`] if the length of the input is unknown; the errors of reading.
    pub(crate) fn identity(&self) -> Result<Identity> {
        if let Self::File(file) = self {
            return of_file(file);
        }
        let name = self.name();
        let bytes = self.source().len().ok_or_else(|| {
            Error::usage(format!("'{name}' has no fragments, because it can be read only once"))
        })?;
        let failed = |error: ApiError| Error::data(format!("cannot read '{name}'"), error);
        let mut hasher = sha2::Sha256::new();
        for begin in [0, bytes.saturating_sub(SAMPLE_BYTES)] {
            let mut sample = vec![0; SAMPLE_BYTES.min(bytes - begin) as usize];
            let n = self.source().read_at(begin, &mut sample).map_err(failed)?;
            if n < sample.len() {
                return Err(failed(ApiError::io(format!(
                    "expected {bytes} bytes, but reading ended after {}",
                    begin + n as u64
                ))));
            }
            hasher.update(&sample);
        }
        let hash: [u8; 32] = hasher.finalize().into();
        Ok(Identity::Bytes { bytes, hash: *hash.first_chunk().unwrap_or(&[0; 16]) })
    }
}

fn of_file(file: &FileSource) -> Result<Identity> {
    let metadata = file.metadata()?;
    Ok(Identity::File {
        bytes: metadata.len(),
        inode: metadata.ino(),
        changed_s: metadata.ctime(),
        changed_ns: metadata.ctime_nsec(),
    })
}
