//! Sources, from which bytes are read.

use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::abi;
use crate::door::{Poison, put};
use crate::error::{Error, Result};
use crate::owned::Owned;
use crate::sized_struct::{self, SizedRef};

/// A source from which bytes are read.
#[allow(clippy::len_without_is_empty)]
pub trait ByteSource: Send + Sync {
    /// A name for use in messages.
    fn name(&self) -> &str;

    /// The length in bytes, or `None` if it is unknown, as for a pipe. A source of unknown length
    /// is read in order, by one thread at a time.
    fn len(&self) -> Option<u64>;

    /// Reads bytes, beginning at byte `offset`, and returns their number. The number is less than
    /// the length of `to` only at the end of the source.
    ///
    /// # Errors
    /// May return any error, which is passed to the caller.
    fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<usize>;

    /// The whole content, if it is in memory. The memory is valid for as long as a clone of the
    /// source's `Arc` exists.
    fn map(&self) -> Option<&[u8]> {
        None
    }

    /// A text that differs if the content differs, such as an entity tag of a server; empty if
    /// there is none.
    fn version(&self) -> &str {
        ""
    }
}

/// A C source, for a plugin that reads from it.
pub struct Source {
    raw: Owned<abi::Source>,
    /// This mutex is locked while a source of unknown length is read, because the header
    /// allows only one call at a time for a source of unknown length.
    serial: Mutex<()>,
}

// SAFETY: the header allows concurrent calls of `read_at` if the length is known. If it is unknown,
// `serial` prevents concurrent calls.
unsafe impl Sync for Source {}

struct Shell {
    source: Arc<dyn ByteSource>,
    poison: Poison,
}

impl Source {
    /// Converts to a C source of the host.
    pub fn new(source: Arc<dyn ByteSource>) -> Self {
        Self::with_poison(source, Poison::for_host())
    }

    /// Converts to a C source of a plugin instance.
    pub(crate) fn of_instance(source: Arc<dyn ByteSource>, poison: Poison) -> Self {
        Self::with_poison(source, poison)
    }

    fn with_poison(source: Arc<dyn ByteSource>, poison: Poison) -> Self {
        let version = abi::Str::new(source.version());
        let name = abi::Str::new(source.name());
        let bytes = source.len().map_or(-1, |n| i64::try_from(n).unwrap_or(-1));
        let mut raw = abi::Source { bytes, name, version, ..abi::Source::new() };
        raw.read_at = Some(read_at);
        raw.release = Some(release);
        if let Some(map) = source.map() {
            raw.map = map.as_ptr().cast();
            raw.retain_map = Some(retain_map);
            raw.release_map = Some(release_map);
            raw.map_private = Arc::into_raw(Arc::new(source.clone())).cast_mut().cast();
        }
        raw.private_data = Box::into_raw(Box::new(Shell { source, poison })).cast();
        // SAFETY: this function created the source with its release function, and there is no other
        // copy of it.
        Self { raw: unsafe { Owned::new(raw) }, serial: Mutex::default() }
    }

    /// Wraps a C source.
    ///
    /// # Safety
    /// The requirements of [`Owned::new`].
    pub unsafe fn from_raw(raw: Owned<abi::Source>) -> Self {
        Self { raw, serial: Mutex::default() }
    }

    /// Converts to a C source.
    pub fn into_raw(self) -> Owned<abi::Source> {
        self.raw
    }

    /// A name for use in messages.
    pub fn name(&self) -> &str {
        self.borrowed().name()
    }

    /// A text that differs if the content differs; empty if there is none.
    pub fn version(&self) -> &str {
        // SAFETY: the header requires that the string is valid and lives as long as the source.
        unsafe { self.raw.version.get() }.unwrap_or_default()
    }

    /// The length in bytes, or `None` if it is unknown, as for a pipe.
    pub fn len(&self) -> Option<u64> {
        self.borrowed().len()
    }

    /// Whether the length is known to be 0.
    pub fn is_empty(&self) -> bool {
        self.raw.bytes == 0
    }

    /// Reads bytes, beginning at byte `offset`, and returns their number. The number is less than
    /// the length of `to` only at the end of the source.
    ///
    /// # Errors
    /// Returns the error of the source.
    pub fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<usize> {
        let _guard = self.lock();
        self.borrowed().read_at(offset, to)
    }

    /// Fills `to` with bytes, beginning at byte `offset`.
    ///
    /// # Errors
    /// Returns a "bad data" error if the source ends too early, or the error of the source.
    pub fn read_exact_at(&self, offset: u64, to: &mut [u8]) -> Result<()> {
        let _guard = self.lock();
        self.borrowed().read_exact_at(offset, to)
    }

    /// Lends the C source to `f`, which may call its functions.
    pub fn lend<T>(&self, f: impl FnOnce(*mut abi::Source) -> T) -> T {
        let _guard = self.lock();
        f(std::ptr::from_ref::<abi::Source>(&self.raw).cast_mut())
    }

    fn borrowed(&self) -> BorrowedSource<'_> {
        BorrowedSource(&self.raw)
    }

    fn lock(&self) -> Option<MutexGuard<'_, ()>> {
        self.len().is_none().then(|| self.serial.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The whole content, if it is in memory.
    pub fn map(&self) -> Option<Map> {
        self.borrowed().map()
    }
}

/// A C source that another module lends for a call.
#[derive(Clone, Copy)]
pub struct BorrowedSource<'a>(&'a abi::Source);

// SAFETY: the header allows calls of `read_at` on any thread.
unsafe impl Send for BorrowedSource<'_> {}
// SAFETY: the header allows concurrent calls of `read_at` if the length is known. If it is unknown,
// the callers of `read_at` prevent concurrent calls, as its documentation requires.
unsafe impl Sync for BorrowedSource<'_> {}

#[allow(clippy::len_without_is_empty)]
impl<'a> BorrowedSource<'a> {
    /// Borrows a C source.
    ///
    /// # Errors
    /// Returns an error if `source` is null, misaligned, too short, or released.
    ///
    /// # Safety
    /// `source` is null or points to a `crossdock_source` that is valid during `'a`. If its length
    /// is unknown, no other thread reads from it during `'a`.
    pub unsafe fn read(source: *const abi::Source) -> Result<Self> {
        // SAFETY: `source` is null, or valid and unchanged during `'a`, as this function requires.
        match unsafe { sized_struct::borrow(source) }? {
            SizedRef::Borrowed(source) if source.release.is_some() => Ok(Self(source)),
            SizedRef::Borrowed(_) => Err(Error::invalid_argument("the source has been released")),
            // The source's functions take its address, so a copy cannot be used.
            SizedRef::Copied(_) => Err(Error::invalid_argument("the source is misaligned or too short")),
        }
    }

    /// A name for use in messages.
    pub fn name(&self) -> &'a str {
        // SAFETY: the header requires that the string is valid and lives as long as the source.
        unsafe { self.0.name.get() }.unwrap_or("a source whose name is not UTF-8")
    }

    /// The length in bytes, or `None` if it is unknown, as for a pipe.
    pub fn len(&self) -> Option<u64> {
        u64::try_from(self.0.bytes).ok()
    }

    /// The whole content, if it is in memory.
    pub fn map(&self) -> Option<Map> {
        let (retain, release) = (self.0.retain_map?, self.0.release_map?);
        if self.0.map.is_null() {
            return None;
        }
        let bytes = usize::try_from(self.0.bytes).ok()?;
        // SAFETY: `map_private` is the argument that the source's `retain_map` requires, and the
        // source is alive.
        unsafe { retain(self.0.map_private) };
        Some(Map { start: self.0.map as u64, len: bytes, private: self.0.map_private, retain, release })
    }

    /// Reads bytes, beginning at byte `offset`, and returns their number. The number is less than
    /// the length of `to` only at the end of the source. If the length is unknown, calls must not
    /// be concurrent.
    ///
    /// # Errors
    /// Returns the error of the source.
    pub fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<usize> {
        let read = self.0.read_at.ok_or_else(|| Error::invalid_argument("the source has no 'read_at'"))?;
        let mut n = 0;
        let raw = std::ptr::from_ref(self.0).cast_mut();
        // SAFETY: the function belongs to the source, and `to` is writable. The caller prevents
        // concurrent calls where the header forbids them.
        Error::check(|err| unsafe { read(raw, offset, to.as_mut_ptr().cast(), to.len(), &mut n, err) })?;
        if n > to.len() {
            return Err(Error::internal(format!(
                "'{}' returned {n} bytes for a buffer of {} bytes",
                self.name(),
                to.len()
            )));
        }
        Ok(n)
    }

    /// Fills `to` with bytes, beginning at byte `offset`. If the length is unknown, calls must not
    /// be concurrent.
    ///
    /// # Errors
    /// Returns a "bad data" error if the source ends too early, or the error of the source.
    pub fn read_exact_at(&self, offset: u64, to: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while let Some(rest) = to.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.read_at(offset.saturating_add(done as u64), rest)? {
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
}

/// A reference to the content of a source that is mapped into host memory. The mapping lives for as
/// long as a reference exists.
pub struct Map {
    start: u64,
    len: usize,
    private: *mut c_void,
    retain: unsafe extern "C" fn(*mut c_void),
    release: unsafe extern "C" fn(*mut c_void),
}

// SAFETY: the header allows calls of `retain_map` and `release_map` on any thread.
unsafe impl Send for Map {}
// SAFETY: the header allows calls of `retain_map` and `release_map` on any thread.
unsafe impl Sync for Map {}

impl Map {
    /// The address, in host memory.
    pub fn address(&self) -> u64 {
        self.start
    }

    /// The length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `BorrowedSource::map` checks that the address is not null. The header requires
        // that `len` bytes of host memory are readable there for as long as `self` holds its
        // reference.
        unsafe { std::slice::from_raw_parts(self.start as *const u8, self.len) }
    }
}

impl Clone for Map {
    fn clone(&self) -> Self {
        // SAFETY: `self` holds a reference, so the mapping is alive.
        unsafe { (self.retain)(self.private) };
        Self { ..*self }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: `self` holds one reference, and it is released only here.
        unsafe { (self.release)(self.private) };
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
    // SAFETY: only `Source::new` sets this function, with a boxed `Shell` that lives until the
    // source is released.
    let shell = unsafe { &*(*source).private_data.cast::<Shell>() };
    let body = || {
        if to.is_null() && bytes > 0 {
            return Err(Error::invalid_argument("read_at: the target is NULL"));
        }
        let to = match bytes {
            0 => &mut [][..],
            // SAFETY: `to` is not null, and the header requires that `bytes` bytes are writable.
            _ => unsafe { std::slice::from_raw_parts_mut(to.cast::<u8>(), bytes) },
        };
        let n = shell.source.read_at(offset, to)?;
        // SAFETY: the header requires that the out parameter is valid for writes.
        unsafe { put(out_read, "read_at", || n) }
    };
    // SAFETY: the header requires that `err` is null or points to `struct_size` bytes.
    unsafe { shell.poison.enter(err, body) }
}

unsafe extern "C" fn release(source: *mut abi::Source) {
    // SAFETY: only `Source::new` sets this function, with a boxed `Shell` and, if there is a map, a
    // leaked `Arc`. Clearing `release` ensures that this runs only once.
    unsafe {
        (*source).release = None;
        if !(*source).map.is_null() {
            release_map((*source).map_private);
        }
        let shell = Box::from_raw((*source).private_data.cast::<Shell>());
        shell.poison.clone().run_release(move || drop(shell));
    }
}

unsafe extern "C" fn retain_map(holder: *mut c_void) {
    // SAFETY: `Source::new` leaked an `Arc<Arc<dyn ByteSource>>`, and the caller holds a reference.
    unsafe { Arc::increment_strong_count(holder.cast::<Arc<dyn ByteSource>>()) };
}

unsafe extern "C" fn release_map(holder: *mut c_void) {
    // SAFETY: `Source::new` leaked an `Arc<Arc<dyn ByteSource>>`. The caller holds a reference,
    // which this function releases.
    Poison::new()
        .run_release(|| unsafe { Arc::decrement_strong_count(holder.cast::<Arc<dyn ByteSource>>()) });
}
