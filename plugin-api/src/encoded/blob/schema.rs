//! Reads and writes Arrow schemas as bytes: the fields in pre-order, each with its strings and
//! metadata.
//!
//! Formats are not interpreted, so that unknown types pass unchanged.

use std::ffi::{CStr, CString, c_char, c_void};

use super::fields::{Fields, wrong};
use crate::abi;
use crate::door;
use crate::encoded::MAX_DEPTH;
use crate::error::{Error, Result};
use crate::owned::{Owned, Release};

/// The greatest number of fields of a schema.
const MAX_FIELDS: usize = 1 << 20;
/// The greatest number of metadata pairs of a field.
const MAX_PAIRS: usize = 1 << 16;

/// Writes a schema.
///
/// # Errors
/// The schema or a child is released, it nests too deep, or a format or name is not UTF-8.
///
/// # Safety
/// `schema` is valid, including its strings, metadata, children and dictionary, or released.
pub unsafe fn write(schema: &abi::ArrowSchema) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // SAFETY: both functions have the same requirements.
    unsafe { write_field(schema, &mut bytes, &mut 0, 1) }?;
    Ok(bytes)
}

/// # Safety
/// As [`write`].
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
            "an Arrow schema that is released, nests deeper than {MAX_DEPTH} levels or has more than {MAX_FIELDS} fields"
        )));
    }
    // SAFETY: the strings of a valid schema are NUL-terminated or NULL.
    let (format, name) = unsafe { (text(schema.format)?, text(schema.name)?) };
    // SAFETY: the metadata of a valid schema has Arrow's encoding or is NULL.
    let pairs = unsafe { pairs(schema.metadata) }?;
    let flags = u32::try_from(schema.flags)
        .map_err(|_| Error::unsupported(format!("an Arrow schema with the flags {:#x}", schema.flags)))?;
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
        // SAFETY: a valid schema has `n_children` valid children, and `i` is less than that.
        let child = unsafe { schema.children.as_ref().and_then(|_| (*schema.children.add(i)).as_ref()) };
        let child = child.ok_or_else(|| Error::bad_data("an Arrow schema with a NULL child"))?;
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
    let n = u32::try_from(n)
        .map_err(|_| Error::unsupported(format!("a string of {n} bytes in an Arrow schema")))?;
    Ok(n.to_le_bytes())
}

/// # Safety
/// `text` is null or NUL-terminated, and lives for `'a`.
unsafe fn text<'a>(text: *const c_char) -> Result<&'a str> {
    if text.is_null() {
        return Ok("");
    }
    // SAFETY: not null, so the caller guarantees a NUL-terminated string for `'a`.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|e| Error::bad_data(format!("a string in an Arrow schema is not valid UTF-8: {e}")))
}

/// Reads metadata in the encoding of the Arrow C data interface.
///
/// # Safety
/// `metadata` is null or has that encoding, and lives for `'a`.
unsafe fn pairs<'a>(metadata: *const c_char) -> Result<Vec<(&'a [u8], &'a [u8])>> {
    if metadata.is_null() {
        return Ok(Vec::new());
    }
    let mut at = metadata.cast::<u8>();
    // SAFETY: not null, so the metadata begins with the number of pairs.
    let n = unsafe { number(&mut at) }?;
    if n > MAX_PAIRS {
        return Err(Error::bad_data(format!(
            "{n} metadata pairs in an Arrow schema, expected at most {MAX_PAIRS}"
        )));
    }
    let mut part = || {
        // SAFETY: each of the `2 * n` parts is a length and as many bytes.
        unsafe {
            let n = number(&mut at)?;
            let bytes = std::slice::from_raw_parts(at, n);
            at = at.add(n);
            Ok::<_, Error>(bytes)
        }
    };
    (0..n).map(|_| Ok((part()?, part()?))).collect()
}

/// Reads a number and advances `at`.
///
/// # Safety
/// `at` points to an `i32`, which may be unaligned.
unsafe fn number(at: &mut *const u8) -> Result<usize> {
    // SAFETY: the caller guarantees an `i32`; its alignment does not matter.
    let n = unsafe { at.cast::<i32>().read_unaligned() };
    // SAFETY: the end of the `i32` is within its allocation or one past its end.
    *at = unsafe { at.add(size_of::<i32>()) };
    usize::try_from(n)
        .map_err(|_| Error::bad_data(format!("a length of {n} in the metadata of an Arrow schema")))
}

/// Reads a schema.
///
/// # Errors
/// Bad data if the bytes are invalid.
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
            "a field at level {depth} with {n_children} children and {n_pairs} metadata pairs, expected at most \
             {MAX_DEPTH} levels, {MAX_FIELDS} fields and {MAX_PAIRS} pairs"
        )));
    }
    let format = without_nul(from.text(format_bytes, "a format")?)?;
    let name = without_nul(from.text(name_bytes, "a name")?)?;
    let metadata = read_pairs(from, n_pairs)?;
    // Without `with_capacity`, because the declared number may be wrong.
    let mut children = Vec::new();
    for _ in 0..n_children {
        children.push(read_field(from, n_fields, depth + 1)?);
    }
    let dictionary = match has_dictionary {
        0 => None,
        1 => Some(read_field(from, n_fields, depth + 1)?),
        other => return Err(wrong(format_args!("{other} dictionaries, expected 0 or 1"))),
    };
    Ok(Parts { format, name, metadata, children, dictionary }.into_schema(flags.into()))
}

fn without_nul(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| wrong("a string with a NUL in an Arrow schema"))
}

/// Reads metadata, and returns it in the encoding of the Arrow C data interface. Empty if there are
/// no pairs.
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

/// The parts of a schema.
struct Parts {
    format: CString,
    name: CString,
    metadata: Vec<u8>,
    children: Vec<Owned<abi::ArrowSchema>>,
    dictionary: Option<Owned<abi::ArrowSchema>>,
}

/// The private data of a schema: its strings, and its children, each in a box.
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
        // SAFETY: the schema was created above with its release function, `private_data` owns its
        // parts, and this is its only copy.
        unsafe { Owned::new(schema) }
    }
}

unsafe extern "C" fn release(schema: *mut abi::ArrowSchema) {
    // SAFETY: only `into_schema` sets this function, with boxed `Private`, whose children are
    // boxes. Children that were moved out are released structs. `release` is cleared, so that this
    // runs once.
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
