//! Between the last check and the first line of a plugin's code.

use std::path::Path;
use std::sync::Arc;

use crossdock_isolation::Isolated;
use crossdock_plugin_api::abi;

use super::checks;
use super::image::Content;
use super::loaded::Loaded;
use super::quarantine::FirstRun;
use crate::metadata::{Entry, Metadata};
use crate::policy::Isolation;
use crate::refusal::{Refusal, Refused};
use crate::trust;

/// Something that may turn out to be a plugin.
pub trait Load: Send + Sync {
    /// For messages: a path, or the name of a linked-in plugin.
    fn who(&self) -> String;

    /// Its file, where it is one that this process opens.
    fn path(&self) -> Option<&Path> {
        None
    }

    /// All checks that need none of its code.
    ///
    /// # Errors
    /// The first reason not to load it.
    fn check(&self) -> Result<Checked, Refused>;

    /// The same, and then its code: all checks up to and including those of the entry.
    ///
    /// # Errors
    /// The first reason not to use it.
    fn load(&self) -> Result<Loaded, Refused> {
        self.check()?.load()
    }
}

/// A plugin that passed every check that needs none of its code. A file is held open, or copied where its policy asks what
/// is in it: what is loaded is what was checked.
pub struct Checked {
    who: String,
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
    /// Other processes load it.
    Isolated(Content, Isolation),
}

type Loadable = (Option<&'static abi::PluginEntry>, Option<Arc<Isolated>>, Option<Arc<FirstRun>>);

impl Checked {
    pub(super) fn of_file(
        who: String,
        metadata: Metadata,
        content: Content,
        entry_bytes: usize,
        first_run: FirstRun,
    ) -> Self {
        Self { who, metadata: Arc::new(metadata), code: Code::File { content, entry_bytes, first_run } }
    }

    pub(super) fn isolated(who: String, metadata: Metadata, content: Content, isolation: Isolation) -> Self {
        Self { who, metadata: Arc::new(metadata), code: Code::Isolated(content, isolation) }
    }

    pub(super) fn of_linked(who: String, metadata: Metadata, entry: &'static abi::PluginEntry) -> Self {
        Self { who, metadata: Arc::new(metadata), code: Code::Linked(entry) }
    }

    /// Who it is.
    pub fn metadata(&self) -> &Arc<Metadata> {
        &self.metadata
    }

    /// Loads it: its constructors run, if it is not loaded already. What was mapped stays mapped, refused or not.
    ///
    /// # Errors
    /// The dynamic loader fails, or the entry is unusable.
    pub fn load(self) -> Result<Loaded, Refused> {
        let Self { who, metadata, code } = self;
        let loaded = code.load(&who).and_then(|code| code.0.map_or(Ok(()), check_mapped).map(|()| code));
        match loaded {
            Ok((entry, isolated, first_run)) => Ok(Loaded { who, metadata, entry, isolated, first_run }),
            Err(reason) => Err(reason.of(who)),
        }
    }
}

/// It runs plugins, so that it is trusted as they are.
fn check_program(path: &Path) -> Result<(), String> {
    trust::check_program(path).map_err(|refusal| refusal.to_string())
}

/// Once more where it was looked at in its file: what is called is what is there now.
fn check_mapped(entry: &abi::PluginEntry) -> Result<(), Refusal> {
    checks::check_entry(&Entry::of(entry))
}

impl Code {
    fn load(self, who: &str) -> Result<Loadable, Refusal> {
        let (content, entry_bytes, first_run) = match self {
            Self::Linked(entry) => return Ok((Some(entry), None, None)),
            Self::Isolated(content, isolation) => {
                let Isolation { program, deadlines, cgroup, .. } = isolation;
                let isolated = Isolated::new(
                    who.to_owned(),
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
