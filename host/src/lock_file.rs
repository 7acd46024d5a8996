//! Writes lock files. It is separate from [`Lock`], because policies must not depend on sinks.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use crate::error::{Error, Result};
use crate::policy::Lock;
use crate::sink::{Output, OutputFile};

impl Lock {
    /// Writes the lock file, whole or not at all.
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
        // Writers of the lock decide which code runs, so the umask must not let a group be one.
        let mode = std::fs::metadata(&self.file).map_err(failed)?.permissions().mode();
        std::fs::set_permissions(&self.file, Permissions::from_mode(mode & 0o755)).map_err(failed)
    }
}
