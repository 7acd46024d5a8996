//! Imports `ArrowSchema`.

use std::borrow::Cow;
use std::ffi::{CStr, c_char};
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Metadata, Schema};
use crossdock_plugin_api::{Error, Owned, Result, abi};

use super::metadata;
use crate::ExtensionNumber;
use crate::MAX_DEPTH;
use crate::layout::{parse_format, plain_type};
use crate::metadata::with_dictionary_values;

/// Maximum number of children of a schema. No real table has more children, and the host can visit
/// this number of children in reasonable time.
const MAX_CHILDREN: i64 = 1 << 20;

/// Reads the schema from an `ArrowSchema` of a struct type, including metadata, nullability,
/// dictionary order and sorted map keys. Does not release the `ArrowSchema`.
///
/// # Errors
///
/// Returns an error if the schema violates the C Data interface, nests too deeply, or is not of a
/// struct type.
pub fn import_schema(raw: &Owned<abi::ArrowSchema>) -> Result<Schema> {
    // SAFETY: `Owned` holds a valid schema.
    unsafe { import_schema_ref(raw) }
}

/// Reads the schema of a batch; `None` if the batch has none.
pub fn batch_schema(batch: &Owned<abi::Batch>) -> Result<Option<Schema>> {
    if batch.schema.release.is_none() {
        return Ok(None);
    }
    // SAFETY: `Owned` holds a valid batch, so its schema is valid.
    unsafe { import_schema_ref(&batch.schema) }.map(Some)
}

/// Like [`import_schema`], for an `ArrowSchema` that is a field of another struct.
///
/// # Safety
/// `raw` is a valid `ArrowSchema`, or a released one.
pub unsafe fn import_schema_ref(raw: &abi::ArrowSchema) -> Result<Schema> {
    // SAFETY: the caller guarantees that `raw` is a valid or released schema.
    let field = unsafe { import_field_ref(raw) }.map_err(|e| e.context("schema"))?;
    match field.data_type() {
        DataType::Struct(fields) => Ok(Schema::new_with_metadata(fields.clone(), field.metadata().clone())),
        other => Err(Error::bad_data(format!(
            "schema: the outermost type is {}, expected a struct of columns",
            crate::type_name(other)
        ))),
    }
}

/// Reads the field from an `ArrowSchema` without releasing it.
pub fn import_field(raw: &Owned<abi::ArrowSchema>) -> Result<Field> {
    // SAFETY: `Owned` holds a valid schema.
    unsafe { import_field_ref(raw) }
}

/// Like [`import_field`], but replaces the bytes of a name that are not UTF-8 by U+FFFD. Also
/// returns the paths of the fields whose names it changed.
pub fn import_field_replacing(raw: &Owned<abi::ArrowSchema>) -> Result<(Field, Vec<String>)> {
    let mut names = Names { replaced: Some(Vec::new()), ..Names::default() };
    // SAFETY: `Owned` holds a valid schema.
    let field = unsafe { field(raw, 1, &mut names) }?;
    Ok((field, names.replaced.unwrap_or_default()))
}

/// Like [`import_field`], for an `ArrowSchema` that is a field of another struct.
///
/// # Safety
/// `raw` is a valid `ArrowSchema`, or a released one.
pub unsafe fn import_field_ref(raw: &abi::ArrowSchema) -> Result<Field> {
    // SAFETY: the caller guarantees that `raw` is a valid or released schema.
    unsafe { field(raw, 1, &mut Names::default()) }
}

/// How the import handles field names that are not UTF-8.
#[derive(Default)]
struct Names {
    /// The names of the current field's parents, outermost first. Empty if `replaced` is `None`.
    path: Vec<String>,
    /// The paths of the fields whose names were changed. If `None`, a name that is not UTF-8 is an
    /// error.
    replaced: Option<Vec<String>>,
}

impl Names {
    /// Returns a field's name. If replacements are allowed, invalid bytes in the name are replaced.
    fn accept<'a>(&mut self, name: std::result::Result<&'a str, String>) -> Result<Cow<'a, str>> {
        let lossy = match name {
            Ok(name) => return Ok(name.into()),
            Err(lossy) => lossy,
        };
        let Some(replaced) = &mut self.replaced else {
            let advice = ": rename the column, or convert its name to UTF-8; in Python, pass names=\"replace\" to \
                          Session.from_arrow to replace those bytes by U+FFFD";
            return Err(not_utf8("a field's name", &lossy, advice));
        };
        let path = self.path.iter().filter(|name| !name.is_empty()).chain([&lossy]);
        replaced.push(path.cloned().collect::<Vec<_>>().join("."));
        Ok(lossy.into())
    }
}

/// # Safety
/// The requirements of [`import_field_ref`].
unsafe fn field(raw: &abi::ArrowSchema, depth: usize, names: &mut Names) -> Result<Field> {
    // `MAX_DEPTH` applies to columns. The outermost struct of a schema is an additional level.
    if depth > MAX_DEPTH + 1 {
        return Err(Error::unsupported(format!("a schema nests deeper than {MAX_DEPTH} levels")));
    }
    if raw.release.is_none() {
        return Err(Error::invalid_argument("a schema is released already (its release is NULL)"));
    }
    // SAFETY: the strings of a valid schema are NUL-terminated and live as long as the schema.
    let (format, name) = unsafe { (text(raw.format), text(raw.name)) };
    let format = format.transpose().map_err(|lossy| not_utf8("a schema's format", &lossy, ""))?;
    let name = names.accept(name.unwrap_or(Ok("")))?;
    let name = name.as_ref();
    let format = format.ok_or_else(|| Error::bad_data("a schema's format is NULL"))?;
    let in_field = |e: Error| {
        if name.is_empty() { e } else { e.context(format!("field '{}'", crate::layout::shown(name))) }
    };
    let is_nullable = raw.flags & abi::FLAG_NULLABLE != 0;
    let is_plain = raw.n_children == 0 && raw.dictionary.is_null() && raw.metadata.is_null();
    // Most fields are plain. The steps below would take most of the time of importing them.
    if is_plain && let Some(data_type) = plain_type(format) {
        return Ok(Field::new(name, data_type, is_nullable));
    }
    if names.replaced.is_some() {
        names.path.push(name.to_string());
    }
    // SAFETY: the caller guarantees that `raw` is a valid or released schema, and the check of
    // `release` has rejected a released one.
    let inner = unsafe { data_type(raw, format, depth, names) };
    names.path.pop();
    let (data_type, values) = inner.map_err(in_field)?;
    // SAFETY: the metadata of a valid schema is NULL, or encoded as the specification requires.
    let metadata = unsafe { metadata::read(raw.metadata) }.map_err(in_field)?;
    let metadata = with_dictionary_values(metadata, &values);
    let field = Field::new(name, data_type, is_nullable)
        .with_dict_is_ordered(raw.flags & abi::FLAG_DICTIONARY_ORDERED != 0)
        .with_metadata(metadata);
    // Numbers of a wrong type would be read as other values, so they are rejected here.
    ExtensionNumber::of(&field).map_err(|why| in_field(Error::bad_data(why)))?;
    Ok(field)
}

/// Reads the type, and for a dictionary also the metadata of its values.
///
/// # Safety
/// The requirements of [`import_field_ref`].
unsafe fn data_type(
    raw: &abi::ArrowSchema,
    format: &str,
    depth: usize,
    names: &mut Names,
) -> Result<(DataType, Metadata)> {
    // SAFETY: the caller guarantees that `raw` is a valid schema.
    let children = unsafe { children(raw, depth, names) }?;
    let sorted = raw.flags & abi::FLAG_MAP_KEYS_SORTED != 0;
    let data_type = parse_format(format, children, sorted)?;
    // SAFETY: the dictionary of a valid schema is NULL or a valid schema.
    let Some(dictionary) = (unsafe { raw.dictionary.as_ref() }) else {
        return Ok((data_type, Metadata::new()));
    };
    if !data_type.is_integer() {
        return Err(Error::bad_data(format!(
            "a dictionary's keys are of type {data_type}, expected an integer type",
            data_type = crate::type_name(&data_type)
        )));
    }
    // SAFETY: the dictionary of a valid schema is a valid schema.
    let values = unsafe { field(dictionary, depth + 1, names) }.map_err(|e| e.context("dictionary"))?;
    let dictionary = DataType::Dictionary(Box::new(data_type), Box::new(values.data_type().clone()));
    Ok((dictionary, values.metadata().clone()))
}

/// # Safety
/// The requirements of [`import_field_ref`].
unsafe fn children(raw: &abi::ArrowSchema, depth: usize, names: &mut Names) -> Result<Vec<FieldRef>> {
    let n = raw.n_children;
    if !(0..=MAX_CHILDREN).contains(&n) {
        return Err(Error::bad_data(format!("a schema has {n} children, expected 0 to {MAX_CHILDREN}")));
    }
    if n > 0 && raw.children.is_null() {
        return Err(Error::bad_data(format!("a schema has {n} children, but its list of them is NULL")));
    }
    let mut fields = Vec::new();
    for i in 0..n as usize {
        // SAFETY: the list of a valid schema has `n_children` pointers to valid schemas. `as_ref`
        // turns a NULL pointer into an error.
        let child = unsafe { (*raw.children.add(i)).as_ref() }
            .ok_or_else(|| Error::bad_data(format!("a schema's child {i} of {n} is NULL")))?;
        // SAFETY: the child of a valid schema is a valid schema.
        fields.push(Arc::new(unsafe { field(child, depth + 1, names) }?));
    }
    Ok(fields)
}

fn not_utf8(what: &str, lossy: &str, advice: &str) -> Error {
    Error::bad_data(format!("{what}, '{}', is not UTF-8{advice}", crate::layout::shown(lossy)))
}

/// Reads a string. If it is not UTF-8, returns it as `Err` with the invalid bytes replaced.
///
/// # Safety
/// `p` is NULL or a NUL-terminated string that lives as long as the schema.
unsafe fn text<'a>(p: *const c_char) -> Option<std::result::Result<&'a str, String>> {
    if p.is_null() {
        return None;
    }
    // SAFETY: `p` is not NULL, so the caller guarantees that it is a NUL-terminated string that
    // lives for `'a`.
    let text = unsafe { CStr::from_ptr(p) };
    Some(text.to_str().map_err(|_| text.to_string_lossy().into_owned()))
}
