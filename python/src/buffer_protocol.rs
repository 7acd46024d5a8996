//! The buffer protocol and `__array__`, of columns on the cpu.

use std::ffi::{CStr, c_int, c_void};

use crossdock_plugin_api::Device;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::column::Column;
use crate::dlpack_abi::{Code, DataType};
use crate::dlpack_out::{Copying, Wanted, tensor, unavailable};
use crate::dlpack_tensor::{Form, Managed};
use crate::process::begin;

/// What an export points at, for as long as it lasts.
struct View {
    shape: Vec<ffi::Py_ssize_t>,
    /// In bytes.
    strides: Vec<ffi::Py_ssize_t>,
    _tensor: Managed,
}

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
        _ => return None,
    })
}

/// Fills in a view of the column's memory, which may be read only.
///
/// # Errors
/// BufferError where there is nothing that can be lent so.
///
/// # Safety
/// `view` is the caller's to fill in.
pub unsafe fn get(slf: &Bound<'_, Column>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
    // SAFETY: by this function's own contract; without an owner nothing is released.
    unsafe { (*view).obj = std::ptr::null_mut() };
    if flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE {
        return Err(unavailable("a column does not change: ask for a buffer to read, or copy it"));
    }
    let column = slf.get();
    let device = crate::table::device_of(column.table()?);
    if device != Device::CPU {
        return Err(unavailable(format!(
            "the column lies on {device}, where the host cannot look: use .to(\"cpu\") first"
        )));
    }
    let wanted = Wanted { form: Form::Versioned, copying: Copying::Never, to: device, consumer: None };
    let lent = tensor(slf.py(), column, wanted)?;
    let other = || unavailable("the plugin gave a tensor that has no such format");
    let described = lent.tensor().ok_or_else(other)?;
    let (data, dtype, ndim) = (described.data, described.dtype, described.ndim);
    let n = usize::try_from(ndim).map_err(|_| other())?;
    let format = format_of(dtype).ok_or_else(other)?;
    let width = isize::from(dtype.bits / 8);
    // SAFETY: a tensor of ours has a shape and strides of `n` entries each.
    let (shape, strides) = unsafe {
        (std::slice::from_raw_parts(described.shape, n), std::slice::from_raw_parts(described.strides, n))
    };
    let shape: Vec<isize> = shape.iter().map(|size| *size as isize).collect();
    let strides: Vec<isize> = strides.iter().map(|stride| *stride as isize * width).collect();
    let elements: isize = shape.iter().product();
    let (rows_first, columns_first) =
        (is_compact(shape.iter().zip(&strides).rev(), width), is_compact(shape.iter().zip(&strides), width));
    let asks = |flag: c_int| flags & flag == flag;
    let contiguous = match () {
        () if asks(ffi::PyBUF_ANY_CONTIGUOUS) => rows_first || columns_first,
        () if asks(ffi::PyBUF_F_CONTIGUOUS) => columns_first,
        // Who does not look at strides takes it to be one row after the other.
        () if asks(ffi::PyBUF_C_CONTIGUOUS) || !asks(ffi::PyBUF_STRIDES) => rows_first,
        () => true,
    };
    if !contiguous {
        return Err(unavailable("its rows are not in the order that was asked for: take numpy's view of it"));
    }
    // A pointer that is read nowhere, where there is nothing; some readers take NULL for a failure.
    static NOTHING: [u64; 1] = [0];
    let data = if data.is_null() { NOTHING.as_ptr().cast_mut().cast::<c_void>() } else { data };
    let kept = Box::new(View { shape, strides, _tensor: lent });
    // SAFETY: the caller's to fill in. Shape, strides and memory live as long as `internal`, which the release frees; the
    // format is static.
    unsafe {
        let view = &mut *view;
        view.buf = data;
        view.len = elements * width;
        view.readonly = 1;
        view.itemsize = width;
        view.format = if asks(ffi::PyBUF_FORMAT) { format.as_ptr().cast_mut() } else { std::ptr::null_mut() };
        view.ndim = ndim;
        let none = std::ptr::null_mut();
        view.shape = if asks(ffi::PyBUF_ND) { kept.shape.as_ptr().cast_mut() } else { none };
        view.strides = if asks(ffi::PyBUF_STRIDES) { kept.strides.as_ptr().cast_mut() } else { none };
        view.suboffsets = none;
        view.internal = Box::into_raw(kept).cast();
        view.obj = slf.clone().into_any().into_ptr();
    }
    Ok(())
}

/// Ends a view.
///
/// # Safety
/// One that [`get`] filled in, once.
pub unsafe fn release(view: *mut ffi::Py_buffer) {
    // SAFETY: by this function's own contract.
    unsafe {
        let kept = std::mem::replace(&mut (*view).internal, std::ptr::null_mut());
        if !kept.is_null() {
            drop(Box::from_raw(kept.cast::<View>()));
        }
    }
}

/// Whether the elements lie side by side; the dimension that moves fastest comes first.
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

/// `__array__`: numpy's view of the column, or a copy.
pub fn array<'py>(
    slf: &Bound<'py, Column>,
    dtype: Option<&Bound<'py, PyAny>>,
    copy: Option<bool>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = slf.py();
    let _call = begin(py);
    let device = crate::table::device_of(slf.get().table()?);
    if device != Device::CPU {
        return Err(PyTypeError::new_err(format!(
            "the column lies on {device}, and numpy's arrays on the cpu: use .to(\"cpu\") first"
        )));
    }
    let numpy = py.import("numpy")?;
    let arguments = PyDict::new(py);
    arguments.set_item("copy", copy)?;
    let array = match numpy.call_method("from_dlpack", (slf,), Some(&arguments)) {
        // As numpy says that there is no array without a copy.
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
            "values of {} become {dtype} by a copy, and copy=False was given",
            array.getattr("dtype")?
        )));
    }
    array.call_method1("astype", (dtype,))
}
