//! Sources that the host owns and the plugin reads.

use std::sync::Arc;

use crossdock_plugin_api::{ByteSource, Error, Result};

use crate::child::host_client::HostClient;
use crate::files::mapping::{Mapping, OpenFile, read_from};
use crate::wire::incoming::Incoming;
use crate::wire::messages::{Callback, InputParts};

/// The maximum number of bytes that one callback reads.
const MAX_CALLBACK_BYTES: usize = 1 << 20;

/// A source that the host owns. This process maps the source if possible, and otherwise reads it by
/// callbacks.
pub struct HostSource {
    parts: InputParts,
    mapping: Option<Arc<Mapping>>,
    /// The file of the mapping. Reading from it takes less time than the mapping's page faults.
    file: Option<Arc<OpenFile>>,
    host: Arc<HostClient>,
}

impl HostSource {
    pub fn new(parts: InputParts, files: &Incoming, host: Arc<HostClient>) -> Self {
        let mapping = parts.whole.and_then(|place| files.mapping(place));
        let file = mapping.as_ref().and_then(|mapping| Mapping::file_containing(mapping.bytes()));
        Self { parts, mapping, file: file.map(|(file, ..)| file), host }
    }
}

impl Drop for HostSource {
    fn drop(&mut self) {
        self.host.notify(&Callback::CloseSource(self.parts.id));
    }
}

impl ByteSource for HostSource {
    fn name(&self) -> &str {
        &self.parts.name
    }

    fn len(&self) -> Option<u64> {
        self.parts.bytes
    }

    fn version(&self) -> &str {
        &self.parts.version
    }

    fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<usize> {
        if let (Some(file), Some(place)) = (&self.file, self.parts.whole) {
            let rest = usize::try_from(place.bytes.saturating_sub(offset)).unwrap_or(usize::MAX);
            let len = to.len().min(rest);
            let to = to.get_mut(..len).unwrap_or_default();
            let failed = |error| Error::io(format!("'{}': {error}", self.parts.name));
            return file.read_at(place.offset().saturating_add(offset), to).map_err(failed);
        }
        if let Some(bytes) = self.map() {
            return Ok(read_from(bytes, offset, to));
        }
        let mut done = 0;
        while let Some(rest) = to.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let bytes = rest.len().min(MAX_CALLBACK_BYTES) as u64;
            let callback = Callback::Read { source: self.parts.id, offset: offset + done as u64, bytes };
            let (_, payload) = self.host.call(&callback, &[])?;
            let target = rest.get_mut(..payload.len()).filter(|target| !target.is_empty());
            let Some(target) = target else { break };
            target.copy_from_slice(&payload);
            done += payload.len();
        }
        Ok(done)
    }

    fn map(&self) -> Option<&[u8]> {
        let (place, mapping) = (self.parts.whole?, self.mapping.as_ref()?);
        let offset = usize::try_from(place.offset()).ok()?;
        mapping.bytes().get(offset..)?.get(..usize::try_from(place.bytes).ok()?)
    }
}
