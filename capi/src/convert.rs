//! Converts files.

use std::time::Duration;

use crossdock::convert::{Report as HostReport, Stage as HostStage};
use crossdock::sink::Output;
use crossdock_plugin_api::{Owned, Result, abi as api};

use crate::abi::{ConvertSettings, Report, Stage};
use crate::lists::{self, ListStorage, Texts};
use crate::session::SessionHandle;
use crate::{arguments, door};

/// `crossdock_session_convert` of crossdock-host.h.
///
/// # Safety
/// The arguments meet the requirements of crossdock-host.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crossdock_session_convert(
    session: *mut SessionHandle,
    input: api::Str,
    output: api::Str,
    settings: *const ConvertSettings,
    out: *mut Report,
    err: *mut api::Error,
) -> api::Code {
    let body = |handle: &SessionHandle| {
        if !out.is_null() {
            // SAFETY: the header requires an `out` that is NULL or has its `struct_size`.
            unsafe { arguments::check_out(out) }?;
        }
        // SAFETY: the caller guarantees the requirements of the header, and `convert` has no other
        // requirements.
        let report = unsafe { convert(handle, input, output, settings) }?;
        if out.is_null() {
            return Ok(());
        }
        // SAFETY: the header requires a writable `out` that begins with its `struct_size`.
        // `check_out` has checked that it is not null and large enough.
        unsafe { list(&report).put(out, "crossdock_session_convert") }
    };
    // SAFETY: the header requires a handle that is NULL or not destroyed, and an `err` that is NULL
    // or initialised.
    unsafe { door::with(session, err, body) }
}

/// # Safety
/// The arguments meet the requirements of crossdock-host.h.
unsafe fn convert(
    handle: &SessionHandle,
    input: api::Str,
    output: api::Str,
    settings: *const ConvertSettings,
) -> Result<HostReport> {
    let mut conversion = handle.session.conversion();
    // SAFETY: the header requires settings that are NULL or have `struct_size` bytes, and valid
    // texts and lists.
    let (input, output, storage) = unsafe {
        let settings = arguments::settings(settings, "the settings of the conversion")?;
        let options = arguments::options(settings.read_options, settings.n_read_options, "read_options")?;
        conversion = conversion.read_options(options);
        let options = arguments::options(settings.write_options, settings.n_write_options, "write_options")?;
        conversion = conversion.write_options(options);
        if let Some(from) = arguments::optional_text(settings.from, "from")? {
            conversion = conversion.from(from);
        }
        if let Some(to) = arguments::optional_text(settings.to, "to")? {
            conversion = conversion.to(to);
        }
        for via in arguments::names(settings.via, settings.n_via, "via")? {
            conversion = conversion.via(via);
        }
        let columns = arguments::names(settings.columns, settings.n_columns, "columns")?;
        if !columns.is_empty() {
            conversion = conversion.columns(columns);
        }
        if let Some(progress) = arguments::progress(settings.progress, settings.progress_data) {
            conversion = conversion.progress(progress);
        }
        let storage =
            arguments::options(settings.storage_options, settings.n_storage_options, "storage_options")?;
        let input = arguments::path(input, "the path to read")?;
        (input, arguments::path(output, "the path to write")?, storage)
    };
    let input = handle.session.open_input(input, &storage)?;
    let output = Output::create(output, handle.session.cancel_flag())?;
    Ok(conversion.run(input, output)?)
}

fn list(report: &HostReport) -> Owned<Report> {
    let mut texts = Texts::default();
    let write = report.stages.last();
    let row = |stage: &HostStage| Stage {
        struct_size: size_of::<Stage>(),
        kind: texts.add(stage.kind),
        plugin: texts.add(&stage.plugin),
        format: texts.add(&stage.format),
        rows: stage.rows,
        batches: stage.batches,
        bytes: stage.bytes,
        time_ns: nanoseconds(stage.time),
        copied_h2d: stage.copied.host_to_device.bytes,
        copied_d2h: stage.copied.device_to_host.bytes,
        copied_d2d: stage.copied.device_to_device.bytes,
        copied_h2h: stage.copied.host_to_host.bytes,
    };
    let storage = ListStorage::new(report.stages.iter().map(row).collect(), Vec::new(), texts);
    let (stages, n_stages) = storage.rows();
    let raw = Report {
        struct_size: size_of::<Report>(),
        rows: write.map_or(0, |stage| stage.rows),
        batches: write.map_or(0, |stage| stage.batches),
        bytes: write.map_or(0, |stage| stage.bytes),
        copied: report.stages.iter().map(|stage| stage.copied.bytes()).sum(),
        time_ns: nanoseconds(report.time),
        stages,
        n_stages,
        release: Some(lists::release::<Report>),
        private_data: Box::into_raw(storage).cast(),
    };
    // SAFETY: `raw` is a valid struct that was created above, and only the result owns it.
    unsafe { Owned::new(raw) }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
