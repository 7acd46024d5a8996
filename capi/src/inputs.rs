//! The application's bytes and sources, as the host reads them.

use std::sync::{Mutex, PoisonError};

use crossdock::source::read_from;
use crossdock_plugin_api::{ByteSource, Error, Map, Result, Source};

use crate::abi::ReleaseData;
use crate::arguments::Data;

/// No format is recognised by more of an input's first bytes.
const MOST_AHEAD_BYTES: usize = 4096;

/// Bytes that the application lends, and gets back when the last share of them is gone.
pub struct LentBytes {
    data: Data,
    bytes: usize,
    release: Option<ReleaseData>,
    release_data: Data,
}

impl LentBytes {
    /// # Safety
    /// `data` points at `bytes` bytes, or `bytes` is 0, which stay as they are until `release` is called.
    pub unsafe fn new(data: Data, bytes: usize, release: Option<ReleaseData>, release_data: Data) -> Self {
        Self { data, bytes, release, release_data }
    }

    fn slice(&self) -> &[u8] {
        match self.bytes {
            0 => &[],
            // SAFETY: the application's word (`new`), until `self` is dropped.
            n => unsafe { std::slice::from_raw_parts(self.data.get().cast(), n) },
        }
    }
}

impl Drop for LentBytes {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: the application's function with its own data, once.
            unsafe { release(self.release_data.get()) };
        }
    }
}

impl ByteSource for LentBytes {
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

/// A source of the application's.
pub struct ForeignSource {
    // Its share goes before the source.
    map: Option<Map>,
    source: Source,
    name: String,
    state: Mutex<InOrder>,
}

/// Of a source without a length: where it stands, and its first bytes, which the host looks at to recognise the format and
/// the importer then reads again.
#[derive(Default)]
struct InOrder {
    head: Vec<u8>,
    position: u64,
}

impl ForeignSource {
    /// Takes the source.
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
        if state.position == 0 && offset == 0 && to.len() <= MOST_AHEAD_BYTES {
            let n = self.fill(0, to)?;
            state.head = to[..n].to_vec();
            state.position = n as u64;
            return Ok(n);
        }
        let again = usize::try_from(offset).ok().and_then(|o| state.head.get(o..)).unwrap_or_default();
        let n = again.len().min(to.len());
        let (from_head, rest) = to.split_at_mut(n);
        from_head.copy_from_slice(&again[..n]);
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
