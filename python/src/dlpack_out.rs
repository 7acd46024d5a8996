//! Tensors from columns: `__dlpack__`.

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

use crate::column::Column;
use crate::dlpack_formats::Formats;
use crate::dlpack_in_producer::LEGACY_STREAM;
use crate::dlpack_tensor::{Form, Managed, give, number_of};
use crate::errors::{Kind, OrRaise, of_host, raise};
use crate::warnings;
use crate::work::reading;

/// The oldest version with a version.
const FIRST: (i64, i64) = (1, 0);
const PER_THREAD_STREAM: usize = 2;

/// Whether a tensor may, must or must not be a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copying {
    Needed,
    Always,
    Never,
}

impl Copying {
    /// As `copy=` says it.
    pub fn of(copy: Option<bool>) -> Self {
        match copy {
            None => Copying::Needed,
            Some(true) => Copying::Always,
            Some(false) => Copying::Never,
        }
    }
}

/// What a tensor is to be.
#[derive(Clone, Copy)]
pub struct Wanted {
    pub form: Form,
    pub copying: Copying,
    /// The column's own device, or the CPU.
    pub to: Device,
    /// The handle of the stream that is to wait for it; `None` for none.
    pub consumer: Option<usize>,
}

/// What is known of a column's memory once somebody has asked for it.
#[derive(Default)]
pub struct Lent {
    /// It, as a tensor.
    tensor: OnceLock<Arc<Managed>>,
    /// Whether it was seen to be ready: no stream has to wait for it any more.
    ready: AtomicBool,
    /// A moment of our own after a stranger's event, which cannot be asked whether it has passed.
    after_foreign: OnceLock<Ready>,
}

/// `__dlpack__`, as the array API standard 2024.12 has it.
pub fn dlpack<'py>(
    py: Python<'py>,
    column: &Column,
    stream: Option<&Bound<'py, PyAny>>,
    max_version: Option<&Bound<'py, PyAny>>,
    dl_device: Option<&Bound<'py, PyAny>>,
    copy: Option<bool>,
) -> PyResult<Bound<'py, PyAny>> {
    let device = crate::table::device_of(column.table()?);
    let form = match max_version {
        None => Form::Legacy,
        Some(version) => {
            let version: (i64, i64) = version.extract().map_err(|_| {
                PyTypeError::new_err(format!("max_version={version}: expected a pair of numbers, or None"))
            })?;
            if version < FIRST { Form::Legacy } else { Form::Versioned }
        }
    };
    let to = target(device, dl_device)?;
    let consumer = consumer(device, stream)?;
    let wanted = Wanted { form, copying: Copying::of(copy), to, consumer };
    give(py, warnings::after(py, tensor(py, column, wanted))?)
}

/// Where it is to be: where it is, or on the CPU.
fn target(own: Device, dl_device: Option<&Bound<'_, PyAny>>) -> PyResult<Device> {
    let Some(wanted) = dl_device else { return Ok(own) };
    let pair: (i64, i64) = wanted.extract().map_err(|_| {
        PyTypeError::new_err(format!("dl_device={wanted}: expected a pair of numbers, or None"))
    })?;
    let of = |device| number_of(device).map(|(kind, id)| (i64::from(kind), i64::from(id)));
    if pair == of(own)? {
        return Ok(own);
    }
    if pair == of(Device::CPU)? {
        return Ok(Device::CPU);
    }
    Err(unavailable(format!(
        "dl_device={pair:?}: the column lies on {own}, and is given there or as a copy on the cpu, (1, 0); move it with \
         .to(...) first"
    )))
}

/// The stream that a consumer names, if anything is to wait.
fn consumer(device: Device, stream: Option<&Bound<'_, PyAny>>) -> PyResult<Option<usize>> {
    if device == Device::CPU {
        return match stream {
            None => Ok(None),
            Some(stream) => Err(PyValueError::new_err(format!(
                "stream={stream}: the column lies on the cpu, which has no streams: expected None"
            ))),
        };
    }
    let Some(stream) = stream else { return Ok(Some(LEGACY_STREAM)) };
    let number: i128 = stream
        .extract()
        .map_err(|_| PyTypeError::new_err(format!("stream={stream}: expected a number, or None")))?;
    match number {
        -1 => Ok(None),
        1 => Ok(Some(LEGACY_STREAM)),
        2 => Ok(Some(PER_THREAD_STREAM)),
        0 => Err(PyValueError::new_err(
            "stream=0 may mean either default stream: say 1 for the legacy one, 2 for the per-thread one",
        )),
        handle => match usize::try_from(handle) {
            Ok(handle) => Ok(Some(handle)),
            Err(_) => Err(PyValueError::new_err(format!(
                "stream={handle}: expected -1, 1, 2, or the handle of a CUDA stream"
            ))),
        },
    }
}

/// The exception of what cannot be given that way.
pub fn unavailable(message: impl Into<String>) -> PyErr {
    raise(Kind::Export, message)
}

/// A refusal by the plugin is one of the data's: no consumer can have it.
fn refused(error: crossdock::Error) -> PyErr {
    use crossdock_plugin_api::Code;
    let of_data = match &error {
        crossdock::Error::Plugin { source, .. } | crossdock::Error::Data { source, .. } => {
            matches!(source.code(), Code::UNSUPPORTED | Code::INVALID_ARGUMENT | Code::BAD_DATA)
        }
        _ => false,
    };
    if of_data { unavailable(error.one_line()) } else { of_host(error) }
}

/// The column's one batch.
fn only(table: &HostTable) -> PyResult<Cow<'_, DeviceBatch>> {
    match table.batches() {
        [batch] => Ok(Cow::Borrowed(batch)),
        [] => table.empty_batch().map(Cow::Owned).or_raise(),
        batches => Err(unavailable(format!(
            "it has {} chunks, and a tensor is one: use combine_chunks() first, or take one with chunk(i)",
            batches.len()
        ))),
    }
}

/// The column as a tensor.
///
/// # Errors
/// BufferError where it is none, or not so.
pub fn tensor(py: Python<'_>, column: &Column, wanted: Wanted) -> PyResult<Managed> {
    let table = column.table()?;
    let batch = only(table)?;
    let from = crate::table::device_of(table);
    let session = table.session();
    let wanted = if is_capturing(session, from, wanted.consumer) {
        if from != wanted.to || wanted.copying == Copying::Always || wanted.form == Form::Legacy {
            return Err(unavailable(
                "the consumer's stream is under graph capture, in which no copy is made: export it before the capture, or ask for no \
                 copy (max_version=(1, 0))",
            ));
        }
        Wanted { copying: Copying::Never, ..wanted }
    } else {
        wanted
    };
    if from != wanted.to {
        if wanted.copying == Copying::Never {
            let to = wanted.to;
            return Err(unavailable(format!(
                "it lies on {from}: on {to} it is a copy, and copy=False was given"
            )));
        }
        let batch = batch.into_owned();
        return reading(py, || copied_to(column, session, batch, from, wanted))?;
    }
    let may_be_lent = wanted.form == Form::Versioned && wanted.copying != Copying::Always;
    let lent = match column.lent()?.tensor.get() {
        Some(lent) if may_be_lent => Managed::again(lent),
        _ => None,
    };
    let tensor = match lent {
        Some(tensor) => tensor,
        None => {
            // What is lent as it is takes less than giving the interpreter's lock away would.
            let cheap = may_be_lent && batch.column(0).is_some_and(|values| is_plain(values, from));
            let tensor = match cheap {
                true => made(column, session, &batch, from, wanted),
                false => reading(py, || made(column, session, &batch, from, wanted))?,
            }?;
            if may_be_lent && !tensor.is_copied() { kept(column, tensor)? } else { tensor }
        }
    };
    if let Some(consumer) = wanted.consumer.filter(|_| from != Device::CPU) {
        order(session, column.lent()?, &batch, from, &tensor, consumer)?;
    }
    Ok(tensor)
}

/// Whether the stream that a consumer names is under graph capture. What would break that is not tried.
fn is_capturing(session: &HostSession, on: Device, consumer: Option<usize>) -> bool {
    let Some(consumer) = consumer.filter(|_| on != Device::CPU) else { return false };
    // SAFETY: the consumer's word: a live stream of the device on which the column lies.
    unsafe { session.host().backend().is_capturing(on, consumer as *mut std::ffi::c_void) }
}

/// Whether it is a tensor as it is, with nothing to look at and nothing to wait for.
fn is_plain(array: &DeviceArray, on: Device) -> bool {
    array.null_count() == Some(0)
        && array.data_type().is_numeric()
        && (on != Device::CPU || array.buffers().iter().flatten().all(|buffer| buffer.ready().is_now()))
}

/// Keeps the tensor, which is the column's memory as it is, for those who ask after this.
fn kept(column: &Column, tensor: Managed) -> PyResult<Managed> {
    let lent = column.lent()?.tensor.get_or_init(|| Arc::new(tensor));
    Managed::again(lent).ok_or_else(|| raise(Kind::Plugin, "the plugin gave a tensor of another version"))
}

fn made(
    column: &Column,
    session: &HostSession,
    batch: &DeviceBatch,
    on: Device,
    wanted: Wanted,
) -> PyResult<Managed> {
    let tensors = &column.shared()?.tensors;
    let options = match wanted.copying {
        Copying::Needed if wanted.form == Form::Versioned && on == session.device() => {
            return one(tensors, tensors.write(session, batch));
        }
        Copying::Needed => Options::new(),
        Copying::Always => Options::new().with("copy", "always"),
        Copying::Never => Options::new().with("copy", "never"),
    };
    written(tensors, session, batch, on, wanted.form, &options)
}

fn written(
    tensors: &Formats,
    session: &HostSession,
    batch: &DeviceBatch,
    on: Device,
    form: Form,
    options: &Options,
) -> PyResult<Managed> {
    let begun = tensors.writing(session, on, form).and_then(|format| format.write(batch.schema(), options));
    one(tensors, begun.and_then(|mut writer| writer.write_borrowed(batch)))
}

/// The one tensor that one column became.
fn one(tensors: &Formats, written: crossdock::Result<Vec<Capsule>>) -> PyResult<Managed> {
    let written = written.map_err(|error| {
        tensors.after(&error);
        refused(error)
    })?;
    let mut capsules = written.into_iter();
    match (capsules.next(), capsules.next()) {
        (Some(capsule), None) => Managed::of_capsule(capsule).or_raise(),
        _ => Err(raise(Kind::Plugin, "the plugin gave another number of tensors than one for one column")),
    }
}

/// A copy on the CPU, which is there when this returns, and nobody else's.
fn copied_to(
    column: &Column,
    session: &HostSession,
    batch: DeviceBatch,
    from: Device,
    wanted: Wanted,
) -> PyResult<Managed> {
    let stream = stream_of(session, from)?;
    let moved = batch.move_to(&stream, wanted.to).or_raise()?;
    stream.synchronize().or_raise()?;
    // A legacy tensor cannot say that it may be read only, and need not: its bytes are nobody else's.
    let options = match wanted.form {
        Form::Versioned => Options::new(),
        Form::Legacy => Options::new().with("read-only", "lent"),
    };
    let tensors = &column.shared()?.tensors;
    let mut tensor = written(tensors, session, &moved, wanted.to, wanted.form, &options)?;
    tensor.set_copied();
    Ok(tensor)
}

/// Our stream on a device.
pub fn stream_of(session: &HostSession, device: Device) -> PyResult<Stream> {
    let own = session.stream();
    if own.device() == device {
        return Ok(own.clone());
    }
    own.memory().default_stream(device).or_raise()
}

/// Makes a consumer's stream wait until the tensor's bytes are there.
fn order(
    session: &HostSession,
    lent: &Lent,
    batch: &DeviceBatch,
    on: Device,
    tensor: &Managed,
    consumer: usize,
) -> PyResult<()> {
    // What was made for it is made on our stream; of a legacy tensor nobody can tell.
    let made = tensor.is_copied() || !tensor.is_versioned();
    let moments = if made { Vec::new() } else { pending(lent, batch, || stream_of(session, on))? };
    if !made && moments.is_empty() {
        return Ok(());
    }
    let memory = session.stream().memory();
    // SAFETY: the consumer's stream is a live one for this call, by the standard.
    let consumer = unsafe { memory.adopt_stream(on, consumer as *mut c_void) }.or_raise()?;
    if made {
        let ready = stream_of(session, on)?.record().or_raise()?;
        return consumer.wait(&ready).or_raise();
    }
    moments.into_iter().try_for_each(|ready| consumer.wait(ready)).or_raise()
}

/// The moments after which a column's memory is there; none where it was seen to be. `ours` gives our stream on its device.
pub fn pending<'a>(
    lent: &Lent,
    batch: &'a DeviceBatch,
    ours: impl FnOnce() -> PyResult<Stream>,
) -> PyResult<Vec<&'a Ready>> {
    let mut moments = Vec::new();
    if lent.ready.load(Ordering::Acquire) {
        return Ok(moments);
    }
    batch.columns().iter().for_each(|array| each_buffer(array, &mut |buffer| moments.push(buffer.ready())));
    moments.retain(|ready| !matches!(ready.is_done(), Ok(true)));
    let is_foreign = |ready: &&Ready| matches!(ready, Ready::AfterForeign(_));
    if !moments.is_empty() && moments.iter().all(is_foreign) {
        match lent.after_foreign.get() {
            Some(after) if matches!(after.is_done(), Ok(true)) => moments.clear(),
            Some(_) => {}
            None => {
                let ours = ours()?;
                moments.iter().try_for_each(|ready| ours.wait(ready)).or_raise()?;
                // Whoever was faster has another such moment.
                let _ = lent.after_foreign.set(ours.record().or_raise()?);
            }
        }
    }
    if moments.is_empty() {
        lent.ready.store(true, Ordering::Release);
    }
    Ok(moments)
}

/// Every buffer of an array and of those below it.
fn each_buffer<'a>(array: &'a DeviceArray, f: &mut impl FnMut(&'a Buffer)) {
    array.buffers().iter().flatten().for_each(&mut *f);
    array.children().iter().for_each(|child| each_buffer(child, f));
}
