//! Checks the arguments of the exported functions, and converts them to Rust types.

use std::ffi::{OsStr, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use crossdock_plugin_api::{Error, Options, Progress, Release, Result, abi as api};

use crate::abi::{self, SizedStruct};

/// Maximum number of elements of a list. A longer list is rejected as implausible.
const MAX_LIST_LEN: usize = 1 << 20;
/// Maximum size of a settings struct in bytes. A larger struct is rejected as implausible.
const MAX_SETTINGS_BYTES: usize = 1 << 16;

/// # Errors
/// `pointer` is null.
pub fn check_not_null<T>(pointer: *const T, what: &str) -> Result<()> {
    if pointer.is_null() { Err(Error::invalid_argument(format!("{what} is NULL"))) } else { Ok(()) }
}

/// An object that a function returns in an out parameter.
pub trait Out: Release {
    /// Minimum size of the struct in bytes: the size of its first version. A smaller struct does
    /// not contain the whole field `release`.
    const MIN_SIZE: usize;
}

macro_rules! out {
    ($($t:ty = $min_size:literal),* $(,)?) => { $(
        impl Out for $t {
            const MIN_SIZE: usize = $min_size;
        }
        const _: () = assert!(<$t as Out>::MIN_SIZE <= size_of::<$t>());
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
    abi::Parts = 56,
}

/// Checks an out parameter before the object is created, because without a valid out parameter the
/// object could not be returned. A `struct_size` of 0 stands for the size of this library's struct.
///
/// # Safety
/// `out` is null or points to a struct of type `T`.
pub unsafe fn check_out<T: Out>(out: *const T) -> Result<()> {
    check_not_null(out, "out")?;
    // SAFETY: `out` is not null, and every `T` begins with its `struct_size`.
    match unsafe { out.cast::<usize>().read() } {
        size if size == 0 || size >= T::MIN_SIZE => Ok(()),
        size => Err(Error::invalid_argument(format!(
            "out: the struct_size is {size}, expected at least {}",
            T::MIN_SIZE
        ))),
    }
}

/// # Errors
/// A flag is set that is not in `known`.
pub fn flags(flags: u32, known: u32, what: &str) -> Result<u32> {
    match flags & !known {
        0 => Ok(flags),
        rest => Err(Error::invalid_argument(format!("{what}: the flags {rest:#x} are unknown"))),
    }
}

/// Copies the fields that a settings struct has both in the caller's version and in this library's
/// version. All other fields of the result have their defaults. If `from` is NULL, all fields have
/// their defaults. Fields that this library does not support must be zero, so that no setting is
/// silently ignored.
///
/// # Safety
/// `from` is null or points to `struct_size` bytes.
pub unsafe fn settings<T: SizedStruct>(from: *const T, what: &str) -> Result<T> {
    let mut settings = T::default();
    if from.is_null() {
        return Ok(settings);
    }
    // SAFETY: `from` is not null, and `struct_size` is the first field of a `SizedStruct`.
    let size = unsafe { from.cast::<usize>().read_unaligned() };
    if !(size_of::<usize>()..=MAX_SETTINGS_BYTES).contains(&size) {
        return Err(Error::invalid_argument(format!(
            "{what}: the struct_size is {size}, expected the size of the struct"
        )));
    }
    let known = size.min(size_of::<T>());
    // SAFETY: `from` has `size` bytes by the requirement of this function, and `settings` has at
    // least `known` bytes.
    unsafe { std::ptr::copy_nonoverlapping(from.cast::<u8>(), (&raw mut settings).cast(), known) };
    // SAFETY: `from` has `size` bytes. The slice contains all bytes after the first `known` bytes.
    let unknown = unsafe { std::slice::from_raw_parts(from.cast::<u8>().add(known), size - known) };
    if unknown.iter().any(|byte| *byte != 0) {
        return Err(Error::version(format!(
            "{what}: this library knows {known} of its {size} bytes, and the others are not zero: the library is too old for \
             this program"
        )));
    }
    Ok(settings)
}

/// The elements of a list. If `n` is 0, the pointer is ignored.
///
/// # Safety
/// `list` points to `n` values that are valid for `'a`, or `n` is 0.
pub unsafe fn list<'a, T>(list: *const T, n: usize, what: &str) -> Result<&'a [T]> {
    match n {
        0 => Ok(&[]),
        _ if list.is_null() || n > MAX_LIST_LEN => Err(Error::invalid_argument(format!(
            "{what}: a list of {n} elements at {list:p} is not plausible"
        ))),
        // SAFETY: `list` is not null, and points to `n` values by the requirement of this function.
        _ => Ok(unsafe { std::slice::from_raw_parts(list, n) }),
    }
}

/// # Safety
/// `text` is valid for the call.
pub unsafe fn text(text: api::Str, what: &str) -> Result<String> {
    // SAFETY: `Str::get` needs valid bytes, which this function requires.
    unsafe { text.get() }.map(str::to_string).map_err(|error| error.context(what))
}

/// A text, or `None` if it is empty.
///
/// # Safety
/// `value` is valid for the call.
pub unsafe fn optional_text(value: api::Str, what: &str) -> Result<Option<String>> {
    // SAFETY: `text` needs a valid text, which this function requires.
    let text = unsafe { text(value, what) }?;
    Ok((!text.is_empty()).then_some(text))
}

/// A text that must not be empty.
///
/// # Safety
/// `name` is valid for the call.
pub unsafe fn name(name: api::Str, what: &str) -> Result<String> {
    // SAFETY: `optional_text` needs a valid text, which this function requires.
    unsafe { optional_text(name, what) }?.ok_or_else(|| Error::invalid_argument(format!("{what} is empty")))
}

/// # Safety
/// `names` points to `n` texts that are valid for the call, or `n` is 0.
pub unsafe fn names(names: *const api::Str, n: usize, what: &str) -> Result<Vec<String>> {
    // SAFETY: `names` is a list of `n` valid texts by the requirement of this function.
    unsafe { list(names, n, what) }?.iter().map(|text| unsafe { name(*text, what) }).collect()
}

/// # Safety
/// `path` is valid for the call.
pub unsafe fn path(path: api::Str, what: &str) -> Result<PathBuf> {
    // SAFETY: a valid `Str` points to `bytes` bytes.
    let bytes = unsafe { list(path.data.cast::<u8>(), path.bytes, what) }?;
    if bytes.is_empty() || bytes.contains(&0) {
        return Err(Error::invalid_argument(format!(
            "{what}: a path of {} bytes is empty or contains a NUL",
            bytes.len()
        )));
    }
    Ok(PathBuf::from(OsStr::from_bytes(bytes)))
}

/// # Safety
/// `options` points to `n` pairs whose texts are valid for the call, or `n` is 0.
pub unsafe fn options(options: *const api::OptionPair, n: usize, what: &str) -> Result<Options> {
    let mut all = Options::new();
    // SAFETY: `options` points to `n` pairs by the requirement of this function.
    for pair in unsafe { list(options, n, what) }? {
        // SAFETY: the texts are valid by the requirement of this function.
        all = unsafe { all.with(name(pair.key, "an option's key")?, text(pair.value, "an option's value")?) };
    }
    Ok(all)
}

/// # Safety
/// `schema` is null or points to a schema that is valid for the call.
pub unsafe fn schema(schema: *const api::ArrowSchema) -> Result<SchemaRef> {
    check_not_null(schema, "the schema")?;
    // SAFETY: `schema` is not null, and valid by the requirement of this function.
    let schema = unsafe { &*schema };
    if schema.release.is_none() {
        return Err(Error::invalid_argument("the schema is released"));
    }
    // SAFETY: the schema is valid by the requirement of this function, and not released.
    unsafe { crossdock_arrays::import_schema_ref(schema) }.map(Arc::new)
}

/// The pointer that the application's callbacks receive as an argument.
#[derive(Clone, Copy)]
pub struct Data(pub *mut c_void);

// SAFETY: the pointer is only passed to callbacks of the application. The header states that any
// thread may call these callbacks.
unsafe impl Send for Data {}
// SAFETY: the pointer is only passed to callbacks of the application. The header states that
// several threads may call them at the same time.
unsafe impl Sync for Data {}

impl Data {
    /// Returns the pointer. A closure that accesses the field captures only the field, which is not
    /// `Send`. A closure that calls this method captures the struct.
    pub fn get(self) -> *mut c_void {
        self.0
    }
}

/// The application's progress callback, unless it is NULL.
pub fn progress(callback: Option<abi::Progress>, data: *mut c_void) -> Option<Arc<Progress>> {
    let (callback, data) = (callback?, Data(data));
    // SAFETY: the header requires that the callback and its data are valid until the stream is
    // released or the conversion returns. The closure is not called after that.
    Some(Arc::new(move |done, total| unsafe { callback(data.get(), done, total) }))
}

/// Writes the fields of `value` that the caller's struct has, but keeps the caller's `struct_size`.
/// A `struct_size` of 0 stands for the size of this library's struct.
///
/// # Safety
/// `out` is null or points to `struct_size` writable bytes.
pub unsafe fn write_out<T: SizedStruct>(out: *mut T, value: T) -> Result<()> {
    check_not_null(out, "out")?;
    // SAFETY: `out` is not null, and `struct_size` is the first field of a `SizedStruct`.
    let size = unsafe { out.cast::<usize>().read() };
    let bytes = match size {
        0 => size_of::<T>(),
        _ if size < size_of::<usize>() => {
            return Err(Error::invalid_argument(format!(
                "out: the struct_size is {size}, expected the size of the struct"
            )));
        }
        _ => size.min(size_of::<T>()),
    };
    // SAFETY: `out` has `size` bytes by the requirement of this function, and `value` has at least
    // `bytes` bytes.
    unsafe {
        std::ptr::copy_nonoverlapping((&raw const value).cast::<u8>(), out.cast(), bytes);
        out.cast::<usize>().write(size);
    }
    Ok(())
}
