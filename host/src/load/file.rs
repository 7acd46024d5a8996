//! Plugins in files: opened once, checked, and loaded through the very descriptor that was checked.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::image::Content;
use super::{
    Checked, Inspection, Load, Refusal, Refused, checks, needs, permission, sealed, signature, trust,
};
use crate::metadata::Reading;
use crate::policy::Policy;

/// A file that may be a plugin.
#[derive(Clone, Debug)]
pub struct PluginFile {
    path: PathBuf,
    policy: Arc<Policy>,
}

impl PluginFile {
    /// Looks at nothing yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self::under(path, Arc::default())
    }

    /// The same, to be loaded if this policy lets it.
    pub fn under(path: impl Into<PathBuf>, policy: Arc<Policy>) -> Self {
        Self { path: path.into(), policy }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// See [`super::inspect`].
    pub fn inspect(&self) -> Result<Inspection, Refused> {
        let look = || {
            let (file, _) = trust::open(&self.path)?;
            let Reading { metadata, needs, .. } = Reading::of(&file)?;
            let fingerprint = signature::fingerprint(&file, &self.path, &self.policy);
            let fingerprint = fingerprint.map_err(Refusal::Unreadable)?;
            let refusal = self.try_check().err();
            Ok(Inspection { metadata, needs, fingerprint, refusal })
        };
        look().map_err(|reason: Refusal| reason.of(self.who()))
    }

    fn try_check(&self) -> Result<Checked, Refusal> {
        let (file, stat) = trust::open(&self.path)?;
        trust::check_file(&stat)?;
        trust::check_directories(&self.path)?;
        permission::check_folder(&file, &self.policy)?;
        // From here on all is asked of the bytes that are loaded in the end.
        let (content, fingerprint) = if self.policy.asks_for_bytes() {
            let copy = sealed::copy(&file, stat.len()).map_err(Refusal::Copy)?;
            let fingerprint =
                signature::fingerprint(&copy, &self.path, &self.policy).map_err(Refusal::Copy)?;
            (Content::of_copy(copy, fingerprint.sha256), Some(fingerprint))
        } else {
            (Content::of_file(file, &stat), None)
        };
        // What is no plugin is called so, whatever is asked of plugins: a library among them is ordinary.
        let Reading { metadata, needs, entry_bytes } = Reading::of(&content.file)?;
        permission::check_identity(&metadata.name, fingerprint.as_ref(), &self.path, &self.policy)?;
        checks::check_metadata(&metadata)?;
        needs::check_build(&metadata, &self.policy)?;
        needs::check_needs(&needs, &self.policy)?;
        Ok(Checked::of_file(self.who(), metadata, content, entry_bytes))
    }
}

impl Load for PluginFile {
    fn who(&self) -> String {
        self.path.display().to_string()
    }

    fn check(&self) -> Result<Checked, Refused> {
        self.try_check().map_err(|reason| reason.of(self.who()))
    }
}
