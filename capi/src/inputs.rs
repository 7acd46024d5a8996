//! Wraps bytes and sources that the application provides.

use std::sync::{Mutex, PoisonError};

use crossdock::source::read_from;
use crossdock_plugin_api::{ByteSource, Error, Map, Result, Source};

use crate::abi::ReleaseData;
use crate::arguments::Data;

/// Maximum number of bytes that the host reads to recognise a format.
const MAX_HEAD_BYTES: usize = 4096;

/// Bytes that the application owns. Dropping this calls the application's callback, which releases
/// them.
pub struct ForeignBytes {
    data: Data,
    bytes: usize,
    release: Option<ReleaseData>,
    release_data: Data,
}

impl ForeignBytes {
    /// # Safety
    /// `data` points to `bytes` bytes that stay valid and unchanged until `release` is called, or
    /// `bytes` is 0.
    pub unsafe fn new(data: Data, bytes: usize, release: Option<ReleaseData>, release_data: Data) -> Self {
        Self { data, bytes, release, release_data }
    }

    fn slice(&self) -> &[u8] {
        match self.bytes {
            0 => &[],
            // SAFETY: `new` requires bytes that are valid until `release` is called, and only
            // `drop` calls `release`.
            n => unsafe { std::slice::from_raw_parts(self.data.get().cast(), n) },
        }
    }
}

impl Drop for ForeignBytes {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: the header requires a function that may be called once with this argument on
            // any thread.
            unsafe { release(self.release_data.get()) };
        }
    }
}

impl ByteSource for ForeignBytes {
    fn name(&self) -> &str {
        "the application's bytes"
    }

    fn len(&self) -> Option<u64> {
        Some(self.bytes as u64)
    }

    fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<usize> {
        Ok(read_from(self.slice(), offset, to))
    }

    fn map(&self) -> Option<&[u8]> {
        Some(self.slice())
    }
}

/// A source that the application provides.
pub struct ForeignSource {
    // Rust drops fields in the order of declaration, so it drops the mapping before the source.
    map: Option<Map>,
    source: Source,
    name: String,
    state: Mutex<ReadState>,
}

/// The state of a source without a length: its position and its first bytes. The host reads the
/// first bytes to recognise the format. The importer then reads these bytes from `head`, because
/// the source cannot go back.
#[derive(Default)]
struct ReadState {
    head: Vec<u8>,
    position: u64,
}

impl ForeignSource {
    /// Takes ownership of the source.
    pub fn new(source: Source) -> Self {
        let name = match source.name() {
            "" => "the application's source".to_string(),
            name => crossdock::one_line(name),
        };
        Self { map: source.map(), name, state: Mutex::default(), source }
    }

    fn fill(&self, position: u64, to: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while let Some(rest) = to.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.source.read_at(position.saturating_add(done as u64), rest)? {
                0 => break,
                n => done += n,
            }
        }
        Ok(done)
    }

    fn read_in_order(&self, offset: u64, to: &mut [u8]) -> Result<usize> {
        let state = &mut *self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.position == 0 && offset == 0 && to.len() <= MAX_HEAD_BYTES {
            let n = self.fill(0, to)?;
            state.head = to[..n].to_vec();
            state.position = n as u64;
            return Ok(n);
        }
        let head = usize::try_from(offset).ok().and_then(|o| state.head.get(o..)).unwrap_or_default();
        let n = head.len().min(to.len());
        let (from_head, rest) = to.split_at_mut(n);
        from_head.copy_from_slice(&head[..n]);
        if rest.is_empty() {
            return Ok(n);
        }
        if offset.saturating_add(n as u64) != state.position {
            return Err(Error::invalid_argument(format!(
                "'{}' can only be read in order: expected offset {}, got {offset}",
                self.name, state.position
            )));
        }
        let more = self.fill(state.position, rest)?;
        state.position += more as u64;
        Ok(n + more)
    }
}

impl ByteSource for ForeignSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn len(&self) -> Option<u64> {
        self.source.len()
    }

    fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<usize> {
        match self.source.len() {
            Some(_) => self.fill(offset, to),
            None => self.read_in_order(offset, to),
        }
    }

    fn map(&self) -> Option<&[u8]> {
        self.map.as_ref().map(Map::bytes)
    }
}
