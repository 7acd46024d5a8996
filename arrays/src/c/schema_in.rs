//! `ArrowSchema` in.

use std::borrow::Cow;
use std::ffi::{CStr, c_char};
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Metadata, Schema};
use crossdock_plugin_api::{Error, Owned, Result, abi};

use super::metadata;
use crate::MAX_DEPTH;
use crate::layout::parse_format;
use crate::metadata::with_dictionary_values;

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

/// The same, with U+FFFD for what is not UTF-8 in the names of fields; and the paths of the fields whose names were changed.
pub fn import_field_replacing(raw: &Owned<abi::ArrowSchema>) -> Result<(Field, Vec<String>)> {
    let mut names = Names { replaced: Some(Vec::new()), ..Names::default() };
    // SAFETY: `Owned` vouches for the struct.
    let field = unsafe { field(raw, 1, &mut names) }?;
    Ok((field, names.replaced.unwrap_or_default()))
}

/// [`import_field`] of a schema that lies in another struct.
///
/// # Safety
/// `raw` is a valid `ArrowSchema`, or a released one.
pub unsafe fn import_field_ref(raw: &abi::ArrowSchema) -> Result<Field> {
    // SAFETY: passed on from the caller.
    unsafe { field(raw, 1, &mut Names::default()) }
}

/// What becomes of names that are not UTF-8.
#[derive(Default)]
struct Names {
    /// The fields that lead to the one that is read.
    path: Vec<String>,
    /// The paths of those that were changed; `None`: they are errors.
    replaced: Option<Vec<String>>,
}

impl Names {
    /// A field's name, or why it is none.
    fn take<'a>(&mut self, name: std::result::Result<&'a str, String>) -> Result<Cow<'a, str>> {
        let lossy = match name {
            Ok(name) => return Ok(name.into()),
            Err(lossy) => lossy,
        };
        let Some(replaced) = &mut self.replaced else {
            let advice = ": rename the column, or convert its name to UTF-8, before giving it; in Python names=\"replace\" of \
                          Session.from_arrow puts U+FFFD in place of those bytes";
            return Err(not_utf8("a field's name", &lossy, advice));
        };
        let path = self.path.iter().filter(|name| !name.is_empty()).chain([&lossy]);
        replaced.push(path.cloned().collect::<Vec<_>>().join("."));
        Ok(lossy.into())
    }
}

/// # Safety
/// As [`import_field_ref`].
unsafe fn field(raw: &abi::ArrowSchema, depth: usize, names: &mut Names) -> Result<Field> {
    // The outermost struct of a schema is no level of a column.
    if depth > MAX_DEPTH + 1 {
        return Err(Error::unsupported(format!("a schema nests deeper than {MAX_DEPTH} levels")));
    }
    if raw.release.is_none() {
        return Err(Error::invalid_argument("a schema is released already (its release is NULL)"));
    }
    // SAFETY: a valid schema's strings are NUL-terminated and live as long as it.
    let (format, name) = unsafe { (text(raw.format), text(raw.name)) };
    let format = format.transpose().map_err(|lossy| not_utf8("a schema's format", &lossy, ""))?;
    let name = names.take(name.unwrap_or(Ok("")))?;
    let name = name.as_ref();
    let format = format.ok_or_else(|| Error::bad_data("a schema's format is NULL"))?;
    names.path.push(name.to_string());
    // SAFETY: passed on from the caller.
    let inner = unsafe { data_type(raw, format, depth, names) };
    names.path.pop();
    let in_field = |e: Error| {
        if name.is_empty() { e } else { e.context(format!("field '{}'", crate::layout::shown(name))) }
    };
    let (data_type, values) = inner.map_err(in_field)?;
    // SAFETY: a valid schema's metadata is NULL or a blob as the specification says.
    let metadata = unsafe { metadata::read(raw.metadata) }.map_err(in_field)?;
    let metadata = with_dictionary_values(metadata, &values);
    Ok(Field::new(name, data_type, raw.flags & abi::FLAG_NULLABLE != 0)
        .with_dict_is_ordered(raw.flags & abi::FLAG_DICTIONARY_ORDERED != 0)
        .with_metadata(metadata))
}

/// The type, and the metadata of the values where it is a dictionary.
///
/// # Safety
/// As [`import_field_ref`].
unsafe fn data_type(
    raw: &abi::ArrowSchema,
    format: &str,
    depth: usize,
    names: &mut Names,
) -> Result<(DataType, Metadata)> {
    // SAFETY: passed on from the caller.
    let children = unsafe { children(raw, depth, names) }?;
    let sorted = raw.flags & abi::FLAG_MAP_KEYS_SORTED != 0;
    let data_type = parse_format(format, children, sorted)?;
    // SAFETY: a valid schema's dictionary is NULL or a valid schema.
    let Some(dictionary) = (unsafe { raw.dictionary.as_ref() }) else {
        return Ok((data_type, Metadata::new()));
    };
    if !data_type.is_integer() {
        return Err(Error::bad_data(format!(
            "a dictionary's keys are of type {data_type}, expected an integer type"
        )));
    }
    // SAFETY: as above.
    let values = unsafe { field(dictionary, depth + 1, names) }.map_err(|e| e.context("dictionary"))?;
    let dictionary = DataType::Dictionary(Box::new(data_type), Box::new(values.data_type().clone()));
    Ok((dictionary, values.metadata().clone()))
}

/// # Safety
/// As [`import_field_ref`].
unsafe fn children(raw: &abi::ArrowSchema, depth: usize, names: &mut Names) -> Result<Vec<FieldRef>> {
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
        fields.push(Arc::new(unsafe { field(child, depth + 1, names) }?));
    }
    Ok(fields)
}

fn not_utf8(what: &str, lossy: &str, advice: &str) -> Error {
    Error::bad_data(format!("{what}, '{}', is not UTF-8{advice}", crate::layout::shown(lossy)))
}

/// The string; what of it can be read where it is not UTF-8.
///
/// # Safety
/// `p` is NULL or a NUL-terminated string that lives as long as the schema.
unsafe fn text<'a>(p: *const c_char) -> Option<std::result::Result<&'a str, String>> {
    if p.is_null() {
        return None;
    }
    // SAFETY: the caller vouches for the string.
    let text = unsafe { CStr::from_ptr(p) };
    Some(text.to_str().map_err(|_| text.to_string_lossy().into_owned()))
}
