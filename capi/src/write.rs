//! Writes batches to outputs.

use crossdock::sink::Output;
use crossdock::{WriteOptions, Writer};
use crossdock_plugin_api::{Error, Owned, Result, Sink, abi as api};

use crate::abi::WriteSettings;
use crate::outputs::ForeignSink;
use crate::session::SessionHandle;
use crate::{arguments, door, writer};

/// Begins a writer with `begin`, and exports it.
///
/// # Safety
/// The arguments meet the requirements of crossdock-host.h.
unsafe fn write(
    session: *mut SessionHandle,
    schema: *const api::ArrowSchema,
    settings: *const WriteSettings,
    out: *mut api::Writer,
    err: *mut api::Error,
    returns_capsules: bool,
    begin: impl FnOnce(&SessionHandle, &arrow_schema::SchemaRef, WriteOptions) -> Result<Writer>,
) -> api::Code {
    let body = |handle: &SessionHandle| {
        // SAFETY: the header requires an `out` that is NULL or has its `struct_size`, settings that
        // are NULL or have `struct_size` bytes, and a schema that is NULL or valid.
        let (options, schema) = unsafe {
            arguments::check_out(out)?;
            (options(settings)?, arguments::schema(schema)?)
        };
        let writer = begin(handle, &schema, options)?;
        let session = (handle.session.clone(), handle.validate_structs);
        let writer = writer::export(writer, returns_capsules, schema, session, handle.door.for_new_object());
        // SAFETY: the header requires a writable `out` that begins with its `struct_size`.
        // `check_out` has checked that it is not null and large enough.
        unsafe { writer.put(out, "writing") }
    };
    // SAFETY: the header requires a handle that is NULL or not destroyed, and an `err` that is NULL
    // or initialised.
    unsafe { door::with(session, err, body) }
}

/// # Safety
/// The settings are null or have `struct_size` bytes, and their texts and lists are valid for the
/// call.
pub unsafe fn options(settings: *const WriteSettings) -> Result<WriteOptions> {
    // SAFETY: `settings` requires a null pointer or `struct_size` bytes. `optional_text` and
    // `options` require valid texts and lists. The caller guarantees all of these.
    unsafe {
        let settings = arguments::settings(settings, "the settings for writing")?;
        Ok(WriteOptions {
            to: arguments::optional_text(settings.format, "format")?,
            options: arguments::options(settings.options, settings.n_options, "options")?,
        })
    }
}

/// `crossdock_session_write_path` of crossdock-host.h.
///
/// # Safety
/// The arguments meet the requirements of crossdock-host.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crossdock_session_write_path(
    session: *mut SessionHandle,
    path: api::Str,
    schema: *const api::ArrowSchema,
    settings: *const WriteSettings,
    out: *mut api::Writer,
    err: *mut api::Error,
) -> api::Code {
    let begin = |handle: &SessionHandle, schema: &_, options: WriteOptions| {
        // SAFETY: the header requires a text that is valid for the call.
        let path = unsafe { arguments::path(path, "the path to write") }?;
        let output = Output::create(path, handle.session.cancel_flag())?;
        handle.session.write(output, schema, &options).map_err(Error::from)
    };
    // SAFETY: the caller guarantees the requirements of crossdock-host.h, and `write` has no other
    // requirements.
    unsafe { write(session, schema, settings, out, err, false, begin) }
}

/// `crossdock_session_write_sink` of crossdock-host.h.
///
/// # Safety
/// The arguments meet the requirements of crossdock-host.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crossdock_session_write_sink(
    session: *mut SessionHandle,
    sink: *mut api::Sink,
    schema: *const api::ArrowSchema,
    settings: *const WriteSettings,
    out: *mut api::Writer,
    err: *mut api::Error,
) -> api::Code {
    // Takes ownership before all checks, because ownership passes even if a check fails.
    // SAFETY: the header requires a sink that is NULL or valid, and passes its ownership.
    let sink = unsafe { Owned::take(sink) };
    let begin = |handle: &SessionHandle, schema: &_, options: WriteOptions| {
        if sink.is_released() {
            return Err(Error::invalid_argument("the sink is NULL or released"));
        }
        // SAFETY: the header requires a sink whose functions follow crossdock.h.
        let output = Output::to(ForeignSink::new(unsafe { Sink::from_raw(sink) }));
        handle.session.write(output, schema, &options).map_err(Error::from)
    };
    // SAFETY: the caller guarantees the requirements of crossdock-host.h, and `write` has no other
    // requirements.
    unsafe { write(session, schema, settings, out, err, false, begin) }
}

/// `crossdock_session_write_capsules` of crossdock-host.h.
///
/// # Safety
/// The arguments meet the requirements of crossdock-host.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crossdock_session_write_capsules(
    session: *mut SessionHandle,
    schema: *const api::ArrowSchema,
    settings: *const WriteSettings,
    out: *mut api::Writer,
    err: *mut api::Error,
) -> api::Code {
    let begin = |handle: &SessionHandle, schema: &_, options: WriteOptions| {
        let to = required_format(options.to)?;
        handle.session.write_capsules(&to, schema, &options.options).map_err(Error::from)
    };
    // SAFETY: the caller guarantees the requirements of crossdock-host.h, and `write` has no other
    // requirements.
    unsafe { write(session, schema, settings, out, err, true, begin) }
}

/// The name of the format, which must not be empty.
pub fn required_format(to: Option<String>) -> Result<String> {
    to.ok_or_else(|| {
        Error::invalid_argument("the settings for writing have no format, which this function needs")
    })
}
