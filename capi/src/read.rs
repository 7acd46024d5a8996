//! Reads inputs to batch streams.

use std::ffi::c_void;
use std::sync::Arc;

use crossdock::source::Input;
use crossdock::{ColumnName, Predicate, ReadOptions, Reader};
use crossdock_arrays::count_rows;
use crossdock_plugin_api::{Capsule, Error, Owned, Result, Selection, Source, abi as api, sized_struct};

use crate::abi::{READ_DEVICE_ROWS, READ_LIMIT, ReadSettings, ReleaseData};
use crate::arguments::{self, Data};
use crate::inputs::{ForeignBytes, ForeignSource};
use crate::session::SessionHandle;
use crate::{door, stream};

/// Opens a reader with `open`, and exports it as a stream.
///
/// # Safety
/// The arguments meet the requirements of crossdock-host.h.
unsafe fn read(
    session: *mut SessionHandle,
    settings: *const ReadSettings,
    out: *mut api::BatchStream,
    err: *mut api::Error,
    open: impl FnOnce(&SessionHandle, &ReadSettings, ReadOptions) -> Result<Reader>,
) -> api::Code {
    let body = |handle: &SessionHandle| {
        // SAFETY: the header requires an `out` that is NULL or has its `struct_size`, and settings
        // that are NULL or have `struct_size` bytes, with valid texts and lists.
        let (settings, options) = unsafe {
            arguments::check_out(out)?;
            let settings = arguments::settings(settings, "the settings for reading")?;
            let options = ReadOptions {
                from: arguments::optional_text(settings.format, "format")?,
                options: arguments::options(settings.options, settings.n_options, "options")?,
                progress: arguments::progress(settings.progress, settings.progress_data),
                ..request(&settings)?
            };
            (settings, options)
        };
        let reader = open(handle, &settings, options)?;
        let device_rows = settings.flags & READ_DEVICE_ROWS != 0;
        let (session, door) = (handle.session.clone(), handle.door.for_new_object());
        let stream = stream::export(reader, session, device_rows, door);
        // SAFETY: the header requires a writable `out` that begins with its `struct_size`.
        // `check_out` has checked that it is not null and large enough.
        unsafe { stream.put(out, "reading") }
    };
    // SAFETY: the header requires a handle that is NULL or not destroyed, and an `err` that is NULL
    // or initialised.
    unsafe { door::with(session, err, body) }
}

/// The requested columns and rows.
///
/// # Safety
/// The lists of the settings have as many valid elements as the settings declare.
pub unsafe fn request(settings: &ReadSettings) -> Result<ReadOptions> {
    let unknown = settings.flags & !(api::READ_COLUMNS | api::READ_ROWS | READ_LIMIT | READ_DEVICE_ROWS);
    if unknown != 0 {
        return Err(Error::invalid_argument(format!(
            "the settings for reading: the flags {unknown:#x} are unknown"
        )));
    }
    let raw = api::ReadRequest {
        flags: settings.flags & !(READ_LIMIT | READ_DEVICE_ROWS),
        columns: settings.columns,
        n_columns: settings.n_columns,
        rows: settings.rows,
        n_rows: settings.n_rows,
        ..api::ReadRequest::new()
    };
    // SAFETY: the caller guarantees valid lists.
    let Selection { columns, rows, .. } = unsafe { Selection::from_raw(&raw) }?;
    // SAFETY: the caller guarantees valid lists.
    let filters = unsafe { arguments::names(settings.filters, settings.n_filters, "filters") }?;
    let filter = filters.iter().map(|text| Predicate::parse(text).map_err(Error::from));
    Ok(ReadOptions {
        filter: filter.collect::<Result<_>>()?,
        columns: columns.map(|paths| paths.into_iter().map(ColumnName::Path).collect()),
        rows,
        limit: (settings.flags & READ_LIMIT != 0).then_some(settings.limit),
        batch_rows: settings.batch_rows,
        ..ReadOptions::default()
    })
}

/// # Errors
/// There are storage options, which apply only to URIs.
fn reject_storage_options(settings: &ReadSettings, input: &str) -> Result<()> {
    match settings.n_storage_options {
        0 => Ok(()),
        n => Err(Error::invalid_argument(format!(
            "storage options apply only to URIs: expected none for {input}, got {n}"
        ))),
    }
}

fn read_input(handle: &SessionHandle, input: Input, options: &ReadOptions) -> Result<Reader> {
    handle.session.read(input, options).map_err(Error::from)
}

/// `crossdock_session_read_path` of crossdock-host.h.
///
/// # Safety
/// The arguments meet the requirements of crossdock-host.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crossdock_session_read_path(
    session: *mut SessionHandle,
    path: api::Str,
    settings: *const ReadSettings,
    out: *mut api::BatchStream,
    err: *mut api::Error,
) -> api::Code {
    let open = |handle: &SessionHandle, settings: &ReadSettings, options: ReadOptions| {
        // SAFETY: the header requires texts and lists that are valid for the call.
        let (path, storage) = unsafe {
            let path = arguments::path(path, "the path to read")?;
            (
                path,
                arguments::options(settings.storage_options, settings.n_storage_options, "storage_options")?,
            )
        };
        let input = handle.session.open_input(path, &storage)?;
        read_input(handle, input, &options)
    };
    // SAFETY: the caller guarantees the requirements of crossdock-host.h, and `read` has no other
    // requirements.
    unsafe { read(session, settings, out, err, open) }
}

/// `crossdock_session_read_bytes` of crossdock-host.h.
///
/// # Safety
/// The arguments meet the requirements of crossdock-host.h.
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
    // The owner of the bytes is created before all checks, because `release` must be called even if
    // a check fails. The closure below rejects an invalid range, so the range is never read.
    let is_valid = bytes == 0 || (!data.is_null() && bytes <= isize::MAX as usize);
    // SAFETY: the header requires bytes that stay valid and unchanged until `release` is called.
    let foreign_bytes = unsafe {
        let bytes = if is_valid { bytes } else { 0 };
        ForeignBytes::new(Data(data.cast_mut()), bytes, release, Data(release_data))
    };
    let open = |handle: &SessionHandle, settings: &ReadSettings, options: ReadOptions| {
        reject_storage_options(settings, "bytes")?;
        if !is_valid {
            return Err(Error::invalid_argument(format!(
                "{bytes} bytes at {data:p} are not a valid range of memory"
            )));
        }
        read_input(handle, Input::Bytes(Arc::new(foreign_bytes)), &options)
    };
    // SAFETY: the caller guarantees the requirements of crossdock-host.h, and `read` has no other
    // requirements.
    unsafe { read(session, settings, out, err, open) }
}

/// `crossdock_session_read_source` of crossdock-host.h.
///
/// # Safety
/// The arguments meet the requirements of crossdock-host.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crossdock_session_read_source(
    session: *mut SessionHandle,
    source: *mut api::Source,
    settings: *const ReadSettings,
    out: *mut api::BatchStream,
    err: *mut api::Error,
) -> api::Code {
    // Takes ownership before all checks, because ownership passes even if a check fails.
    // SAFETY: the header requires a source that is NULL or valid, and passes its ownership.
    let source = unsafe { Owned::take(source) };
    let open = |handle: &SessionHandle, settings: &ReadSettings, options: ReadOptions| {
        reject_storage_options(settings, "a source")?;
        if source.is_released() {
            return Err(Error::invalid_argument("the source is NULL or released"));
        }
        // SAFETY: the header requires a source whose functions follow crossdock.h.
        let source = ForeignSource::new(unsafe { Source::from_raw(source) });
        read_input(handle, Input::Bytes(Arc::new(source)), &options)
    };
    // SAFETY: the caller guarantees the requirements of crossdock-host.h, and `read` has no other
    // requirements.
    unsafe { read(session, settings, out, err, open) }
}

/// `crossdock_session_read_capsules` of crossdock-host.h.
///
/// # Safety
/// The arguments meet the requirements of crossdock-host.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crossdock_session_read_capsules(
    session: *mut SessionHandle,
    capsules: *mut api::Capsule,
    n_capsules: usize,
    settings: *const ReadSettings,
    out: *mut api::BatchStream,
    err: *mut api::Error,
) -> api::Code {
    // Takes ownership before all checks, because ownership passes even if a check fails.
    // SAFETY: the header requires `n_capsules` valid capsules, and passes their ownership.
    let capsules = unsafe { take_all(capsules, n_capsules) };
    let open = |handle: &SessionHandle, settings: &ReadSettings, options: ReadOptions| {
        let capsules = capsules?;
        reject_storage_options(settings, "capsules")?;
        let format = options.from.ok_or_else(|| {
            Error::invalid_argument("the settings for reading have no format, which capsules need")
        })?;
        let schema = match settings.schema.is_null() {
            true => None,
            // SAFETY: the header requires a schema that is valid for the call.
            false => Some(unsafe { arguments::schema(settings.schema) }?),
        };
        let schema = schema.as_deref();
        handle.session.read_capsules(&format, capsules, schema, &options.options).map_err(Error::from)
    };
    // SAFETY: the caller guarantees the requirements of crossdock-host.h, and `read` has no other
    // requirements.
    unsafe { read(session, settings, out, err, open) }
}

/// `crossdock_session_count_rows` of crossdock-host.h.
///
/// # Safety
/// The arguments meet the requirements of crossdock-host.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crossdock_session_count_rows(
    session: *mut SessionHandle,
    batch: *const api::Batch,
    out: *mut u64,
    err: *mut api::Error,
) -> api::Code {
    let body = |handle: &SessionHandle| {
        arguments::check_not_null(out, "out")?;
        // SAFETY: the header requires a batch that is NULL, or valid with `struct_size` bytes. The
        // copy is not dropped, so the caller stays the owner.
        let batch = unsafe { Owned::new(sized_struct::read(batch)?) };
        let batch = std::mem::ManuallyDrop::new(batch);
        let rows = count_rows(&batch, handle.session.stream())?;
        // SAFETY: the header requires a writable `out`, which is not null.
        unsafe { out.write(rows as u64) };
        Ok(())
    };
    // SAFETY: the header requires a handle that is NULL or not destroyed, and an `err` that is NULL
    // or initialised.
    unsafe { door::with(session, err, body) }
}

/// # Safety
/// `n` is 0, or `capsules` points to `n` capsules. The distance between two capsules is the
/// `struct_size` of the first capsule.
unsafe fn take_all(capsules: *mut api::Capsule, n: usize) -> Result<Vec<Capsule>> {
    const MAX_CAPSULES: usize = 1 << 20;
    if n == 0 {
        return Err(Error::invalid_argument("n_capsules is 0"));
    }
    // SAFETY: `n` is not 0, as checked above, so there is a first capsule, which begins with its
    // `struct_size`.
    let stride = if capsules.is_null() { 0 } else { unsafe { capsules.cast::<usize>().read() } };
    if !sized_struct::is_valid_stride::<api::Capsule>(stride) || n > MAX_CAPSULES {
        return Err(Error::invalid_argument(format!(
            "a list of {n} capsules of {stride} bytes each is not plausible"
        )));
    }
    let mut owned = Vec::with_capacity(n);
    for i in 0..n {
        // SAFETY: `i < n`, and the caller passes ownership of `n` capsules with this distance.
        owned.push(unsafe { Owned::take(capsules.byte_add(i * stride)) });
    }
    if let Some(i) = owned.iter().position(Owned::is_released) {
        return Err(Error::invalid_argument(format!("capsule {i} is released")));
    }
    // SAFETY: the header requires capsules that follow crossdock.h. The check above ensures that no
    // capsule is released.
    Ok(owned.into_iter().map(|capsule| unsafe { Capsule::from_raw(capsule) }).collect())
}
