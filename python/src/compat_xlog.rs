//! What `crossdock.compat.xlog` needs: one capsule that is a whole table, and fields with more metadata.

use std::collections::{BTreeMap, HashMap};
use std::ffi::c_void;
use std::sync::Arc;

use arrow_schema::{Schema as ArrowSchema, SchemaRef};
use crossdock::Table as HostTable;
use crossdock_arrays::export_schema;
use crossdock_plugin_api::{Named, Owned, abi};
use pyo3::ffi;
use pyo3::prelude::*;

use crate::arrow_out::Exported;
use crate::capsules::{give, take};
use crate::errors::OrRaise;
use crate::process::{generation, is_over};
use crate::schema::index_of;
use crate::table::Table;

/// What the capsule points at: Arrow's struct, as for everybody, and behind it what only those look for who know the mark.
#[repr(C)]
struct WithSchema {
    array: Owned<abi::ArrowDeviceArray>,
    schema: SchemaRef,
    generation: u32,
}

/// The context of such capsules is this one's address.
static MARK: u8 = 0;

fn mark() -> *mut c_void {
    (&raw const MARK).cast_mut().cast()
}

/// A table as one capsule 'arrow_device_array', which tells its schema to [`xlog_schema`].
#[pyfunction]
pub fn xlog_capsule<'py>(py: Python<'py>, table: &Table) -> PyResult<Bound<'py, PyAny>> {
    let exported = Exported { table: table.table()?, column: None };
    let pair = exported.device_array(py, None)?;
    let array = take::<abi::ArrowDeviceArray>(&pair.get_item(1)?, "xlog_capsule")?;
    let schema = table.table()?.schema().clone();
    let raw = Box::into_raw(Box::new(WithSchema { array, schema, generation: generation() }));
    // SAFETY: what it points at begins with an `Owned` struct of the name, laid out as the struct; the name is static, and the
    // destructor frees what was boxed here.
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
/// A capsule that `xlog_capsule` made.
unsafe extern "C" fn destroy(capsule: *mut ffi::PyObject) {
    // SAFETY: by this function's own contract. Whoever moved the array out left a released one behind.
    unsafe {
        let name = abi::ArrowDeviceArray::NAME.as_ptr();
        let raw = ffi::PyCapsule_GetPointer(capsule, name).cast::<WithSchema>();
        if raw.is_null() {
            return ffi::PyErr_Clear();
        }
        if !is_over((*raw).generation) {
            drop(Box::from_raw(raw));
        }
    }
}

/// The schema's capsule that belongs to one of [`xlog_capsule`]'s; `None` for any other object.
#[pyfunction]
pub fn xlog_schema<'py>(py: Python<'py>, capsule: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    // SAFETY: any object may be asked whether it is a capsule of this name, and such a one for its context. With the mark, which
    // is this module's own, it is one that `xlog_capsule` made, and alive here.
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
    give(py, export_schema(&schema).or_raise()?).map(Some)
}

/// The same table, with more metadata on these of its fields.
#[pyfunction]
pub fn xlog_with_metadata(
    table: &Table,
    metadata: BTreeMap<String, HashMap<String, String>>,
    py: Python<'_>,
) -> PyResult<Table> {
    let host = table.table()?;
    let mut fields: Vec<_> = host.schema().fields().iter().map(|field| field.as_ref().clone()).collect();
    for (name, more) in metadata {
        let index = index_of(host.schema(), pyo3::types::PyString::new(py, &name).as_any())?;
        if let Some(field) = fields.get_mut(index) {
            let mut all = field.metadata().clone();
            all.extend(more);
            field.set_metadata(all);
        }
    }
    let schema = Arc::new(ArrowSchema::new_with_metadata(fields, host.schema().metadata().clone()));
    let batches = host.batches().iter().map(|batch| batch.clone().with_schema(schema.clone()));
    let batches = batches.collect::<crossdock_plugin_api::Result<_>>().or_raise()?;
    table.with(HostTable::from_batches(host.session(), schema, batches).or_raise()?)
}
