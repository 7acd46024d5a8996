//! Checks candidates and loads them. Plugins in files and linked-in plugins implement the same
//! trait and pass the same checks.

mod alive;
mod checked;
mod checks;
mod file;
mod image;
mod linked;
mod loaded;
mod needs;
mod permission;
pub(crate) mod quarantine;
mod sealed;
mod signature;

pub use checked::{Checked, Load};
pub use checks::{host_abi, struct_names};
pub(crate) use file::PassedFile;
pub use file::{Inspection, PluginFile};
pub use linked::LinkedPlugin;
pub use loaded::Loaded;
pub use needs::is_system_library;
#[cfg(fuzzing)]
#[doc(hidden)]
pub use signature::signature_in;
pub use signature::{Fingerprint, Signature, signature_file};

pub use crate::refusal::{FAILED, Refusal, Refused};

/// Reads a plugin file's metadata and checks whether the file would be loaded, without running its
/// code.
///
/// # Errors
/// The file has no readable metadata.
pub fn inspect(path: impl Into<std::path::PathBuf>) -> Result<Inspection, Refused> {
    PluginFile::new(path).inspect()
}
