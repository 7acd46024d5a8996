//! What the application gives: read once, checked, and turned into the host's own words.

use std::ffi::{OsStr, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use crossdock_plugin_api::{Error, Options, Progress, Release, Result, abi as api};

use crate::abi::{self, Told};

/// More than any list of an application's has.
const MOST: usize = 1 << 20;
/// More than any settings struct will have, in bytes.
const MOST_BYTES: usize = 1 << 16;

/// A pointer that must not be null.
pub fn given<T>(pointer: *const T, what: &str) -> Result<()> {
    if pointer.is_null() { Err(Error::invalid_argument(format!("{what} is NULL"))) } else { Ok(()) }
}

/// An object that is handed to the application in an out parameter.
pub trait Out: Release {
    /// Bytes of its first version: less cannot be released.
    const LEAST: usize;
}

macro_rules! out {
    ($($t:ty = $least:literal),* $(,)?) => { $(
        impl Out for $t {
            const LEAST: usize = $least;
        }
        const _: () = assert!(<$t as Out>::LEAST <= size_of::<$t>());
    )* };
}
out! {
    api::BatchStream = 40,
    api::Batch = 208,
    api::Writer = 40,
    api::Capsules = 40,
    api::Plan = 40,
    abi::Candidates = 56,
    abi::Leaks = 40,
    abi::Report = 80,
}

/// A place for an object, before anything is made that nobody would release. 0 bytes stand for as many as ours has.
///
/// # Safety
/// `out` is null or points at a struct of this kind.
pub unsafe fn place<T: Out>(out: *const T) -> Result<()> {
    given(out, "out")?;
    // SAFETY: every such struct begins with its `struct_size`.
    match unsafe { out.cast::<usize>().read() } {
        told if told == 0 || told >= T::LEAST => Ok(()),
        told => Err(Error::invalid_argument(format!(
            "out: its struct_size is {told}, expected at least {}",
            T::LEAST
        ))),
    }
}

/// Flags of which none may be set that is not among `known`.
pub fn flags(flags: u32, known: u32, what: &str) -> Result<u32> {
    match flags & !known {
        0 => Ok(flags),
        rest => Err(Error::invalid_argument(format!("{what}: flags {rest:#x} are not known"))),
    }
}

/// A copy of the settings, as far as their size tells of them; the rest, and NULL, is the default. What a newer program
/// sets beyond what is known here is refused, so that no wish is silently ignored.
///
/// # Safety
/// `from` is null or points at as many bytes as its `struct_size` says.
pub unsafe fn settings<T: Told>(from: *const T, what: &str) -> Result<T> {
    let mut settings = T::default();
    if from.is_null() {
        return Ok(settings);
    }
    // SAFETY: `struct_size` is the first field (`Told`).
    let told = unsafe { from.cast::<usize>().read_unaligned() };
    if !(size_of::<usize>()..=MOST_BYTES).contains(&told) {
        return Err(Error::invalid_argument(format!("{what}: its struct_size is {told}, expected its size")));
    }
    let known = told.min(size_of::<T>());
    // SAFETY: both have that many bytes, any of which are a value (`Told`).
    unsafe { std::ptr::copy_nonoverlapping(from.cast::<u8>(), (&raw mut settings).cast(), known) };
    // SAFETY: as many bytes as it told of.
    let beyond = unsafe { std::slice::from_raw_parts(from.cast::<u8>().add(known), told - known) };
    if beyond.iter().any(|byte| *byte != 0) {
        return Err(Error::version(format!(
            "{what}: of its {told} bytes this library knows {known}, and the others are not zero: it is too old for \
             this program"
        )));
    }
    Ok(settings)
}

/// # Safety
/// `list` points at `n` values that live for `'a`, or `n` is 0.
pub unsafe fn list<'a, T>(list: *const T, n: usize, what: &str) -> Result<&'a [T]> {
    match n {
        0 => Ok(&[]),
        _ if list.is_null() || n > MOST => {
            Err(Error::invalid_argument(format!("{what}: a list of {n} at {list:p} is not plausible")))
        }
        // SAFETY: the caller's word.
        _ => Ok(unsafe { std::slice::from_raw_parts(list, n) }),
    }
}

/// # Safety
/// The text is valid for the call.
pub unsafe fn text(text: api::Str, what: &str) -> Result<String> {
    // SAFETY: the caller's word.
    unsafe { text.get() }.map(str::to_string).map_err(|error| error.context(what))
}

/// A text that may be empty, for nothing.
///
/// # Safety
/// As [`text`].
pub unsafe fn wish(wish: api::Str, what: &str) -> Result<Option<String>> {
    // SAFETY: the caller's word.
    let text = unsafe { text(wish, what) }?;
    Ok((!text.is_empty()).then_some(text))
}

/// A text that must not be empty.
///
/// # Safety
/// As [`text`].
pub unsafe fn name(name: api::Str, what: &str) -> Result<String> {
    // SAFETY: the caller's word.
    unsafe { wish(name, what) }?.ok_or_else(|| Error::invalid_argument(format!("{what} is empty")))
}

/// # Safety
/// As [`list`], and each text is valid for the call.
pub unsafe fn names(names: *const api::Str, n: usize, what: &str) -> Result<Vec<String>> {
    // SAFETY: the caller's word.
    unsafe { list(names, n, what) }?.iter().map(|each| unsafe { name(*each, what) }).collect()
}

/// # Safety
/// As [`text`].
pub unsafe fn path(path: api::Str, what: &str) -> Result<PathBuf> {
    // SAFETY: the caller's word.
    let bytes = unsafe { list(path.data.cast::<u8>(), path.bytes, what) }?;
    if bytes.is_empty() || bytes.contains(&0) {
        return Err(Error::invalid_argument(format!(
            "{what}: a path of {} bytes is empty or holds a NUL",
            bytes.len()
        )));
    }
    Ok(PathBuf::from(OsStr::from_bytes(bytes)))
}

/// # Safety
/// As [`list`], and the texts are valid for the call.
pub unsafe fn options(options: *const api::OptionPair, n: usize) -> Result<Options> {
    let mut all = Options::new();
    // SAFETY: the caller's word.
    for pair in unsafe { list(options, n, "the options") }? {
        // SAFETY: as above.
        all = unsafe { all.with(name(pair.key, "an option's key")?, text(pair.value, "an option's value")?) };
    }
    Ok(all)
}

/// # Safety
/// `schema` is null or a valid schema that lives for the call.
pub unsafe fn schema(schema: *const api::ArrowSchema) -> Result<SchemaRef> {
    given(schema, "the schema")?;
    // SAFETY: the caller's word.
    let schema = unsafe { &*schema };
    if schema.release.is_none() {
        return Err(Error::invalid_argument("the schema has been released"));
    }
    // SAFETY: as above.
    unsafe { crossdock_arrays::import_schema_ref(schema) }.map(Arc::new)
}

/// The application's pointer, for its own callbacks.
#[derive(Clone, Copy)]
pub struct Data(pub *mut c_void);

// SAFETY: handed to the application's callbacks only, which any thread may call by contract.
unsafe impl Send for Data {}
// SAFETY: as above.
unsafe impl Sync for Data {}

impl Data {
    /// By a method, so that closures catch the whole of it.
    pub fn get(self) -> *mut c_void {
        self.0
    }
}

/// The application's progress callback, if there is one.
pub fn progress(callback: Option<abi::Progress>, data: *mut c_void) -> Option<Arc<Progress>> {
    let (callback, data) = (callback?, Data(data));
    // SAFETY: the application's function with its own data, which live as long as it was told that they are called.
    Some(Arc::new(move |done, total| unsafe { callback(data.get(), done, total) }))
}

/// Writes an answer that is nothing but numbers, as far as the caller's struct says to reach; its size stays.
///
/// # Safety
/// `out` is null or points at as many bytes as its `struct_size` says; 0 is as long as ours.
pub unsafe fn answer<T: Told>(out: *mut T, answer: T) -> Result<()> {
    given(out, "out")?;
    // SAFETY: `struct_size` is the first field (`Told`).
    let told = unsafe { out.cast::<usize>().read() };
    let bytes = match told {
        0 => size_of::<T>(),
        _ if told < size_of::<usize>() => {
            return Err(Error::invalid_argument(format!(
                "out: its struct_size is {told}, expected its size"
            )));
        }
        _ => told.min(size_of::<T>()),
    };
    // SAFETY: both have that many bytes; the first field is put back as it was.
    unsafe {
        std::ptr::copy_nonoverlapping((&raw const answer).cast::<u8>(), out.cast(), bytes);
        out.cast::<usize>().write(told);
    }
    Ok(())
}
