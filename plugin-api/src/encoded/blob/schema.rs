//! Arrow's types as bytes: the fields of its C structs in pre-order, each with its strings and pairs of metadata.
//!
//! Nothing is lost or understood here, so that types that nobody has heard of go through.

use std::ffi::{CStr, CString, c_char, c_void};

use super::fields::{Fields, wrong};
use crate::abi;
use crate::door;
use crate::encoded::MOST_DEPTH;
use crate::error::{Error, Result};
use crate::owned::{Owned, Release};

/// The most fields of one type.
const MOST_FIELDS: usize = 1 << 20;
/// The most pairs of metadata of one field.
const MOST_PAIRS: usize = 1 << 16;

/// # Errors
/// A struct that is released or nests too deep, or a format or name that is not UTF-8.
///
/// # Safety
/// `schema` is valid, its strings, metadata, children and dictionary included.
pub unsafe fn write(schema: &abi::ArrowSchema) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // SAFETY: the caller's word.
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
    if schema.release.is_none() || depth > MOST_DEPTH || n_children.saturating_add(*n_fields) > MOST_FIELDS {
        return Err(Error::bad_data(format!(
            "an Arrow schema that is released, nests deeper than {MOST_DEPTH} levels or has more than {MOST_FIELDS} fields"
        )));
    }
    // SAFETY: strings of a valid schema end with a NUL; NULL is none.
    let (format, name) = unsafe { (text(schema.format)?, text(schema.name)?) };
    // SAFETY: a valid schema's metadata are NULL or as the specification says.
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
        // SAFETY: a valid schema has so many children, each a valid one.
        let child = unsafe { schema.children.as_ref().and_then(|_| (*schema.children.add(i)).as_ref()) };
        let child = child.ok_or_else(|| Error::bad_data("an Arrow schema without one of its children"))?;
        // SAFETY: passed on.
        unsafe { write_field(child, to, n_fields, depth + 1) }?;
    }
    // SAFETY: NULL, or a valid schema.
    match unsafe { schema.dictionary.as_ref() } {
        // SAFETY: passed on.
        Some(dictionary) => unsafe { write_field(dictionary, to, n_fields, depth + 1) },
        None => Ok(()),
    }
}

fn count(n: usize) -> Result<[u8; 4]> {
    let n =
        u32::try_from(n).map_err(|_| Error::unsupported(format!("{n} bytes of an Arrow schema's text")))?;
    Ok(n.to_le_bytes())
}

/// # Safety
/// `text` is NULL or ends with a NUL, and lives for `'a`.
unsafe fn text<'a>(text: *const c_char) -> Result<&'a str> {
    if text.is_null() {
        return Ok("");
    }
    // SAFETY: the caller's word.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|e| Error::bad_data(format!("an Arrow schema's text is not valid UTF-8: {e}")))
}

/// # Safety
/// `metadata` are NULL, or pairs as Arrow's C interface has them, which live for `'a`.
unsafe fn pairs<'a>(metadata: *const c_char) -> Result<Vec<(&'a [u8], &'a [u8])>> {
    if metadata.is_null() {
        return Ok(Vec::new());
    }
    let mut at = metadata.cast::<u8>();
    // SAFETY: the list begins with how many pairs there are.
    let n = unsafe { number(&mut at) }?;
    if n > MOST_PAIRS {
        return Err(Error::bad_data(format!(
            "{n} pairs of metadata in an Arrow schema, at most {MOST_PAIRS}"
        )));
    }
    let mut part = || {
        // SAFETY: a length, and so many bytes after it, by the caller's word.
        unsafe {
            let n = number(&mut at)?;
            let bytes = std::slice::from_raw_parts(at, n);
            at = at.add(n);
            Ok::<_, Error>(bytes)
        }
    };
    (0..n).map(|_| Ok((part()?, part()?))).collect()
}

/// # Safety
/// `at` points at a number, of any alignment; it is moved behind it.
unsafe fn number(at: &mut *const u8) -> Result<usize> {
    // SAFETY: the caller's word.
    let n = unsafe { at.cast::<i32>().read_unaligned() };
    // SAFETY: as above: the end of the number.
    *at = unsafe { at.add(size_of::<i32>()) };
    usize::try_from(n).map_err(|_| Error::bad_data(format!("an Arrow schema's metadata has a length of {n}")))
}

/// # Errors
/// What is wrong with the bytes.
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
    if depth > MOST_DEPTH || n_children.saturating_add(*n_fields) > MOST_FIELDS || n_pairs > MOST_PAIRS {
        return Err(wrong(format_args!(
            "a field at level {depth} with {n_children} fields and {n_pairs} pairs of metadata, at most {MOST_DEPTH} levels, \
             {MOST_FIELDS} fields and {MOST_PAIRS} pairs"
        )));
    }
    let format = without_nul(from.text(format_bytes, "a format")?)?;
    let name = without_nul(from.text(name_bytes, "a name")?)?;
    let metadata = read_pairs(from, n_pairs)?;
    // Grown as they come: how many there are is a claim.
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
    CString::new(text).map_err(|_| wrong("a NUL in an Arrow schema's text"))
}

/// Pairs as Arrow's C interface has them; nothing where there are none.
fn read_pairs(from: &mut Fields<'_>, n: usize) -> Result<Vec<u8>> {
    let mut metadata = Vec::new();
    let number =
        |n: usize| i32::try_from(n).map(i32::to_ne_bytes).map_err(|_| wrong("metadata of an Arrow schema"));
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

/// What a schema's strings are.
struct Parts {
    format: CString,
    name: CString,
    metadata: Vec<u8>,
    children: Vec<Owned<abi::ArrowSchema>>,
    dictionary: Option<Owned<abi::ArrowSchema>>,
}

/// What a schema's `private_data` points at: its parts, and its children where their addresses say.
struct Kept {
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
        let mut kept = Box::new(Kept {
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
            n_children: kept.children.len() as i64,
            children: kept.children.as_mut_ptr(),
            dictionary,
            release: Some(release),
            private_data: Box::into_raw(kept).cast::<c_void>(),
        };
        // SAFETY: made above, of parts that it keeps; nobody else has it.
        unsafe { Owned::new(schema) }
    }
}

unsafe extern "C" fn release(schema: *mut abi::ArrowSchema) {
    // SAFETY: set by `into_schema` only; released once because `release` is cleared. Children that were moved out are released
    // structs by now; each lies in a box of its own.
    unsafe {
        (*schema).release = None;
        let kept = Box::from_raw((*schema).private_data.cast::<Kept>());
        door::leave(|| {
            let below = kept.children.iter().chain(std::iter::once(&kept.dictionary));
            for child in below.filter(|child| !child.is_null()) {
                let mut child = Box::from_raw(*child);
                child.release();
            }
            drop(kept);
        });
    }
}
