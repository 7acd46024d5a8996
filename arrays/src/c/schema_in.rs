//! `ArrowSchema` in.

use std::ffi::{CStr, c_char};
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Schema};
use crossdock_plugin_api::{Error, Owned, Result, abi};

use super::metadata;
use crate::MAX_DEPTH;
use crate::layout::parse_format;

/// Children that one schema may have: far beyond any table, and few enough to walk.
const MOST_CHILDREN: i64 = 1 << 20;

/// The schema that a struct-typed `ArrowSchema` describes, which is only read: metadata, nullability, dictionary order
/// and sorted map keys are kept.
pub fn import_schema(raw: &Owned<abi::ArrowSchema>) -> Result<Schema> {
    // SAFETY: `Owned` vouches for the struct.
    unsafe { import_schema_ref(raw) }
}

/// The schema that came with a batch; `None` where it came without.
pub fn batch_schema(batch: &Owned<abi::Batch>) -> Result<Option<Schema>> {
    if batch.schema.release.is_none() {
        return Ok(None);
    }
    // SAFETY: `Owned` vouches for the batch and the schema in it.
    unsafe { import_schema_ref(&batch.schema) }.map(Some)
}

/// [`import_schema`] of a schema that lies in another struct.
///
/// # Safety
/// `raw` is a valid `ArrowSchema`, or a released one.
pub unsafe fn import_schema_ref(raw: &abi::ArrowSchema) -> Result<Schema> {
    // SAFETY: passed on from the caller.
    let field = unsafe { import_field_ref(raw) }.map_err(|e| e.context("schema"))?;
    match field.data_type() {
        DataType::Struct(fields) => Ok(Schema::new_with_metadata(fields.clone(), field.metadata().clone())),
        other => Err(Error::bad_data(format!(
            "schema: the outermost type is {other}, expected a struct of columns"
        ))),
    }
}

/// The field that an `ArrowSchema` describes, which is only read.
pub fn import_field(raw: &Owned<abi::ArrowSchema>) -> Result<Field> {
    // SAFETY: `Owned` vouches for the struct.
    unsafe { import_field_ref(raw) }
}

/// [`import_field`] of a schema that lies in another struct.
///
/// # Safety
/// `raw` is a valid `ArrowSchema`, or a released one.
pub unsafe fn import_field_ref(raw: &abi::ArrowSchema) -> Result<Field> {
    // SAFETY: passed on from the caller.
    unsafe { field(raw, 1) }
}

/// # Safety
/// As [`import_field_ref`].
unsafe fn field(raw: &abi::ArrowSchema, depth: usize) -> Result<Field> {
    // The outermost struct of a schema is no level of a column.
    if depth > MAX_DEPTH + 1 {
        return Err(Error::unsupported(format!("a schema nests deeper than {MAX_DEPTH} levels")));
    }
    if raw.release.is_none() {
        return Err(Error::invalid_argument("a schema is released already (its release is NULL)"));
    }
    // SAFETY: a valid schema's strings are NUL-terminated and live as long as it.
    let (format, name) = unsafe { (text(raw.format, "format")?, text(raw.name, "name")?) };
    let format = format.ok_or_else(|| Error::bad_data("a schema's format is NULL"))?;
    let name = name.unwrap_or_default();
    // SAFETY: passed on from the caller.
    let inner = unsafe { data_type(raw, format, depth) };
    let in_field = |e: Error| {
        if name.is_empty() { e } else { e.context(format!("field '{}'", crate::layout::shown(name))) }
    };
    let data_type = inner.map_err(in_field)?;
    // SAFETY: a valid schema's metadata is NULL or a blob as the specification says.
    let metadata = unsafe { metadata::read(raw.metadata) }.map_err(in_field)?;
    Ok(Field::new(name, data_type, raw.flags & abi::FLAG_NULLABLE != 0)
        .with_dict_is_ordered(raw.flags & abi::FLAG_DICTIONARY_ORDERED != 0)
        .with_metadata(metadata))
}

/// # Safety
/// As [`import_field_ref`].
unsafe fn data_type(raw: &abi::ArrowSchema, format: &str, depth: usize) -> Result<DataType> {
    // SAFETY: passed on from the caller.
    let children = unsafe { children(raw, depth) }?;
    let sorted = raw.flags & abi::FLAG_MAP_KEYS_SORTED != 0;
    let data_type = parse_format(format, children, sorted)?;
    // SAFETY: a valid schema's dictionary is NULL or a valid schema.
    let Some(dictionary) = (unsafe { raw.dictionary.as_ref() }) else { return Ok(data_type) };
    if !data_type.is_integer() {
        return Err(Error::bad_data(format!(
            "a dictionary's keys are of type {data_type}, expected an integer type"
        )));
    }
    // SAFETY: as above.
    let values = unsafe { field(dictionary, depth + 1) }.map_err(|e| e.context("dictionary"))?;
    Ok(DataType::Dictionary(Box::new(data_type), Box::new(values.data_type().clone())))
}

/// # Safety
/// As [`import_field_ref`].
unsafe fn children(raw: &abi::ArrowSchema, depth: usize) -> Result<Vec<FieldRef>> {
    let n = raw.n_children;
    if !(0..=MOST_CHILDREN).contains(&n) {
        return Err(Error::bad_data(format!("a schema has {n} children, expected 0 to {MOST_CHILDREN}")));
    }
    if n > 0 && raw.children.is_null() {
        return Err(Error::bad_data(format!("a schema has {n} children, but its list of them is NULL")));
    }
    let mut fields = Vec::new();
    for i in 0..n as usize {
        // SAFETY: a valid schema's list has `n_children` pointers to valid schemas; NULL ones are refused.
        let child = unsafe { (*raw.children.add(i)).as_ref() }
            .ok_or_else(|| Error::bad_data(format!("a schema's child {i} of {n} is NULL")))?;
        // SAFETY: as above.
        fields.push(Arc::new(unsafe { field(child, depth + 1) }?));
    }
    Ok(fields)
}

/// # Safety
/// `p` is NULL or a NUL-terminated string that lives as long as the schema.
unsafe fn text<'a>(p: *const c_char, what: &str) -> Result<Option<&'a str>> {
    if p.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller vouches for the string.
    let text = unsafe { CStr::from_ptr(p) };
    text.to_str().map(Some).map_err(|e| Error::bad_data(format!("a schema's {what} is not UTF-8: {e}")))
}
