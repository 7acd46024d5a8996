//! Writes lock files. This module is separate from [`Lock`], because policies must not depend on
//! sinks.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use crate::error::{Error, Result};
use crate::policy::Lock;
use crate::sink::{Output, OutputFile};

impl Lock {
    /// Replaces the lock file atomically.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be written.
    pub fn write(&self) -> Result<()> {
        let failed = |error: std::io::Error| Error::file("cannot write", &self.file, error);
        let text = self.to_text().map_err(|error| failed(std::io::Error::other(error)))?;
        let output = Output::File(OutputFile::create(&self.file)?);
        let write = output.sink().write(text.as_bytes());
        write.map_err(|error| failed(std::io::Error::other(error)))?;
        output.commit()?;
        // The group must not get write access, whatever the umask is, because every user who can
        // write the lock file decides which code runs.
        let mode = std::fs::metadata(&self.file).map_err(failed)?.permissions().mode();
        std::fs::set_permissions(&self.file, Permissions::from_mode(mode & 0o755)).map_err(failed)
    }
}
