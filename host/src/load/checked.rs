//! Between the last check and the first line of a plugin's code.

use std::sync::Arc;

use crossdock_plugin_api::abi;

use super::image::Content;
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
    File { content: Content, entry_bytes: Option<u64> },
}

impl Checked {
    pub(super) fn of_file(
        who: String,
        metadata: Metadata,
        content: Content,
        entry_bytes: Option<u64>,
    ) -> Self {
        Self { who, metadata: Arc::new(metadata), code: Code::File { content, entry_bytes } }
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
        let entry = code.entry().and_then(|entry| checks::check_entry(entry).map(|()| entry));
        match entry {
            Ok(entry) => Ok(Loaded { who, metadata, entry }),
            Err(reason) => Err(reason.of(who)),
        }
    }
}

impl Code {
    fn entry(self) -> Result<&'static abi::PluginEntry, Refusal> {
        let (content, entry_bytes) = match self {
            Self::Linked(entry) => return Ok(entry),
            Self::File { content, entry_bytes } => (content, entry_bytes),
        };
        let entry_bytes = entry_bytes.and_then(|n| usize::try_from(n).ok());
        content.map(entry_bytes.filter(|n| *n >= abi::ENTRY_LEAST).ok_or(Refusal::NoEntry)?)
    }
}
