//! `__cuda_array_interface__`, version 3, of columns and of others' arrays.

use std::ffi::c_void;
use std::sync::Arc;

use crossdock_plugin_api::{Device, abi};
use pyo3::exceptions::{PyAttributeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::column::Column;
use crate::dlpack_abi::{self, Code, DataType, DeviceType, READ_ONLY};
use crate::dlpack_in::column_of;
use crate::dlpack_in_producer::{Asked, LEGACY_STREAM};
use crate::dlpack_out::{Copying, Wanted, pending, stream_of, tensor};
use crate::dlpack_tensor::{Form, Managed};
use crate::errors::{OrRaise, usage};
use crate::process::Own;
use crate::session::Shared;

/// The version that is spoken: streams came with it.
const VERSION: i64 = 3;

/// A dtype and its letter.
const LETTERS: [(Code, char); 5] =
    [(Code::INT, 'i'), (Code::UINT, 'u'), (Code::FLOAT, 'f'), (Code::COMPLEX, 'c'), (Code::BOOL, 'b')];

/// The column's interface.
///
/// # Errors
/// AttributeError where it has none, so that whoever asks tries the next protocol.
pub fn of_column<'py>(py: Python<'py>, column: &Column) -> PyResult<Bound<'py, PyDict>> {
    let none = |why: &str| PyAttributeError::new_err(format!("__cuda_array_interface__: {why}"));
    let table = column.table()?;
    let device = crate::table::device_of(table);
    if device.r#type != abi::DEVICE_CUDA {
        return Err(none(&format!(
            "the column lies on {device}; __dlpack__ and the buffer protocol give it there"
        )));
    }
    // It stands for memory that the column keeps: not for a copy, which nobody would.
    let wanted = Wanted { form: Form::Versioned, copying: Copying::Never, to: device, consumer: None };
    let lent = tensor(py, column, wanted).map_err(|error| none(&error.value(py).to_string()))?;
    let described = lent.tensor().ok_or_else(|| none("the plugin gave a tensor of another version"))?;
    let ndim = usize::try_from(described.ndim).unwrap_or(0);
    // SAFETY: a tensor of ours has a shape and strides of `ndim` entries each, none being NULL where there are dimensions.
    let (shape, strides) = unsafe {
        (
            std::slice::from_raw_parts(described.shape, ndim),
            std::slice::from_raw_parts(described.strides, ndim),
        )
    };
    let width = i64::from(described.dtype.bits) / 8;
    let letter = LETTERS.iter().find(|(code, _)| *code == described.dtype.code).map(|(_, letter)| letter);
    let letter = letter.ok_or_else(|| none("its dtype has no letter there"))?;
    let order = if width == 1 { '|' } else { '<' };
    let interface = PyDict::new(py);
    interface.set_item("shape", PyTuple::new(py, shape)?)?;
    interface.set_item("typestr", format!("{order}{letter}{width}"))?;
    interface.set_item("data", (described.data as usize, true))?;
    match is_compact(shape, strides) {
        true => interface.set_item("strides", py.None())?,
        false => interface.set_item("strides", PyTuple::new(py, strides.iter().map(|n| n * width))?)?,
    }
    interface.set_item("mask", py.None())?;
    interface.set_item("version", VERSION)?;
    interface.set_item("stream", ready_on(column, device)?)?;
    Ok(interface)
}

fn is_compact(shape: &[i64], strides: &[i64]) -> bool {
    let mut expected = 1i64;
    shape.iter().zip(strides).rev().all(|(size, stride)| {
        let fits = *size <= 1 || *stride == expected;
        expected = expected.saturating_mul((*size).max(1));
        fits
    })
}

/// The stream after which the column is there; none where it is there.
fn ready_on(column: &Column, device: Device) -> PyResult<Option<usize>> {
    let table = column.table()?;
    let Some(batch) = table.batches().first() else { return Ok(None) };
    let stream = stream_of(table.session(), device)?;
    let moments = pending(column.lent()?, batch, || Ok(stream.clone()))?;
    if moments.is_empty() {
        return Ok(None);
    }
    moments.into_iter().try_for_each(|ready| stream.wait(ready)).or_raise()?;
    Ok(Some(stream.native() as usize))
}

/// A column of an object's `__cuda_array_interface__`. The object is kept as long as the column.
pub fn column_from(py: Python<'_>, shared: Arc<Shared>, object: &Bound<'_, PyAny>) -> PyResult<Column> {
    let asked = tensor_from(&shared, object)?;
    column_of(py, shared, asked)
}

/// The tensor that the interface describes, which keeps the object.
pub fn tensor_from(shared: &Shared, object: &Bound<'_, PyAny>) -> PyResult<Asked> {
    let interface = object.getattr_opt("__cuda_array_interface__")?.ok_or_else(|| {
        let name = object.get_type().name().map(|name| name.to_string()).unwrap_or_default();
        PyTypeError::new_err(format!("from_cuda_array_interface: a {name} has no __cuda_array_interface__"))
    })?;
    let interface = interface.cast::<PyDict>().map_err(|_| {
        PyTypeError::new_err(format!("__cuda_array_interface__: expected a dict, got {interface}"))
    })?;
    let Foreign { tensor, stream, device } = described(shared, interface, object)?;
    match (device, stream) {
        // SAFETY: a stream that its maker says is one of the array's device, and the array is alive.
        (Some(device), Some(stream)) => unsafe { Asked::after(tensor, shared, device, stream) },
        _ => Ok(Asked::at_once(tensor)),
    }
}

/// Where an address lies, as the driver knows it.
fn device_at(shared: &Shared, address: u64) -> PyResult<Device> {
    let memory = shared.session.memory();
    let found = memory.pointer(address).or_raise()?.0;
    if found.r#type == abi::DEVICE_CUDA {
        return Ok(found);
    }
    // Nobody may have looked for a driver before: this does.
    memory.devices().or_raise()?;
    Ok(memory.pointer(address).or_raise()?.0)
}

struct Foreign {
    tensor: Managed,
    /// What to wait for.
    stream: Option<usize>,
    /// Where it lies; nowhere if it is empty.
    device: Option<Device>,
}

fn described(shared: &Shared, interface: &Bound<'_, PyDict>, object: &Bound<'_, PyAny>) -> PyResult<Foreign> {
    let entry = |name: &str| Ok::<_, PyErr>(interface.get_item(name)?.filter(|value| !value.is_none()));
    let needed = |name: &str| {
        entry(name)?.ok_or_else(|| PyValueError::new_err(format!("__cuda_array_interface__: no '{name}'")))
    };
    let shape: Vec<i64> = needed("shape")?.extract()?;
    let (address, read_only): (u64, bool) = needed("data")?.extract()?;
    let version: i64 = needed("version")?.extract()?;
    if entry("mask")?.is_some() {
        return Err(usage(
            "__cuda_array_interface__ with a mask: give the values and the mask to from_dlpack",
        ));
    }
    let typestr: String = needed("typestr")?.extract()?;
    let dtype = dtype_of(&typestr)?;
    let width = i64::from(dtype.bits) / 8;
    let elements = shape.iter().try_fold(1i64, |n, size| n.checked_mul(*size));
    let strides = match entry("strides")? {
        None => compact(&shape),
        Some(bytes) => {
            let bytes: Vec<i64> = bytes.extract()?;
            if bytes.len() != shape.len() || bytes.iter().any(|stride| stride % width != 0) {
                return Err(usage(format!(
                    "__cuda_array_interface__: strides {bytes:?} of shape {shape:?}: expected one a dimension, each a \
                     multiple of the {width} bytes of {typestr}"
                )));
            }
            bytes.into_iter().map(|stride| stride / width).collect()
        }
    };
    let stream = match entry("stream")? {
        // Before version 3 nobody said which stream it was: the legacy default one waits for all that block with it.
        None if version < VERSION => Some(LEGACY_STREAM),
        None => None,
        Some(stream) => match stream.extract::<usize>() {
            Ok(0) | Err(_) => {
                return Err(PyValueError::new_err(format!(
                    "__cuda_array_interface__: stream={stream}: expected None, 1, 2, or the handle of a stream"
                )));
            }
            Ok(handle) => Some(handle),
        },
    };
    let empty = elements == Some(0);
    let device = match empty || address == 0 {
        true => None,
        false => Some(device_at(shared, address)?),
    };
    // What the interface says of other memory is the driver's to answer, and the plugin's to refuse.
    let device = device.filter(|device| device.r#type == abi::DEVICE_CUDA);
    let own = shared.session.device();
    let place = device.or((own.r#type == abi::DEVICE_CUDA).then_some(own)).unwrap_or(Device::cuda(0));
    let place = match empty && own == Device::CPU {
        true => dlpack_abi::Device { device_type: DeviceType::CPU, device_id: 0 },
        false => dlpack_abi::Device {
            device_type: DeviceType::CUDA,
            device_id: i32::try_from(place.id).unwrap_or(0),
        },
    };
    let kept = Own::new(Kept::new(object.clone().unbind()));
    let data = if empty { std::ptr::null_mut() } else { address as *mut c_void };
    let flags = if read_only { READ_ONLY } else { 0 };
    let raw = dlpack_abi::owned(kept, data, place, dtype, shape, strides, flags);
    // SAFETY: made above; nobody else has it.
    let tensor = unsafe { Managed::new(Form::Versioned, raw.cast()) };
    Ok(Foreign { tensor, stream, device })
}

/// An object that is given up under the interpreter's lock, on whichever thread that happens.
pub struct Kept(Option<Py<PyAny>>);

impl Kept {
    pub fn new(object: Py<PyAny>) -> Self {
        Self(Some(object))
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(object) = self.0.take() {
            Python::attach(|_| drop(object));
        }
    }
}

fn compact(shape: &[i64]) -> Vec<i64> {
    let mut strides = vec![1i64; shape.len()];
    let mut stride = 1i64;
    for (to, size) in strides.iter_mut().zip(shape).rev() {
        *to = stride;
        stride = stride.saturating_mul((*size).max(1));
    }
    strides
}

/// Of a type string: byte order, kind, bytes.
fn dtype_of(typestr: &str) -> PyResult<DataType> {
    let refused = || {
        usage(format!(
            "__cuda_array_interface__: typestr={typestr:?}: expected a number or boolean of this machine's byte order, such as \
             \"<f4\""
        ))
    };
    let mut letters = typestr.chars();
    let (order, kind) = (letters.next(), letters.next());
    let bytes: u8 = letters.as_str().parse().map_err(|_| refused())?;
    let code = LETTERS.iter().find(|(_, letter)| Some(*letter) == kind).map(|(code, _)| *code);
    let bits = bytes.checked_mul(8).filter(|bits| *bits > 0);
    match (order, code, bits) {
        (Some('<' | '='), Some(code), Some(bits)) => Ok(DataType { code, bits, lanes: 1 }),
        (Some('|'), Some(code), Some(8)) => Ok(DataType { code, bits: 8, lanes: 1 }),
        _ => Err(refused()),
    }
}
