//! `crossdock_session_write_*`: batches to outputs.

use crossdock::sink::Output;
use crossdock::{WriteOptions, Writer};
use crossdock_plugin_api::{Error, Owned, Result, Sink, abi as api};

use crate::abi::WriteSettings;
use crate::outputs::ForeignSink;
use crate::session::SessionHandle;
use crate::{arguments, door, error, writer};

/// Begins as `begin` does, and lends the writer.
///
/// # Safety
/// The arguments are the application's.
unsafe fn write(
    session: *mut SessionHandle,
    schema: *const api::ArrowSchema,
    settings: *const WriteSettings,
    out: *mut api::Writer,
    err: *mut api::Error,
    gives_capsules: bool,
    begin: impl FnOnce(&SessionHandle, &arrow_schema::SchemaRef, WriteOptions) -> Result<Writer>,
) -> api::Code {
    let body = |handle: &SessionHandle| {
        // SAFETY: the caller's out parameter, settings and schema.
        let (options, schema) = unsafe {
            arguments::place(out)?;
            (options(settings)?, arguments::schema(schema)?)
        };
        let began = begin(handle, &schema, options)?;
        let session = (handle.session.clone(), handle.validate_structs);
        let writer = writer::export(began, gives_capsules, schema, session, handle.door.another());
        // SAFETY: the caller's out parameter.
        unsafe { writer.put(out, "writing") }
    };
    // SAFETY: the caller's handle and error struct.
    unsafe { door::with(session, err, body) }
}

/// # Safety
/// The settings are the application's.
pub unsafe fn options(settings: *const WriteSettings) -> Result<WriteOptions> {
    // SAFETY: the caller's word.
    unsafe {
        let settings = arguments::settings(settings, "the settings for writing")?;
        Ok(WriteOptions {
            to: arguments::wish(settings.format, "format")?,
            options: arguments::options(settings.options, settings.n_options)?,
        })
    }
}

/// See the header.
///
/// # Safety
/// As the header says.
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
        // SAFETY: the caller's text.
        let path = unsafe { arguments::path(path, "the path to write") }?;
        let output = Output::create(path, handle.session.cancel_flag()).map_err(error::of_host)?;
        handle.session.write(output, schema, &options).map_err(error::of_host)
    };
    // SAFETY: the caller's arguments.
    unsafe { write(session, schema, settings, out, err, false, begin) }
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crossdock_session_write_sink(
    session: *mut SessionHandle,
    sink: *mut api::Sink,
    schema: *const api::ArrowSchema,
    settings: *const WriteSettings,
    out: *mut api::Writer,
    err: *mut api::Error,
) -> api::Code {
    // Before anything can fail, for the caller does not release it any more.
    // SAFETY: the caller hands the sink over.
    let taken = unsafe { Owned::take(sink) };
    let begin = |handle: &SessionHandle, schema: &_, options: WriteOptions| {
        if taken.is_released() {
            return Err(Error::invalid_argument("the sink is NULL or released"));
        }
        // SAFETY: the application's sink.
        let output = Output::to(ForeignSink::new(unsafe { Sink::from_raw(taken) }));
        handle.session.write(output, schema, &options).map_err(error::of_host)
    };
    // SAFETY: the caller's arguments.
    unsafe { write(session, schema, settings, out, err, false, begin) }
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crossdock_session_write_capsules(
    session: *mut SessionHandle,
    schema: *const api::ArrowSchema,
    settings: *const WriteSettings,
    out: *mut api::Writer,
    err: *mut api::Error,
) -> api::Code {
    let begin = |handle: &SessionHandle, schema: &_, options: WriteOptions| {
        let to = named(options.to)?;
        handle.session.write_capsules(&to, schema, &options.options).map_err(error::of_host)
    };
    // SAFETY: the caller's arguments.
    unsafe { write(session, schema, settings, out, err, true, begin) }
}

/// The format's name, where it cannot be guessed.
pub fn named(to: Option<String>) -> Result<String> {
    to.ok_or_else(|| {
        Error::invalid_argument("the settings for writing name no format, and one is needed here")
    })
}
