//! Exports columns as tensors: `__dlpack__`.

use std::borrow::Cow;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crossdock::{Session as HostSession, Table as HostTable};
use crossdock_arrays::{DeviceArray, DeviceBatch};
use crossdock_memory::{Buffer, Ready, Stream};
use crossdock_plugin_api::{Capsule, Device, Options};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::dlpack::formats::Formats;
use crate::dlpack::producer::LEGACY_STREAM;
use crate::dlpack::tensor::{Form, Managed, new_capsule, number_of};
use crate::objects::column::Column;
use crate::runtime::errors::{Kind, OrRaise, from_host, raise};
use crate::runtime::warnings;
use crate::runtime::work::reading;

/// The first DLPack version with versioned tensors.
const FIRST_VERSIONED: (i64, i64) = (1, 0);
const PER_THREAD_STREAM: usize = 2;

/// Whether an export may, must or must not copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyPolicy {
    Needed,
    Always,
    Never,
}

impl CopyPolicy {
    /// Converts the argument `copy`.
    pub fn new(copy: Option<bool>) -> Self {
        match copy {
            None => CopyPolicy::Needed,
            Some(true) => CopyPolicy::Always,
            Some(false) => CopyPolicy::Never,
        }
    }
}

/// A request for a tensor.
#[derive(Clone, Copy)]
pub struct ExportRequest {
    pub form: Form,
    pub copy: CopyPolicy,
    /// The column's device, or the CPU.
    pub to: Device,
    /// Handle of the consumer's stream, which waits for the data. `None`: no stream waits.
    pub consumer: Option<usize>,
}

/// The results of earlier exports of a column as a tensor.
#[derive(Default)]
pub struct TensorCache {
    /// The zero-copy tensor.
    tensor: OnceLock<Arc<Managed>>,
    /// Whether the data is known to be ready, so that no stream has to wait for it.
    ready: AtomicBool,
    /// An event that the host recorded after the external events of the data. Unlike an external
    /// event, this event can be queried.
    after_foreign: OnceLock<Ready>,
}

/// Implements `__dlpack__` of the array API standard 2024.12.
pub fn dlpack<'py>(
    py: Python<'py>,
    column: &Column,
    stream: Option<&Bound<'py, PyAny>>,
    max_version: Option<&Bound<'py, PyAny>>,
    dl_device: Option<&Bound<'py, PyAny>>,
    copy: Option<bool>,
) -> PyResult<Bound<'py, PyAny>> {
    let device = crate::objects::table_rows::device_of(column.table()?);
    let form = match max_version {
        None => Form::Legacy,
        Some(version) => {
            let version: (i64, i64) = version.extract().map_err(|_| {
                PyTypeError::new_err(format!("max_version={version}: expected a pair of integers, or None"))
            })?;
            if version < FIRST_VERSIONED { Form::Legacy } else { Form::Versioned }
        }
    };
    let to = target(device, dl_device)?;
    let consumer = consumer(device, stream)?;
    let request = ExportRequest { form, copy: CopyPolicy::new(copy), to, consumer };
    new_capsule(py, warnings::after(py, tensor(py, column, request))?)
}

/// Converts the argument `dl_device`: the column's device, or the CPU.
fn target(device: Device, dl_device: Option<&Bound<'_, PyAny>>) -> PyResult<Device> {
    let Some(argument) = dl_device else { return Ok(device) };
    let pair: (i64, i64) = argument.extract().map_err(|_| {
        PyTypeError::new_err(format!("dl_device={argument}: expected a pair of integers, or None"))
    })?;
    let number = |device| number_of(device).map(|(kind, id)| (i64::from(kind), i64::from(id)));
    if pair == number(device)? {
        return Ok(device);
    }
    if pair == number(Device::CPU)? {
        return Ok(Device::CPU);
    }
    Err(unavailable(format!(
        "dl_device={pair:?}: expected the column's device, {device}, or (1, 0) for a copy on the cpu: move the column with \
         .to(...) first"
    )))
}

/// Converts the argument `stream`: the handle of the consumer's stream, or `None` if no stream has
/// to wait.
fn consumer(device: Device, stream: Option<&Bound<'_, PyAny>>) -> PyResult<Option<usize>> {
    if device == Device::CPU {
        return match stream {
            None => Ok(None),
            Some(stream) => {
                Err(PyValueError::new_err(format!("stream={stream}: expected None for a column on the cpu")))
            }
        };
    }
    let Some(stream) = stream else { return Ok(Some(LEGACY_STREAM)) };
    let number: i128 = stream
        .extract()
        .map_err(|_| PyTypeError::new_err(format!("stream={stream}: expected an integer, or None")))?;
    match number {
        -1 => Ok(None),
        1 => Ok(Some(LEGACY_STREAM)),
        2 => Ok(Some(PER_THREAD_STREAM)),
        0 => Err(PyValueError::new_err(
            "stream=0 is ambiguous: pass 1 for the legacy default stream or 2 for the per-thread default stream",
        )),
        handle => match usize::try_from(handle) {
            Ok(handle) => Ok(Some(handle)),
            Err(_) => Err(PyValueError::new_err(format!(
                "stream={handle}: expected -1, 1, 2, or the handle of a CUDA stream"
            ))),
        },
    }
}

/// Creates an ExportError.
pub fn unavailable(message: impl Into<String>) -> PyErr {
    raise(Kind::Export, message)
}

/// Converts an error of the plugin. Returns an ExportError if the plugin rejects the data, because
/// the standard requires it for columns that cannot be exported.
fn export_error(error: crossdock::Error) -> PyErr {
    use crossdock_plugin_api::Code;
    let rejects_data = match &error {
        crossdock::Error::Plugin { source, .. } | crossdock::Error::Data { source, .. } => {
            matches!(source.code(), Code::UNSUPPORTED | Code::INVALID_ARGUMENT | Code::BAD_DATA)
        }
        _ => false,
    };
    if rejects_data { unavailable(error.one_line()) } else { from_host(error) }
}

/// Returns the rows of a column as one batch, and whether they were copied for this.
fn only_batch<'a>(
    py: Python<'_>,
    table: &'a HostTable,
    copy: CopyPolicy,
) -> PyResult<(Cow<'a, DeviceBatch>, bool)> {
    match table.batches() {
        [batch] => Ok((Cow::Borrowed(batch), false)),
        [] => table.empty_batch().map(|batch| (Cow::Owned(batch), false)).or_raise(),
        batches if copy == CopyPolicy::Never => Err(unavailable(format!(
            "the column has {} chunks, and a tensor of all of them needs a copy, which copy=False forbids: call \
             combine_chunks(), or export one chunk with chunk(i)",
            batches.len()
        ))),
        _ => {
            let combined = reading(py, || table.combine())?.or_raise()?;
            let batch = combined.batches().first().cloned();
            let batch = batch.ok_or_else(|| raise(Kind::Plugin, "a combined table has no batch"))?;
            Ok((Cow::Owned(batch), true))
        }
    }
}

/// Exports a column as a tensor.
///
/// # Errors
/// ExportError if the column is not a tensor, or cannot be exported as requested.
pub fn tensor(py: Python<'_>, column: &Column, request: ExportRequest) -> PyResult<Managed> {
    let table = column.table()?;
    let from = crate::objects::table_rows::device_of(table);
    let session = table.session();
    let request = if is_capturing(session, from, request.consumer) {
        if from != request.to || request.copy == CopyPolicy::Always || request.form == Form::Legacy {
            return Err(unavailable(
                "the consumer's stream is under graph capture, during which data cannot be copied: export the column before the \
                 capture, or without a copy (max_version=(1, 0))",
            ));
        }
        ExportRequest { copy: CopyPolicy::Never, ..request }
    } else {
        request
    };
    let (batch, is_combined) = only_batch(py, table, request.copy)?;
    if from != request.to {
        if request.copy == CopyPolicy::Never {
            let to = request.to;
            return Err(unavailable(format!(
                "the column is on {from}, and a tensor on {to} needs a copy, which copy=False forbids"
            )));
        }
        let batch = batch.into_owned();
        return reading(py, || copy_to(column, session, batch, from, request))?;
    }
    let may_share = request.form == Form::Versioned && request.copy != CopyPolicy::Always;
    let cached = match column.tensor_cache()?.tensor.get() {
        Some(cached) if may_share && !is_combined => Managed::share(cached),
        _ => None,
    };
    let tensor = match cached {
        Some(tensor) => tensor,
        None => {
            // A zero-copy export takes less time than releasing the interpreter's lock.
            let is_cheap = may_share
                && !column.shared()?.calls_python
                && batch.column(0).is_some_and(|values| is_plain(values, from));
            let mut tensor = match is_cheap {
                true => export(column, session, &batch, from, request),
                false => reading(py, || export(column, session, &batch, from, request))?,
            }?;
            if is_combined {
                tensor.set_copied();
            }
            if may_share && !tensor.is_copied() { cache(column, tensor)? } else { tensor }
        }
    };
    if let Some(consumer) = request.consumer.filter(|_| from != Device::CPU) {
        wait_for_data(session, column.tensor_cache()?, &batch, from, &tensor, consumer)?;
    }
    Ok(tensor)
}

/// Returns whether the consumer's stream is under graph capture, which a copy would invalidate.
fn is_capturing(session: &HostSession, on: Device, consumer: Option<usize>) -> bool {
    let Some(consumer) = consumer.filter(|_| on != Device::CPU) else { return false };
    // SAFETY: the standard requires `stream` to be the handle of a live stream of the column's
    // device.
    unsafe { session.host().backend().is_capturing(on, consumer as *mut std::ffi::c_void) }
}

/// Returns whether the array can be exported as a tensor without reading its values and without
/// waiting for them.
fn is_plain(array: &DeviceArray, on: Device) -> bool {
    array.null_count() == Some(0)
        && array.data_type().is_numeric()
        && (on != Device::CPU || array.buffers().iter().flatten().all(|buffer| buffer.ready().is_now()))
}

/// Caches a zero-copy tensor for later exports.
fn cache(column: &Column, tensor: Managed) -> PyResult<Managed> {
    let cached = column.tensor_cache()?.tensor.get_or_init(|| Arc::new(tensor));
    Managed::share(cached)
        .ok_or_else(|| raise(Kind::Plugin, "dlpack: the plugin exported a tensor of an unknown version"))
}

fn export(
    column: &Column,
    session: &HostSession,
    batch: &DeviceBatch,
    on: Device,
    request: ExportRequest,
) -> PyResult<Managed> {
    let tensors = &column.shared()?.tensors;
    let options = match request.copy {
        CopyPolicy::Needed if request.form == Form::Versioned && on == session.device() => {
            return single_tensor(tensors, tensors.write(session, batch));
        }
        CopyPolicy::Needed => Options::new(),
        CopyPolicy::Always => Options::new().with("copy", "always"),
        CopyPolicy::Never => Options::new().with("copy", "never"),
    };
    write(tensors, session, batch, on, request.form, &options)
}

fn write(
    tensors: &Formats,
    session: &HostSession,
    batch: &DeviceBatch,
    on: Device,
    form: Form,
    options: &Options,
) -> PyResult<Managed> {
    let writer =
        tensors.export_format(session, on, form).and_then(|format| format.write(batch.schema(), options));
    single_tensor(tensors, writer.and_then(|mut writer| writer.write_borrowed(batch)))
}

/// Returns the only tensor of the plugin's result.
fn single_tensor(tensors: &Formats, exported: crossdock::Result<Vec<Capsule>>) -> PyResult<Managed> {
    let exported = exported.map_err(|error| {
        tensors.note_error(&error);
        export_error(error)
    })?;
    let mut capsules = exported.into_iter();
    match (capsules.next(), capsules.next()) {
        (Some(capsule), None) => Managed::from_capsule(capsule).or_raise(),
        _ => Err(raise(Kind::Plugin, "dlpack: expected one tensor for one column from the plugin")),
    }
}

/// Copies the column to the CPU. The copy is complete when this function returns, and only the
/// tensor uses it.
fn copy_to(
    column: &Column,
    session: &HostSession,
    batch: DeviceBatch,
    from: Device,
    request: ExportRequest,
) -> PyResult<Managed> {
    let stream = stream_on(session, from)?;
    let moved = batch.move_to(&stream, request.to).or_raise()?;
    stream.synchronize().or_raise()?;
    // A legacy tensor has no read-only flag, and needs none here, because the copy is not shared.
    let options = match request.form {
        Form::Versioned => Options::new(),
        Form::Legacy => Options::new().with("read-only", "lent"),
    };
    let tensors = &column.shared()?.tensors;
    let mut tensor = write(tensors, session, &moved, request.to, request.form, &options)?;
    tensor.set_copied();
    Ok(tensor)
}

/// Returns the host's stream on a device. This is the session's stream if the session is on the
/// device, else the device's default stream.
pub fn stream_on(session: &HostSession, device: Device) -> PyResult<Stream> {
    let stream = session.stream();
    if stream.device() == device {
        return Ok(stream.clone());
    }
    stream.memory().default_stream(device).or_raise()
}

/// Makes the consumer's stream wait for the tensor's data.
fn wait_for_data(
    session: &HostSession,
    cache: &TensorCache,
    batch: &DeviceBatch,
    on: Device,
    tensor: &Managed,
    consumer: usize,
) -> PyResult<()> {
    // A copy is ready on the host's stream. A legacy tensor has no flag for copies, so it may be a
    // copy.
    let may_be_copy = tensor.is_copied() || !tensor.is_versioned();
    let events = if may_be_copy { Vec::new() } else { pending(cache, batch, || stream_on(session, on))? };
    if !may_be_copy && events.is_empty() {
        return Ok(());
    }
    let memory = session.stream().memory();
    // SAFETY: the standard requires `stream` to be the handle of a live stream during this call.
    let consumer = unsafe { memory.adopt_stream(on, consumer as *mut c_void) }.or_raise()?;
    if may_be_copy {
        let ready = stream_on(session, on)?.record().or_raise()?;
        return consumer.wait(&ready).or_raise();
    }
    events.into_iter().try_for_each(|ready| consumer.wait(ready)).or_raise()
}

/// Returns the events after which a column's data is ready, or no events if the data is ready
/// already. `stream` returns the host's stream on the column's device.
pub fn pending<'a>(
    cache: &TensorCache,
    batch: &'a DeviceBatch,
    stream: impl FnOnce() -> PyResult<Stream>,
) -> PyResult<Vec<&'a Ready>> {
    let mut events = Vec::new();
    if cache.ready.load(Ordering::Acquire) {
        return Ok(events);
    }
    batch.columns().iter().for_each(|array| each_buffer(array, &mut |buffer| events.push(buffer.ready())));
    events.retain(|ready| !matches!(ready.is_done(), Ok(true)));
    let is_foreign = |ready: &&Ready| matches!(ready, Ready::AfterForeign(_));
    if !events.is_empty() && events.iter().all(is_foreign) {
        match cache.after_foreign.get() {
            Some(after) if matches!(after.is_done(), Ok(true)) => events.clear(),
            Some(_) => {}
            None => {
                let stream = stream()?;
                events.iter().try_for_each(|ready| stream.wait(ready)).or_raise()?;
                // An error means that another thread has set an equivalent event.
                let _ = cache.after_foreign.set(stream.record().or_raise()?);
            }
        }
    }
    if events.is_empty() {
        cache.ready.store(true, Ordering::Release);
    }
    Ok(events)
}

/// Calls `f` with every buffer of an array and of its children.
fn each_buffer<'a>(array: &'a DeviceArray, f: &mut impl FnMut(&'a Buffer)) {
    array.buffers().iter().flatten().for_each(&mut *f);
    array.children().iter().for_each(|child| each_buffer(child, f));
}
