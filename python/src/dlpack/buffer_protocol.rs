//! Implements the buffer protocol and `__array__` for columns on the CPU.

use std::ffi::{CStr, c_int, c_void};

use crossdock_plugin_api::Device;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::dlpack::abi::{Code, DataType};
use crate::dlpack::export::{CopyPolicy, ExportRequest, tensor, unavailable};
use crate::dlpack::ml_dtypes;
use crate::dlpack::tensor::{Form, Managed};
use crate::objects::column::Column;
use crate::runtime::process::begin;

/// The memory that a `Py_buffer` refers to.
struct View {
    shape: Vec<ffi::Py_ssize_t>,
    /// Strides in bytes.
    strides: Vec<ffi::Py_ssize_t>,
    _tensor: Managed,
}

/// Returns an element's format in the syntax of Python's module `struct`.
fn format_of(dtype: DataType) -> Option<&'static CStr> {
    Some(match (dtype.code, dtype.bits) {
        (Code::INT, 8) => c"b",
        (Code::INT, 16) => c"h",
        (Code::INT, 32) => c"i",
        (Code::INT, 64) => c"q",
        (Code::UINT, 8) => c"B",
        (Code::UINT, 16) => c"H",
        (Code::UINT, 32) => c"I",
        (Code::UINT, 64) => c"Q",
        (Code::FLOAT, 16) => c"e",
        (Code::FLOAT, 32) => c"f",
        (Code::FLOAT, 64) => c"d",
        (Code::BOOL, 8) => c"?",
        // NumPy's syntax, because the module has no complex numbers.
        (Code::COMPLEX, 64) => c"Zf",
        (Code::COMPLEX, 128) => c"Zd",
        _ => return None,
    })
}

/// Fills in a read-only view of the column's memory.
///
/// # Errors
/// ExportError if the column cannot be exported without a copy as `flags` require.
///
/// # Safety
/// `view` is valid for writes.
pub unsafe fn get(slf: &Bound<'_, Column>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
    // SAFETY: `view` is valid for writes. `obj` is NULL if this function fails, as the protocol
    // requires.
    unsafe { (*view).obj = std::ptr::null_mut() };
    if flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE {
        return Err(unavailable("a column is immutable: request a read-only buffer, or copy the column"));
    }
    let column = slf.get();
    let device = crate::objects::table_rows::device_of(column.table()?);
    if device != Device::CPU {
        return Err(unavailable(format!(
            "the column is on {device}, and the buffer protocol needs host memory: use .to(\"cpu\") first"
        )));
    }
    let request =
        ExportRequest { form: Form::Versioned, copy: CopyPolicy::Never, to: device, consumer: None };
    let exported = tensor(slf.py(), column, request)?;
    let unsupported = || {
        unavailable(
            "the column's type has no format in the buffer protocol: use numpy.asarray(column) or DLPack",
        )
    };
    let description = exported.tensor().ok_or_else(unsupported)?;
    let (data, dtype, ndim) = (description.data, description.dtype, description.ndim);
    let n = usize::try_from(ndim).map_err(|_| unsupported())?;
    let format = format_of(dtype).ok_or_else(unsupported)?;
    let width = isize::from(dtype.bits / 8);
    // SAFETY: the plugin dlpack exports tensors whose shape and strides have `ndim` elements each.
    let (shape, strides) = unsafe {
        (std::slice::from_raw_parts(description.shape, n), std::slice::from_raw_parts(description.strides, n))
    };
    let shape: Vec<isize> = shape.iter().map(|size| *size as isize).collect();
    let strides: Vec<isize> = strides.iter().map(|stride| *stride as isize * width).collect();
    let elements: isize = shape.iter().product();
    let requests = |flag: c_int| flags & flag == flag;
    if !has_requested_order(flags, &shape, &strides, width) {
        return Err(unavailable(
            "the elements are not contiguous in the requested order: use numpy.asarray(column)",
        ));
    }
    // Some consumers treat a NULL pointer as a failure, even if the buffer is empty.
    static EMPTY: [u64; 1] = [0];
    let data = if data.is_null() { EMPTY.as_ptr().cast_mut().cast::<c_void>() } else { data };
    let content = Box::new(View { shape, strides, _tensor: exported });
    // SAFETY: `view` is valid for writes. `internal` owns the shape, the strides and the tensor
    // until `release` frees them. The format is static.
    unsafe {
        let view = &mut *view;
        view.buf = data;
        view.len = elements * width;
        view.readonly = 1;
        view.itemsize = width;
        view.format =
            if requests(ffi::PyBUF_FORMAT) { format.as_ptr().cast_mut() } else { std::ptr::null_mut() };
        view.ndim = ndim;
        let none = std::ptr::null_mut();
        view.shape = if requests(ffi::PyBUF_ND) { content.shape.as_ptr().cast_mut() } else { none };
        view.strides = if requests(ffi::PyBUF_STRIDES) { content.strides.as_ptr().cast_mut() } else { none };
        view.suboffsets = none;
        view.internal = Box::into_raw(content).cast();
        view.obj = slf.clone().into_any().into_ptr();
    }
    Ok(())
}

/// Returns whether the elements are contiguous in the order that `flags` request. `strides` and
/// `width` are in bytes.
fn has_requested_order(flags: c_int, shape: &[isize], strides: &[isize], width: isize) -> bool {
    let is_row_major = is_compact(shape.iter().zip(strides).rev(), width);
    let is_column_major = is_compact(shape.iter().zip(strides), width);
    let requests = |flag: c_int| flags & flag == flag;
    match () {
        () if requests(ffi::PyBUF_ANY_CONTIGUOUS) => is_row_major || is_column_major,
        () if requests(ffi::PyBUF_F_CONTIGUOUS) => is_column_major,
        // A consumer that does not request strides expects row-major order.
        () if requests(ffi::PyBUF_C_CONTIGUOUS) || !requests(ffi::PyBUF_STRIDES) => is_row_major,
        () => true,
    }
}

/// Releases a view.
///
/// # Safety
/// [`get`] filled in `view`, and this function is called once for it.
pub unsafe fn release(view: *mut ffi::Py_buffer) {
    // SAFETY: `get` set `internal` to a boxed `View`.
    unsafe {
        let content = std::mem::replace(&mut (*view).internal, std::ptr::null_mut());
        if !content.is_null() {
            drop(Box::from_raw(content.cast::<View>()));
        }
    }
}

/// Returns whether the elements are contiguous. The fastest-varying dimension comes first.
fn is_compact<'a>(dims: impl Iterator<Item = (&'a isize, &'a isize)>, width: isize) -> bool {
    let mut expected = width;
    for (size, stride) in dims {
        if *size == 0 {
            return true;
        }
        if *size > 1 && *stride != expected {
            return false;
        }
        expected = expected.saturating_mul(*size);
    }
    true
}

/// Implements `__array__`: a NumPy view of the column, or a copy.
pub fn array<'py>(
    slf: &Bound<'py, Column>,
    dtype: Option<&Bound<'py, PyAny>>,
    copy: Option<bool>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = slf.py();
    let _call = begin(py);
    let device = crate::objects::table_rows::device_of(slf.get().table()?);
    if device != Device::CPU {
        return Err(PyTypeError::new_err(format!(
            "the column is on {device}, and NumPy needs host memory: use .to(\"cpu\") first"
        )));
    }
    let numpy = py.import("numpy")?;
    let arguments = PyDict::new(py);
    arguments.set_item("copy", copy)?;
    let array = match ml_dtypes::number_of(slf.get())? {
        Some(number) => ml_dtypes::array(py, slf.get(), number, copy),
        None => numpy.call_method("from_dlpack", (slf,), Some(&arguments)),
    };
    let array = match array {
        // NumPy specifies a ValueError if an array cannot be made without a copy.
        Err(error) if copy == Some(false) && error.is_instance_of::<pyo3::exceptions::PyBufferError>(py) => {
            return Err(PyValueError::new_err(error.value(py).to_string()));
        }
        array => array?,
    };
    let Some(dtype) = dtype.filter(|dtype| !dtype.is_none()) else { return Ok(array) };
    let dtype = numpy.getattr("dtype")?.call1((dtype,))?;
    if array.getattr("dtype")?.eq(&dtype)? {
        return Ok(array);
    }
    if copy == Some(false) {
        return Err(PyValueError::new_err(format!(
            "converting {} to {dtype} needs a copy, which copy=False forbids",
            array.getattr("dtype")?
        )));
    }
    array.call_method1("astype", (dtype,))
}
