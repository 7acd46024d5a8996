//! Bytes to read: the maker's trait and the reader's handle.

use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use crate::abi;
use crate::door::{Poison, put};
use crate::error::{Error, Result};
use crate::owned::Owned;

/// What can be read, as its maker provides it.
#[allow(clippy::len_without_is_empty)]
pub trait ByteSource: Send + Sync {
    /// A name for messages.
    fn name(&self) -> &str;

    /// Bytes in all; `None` for a pipe, which is read in order from one thread.
    fn len(&self) -> Option<u64>;

    /// Reads at `offset`; fewer than asked for only at the end, 0 after it.
    fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<usize>;

    /// The whole content in memory, if it is; stays valid as long as a clone of the source's `Arc` lives.
    fn map(&self) -> Option<&[u8]> {
        None
    }
}

/// The handle to read from.
pub struct Source {
    raw: Owned<abi::Source>,
    /// Held while a pipe is read: its maker counts on one call at a time.
    turn: Mutex<()>,
}

// SAFETY: `read_at` is callable from any thread where the length is known; where it is not, `turn` is held meanwhile.
unsafe impl Sync for Source {}

struct Shell {
    source: Arc<dyn ByteSource>,
    poison: Poison,
}

impl Source {
    /// Offers `source` across the boundary.
    pub fn new(source: Arc<dyn ByteSource>) -> Self {
        let name = abi::Str::new(source.name());
        let bytes = source.len().map_or(-1, |n| i64::try_from(n).unwrap_or(-1));
        let mut raw = abi::Source { bytes, name, ..abi::Source::new() };
        raw.read_at = Some(read_at);
        raw.release = Some(release);
        if let Some(map) = source.map() {
            raw.map = map.as_ptr().cast();
            raw.retain_map = Some(retain_map);
            raw.release_map = Some(release_map);
            raw.map_private = Arc::into_raw(Arc::new(source.clone())).cast_mut().cast();
        }
        raw.private_data = Box::into_raw(Box::new(Shell { source, poison: Poison::of_host() })).cast();
        // SAFETY: made above; nobody else has it.
        Self::of(unsafe { Owned::new(raw) })
    }

    fn of(raw: Owned<abi::Source>) -> Self {
        Self { raw, turn: Mutex::default() }
    }

    /// Takes a source that crossed the boundary.
    ///
    /// # Safety
    /// As [`Owned::new`].
    pub unsafe fn from_raw(raw: Owned<abi::Source>) -> Self {
        Self::of(raw)
    }

    /// The bare object, to hand across.
    pub fn into_raw(self) -> Owned<abi::Source> {
        self.raw
    }

    /// A name for messages.
    pub fn name(&self) -> &str {
        // SAFETY: the maker's string lives as long as the source.
        unsafe { self.raw.name.get() }.unwrap_or("a source whose name is not UTF-8")
    }

    /// Bytes in all; `None` for a pipe.
    pub fn len(&self) -> Option<u64> {
        u64::try_from(self.raw.bytes).ok()
    }

    /// Whether it is known to hold nothing.
    pub fn is_empty(&self) -> bool {
        self.raw.bytes == 0
    }

    /// Reads at `offset`; fewer than asked for only at the end, 0 after it.
    pub fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<usize> {
        let read = self.raw.read_at.ok_or_else(|| Error::invalid_argument("the source has no 'read_at'"))?;
        let mut n = 0;
        let _turn = self.len().is_none().then(|| self.turn.lock().unwrap_or_else(PoisonError::into_inner));
        let raw = std::ptr::from_ref::<abi::Source>(&self.raw).cast_mut();
        // SAFETY: the source's own function on itself; the range is ours to write.
        Error::check(|err| unsafe { read(raw, offset, to.as_mut_ptr().cast(), to.len(), &mut n, err) })?;
        if n > to.len() {
            return Err(Error::internal(format!("'{}' read {n} bytes into {}", self.name(), to.len())));
        }
        Ok(n)
    }

    /// Fills `to` from `offset` on, or says what is missing.
    pub fn read_exact_at(&self, offset: u64, to: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while done < to.len() {
            match self.read_at(offset + done as u64, &mut to[done..])? {
                0 => {
                    return Err(Error::bad_data(format!(
                        "'{}' is truncated: expected {} bytes at offset {offset}, got {done}",
                        self.name(),
                        to.len()
                    )));
                }
                n => done += n,
            }
        }
        Ok(())
    }

    /// The whole content in memory, if it is.
    pub fn map(&self) -> Option<Map> {
        let (retain, release) = (self.raw.retain_map?, self.raw.release_map?);
        if self.raw.map.is_null() {
            return None;
        }
        let bytes = usize::try_from(self.raw.bytes).ok()?;
        // SAFETY: the maker's function with the maker's data.
        unsafe { retain(self.raw.map_private) };
        Some(Map { start: self.raw.map as u64, bytes, holder: self.raw.map_private, retain, release })
    }
}

/// A share in a source's mapping, which lives as long as the last share. Its address is one of host memory.
pub struct Map {
    start: u64,
    bytes: usize,
    holder: *mut c_void,
    retain: unsafe extern "C" fn(*mut c_void),
    release: unsafe extern "C" fn(*mut c_void),
}

// SAFETY: retain and release may run on any thread by contract.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    /// Where it begins, in host memory.
    pub fn address(&self) -> u64 {
        self.start
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The bytes: a source's map is host memory by contract, on every device.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `bytes` bytes at the mapping's start are readable as long as a share of it is held; `source` made it
        // of a known length and a non-null address.
        unsafe { std::slice::from_raw_parts(self.start as *const u8, self.bytes) }
    }
}

impl Clone for Map {
    fn clone(&self) -> Self {
        // SAFETY: the maker's function; `self` holds a share.
        unsafe { (self.retain)(self.holder) };
        Self {
            start: self.start,
            bytes: self.bytes,
            holder: self.holder,
            retain: self.retain,
            release: self.release,
        }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: gives back the share that `self` holds.
        unsafe { (self.release)(self.holder) };
    }
}

unsafe extern "C" fn read_at(
    source: *mut abi::Source,
    offset: u64,
    to: *mut c_void,
    bytes: usize,
    out_read: *mut usize,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: set by `Source::new` only, whose Box lives until release.
    let shell = unsafe { &*(*source).private_data.cast::<Shell>() };
    let body = || {
        if to.is_null() && bytes > 0 {
            return Err(Error::invalid_argument("read_at: the target is NULL"));
        }
        let to = match bytes {
            0 => &mut [][..],
            // SAFETY: the reader's range, not null.
            _ => unsafe { std::slice::from_raw_parts_mut(to.cast::<u8>(), bytes) },
        };
        let n = shell.source.read_at(offset, to)?;
        // SAFETY: the reader's out parameter.
        unsafe { put(out_read, "read_at", || n) }
    };
    // SAFETY: the reader's error struct.
    unsafe { shell.poison.enter(err, body) }
}

unsafe extern "C" fn release(source: *mut abi::Source) {
    // SAFETY: set by `Source::new` only; released once because `release` is cleared.
    unsafe {
        (*source).release = None;
        if !(*source).map.is_null() {
            release_map((*source).map_private);
        }
        let shell = Box::from_raw((*source).private_data.cast::<Shell>());
        shell.poison.clone().leave(move || drop(shell));
    }
}

unsafe extern "C" fn retain_map(holder: *mut c_void) {
    // SAFETY: an `Arc<Arc<dyn ByteSource>>` that `Source::new` made raw, with at least one count.
    unsafe { Arc::increment_strong_count(holder.cast::<Arc<dyn ByteSource>>()) };
}

unsafe extern "C" fn release_map(holder: *mut c_void) {
    // SAFETY: as above; takes one count.
    Poison::new().leave(|| unsafe { Arc::decrement_strong_count(holder.cast::<Arc<dyn ByteSource>>()) });
}
