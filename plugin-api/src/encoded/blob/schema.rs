//! Reads and writes Arrow schemas as bytes. The fields are in pre-order, each with its strings and
//! metadata.
//!
//! Format strings are not interpreted, so that types that this build does not support stay
//! unchanged.

use std::ffi::{CStr, CString, c_char, c_void};

use super::fields::{Fields, wrong};
use crate::abi;
use crate::door;
use crate::encoded::MAX_DEPTH;
use crate::error::{Error, Result};
use crate::owned::{Owned, Release};

/// The maximum number of fields of a schema.
const MAX_FIELDS: usize = 1 << 20;
/// The maximum number of metadata pairs of a field.
const MAX_PAIRS: usize = 1 << 16;

/// Writes a schema.
///
/// # Errors
/// Returns an error if the schema or a child is released, if it nests too deep, or if a format
/// string or name is not UTF-8.
///
/// # Safety
/// `schema` is released, or it is valid including its strings, metadata, children and dictionary.
pub unsafe fn write(schema: &abi::ArrowSchema) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // SAFETY: the caller of `write` guarantees all requirements of `write_field`.
    unsafe { write_field(schema, &mut bytes, &mut 0, 1) }?;
    Ok(bytes)
}

/// # Safety
/// The requirements of [`write`].
unsafe fn write_field(
    schema: &abi::ArrowSchema,
    to: &mut Vec<u8>,
    n_fields: &mut usize,
    depth: usize,
) -> Result<()> {
    *n_fields += 1;
    let n_children = usize::try_from(schema.n_children).unwrap_or(usize::MAX);
    if schema.release.is_none() || depth > MAX_DEPTH || n_children.saturating_add(*n_fields) > MAX_FIELDS {
        return Err(Error::bad_data(format!(
            "an Arrow schema is released, nests deeper than {MAX_DEPTH} levels, or has more than {MAX_FIELDS} fields"
        )));
    }
    // SAFETY: the strings of a valid schema are NUL-terminated or NULL.
    let (format, name) = unsafe { (text(schema.format)?, text(schema.name)?) };
    // SAFETY: the metadata of a valid schema has Arrow's encoding or is NULL.
    let pairs = unsafe { pairs(schema.metadata) }?;
    let flags = u32::try_from(schema.flags).map_err(|_| {
        Error::unsupported(format!(
            "an Arrow schema has the flags {:#x}, which do not fit into 32 bits",
            schema.flags
        ))
    })?;
    for number in [
        format.len(),
        name.len(),
        n_children,
        usize::from(!schema.dictionary.is_null()),
        pairs.len(),
        flags as usize,
    ] {
        to.extend(count(number)?);
    }
    to.extend(format.as_bytes());
    to.extend(name.as_bytes());
    for (key, value) in pairs {
        to.extend(count(key.len())?);
        to.extend(count(value.len())?);
        to.extend(key);
        to.extend(value);
    }
    for i in 0..n_children {
        // SAFETY: a valid schema has `n_children` valid children, and `i` is less than
        // `n_children`.
        let child = unsafe { schema.children.as_ref().and_then(|_| (*schema.children.add(i)).as_ref()) };
        let child = child.ok_or_else(|| Error::bad_data("an Arrow schema has a child that is NULL"))?;
        // SAFETY: the children of a valid schema are valid.
        unsafe { write_field(child, to, n_fields, depth + 1) }?;
    }
    // SAFETY: the dictionary of a valid schema is valid or NULL.
    match unsafe { schema.dictionary.as_ref() } {
        // SAFETY: the dictionary of a valid schema is valid.
        Some(dictionary) => unsafe { write_field(dictionary, to, n_fields, depth + 1) },
        None => Ok(()),
    }
}

fn count(n: usize) -> Result<[u8; 4]> {
    let n = u32::try_from(n).map_err(|_| {
        Error::unsupported(format!("an Arrow schema has a length of {n}, which does not fit into 32 bits"))
    })?;
    Ok(n.to_le_bytes())
}

/// # Safety
/// `text` is null, or a NUL-terminated string that lives for `'a`.
unsafe fn text<'a>(text: *const c_char) -> Result<&'a str> {
    if text.is_null() {
        return Ok("");
    }
    // SAFETY: `text` is not null, so the caller guarantees a NUL-terminated string that lives for
    // `'a`.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|e| Error::bad_data(format!("a string in an Arrow schema is not valid UTF-8: {e}")))
}

/// Reads metadata in the encoding of the Arrow C data interface.
///
/// # Safety
/// `metadata` is null, or it has that encoding and lives for `'a`.
unsafe fn pairs<'a>(metadata: *const c_char) -> Result<Vec<(&'a [u8], &'a [u8])>> {
    if metadata.is_null() {
        return Ok(Vec::new());
    }
    let mut at = metadata.cast::<u8>();
    // SAFETY: `metadata` is not null, so it begins with the number of pairs.
    let n = unsafe { number(&mut at) }?;
    if n > MAX_PAIRS {
        return Err(Error::bad_data(format!(
            "an Arrow schema has {n} metadata pairs, expected at most {MAX_PAIRS}"
        )));
    }
    let mut part = || {
        // SAFETY: in Arrow's encoding, each of the `2 * n` strings consists of its length and of
        // as many bytes, so `at` stays within the metadata.
        unsafe {
            let n = number(&mut at)?;
            let bytes = std::slice::from_raw_parts(at, n);
            at = at.add(n);
            Ok::<_, Error>(bytes)
        }
    };
    (0..n).map(|_| Ok((part()?, part()?))).collect()
}

/// Reads an `i32` and advances `at` past it.
///
/// # Safety
/// `at` points to an `i32` that may be unaligned.
unsafe fn number(at: &mut *const u8) -> Result<usize> {
    // SAFETY: the caller guarantees that `at` points to an `i32`. `read_unaligned` accepts any
    // alignment.
    let n = unsafe { at.cast::<i32>().read_unaligned() };
    // SAFETY: the end of the `i32` is within its allocation or directly after it.
    *at = unsafe { at.add(size_of::<i32>()) };
    usize::try_from(n).map_err(|_| {
        Error::bad_data(format!("the metadata of an Arrow schema contain the length {n}, expected 0 or more"))
    })
}

/// Reads a schema.
///
/// # Errors
/// Returns a "bad data" error if the bytes are invalid.
pub fn read(bytes: &[u8]) -> Result<Owned<abi::ArrowSchema>> {
    let mut from = Fields { rest: bytes };
    let schema = read_field(&mut from, &mut 0, 1)?;
    from.end()?;
    Ok(schema)
}

fn read_field(from: &mut Fields<'_>, n_fields: &mut usize, depth: usize) -> Result<Owned<abi::ArrowSchema>> {
    *n_fields += 1;
    let (format_bytes, name_bytes, n_children) = (from.count()?, from.count()?, from.count()?);
    let (has_dictionary, n_pairs, flags) = (from.u32()?, from.count()?, from.u32()?);
    if depth > MAX_DEPTH || n_children.saturating_add(*n_fields) > MAX_FIELDS || n_pairs > MAX_PAIRS {
        return Err(wrong(format_args!(
            "a field at level {depth} has {n_children} children and {n_pairs} metadata pairs, expected at most \
             {MAX_DEPTH} levels, {MAX_FIELDS} fields and {MAX_PAIRS} pairs"
        )));
    }
    let format = without_nul(from.text(format_bytes, "a format")?)?;
    let name = without_nul(from.text(name_bytes, "a name")?)?;
    let metadata = read_pairs(from, n_pairs)?;
    // `Vec::with_capacity` is not used, because the declared number may be wrong.
    let mut children = Vec::new();
    for _ in 0..n_children {
        children.push(read_field(from, n_fields, depth + 1)?);
    }
    let dictionary = match has_dictionary {
        0 => None,
        1 => Some(read_field(from, n_fields, depth + 1)?),
        other => return Err(wrong(format_args!("a field has {other} dictionaries, expected 0 or 1"))),
    };
    Ok(Parts { format, name, metadata, children, dictionary }.into_schema(flags.into()))
}

fn without_nul(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| wrong("an Arrow schema has a string that contains a NUL"))
}

/// Reads metadata and converts it to the encoding of the Arrow C data interface. The result is
/// empty if there are no pairs.
fn read_pairs(from: &mut Fields<'_>, n: usize) -> Result<Vec<u8>> {
    let mut metadata = Vec::new();
    let number = |n: usize| {
        i32::try_from(n)
            .map(i32::to_ne_bytes)
            .map_err(|_| wrong("the metadata of an Arrow schema is too long"))
    };
    if n > 0 {
        metadata.extend(number(n)?);
    }
    for _ in 0..n {
        let (key_bytes, value_bytes) = (from.count()?, from.count()?);
        let (key, value) = (from.take(key_bytes)?, from.take(value_bytes)?);
        metadata.extend(number(key.len())?);
        metadata.extend(key);
        metadata.extend(number(value.len())?);
        metadata.extend(value);
    }
    Ok(metadata)
}

/// The parts from which `read` creates a schema.
struct Parts {
    format: CString,
    name: CString,
    metadata: Vec<u8>,
    children: Vec<Owned<abi::ArrowSchema>>,
    dictionary: Option<Owned<abi::ArrowSchema>>,
}

/// The private data of a schema: its strings, and its children, each in a separate box.
struct Private {
    _format: CString,
    _name: CString,
    _metadata: Vec<u8>,
    children: Vec<*mut abi::ArrowSchema>,
    dictionary: *mut abi::ArrowSchema,
}

fn boxed(schema: Owned<abi::ArrowSchema>) -> *mut abi::ArrowSchema {
    Box::into_raw(Box::new(schema.into_raw()))
}

impl Parts {
    fn into_schema(self, flags: i64) -> Owned<abi::ArrowSchema> {
        let children: Vec<_> = self.children.into_iter().map(boxed).collect();
        let dictionary = self.dictionary.map_or(std::ptr::null_mut(), boxed);
        let metadata =
            if self.metadata.is_empty() { std::ptr::null() } else { self.metadata.as_ptr().cast() };
        let (format, name) = (self.format.as_ptr(), self.name.as_ptr());
        let mut private = Box::new(Private {
            _format: self.format,
            _name: self.name,
            _metadata: self.metadata,
            children,
            dictionary,
        });
        let schema = abi::ArrowSchema {
            format,
            name,
            metadata,
            flags,
            n_children: private.children.len() as i64,
            children: private.children.as_mut_ptr(),
            dictionary,
            release: Some(release),
            private_data: Box::into_raw(private).cast::<c_void>(),
        };
        // SAFETY: this function created the schema with its release function, `private_data` owns
        // the parts of the schema, and there is no other copy of it.
        unsafe { Owned::new(schema) }
    }
}

unsafe extern "C" fn release(schema: *mut abi::ArrowSchema) {
    // SAFETY: only `into_schema` sets this function, with a boxed `Private`, whose children are
    // boxes. Children that were moved out are released structs. Clearing `release` ensures that
    // this runs only once.
    unsafe {
        (*schema).release = None;
        let private = Box::from_raw((*schema).private_data.cast::<Private>());
        door::run_release(|| {
            let children = private.children.iter().chain(std::iter::once(&private.dictionary));
            for child in children.filter(|child| !child.is_null()) {
                let mut child = Box::from_raw(*child);
                child.release();
            }
            drop(private);
        });
    }
}
