//! Checks plugins without running their code, and loads the plugins that pass.

use std::path::Path;
use std::sync::Arc;

use crossdock_isolation::IsolatedPlugin;
use crossdock_plugin_api::abi;

use super::checks;
use super::image::Content;
use super::loaded::Loaded;
use super::quarantine::FirstRun;
use crate::metadata::{Entry, Metadata};
use crate::policy::Isolation;
use crate::refusal::{Refusal, Refused};
use crate::trust;

/// A candidate that may be a plugin.
pub trait Load: Send + Sync {
    /// The candidate's name for messages: a path, or the name of a linked-in plugin.
    fn label(&self) -> String;

    /// The candidate's path, if this process opens the file.
    fn path(&self) -> Option<&Path> {
        None
    }

    /// Runs all checks that do not run the candidate's code.
    ///
    /// # Errors
    /// The first reason not to load the candidate.
    fn check(&self) -> Result<Checked, Refused>;

    /// Runs all checks and loads the plugin.
    ///
    /// # Errors
    /// The first reason not to use the plugin.
    fn load(&self) -> Result<Loaded, Refused> {
        self.check()?.load()
    }
}

/// A plugin that passed every check that does not run its code. The checked bytes are the bytes
/// that are loaded, because the file stays open. If the policy depends on the bytes, the file is a
/// sealed copy in memory.
pub struct Checked {
    label: String,
    metadata: Arc<Metadata>,
    code: Code,
}

enum Code {
    Linked(&'static abi::PluginEntry),
    File {
        content: Content,
        entry_bytes: usize,
        first_run: FirstRun,
    },
    /// The plugin is loaded only in the processes of isolated plugins.
    Isolated(Content, Isolation),
}

type Loadable = (Option<&'static abi::PluginEntry>, Option<Arc<IsolatedPlugin>>, Option<Arc<FirstRun>>);

impl Checked {
    pub(super) fn from_file(
        label: String,
        metadata: Metadata,
        content: Content,
        entry_bytes: usize,
        first_run: FirstRun,
    ) -> Self {
        Self { label, metadata: Arc::new(metadata), code: Code::File { content, entry_bytes, first_run } }
    }

    pub(super) fn from_isolated(
        label: String,
        metadata: Metadata,
        content: Content,
        isolation: Isolation,
    ) -> Self {
        Self { label, metadata: Arc::new(metadata), code: Code::Isolated(content, isolation) }
    }

    pub(super) fn from_linked(label: String, metadata: Metadata, entry: &'static abi::PluginEntry) -> Self {
        Self { label, metadata: Arc::new(metadata), code: Code::Linked(entry) }
    }

    /// The plugin's metadata.
    pub fn metadata(&self) -> &Arc<Metadata> {
        &self.metadata
    }

    /// Loads the plugin and runs its constructors, unless it is already loaded. The plugin's file
    /// stays mapped even if its entry is refused.
    ///
    /// # Errors
    /// The dynamic loader fails, or the entry is not valid.
    pub fn load(self) -> Result<Loaded, Refused> {
        let Self { label, metadata, code } = self;
        let loaded = code.load(&label).and_then(|code| code.0.map_or(Ok(()), check_mapped).map(|()| code));
        match loaded {
            Ok((entry, isolated, first_run)) => {
                Ok(Loaded { label, metadata, is_installed: false, entry, isolated, first_run })
            }
            Err(reason) => Err(reason.into_refused(label)),
        }
    }
}

/// Checks the program that runs isolated plugins: it must be trusted like a plugin.
fn check_program(path: &Path) -> Result<(), String> {
    trust::check_program(path).map_err(|refusal| refusal.to_string())
}

/// Checks the mapped entry by the rules for the entry in the file, because the loader may have
/// changed it.
fn check_mapped(entry: &abi::PluginEntry) -> Result<(), Refusal> {
    checks::check_entry(&Entry::from_mapped(entry))
}

impl Code {
    fn load(self, label: &str) -> Result<Loadable, Refusal> {
        let (content, entry_bytes, first_run) = match self {
            Self::Linked(entry) => return Ok((Some(entry), None, None)),
            Self::Isolated(content, isolation) => {
                let Isolation { program, deadlines, cgroup, .. } = isolation;
                let isolated = IsolatedPlugin::new(
                    label.to_owned(),
                    content.into_sealed()?,
                    program,
                    check_program,
                    deadlines,
                    cgroup,
                );
                return Ok((None, Some(Arc::new(isolated)), None));
            }
            Self::File { content, entry_bytes, first_run } => (content, entry_bytes, first_run),
        };
        let entry = content.map(entry_bytes, &first_run);
        entry.map(|entry| (Some(entry), None, Some(Arc::new(first_run))))
    }
}
