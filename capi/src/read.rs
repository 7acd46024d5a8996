//! `crossdock_session_read_*`: inputs to batch streams.

use std::ffi::c_void;
use std::sync::Arc;

use crossdock::source::Input;
use crossdock::{ReadOptions, Reader};
use crossdock_plugin_api::{Capsule, Error, Owned, Result, Source, abi as api, told};

use crate::abi::{ReadSettings, ReleaseData};
use crate::arguments::{self, Data};
use crate::inputs::{ForeignSource, LentBytes};
use crate::session::SessionHandle;
use crate::{door, error, stream};

/// Reads as `open` opens, and lends the stream.
///
/// # Safety
/// The arguments are the application's.
unsafe fn read(
    session: *mut SessionHandle,
    settings: *const ReadSettings,
    out: *mut api::BatchStream,
    err: *mut api::Error,
    open: impl FnOnce(&SessionHandle, &ReadSettings, ReadOptions) -> Result<Reader>,
) -> api::Code {
    let body = |handle: &SessionHandle| {
        // SAFETY: the caller's out parameter, settings, and what they point at.
        let (settings, options) = unsafe {
            arguments::place(out)?;
            let settings = arguments::settings(settings, "the settings for reading")?;
            let options = ReadOptions {
                from: arguments::wish(settings.format, "format")?,
                options: arguments::options(settings.options, settings.n_options)?,
                progress: arguments::progress(settings.progress, settings.progress_data),
            };
            (settings, options)
        };
        let reader = open(handle, &settings, options)?;
        let stream = stream::export(reader, handle.session.clone(), handle.door.another());
        // SAFETY: the caller's out parameter.
        unsafe { stream.put(out, "reading") }
    };
    // SAFETY: the caller's handle and error struct.
    unsafe { door::with(session, err, body) }
}

fn open_input(handle: &SessionHandle, input: Input, options: &ReadOptions) -> Result<Reader> {
    handle.session.read(input, options).map_err(error::of_host)
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crossdock_session_read_path(
    session: *mut SessionHandle,
    path: api::Str,
    settings: *const ReadSettings,
    out: *mut api::BatchStream,
    err: *mut api::Error,
) -> api::Code {
    let open = |handle: &SessionHandle, _: &ReadSettings, options: ReadOptions| {
        // SAFETY: the caller's text.
        let path = unsafe { arguments::path(path, "the path to read") }?;
        let input = Input::open(path, handle.session.cancel_flag()).map_err(error::of_host)?;
        open_input(handle, input, &options)
    };
    // SAFETY: the caller's arguments.
    unsafe { read(session, settings, out, err, open) }
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crossdock_session_read_bytes(
    session: *mut SessionHandle,
    data: *const c_void,
    bytes: usize,
    release: Option<ReleaseData>,
    release_data: *mut c_void,
    settings: *const ReadSettings,
    out: *mut api::BatchStream,
    err: *mut api::Error,
) -> api::Code {
    // Before anything can fail, for it sees to the release. A range that is none is refused below, and not looked at.
    let usable = bytes == 0 || (!data.is_null() && bytes <= isize::MAX as usize);
    // SAFETY: the caller's bytes, its function and its data.
    let lent = unsafe {
        let bytes = if usable { bytes } else { 0 };
        LentBytes::new(Data(data.cast_mut()), bytes, release, Data(release_data))
    };
    let open = |handle: &SessionHandle, _: &ReadSettings, options: ReadOptions| {
        if !usable {
            return Err(Error::invalid_argument(format!("{bytes} bytes at {data:p} are no range of memory")));
        }
        open_input(handle, Input::Bytes(Arc::new(lent)), &options)
    };
    // SAFETY: the caller's arguments.
    unsafe { read(session, settings, out, err, open) }
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crossdock_session_read_source(
    session: *mut SessionHandle,
    source: *mut api::Source,
    settings: *const ReadSettings,
    out: *mut api::BatchStream,
    err: *mut api::Error,
) -> api::Code {
    // Before anything can fail, for the caller does not release it any more.
    // SAFETY: the caller hands the source over.
    let taken = unsafe { Owned::take(source) };
    let open = |handle: &SessionHandle, _: &ReadSettings, options: ReadOptions| {
        if taken.is_released() {
            return Err(Error::invalid_argument("the source is NULL or released"));
        }
        // SAFETY: the application's source.
        let source = ForeignSource::new(unsafe { Source::from_raw(taken) });
        open_input(handle, Input::Bytes(Arc::new(source)), &options)
    };
    // SAFETY: the caller's arguments.
    unsafe { read(session, settings, out, err, open) }
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crossdock_session_read_capsules(
    session: *mut SessionHandle,
    capsules: *mut api::Capsule,
    n_capsules: usize,
    settings: *const ReadSettings,
    out: *mut api::BatchStream,
    err: *mut api::Error,
) -> api::Code {
    // Before anything can fail, for the caller does not release them any more.
    // SAFETY: the caller hands the capsules over.
    let taken = unsafe { take(capsules, n_capsules) };
    let open = |handle: &SessionHandle, settings: &ReadSettings, options: ReadOptions| {
        let capsules = taken?;
        let format = options.from.ok_or_else(|| {
            Error::invalid_argument("the settings for reading name no format, which capsules need")
        })?;
        let schema = match settings.schema.is_null() {
            true => None,
            // SAFETY: the caller's schema.
            false => Some(unsafe { arguments::schema(settings.schema) }?),
        };
        let schema = schema.as_deref();
        handle.session.read_capsules(&format, capsules, schema, &options.options).map_err(error::of_host)
    };
    // SAFETY: the caller's arguments.
    unsafe { read(session, settings, out, err, open) }
}

/// # Safety
/// `capsules` points at `n` capsules, that of the first one's `struct_size` apart, or `n` is 0.
unsafe fn take(capsules: *mut api::Capsule, n: usize) -> Result<Vec<Capsule>> {
    const MOST: usize = 1 << 20;
    if n == 0 {
        return Err(Error::invalid_argument("no capsules were given"));
    }
    // SAFETY: a list that is not empty has a first one, whose size is that of all.
    let stride = if capsules.is_null() { 0 } else { unsafe { capsules.cast::<usize>().read() } };
    if !told::is_stride::<api::Capsule>(stride) || n > MOST {
        return Err(Error::invalid_argument(format!(
            "a list of {n} capsules of {stride} bytes each is not plausible"
        )));
    }
    let mut taken = Vec::with_capacity(n);
    for i in 0..n {
        // SAFETY: the caller vouches for that many, each ours to take.
        taken.push(unsafe { Owned::take(capsules.byte_add(i * stride)) });
    }
    if let Some(i) = taken.iter().position(Owned::is_released) {
        return Err(Error::invalid_argument(format!("capsule {i} has been released")));
    }
    // SAFETY: the application's capsules.
    Ok(taken.into_iter().map(|capsule| unsafe { Capsule::from_raw(capsule) }).collect())
}
