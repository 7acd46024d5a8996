//! Reads files and URIs as Arrow's C streams.

use crossdock::{Batches, ReadOptions, Scan, ScanOptions, ScanSource, Session};
use crossdock_arrays::{NextArray, export_batch_to_external, export_data_stream, export_device_stream};
use crossdock_plugin_api::{Device, Owned, Release, Result, abi as api};

use crate::abi::ReadSettings;
use crate::read::request;
use crate::session::SessionHandle;
use crate::{arguments, door, error};

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
    export: impl FnOnce(&Session, &Scan) -> Result<Owned<T>>,
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
        let scan = handle.session.scan(ScanSource::Files(files), options).map_err(error::from_host)?;
        let stream = export(&handle.session, &scan)?;
        // SAFETY: `out` is not null, as checked above, and the header requires it to be writable.
        unsafe { stream.put(out, "scanning") }
    };
    // SAFETY: the header requires a handle that is NULL or not destroyed, and an `err` that is NULL
    // or initialised.
    unsafe { door::with(session, err, body) }
}

/// The next array of a stream. `device`: the device to move batches to; `None` for the session's.
fn next(batches: &mut Batches, session: &Session, device: Option<Device>) -> NextArray {
    let Some(batch) = batches.next() else { return Ok(None) };
    let (mut batch, stream) = (batch.map_err(error::from_host)?, session.stream());
    if let Some(device) = device {
        batch = batch.move_to(stream, device)?;
        // Arrow's stream for host memory has no event, so the data must be ready now.
        stream.synchronize()?;
    }
    let stream = if batch.device() == stream.device() {
        stream.clone()
    } else {
        stream.memory().default_stream(batch.device())?
    };
    let raw = export_batch_to_external(&batch, false, &stream)?.into_raw();
    // SAFETY: `into_raw` passed the ownership of the batch, which was exported without a schema, so
    // it owns only the array.
    Ok(Some(unsafe { Owned::new(raw.array) }))
}

fn begin(scan: &Scan) -> Result<Batches> {
    scan.batches().map_err(error::from_host)
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
    let export = |session: &Session, scan: &Scan| {
        let (mut batches, schema, session) = (begin(scan)?, scan.schema().clone(), session.clone());
        let device = session.device();
        Ok(export_device_stream(schema, device, move || next(&mut batches, &session, None)))
    };
    // SAFETY: the caller guarantees the requirements of crossdock-host.h.
    unsafe { self::scan(session, (paths, n_paths), settings, out, err, export) }
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
    let export = |session: &Session, scan: &Scan| {
        let (mut batches, schema, session) = (begin(scan)?, scan.schema().clone(), session.clone());
        Ok(export_data_stream(schema, move || next(&mut batches, &session, Some(Device::CPU))))
    };
    // SAFETY: the caller guarantees the requirements of crossdock-host.h.
    unsafe { self::scan(session, (paths, n_paths), settings, out, err, export) }
}
