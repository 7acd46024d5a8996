//! Functions of `crossdock.compat.xlog`: a capsule that holds a whole table, and metadata for
//! fields.

use std::collections::{BTreeMap, HashMap};
use std::ffi::c_void;
use std::sync::Arc;

use arrow_schema::{Schema as ArrowSchema, SchemaRef};
use crossdock_arrays::export_schema;
use crossdock_plugin_api::{CapsuleObject, Owned, abi};
use pyo3::ffi;
use pyo3::prelude::*;

use crate::arrow::capsules::{new_capsule, take};
use crate::arrow::export::Exported;
use crate::objects::schema::index_of;
use crate::objects::table::Table;
use crate::runtime::errors::OrRaise;
use crate::runtime::process::{generation, must_leak};

/// The memory that the capsule's pointer refers to: Arrow's struct, followed by the schema, which
/// [`xlog_schema`] reads.
#[repr(C)]
struct WithSchema {
    array: Owned<abi::ArrowDeviceArray>,
    schema: SchemaRef,
    generation: u32,
}

/// A static whose address is the context of each capsule that [`xlog_capsule`] creates. The address
/// identifies these capsules.
static MARK: u8 = 0;

fn mark() -> *mut c_void {
    (&raw const MARK).cast_mut().cast()
}

/// Exports a table as one capsule 'arrow_device_array', from which [`xlog_schema`] reads the
/// schema.
#[pyfunction]
pub fn xlog_capsule<'py>(py: Python<'py>, table: &Table) -> PyResult<Bound<'py, PyAny>> {
    let exported = Exported { table: table.table()?, column: None };
    let pair = exported.device_array(py, None)?;
    let array = take::<abi::ArrowDeviceArray>(&pair.get_item(1)?, "xlog_capsule")?;
    let schema = table.table()?.schema().clone();
    let raw = Box::into_raw(Box::new(WithSchema { array, schema, generation: generation() }));
    // SAFETY: `WithSchema` is `repr(C)` and begins with an `Owned<ArrowDeviceArray>`, which has the
    // layout of the struct. The name is static, and `destroy` frees the box.
    unsafe {
        let name = abi::ArrowDeviceArray::NAME.as_ptr();
        let capsule = ffi::PyCapsule_New(raw.cast(), name, Some(destroy));
        let Ok(capsule) = Bound::from_owned_ptr_or_err(py, capsule) else {
            drop(Box::from_raw(raw));
            return Err(PyErr::fetch(py));
        };
        match ffi::PyCapsule_SetContext(capsule.as_ptr(), mark()) {
            0 => Ok(capsule),
            _ => Err(PyErr::fetch(py)),
        }
    }
}

/// # Safety
/// `capsule` was created by `xlog_capsule`.
unsafe extern "C" fn destroy(capsule: *mut ffi::PyObject) {
    // SAFETY: the pointer under this name is the `WithSchema` that `xlog_capsule` boxed. If a
    // consumer moved the array out, it marked the array as released, and dropping it has no effect.
    unsafe {
        let name = abi::ArrowDeviceArray::NAME.as_ptr();
        let raw = ffi::PyCapsule_GetPointer(capsule, name).cast::<WithSchema>();
        if raw.is_null() {
            return ffi::PyErr_Clear();
        }
        if !must_leak((*raw).generation) {
            drop(Box::from_raw(raw));
        }
    }
}

/// Returns a capsule with the schema that a capsule of [`xlog_capsule`] contains, or `None` for any
/// other object.
#[pyfunction]
pub fn xlog_schema<'py>(py: Python<'py>, capsule: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    // SAFETY: `PyCapsule_IsValid` accepts any object. The other functions require a valid capsule,
    // which that check ensures. Only `xlog_capsule` sets the address of the static as context, so
    // the pointer refers to a `WithSchema`, which the capsule keeps alive.
    let schema = unsafe {
        let name = abi::ArrowDeviceArray::NAME.as_ptr();
        if ffi::PyCapsule_IsValid(capsule.as_ptr(), name) == 0
            || ffi::PyCapsule_GetContext(capsule.as_ptr()) != mark()
        {
            ffi::PyErr_Clear();
            return Ok(None);
        }
        let raw = ffi::PyCapsule_GetPointer(capsule.as_ptr(), name).cast::<WithSchema>();
        (*raw).schema.clone()
    };
    new_capsule(py, export_schema(&schema).or_raise()?).map(Some)
}

/// Returns the table with added field metadata, which has the form {column name: {key: value}}.
#[pyfunction]
pub fn xlog_with_metadata(
    table: &Table,
    metadata: BTreeMap<String, HashMap<String, String>>,
    py: Python<'_>,
) -> PyResult<Table> {
    let schema = table.host_schema()?;
    let mut fields: Vec<_> = schema.fields().iter().map(|field| field.as_ref().clone()).collect();
    for (name, more) in metadata {
        let index = index_of(schema, pyo3::types::PyString::new(py, &name).as_any())?;
        if let Some(field) = fields.get_mut(index) {
            let mut all = field.metadata().clone();
            all.extend(more);
            field.set_metadata(all);
        }
    }
    table.with_schema(&Arc::new(ArrowSchema::new_with_metadata(fields, schema.metadata().clone())))
}
