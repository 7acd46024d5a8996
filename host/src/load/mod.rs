//! From a candidate to an entry that may be called. Loading is a trait: a plugin that is linked in goes through the
//! same checks as one from a file, and behaves the same.

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
pub(crate) use file::Handed;
pub use file::{Inspection, PluginFile};
pub use linked::LinkedPlugin;
pub use loaded::Loaded;
pub use needs::is_system_library;
#[cfg(fuzzing)]
#[doc(hidden)]
pub use signature::signature_in;
pub use signature::{Fingerprint, Signature, signature_file};

pub use crate::refusal::{FAILED, Refusal, Refused};

/// Looks at a plugin file.
///
/// # Errors
/// The file has no metadata to show.
pub fn inspect(path: impl Into<std::path::PathBuf>) -> Result<Inspection, Refused> {
    PluginFile::new(path).inspect()
}
