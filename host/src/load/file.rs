//! Plugins in files: opened once, checked, and loaded through the very descriptor that was checked.

use std::fs::{File, Metadata};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::checked::{Checked, Load};
use super::image::Content;
use super::quarantine::FirstRun;
use super::signature::Fingerprint;
use super::{checks, needs, permission, sealed, signature};
use crate::error::{Error, Result};
use crate::metadata::{self, Needs, Reading};
use crate::policy::Policy;
use crate::refusal::{Refusal, Refused};
use crate::trust;

/// What a plugin file says of itself, and whether it would be loaded, without running any of its code.
#[derive(Debug)]
pub struct Inspection {
    /// What it says.
    pub metadata: metadata::Metadata,
    /// What would be loaded with it.
    pub needs: Needs,
    /// What its bytes are.
    pub fingerprint: Fingerprint,
    /// The first reason not to load it, of those that show without running it.
    pub refusal: Option<Refusal>,
}

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
    pub fn inspect(&self) -> std::result::Result<Inspection, Refused> {
        let look = || {
            // Once: what is shown and what is said of it are of one file.
            let (file, stat) = trust::open(&self.path)?;
            let Reading { metadata, needs, .. } = Reading::of(&file)?;
            let fingerprint = signature::fingerprint(&file, &self.path, &self.policy);
            let fingerprint = fingerprint.map_err(Refusal::Unreadable)?;
            let refusal = self.check_opened(file, &stat).err();
            Ok(Inspection { metadata, needs, fingerprint, refusal })
        };
        look().map_err(|reason: Refusal| reason.of(self.who()))
    }

    fn try_check(&self) -> std::result::Result<Checked, Refusal> {
        let (file, stat) = trust::open(&self.path)?;
        self.check_opened(file, &stat)
    }

    fn check_opened(&self, file: File, stat: &Metadata) -> std::result::Result<Checked, Refusal> {
        trust::check_file(stat)?;
        trust::check_directories(&self.path)?;
        permission::check_folder(&file, &self.policy)?;
        // From here on all is asked of the bytes that are loaded in the end.
        let (content, fingerprint) = if self.policy.asks_for_bytes() {
            // What is no plugin is not copied, however long it is.
            Reading::of(&file)?;
            let copy = sealed::copy(&file, stat.len()).map_err(Refusal::Copy)?;
            let fingerprint =
                signature::fingerprint(&copy, &self.path, &self.policy).map_err(Refusal::Copy)?;
            (Content::of_copy(copy, fingerprint.sha256), Some(fingerprint))
        } else {
            (Content::of_file(file, stat), None)
        };
        // What is no plugin is called so, whatever is asked of plugins: a library among them is ordinary.
        let Reading { metadata, needs, entry } = Reading::of(&content.file)?;
        permission::check_identity(&metadata.name, fingerprint.as_ref(), &self.path, &self.policy)?;
        checks::check_metadata(&metadata)?;
        needs::check_build(&metadata, &self.policy)?;
        needs::check_needs(&needs, &self.policy)?;
        let entry_bytes = checks::check_entry_of_file(entry)?;
        let sha256 = fingerprint.as_ref().map(|fingerprint| &fingerprint.sha256);
        if self.policy.isolation.which.includes(&metadata.name, sha256) {
            // What it does when it is loaded, it does to another process.
            return Ok(Checked::isolated(self.who(), metadata, content, self.policy.isolation.clone()));
        }
        let first_run = FirstRun::new(self.policy.crashes.clone(), content.key());
        first_run.check()?;
        Ok(Checked::of_file(self.who(), metadata, content, entry_bytes, first_run))
    }

    /// Lets it be loaded again though a process ended when it was, and says whether one did.
    ///
    /// # Errors
    /// There is no such file, or what is remembered of it cannot be taken away.
    pub fn forget_crash(&self) -> Result<bool> {
        let forget = || {
            let file = File::open(&self.path)?;
            let stat = file.metadata()?;
            let sha256 = signature::fingerprint(&file, &self.path, &self.policy)?.sha256;
            let names = [Content::of_copy(file.try_clone()?, sha256), Content::of_file(file, &stat)];
            let forget =
                |content: &Content| FirstRun::new(self.policy.crashes.clone(), content.key()).forget();
            names.iter().try_fold(false, |any, content| Ok(forget(content)? > 0 || any))
        };
        forget().map_err(|error| Error::io(format!("cannot let '{}' be tried again", self.who()), error))
    }
}

/// A plugin whose file another process opened, checked and handed to this one.
pub(crate) struct Handed {
    file: File,
    who: String,
}

impl Handed {
    pub fn new(file: File, who: String) -> Self {
        Self { file, who }
    }

    fn try_check(&self) -> std::result::Result<Checked, Refusal> {
        let file = self.file.try_clone().map_err(Refusal::Unreadable)?;
        let stat = file.metadata().map_err(Refusal::Unreadable)?;
        let content = Content::of_file(file, &stat);
        let Reading { metadata, entry, .. } = Reading::of(&content.file)?;
        checks::check_metadata(&metadata)?;
        let entry_bytes = checks::check_entry_of_file(entry)?;
        let first_run = FirstRun::new(None, content.key());
        Ok(Checked::of_file(self.who(), metadata, content, entry_bytes, first_run))
    }
}

impl Load for Handed {
    fn who(&self) -> String {
        self.who.clone()
    }

    fn check(&self) -> std::result::Result<Checked, Refused> {
        self.try_check().map_err(|reason| reason.of(self.who()))
    }
}

impl Load for PluginFile {
    fn who(&self) -> String {
        self.path.display().to_string()
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn check(&self) -> std::result::Result<Checked, Refused> {
        self.try_check().map_err(|reason| reason.of(self.who()))
    }
}
