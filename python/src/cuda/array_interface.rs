//! Exports and imports the CUDA Array Interface, version 3 (`__cuda_array_interface__`).

use std::ffi::c_void;
use std::sync::Arc;

use crossdock_arrays::ExtensionNumber;
use crossdock_plugin_api::{Device, abi};
use pyo3::exceptions::{PyAttributeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::dlpack::abi::{self as dlpack_abi, Code, DataType, DeviceType, READ_ONLY};
use crate::dlpack::export::{CopyPolicy, ExportRequest, pending, stream_on, tensor};
use crate::dlpack::import::column_of;
use crate::dlpack::producer::{ImportedTensor, LEGACY_STREAM};
use crate::dlpack::tensor::{Form, Managed};
use crate::objects::column::Column;
use crate::objects::session::Shared;
use crate::runtime::errors::{OrRaise, usage};
use crate::runtime::process::ProcessLocal;

/// The version that is exported. It is the first version with the field `stream`.
const VERSION: i64 = 3;

/// Type codes and their letters in a typestr.
const TYPE_LETTERS: [(Code, char); 5] =
    [(Code::INT, 'i'), (Code::UINT, 'u'), (Code::FLOAT, 'f'), (Code::COMPLEX, 'c'), (Code::BOOL, 'b')];

/// Exports a column.
///
/// # Errors
/// AttributeError if the column cannot be exported without a copy, so that consumers try the next
/// protocol.
pub fn of_column<'py>(py: Python<'py>, column: &Column) -> PyResult<Bound<'py, PyDict>> {
    let unavailable = |why: &str| PyAttributeError::new_err(format!("__cuda_array_interface__: {why}"));
    let table = column.table()?;
    let device = crate::objects::table_rows::device_of(table);
    if device.r#type != abi::DEVICE_CUDA {
        return Err(unavailable(&format!(
            "the column is on {device}: use __dlpack__ or the buffer protocol"
        )));
    }
    // The interface has no field for an owner of the memory. The consumer keeps only the column
    // alive, and the column would not keep a copy alive.
    let request =
        ExportRequest { form: Form::Versioned, copy: CopyPolicy::Never, to: device, consumer: None };
    let exported = tensor(py, column, request).map_err(|error| unavailable(&error.value(py).to_string()))?;
    let description =
        exported.tensor().ok_or_else(|| unavailable("the plugin exported a tensor of an unknown version"))?;
    let ndim = usize::try_from(description.ndim).unwrap_or(0);
    // SAFETY: the plugin dlpack exports tensors whose shape and strides are not NULL and have
    // `ndim` elements each.
    let (shape, strides) = unsafe {
        (
            std::slice::from_raw_parts(description.shape, ndim),
            std::slice::from_raw_parts(description.strides, ndim),
        )
    };
    let width = i64::from(description.dtype.bits) / 8;
    let letter =
        TYPE_LETTERS.iter().find(|(code, _)| *code == description.dtype.code).map(|(_, letter)| letter);
    let letter = letter.ok_or_else(|| {
        let DataType { code, bits, .. } = description.dtype;
        let name =
            ExtensionNumber::from_dlpack(code.0, bits).map_or("the column's type", |number| number.name());
        unavailable(&format!("{name} has no typestr: use DLPack (__dlpack__)"))
    })?;
    let order = if width == 1 { '|' } else { '<' };
    let interface = PyDict::new(py);
    interface.set_item("shape", PyTuple::new(py, shape)?)?;
    interface.set_item("typestr", format!("{order}{letter}{width}"))?;
    interface.set_item("data", (description.data as usize, true))?;
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

/// Returns the stream on which the column's data is ready, or `None` if it is ready.
fn ready_on(column: &Column, device: Device) -> PyResult<Option<usize>> {
    let table = column.table()?;
    let Some(batch) = table.batches().first() else { return Ok(None) };
    let stream = stream_on(table.session(), device)?;
    let events = pending(column.tensor_cache()?, batch, || Ok(stream.clone()))?;
    if events.is_empty() {
        return Ok(None);
    }
    events.into_iter().try_for_each(|ready| stream.wait(ready)).or_raise()?;
    Ok(Some(stream.native() as usize))
}

/// Imports an object's interface as a column, which keeps the object alive.
pub fn column_from(py: Python<'_>, shared: Arc<Shared>, object: &Bound<'_, PyAny>) -> PyResult<Column> {
    let imported = tensor_from(&shared, object)?;
    column_of(py, shared, imported)
}

/// Imports an object's interface as a tensor, which keeps the object alive.
pub fn tensor_from(shared: &Shared, object: &Bound<'_, PyAny>) -> PyResult<ImportedTensor> {
    let interface = object.getattr_opt("__cuda_array_interface__")?.ok_or_else(|| {
        let name = object.get_type().name().map(|name| name.to_string()).unwrap_or_default();
        PyTypeError::new_err(format!("from_cuda_array_interface: {name} has no __cuda_array_interface__"))
    })?;
    let interface = interface.cast::<PyDict>().map_err(|_| {
        PyTypeError::new_err(format!("__cuda_array_interface__: expected a dict, got {interface}"))
    })?;
    let Interface { tensor, stream, device } = read_interface(shared, interface, object)?;
    match (device, stream) {
        // SAFETY: the interface requires `stream` to be a live stream of the array's device while
        // the object is alive.
        (Some(device), Some(stream)) => unsafe { ImportedTensor::after(tensor, shared, device, stream) },
        _ => Ok(ImportedTensor::ready_now(tensor)),
    }
}

/// Returns the device of an address as reported by the driver.
fn device_at(shared: &Shared, address: u64) -> PyResult<Device> {
    let memory = shared.session.memory();
    let device = memory.pointer(address).or_raise()?.0;
    if device.r#type == abi::DEVICE_CUDA {
        return Ok(device);
    }
    // Listing the devices loads the driver, which may not be loaded yet.
    memory.devices().or_raise()?;
    Ok(memory.pointer(address).or_raise()?.0)
}

/// The content of a `__cuda_array_interface__`.
struct Interface {
    tensor: Managed,
    /// The stream to wait for.
    stream: Option<usize>,
    /// `None` if the array is empty.
    device: Option<Device>,
}

fn read_interface(
    shared: &Shared,
    interface: &Bound<'_, PyDict>,
    object: &Bound<'_, PyAny>,
) -> PyResult<Interface> {
    let entry = |name: &str| Ok::<_, PyErr>(interface.get_item(name)?.filter(|value| !value.is_none()));
    let required = |name: &str| {
        entry(name)?
            .ok_or_else(|| PyValueError::new_err(format!("__cuda_array_interface__: '{name}' is missing")))
    };
    let shape: Vec<i64> = required("shape")?.extract()?;
    let (address, read_only): (u64, bool) = required("data")?.extract()?;
    let version: i64 = required("version")?.extract()?;
    if entry("mask")?.is_some() {
        return Err(usage(
            "__cuda_array_interface__: masks are not supported: pass the values and masks= to from_dlpack",
        ));
    }
    let typestr: String = required("typestr")?.extract()?;
    let dtype = dtype_of(&typestr)?;
    let width = i64::from(dtype.bits) / 8;
    let elements = shape.iter().try_fold(1i64, |n, size| n.checked_mul(*size));
    let strides = read_strides(entry("strides")?, &shape, width, &typestr)?;
    let stream = read_stream(entry("stream")?, version)?;
    let is_empty = elements == Some(0);
    let device = match is_empty || address == 0 {
        true => None,
        false => Some(device_at(shared, address)?),
    };
    // If the address is not device memory, the plugin rejects the tensor later, because the plugin
    // also queries the driver.
    let device = device.filter(|device| device.r#type == abi::DEVICE_CUDA);
    let session_device = shared.session.device();
    let cuda_device = device
        .or((session_device.r#type == abi::DEVICE_CUDA).then_some(session_device))
        .unwrap_or(Device::cuda(0));
    let tensor_device = match is_empty && session_device == Device::CPU {
        true => dlpack_abi::Device { device_type: DeviceType::CPU, device_id: 0 },
        false => dlpack_abi::Device {
            device_type: DeviceType::CUDA,
            device_id: i32::try_from(cuda_device.id).unwrap_or(0),
        },
    };
    let owner = ProcessLocal::new(OwnedObject::new(object.clone().unbind()));
    let data = if is_empty { std::ptr::null_mut() } else { address as *mut c_void };
    let flags = if read_only { READ_ONLY } else { 0 };
    let raw = dlpack_abi::new_tensor(owner, data, tensor_device, dtype, shape, strides, flags);
    // SAFETY: `raw` is a live versioned tensor that only this `Managed` owns.
    let tensor = unsafe { Managed::new(Form::Versioned, raw.cast()) };
    Ok(Interface { tensor, stream, device })
}

/// Returns the strides in elements. `width` is the size of an element in bytes.
fn read_strides(
    value: Option<Bound<'_, PyAny>>,
    shape: &[i64],
    width: i64,
    typestr: &str,
) -> PyResult<Vec<i64>> {
    match value {
        None => Ok(compact(shape)),
        Some(bytes) => {
            let bytes: Vec<i64> = bytes.extract()?;
            if bytes.len() != shape.len() || bytes.iter().any(|stride| stride % width != 0) {
                return Err(usage(format!(
                    "__cuda_array_interface__: strides {bytes:?} of shape {shape:?}: expected one per dimension, each a \
                     multiple of the {width} bytes of {typestr}"
                )));
            }
            Ok(bytes.into_iter().map(|stride| stride / width).collect())
        }
    }
}

/// Returns the handle of the stream to wait for.
fn read_stream(value: Option<Bound<'_, PyAny>>, version: i64) -> PyResult<Option<usize>> {
    match value {
        // Versions before 3 do not name the stream. The legacy default stream waits for all
        // blocking streams.
        None if version < VERSION => Ok(Some(LEGACY_STREAM)),
        None => Ok(None),
        Some(stream) => match stream.extract::<usize>() {
            Ok(0) | Err(_) => Err(PyValueError::new_err(format!(
                "__cuda_array_interface__: stream={stream}: expected None, 1, 2, or a stream handle"
            ))),
            Ok(handle) => Ok(Some(handle)),
        },
    }
}

/// A Python object whose drop acquires the interpreter's lock, on any thread.
pub struct OwnedObject(Option<Py<PyAny>>);

impl OwnedObject {
    pub fn new(object: Py<PyAny>) -> Self {
        Self(Some(object))
    }
}

impl Drop for OwnedObject {
    fn drop(&mut self) {
        if let Some(object) = self.0.take() {
            Python::attach(|_| drop(object));
        }
    }
}

/// Returns the strides of a row-major array, in elements.
fn compact(shape: &[i64]) -> Vec<i64> {
    let mut strides = vec![1i64; shape.len()];
    let mut stride = 1i64;
    for (to, size) in strides.iter_mut().zip(shape).rev() {
        *to = stride;
        stride = stride.saturating_mul((*size).max(1));
    }
    strides
}

/// Parses a typestr: byte order, type letter, size in bytes.
fn dtype_of(typestr: &str) -> PyResult<DataType> {
    let unsupported = || {
        usage(format!(
            "__cuda_array_interface__: typestr={typestr:?}: expected a number or boolean in native byte order, such as \"<f4\"; \
             for bfloat16 and float8, which have no typestr, use DLPack (from_dlpack)"
        ))
    };
    let mut letters = typestr.chars();
    let (order, kind) = (letters.next(), letters.next());
    let bytes: u8 = letters.as_str().parse().map_err(|_| unsupported())?;
    let code = TYPE_LETTERS.iter().find(|(_, letter)| Some(*letter) == kind).map(|(code, _)| *code);
    let bits = bytes.checked_mul(8).filter(|bits| *bits > 0);
    match (order, code, bits) {
        (Some('<' | '='), Some(code), Some(bits)) => Ok(DataType { code, bits, lanes: 1 }),
        (Some('|'), Some(code), Some(8)) => Ok(DataType { code, bits: 8, lanes: 1 }),
        _ => Err(unsupported()),
    }
}
