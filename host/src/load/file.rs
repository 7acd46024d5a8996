//! Opens a plugin's file once, checks it, and loads it through the same descriptor.

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

/// A plugin file's metadata, and whether the file would be loaded. The plugin's code does not run.
#[derive(Debug)]
pub struct Inspection {
    /// The plugin's metadata.
    pub metadata: metadata::Metadata,
    /// The libraries that would be loaded with the plugin, and its other requirements.
    pub needs: Needs,
    /// The hash and the signature of the file's bytes.
    pub fingerprint: Fingerprint,
    /// The first reason not to load the file, among the reasons that are known without running its
    /// code.
    pub refusal: Option<Refusal>,
}

/// A candidate file, which may be a plugin.
#[derive(Clone, Debug)]
pub struct PluginFile {
    path: PathBuf,
    policy: Arc<Policy>,
}

impl PluginFile {
    /// A file with the default policy. It is not opened yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self::with_policy(path, Arc::default())
    }

    /// A file that may be loaded only if `policy` allows it.
    pub fn with_policy(path: impl Into<PathBuf>, policy: Arc<Policy>) -> Self {
        Self { path: path.into(), policy }
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// See [`super::inspect`].
    pub fn inspect(&self) -> std::result::Result<Inspection, Refused> {
        let inspect = || {
            // The file is opened once, so that metadata, fingerprint and refusal describe the same
            // file.
            let (file, stat) = trust::open(&self.path)?;
            let Reading { metadata, needs, .. } = Reading::from_file(&file)?;
            let fingerprint = signature::fingerprint(&file, &self.path, &self.policy);
            let fingerprint = fingerprint.map_err(Refusal::Unreadable)?;
            let refusal = self.check_opened(file, &stat).err();
            Ok(Inspection { metadata, needs, fingerprint, refusal })
        };
        inspect().map_err(|reason: Refusal| reason.into_refused(self.label()))
    }

    fn try_check(&self) -> std::result::Result<Checked, Refusal> {
        let (file, stat) = trust::open(&self.path)?;
        self.check_opened(file, &stat)
    }

    fn check_opened(&self, file: File, stat: &Metadata) -> std::result::Result<Checked, Refusal> {
        trust::check_file(stat)?;
        trust::check_directories(&self.path)?;
        permission::check_folder(&file, &self.policy)?;
        // All following checks read the same bytes that will be loaded.
        let (content, fingerprint) = if self.policy.needs_bytes() {
            // A file that is not a plugin is not copied, because it may have any size.
            Reading::from_file(&file)?;
            let copy = sealed::copy(&file, stat.len()).map_err(Refusal::Copy)?;
            let fingerprint =
                signature::fingerprint(&copy, &self.path, &self.policy).map_err(Refusal::Copy)?;
            (Content::from_copy(copy, fingerprint.sha256), Some(fingerprint))
        } else {
            (Content::from_file(file, stat), None)
        };
        // The metadata is read before the policy applies, so that the error for a file that is not
        // a plugin never depends on the policy.
        let Reading { metadata, needs, entry } = Reading::from_file(&content.file)?;
        permission::check_identity(&metadata.name, fingerprint.as_ref(), &self.path, &self.policy)?;
        checks::check_metadata(&metadata)?;
        needs::check_build(&metadata, &self.policy)?;
        needs::check_needs(&needs, &self.policy)?;
        let entry_bytes = checks::check_entry_of_file(entry)?;
        let sha256 = fingerprint.as_ref().map(|fingerprint| &fingerprint.sha256);
        if self.policy.isolation.which.includes(&metadata.name, sha256) {
            // The plugin is loaded only in other processes, so that a crash does not end this
            // process.
            return Ok(Checked::from_isolated(
                self.label(),
                metadata,
                content,
                self.policy.isolation.clone(),
            ));
        }
        let first_run = FirstRun::new(self.policy.crashes.clone(), content.key());
        first_run.check()?;
        Ok(Checked::from_file(self.label(), metadata, content, entry_bytes, first_run))
    }

    /// Removes the records of crashes, so that the file may be loaded again after a process ended
    /// while loading it. Returns whether a crash was recorded.
    ///
    /// # Errors
    /// The file does not exist, or the record of the crash cannot be removed.
    pub fn forget_crash(&self) -> Result<bool> {
        let forget = || {
            let file = File::open(&self.path)?;
            let stat = file.metadata()?;
            let sha256 = signature::fingerprint(&file, &self.path, &self.policy)?.sha256;
            let contents = [Content::from_copy(file.try_clone()?, sha256), Content::from_file(file, &stat)];
            let forget =
                |content: &Content| FirstRun::new(self.policy.crashes.clone(), content.key()).forget();
            contents.iter().try_fold(false, |any, content| Ok(forget(content)? > 0 || any))
        };
        forget()
            .map_err(|error| Error::io(format!("cannot allow '{}' to be loaded again", self.label()), error))
    }
}

/// A plugin whose file another process opened, checked and passed to this one.
pub(crate) struct PassedFile {
    file: File,
    label: String,
}

impl PassedFile {
    pub fn new(file: File, label: String) -> Self {
        Self { file, label }
    }

    fn try_check(&self) -> std::result::Result<Checked, Refusal> {
        let file = self.file.try_clone().map_err(Refusal::Unreadable)?;
        let stat = file.metadata().map_err(Refusal::Unreadable)?;
        let content = Content::from_file(file, &stat);
        let Reading { metadata, entry, .. } = Reading::from_file(&content.file)?;
        checks::check_metadata(&metadata)?;
        let entry_bytes = checks::check_entry_of_file(entry)?;
        let first_run = FirstRun::new(None, content.key());
        Ok(Checked::from_file(self.label(), metadata, content, entry_bytes, first_run))
    }
}

impl Load for PassedFile {
    fn label(&self) -> String {
        self.label.clone()
    }

    fn check(&self) -> std::result::Result<Checked, Refused> {
        self.try_check().map_err(|reason| reason.into_refused(self.label()))
    }
}

impl Load for PluginFile {
    fn label(&self) -> String {
        self.path.display().to_string()
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn check(&self) -> std::result::Result<Checked, Refused> {
        self.try_check().map_err(|reason| reason.into_refused(self.label()))
    }
}
