//! Reads files and URIs as Arrow's C streams.

use crossdock::{ReadOptions, Scan, ScanOptions, ScanSource};
use crossdock_plugin_api::{Owned, Release, Result, abi as api};

use crate::abi::ReadSettings;
use crate::read::request;
use crate::session::SessionHandle;
use crate::{arguments, door};

/// Describes the files as a scan, and puts the stream that `export` returns.
///
/// # Safety
/// The arguments meet the requirements of crossdock-host.h.
unsafe fn scan<T: Release>(
    session: *mut SessionHandle,
    (paths, n_paths): (*const api::Str, usize),
    settings: *const ReadSettings,
    out: *mut T,
    err: *mut api::Error,
    export: impl FnOnce(&Scan) -> crossdock::Result<Owned<T>>,
) -> api::Code {
    let body = |handle: &SessionHandle| {
        arguments::check_not_null(out, "out")?;
        // SAFETY: the header requires a list of `n_paths` valid texts, and settings that are NULL
        // or have `struct_size` bytes, with valid texts and lists.
        let (files, options) = unsafe {
            let paths = arguments::list(paths, n_paths, "the paths")?;
            let files = paths.iter().map(|path| arguments::path(*path, "a path")).collect::<Result<_>>()?;
            let settings: ReadSettings = arguments::settings(settings, "the settings for reading")?;
            let read = ReadOptions {
                from: arguments::optional_text(settings.format, "format")?,
                options: arguments::options(settings.options, settings.n_options, "options")?,
                progress: arguments::progress(settings.progress, settings.progress_data),
                ..request(&settings)?
            };
            let storage =
                arguments::options(settings.storage_options, settings.n_storage_options, "storage_options")?;
            (files, ScanOptions { read, storage, ..ScanOptions::default() })
        };
        let scan = handle.session.scan(ScanSource::Files(files), options)?;
        let stream = export(&scan)?;
        // SAFETY: `out` is not null, as checked above, and the header requires it to be writable.
        unsafe { stream.put(out, "scanning") }
    };
    // SAFETY: the header requires a handle that is NULL or not destroyed, and an `err` that is NULL
    // or initialised.
    unsafe { door::with(session, err, body) }
}

/// `crossdock_session_scan` of crossdock-host.h.
///
/// # Safety
/// The arguments meet the requirements of crossdock-host.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crossdock_session_scan(
    session: *mut SessionHandle,
    paths: *const api::Str,
    n_paths: usize,
    settings: *const ReadSettings,
    out: *mut api::ArrowDeviceArrayStream,
    err: *mut api::Error,
) -> api::Code {
    // SAFETY: the caller guarantees the requirements of crossdock-host.h.
    unsafe { scan(session, (paths, n_paths), settings, out, err, Scan::to_c_device_stream) }
}

/// `crossdock_session_scan_to_host` of crossdock-host.h.
///
/// # Safety
/// The arguments meet the requirements of crossdock-host.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crossdock_session_scan_to_host(
    session: *mut SessionHandle,
    paths: *const api::Str,
    n_paths: usize,
    settings: *const ReadSettings,
    out: *mut api::ArrowArrayStream,
    err: *mut api::Error,
) -> api::Code {
    // SAFETY: the caller guarantees the requirements of crossdock-host.h.
    unsafe { scan(session, (paths, n_paths), settings, out, err, Scan::to_c_stream) }
}
