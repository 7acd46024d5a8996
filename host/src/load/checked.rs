//! Between the last check and the first line of a plugin's code.

use std::sync::Arc;

use crossdock_plugin_api::abi;

use super::image::Content;
use super::quarantine::FirstRun;
use super::{Loaded, Refusal, Refused, checks};
use crate::metadata::Metadata;

/// A plugin that passed every check that needs none of its code. A file is held open, or copied where its policy asks what
/// is in it: what is loaded is what was checked.
pub struct Checked {
    who: String,
    metadata: Arc<Metadata>,
    code: Code,
}

enum Code {
    Linked(&'static abi::PluginEntry),
    File { content: Content, entry_bytes: Option<u64>, first_run: FirstRun },
}

impl Checked {
    pub(super) fn of_file(
        who: String,
        metadata: Metadata,
        content: Content,
        entry_bytes: Option<u64>,
        first_run: FirstRun,
    ) -> Self {
        Self { who, metadata: Arc::new(metadata), code: Code::File { content, entry_bytes, first_run } }
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
        let loaded = code
            .load()
            .and_then(|(entry, first_run)| checks::check_entry(entry).map(|()| (entry, first_run)));
        match loaded {
            Ok((entry, first_run)) => Ok(Loaded { who, metadata, entry, first_run }),
            Err(reason) => Err(reason.of(who)),
        }
    }
}

impl Code {
    fn load(self) -> Result<(&'static abi::PluginEntry, Option<Arc<FirstRun>>), Refusal> {
        let (content, entry_bytes, first_run) = match self {
            Self::Linked(entry) => return Ok((entry, None)),
            Self::File { content, entry_bytes, first_run } => (content, entry_bytes, first_run),
        };
        let entry_bytes = entry_bytes.and_then(|n| usize::try_from(n).ok());
        let entry_bytes = entry_bytes.filter(|n| *n >= abi::ENTRY_LEAST).ok_or(Refusal::NoEntry)?;
        let mark = first_run.begin("its constructors");
        let entry = content.map(entry_bytes);
        drop(mark);
        entry.map(|entry| (entry, Some(Arc::new(first_run))))
    }
}
