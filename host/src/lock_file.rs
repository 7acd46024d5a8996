//! Writes lock files. [`Lock`] itself reads them: policies stand below the sinks.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use crate::error::{Error, Result};
use crate::policy::Lock;
use crate::sink::{Output, OutputFile};

impl Lock {
    /// Writes its file, whole or not at all.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self) -> Result<()> {
        let failed =
            |error: std::io::Error| Error::io(format!("cannot write '{}'", self.file.display()), error);
        let text = self.to_text().map_err(|error| failed(std::io::Error::other(error)))?;
        let output = Output::File(OutputFile::create(&self.file)?);
        let write = output.sink().write(text.as_bytes());
        write.map_err(|error| failed(std::io::Error::other(error)))?;
        output.commit()?;
        // Whoever may write it decides what runs, and is not to be a group only for the sake of somebody's umask.
        let mode = std::fs::metadata(&self.file).map_err(failed)?.permissions().mode();
        std::fs::set_permissions(&self.file, Permissions::from_mode(mode & 0o755)).map_err(failed)
    }
}
