//! `crossdock_session_convert`.

use std::time::Duration;

use crossdock::convert::{Report as Done, Stage as DoneStage};
use crossdock::sink::Output;
use crossdock::source::Input;
use crossdock_plugin_api::{Owned, Result, abi as api};

use crate::abi::{ConvertSettings, Report, Stage};
use crate::lists::{self, Holder, Texts};
use crate::session::SessionHandle;
use crate::{arguments, door, error};

/// See the header.
///
/// # Safety
/// As the header says.
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
            // SAFETY: the caller's out parameter.
            unsafe { arguments::place(out) }?;
        }
        // SAFETY: the caller's settings and texts.
        let report = unsafe { convert(handle, input, output, settings) }?;
        if out.is_null() {
            return Ok(());
        }
        // SAFETY: the caller's out parameter.
        unsafe { list(&report).put(out, "crossdock_session_convert") }
    };
    // SAFETY: the caller's handle and error struct.
    unsafe { door::with(session, err, body) }
}

/// # Safety
/// The arguments are the application's.
unsafe fn convert(
    handle: &SessionHandle,
    input: api::Str,
    output: api::Str,
    settings: *const ConvertSettings,
) -> Result<Done> {
    let mut conversion = handle.session.conversion();
    // SAFETY: the caller's word, for all that the settings point at too.
    let (input, output) = unsafe {
        let settings = arguments::settings(settings, "the settings of the conversion")?;
        let options = arguments::options(settings.read_options, settings.n_read_options)?;
        conversion = conversion.read_options(options);
        let options = arguments::options(settings.write_options, settings.n_write_options)?;
        conversion = conversion.write_options(options);
        if let Some(from) = arguments::wish(settings.from, "from")? {
            conversion = conversion.from(from);
        }
        if let Some(to) = arguments::wish(settings.to, "to")? {
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
        (arguments::path(input, "the path to read")?, arguments::path(output, "the path to write")?)
    };
    let cancel = handle.session.cancel_flag();
    let input = Input::open(input, cancel).map_err(error::of_host)?;
    let output = Output::create(output, cancel).map_err(error::of_host)?;
    conversion.run(input, output).map_err(error::of_host)
}

fn list(done: &Done) -> Owned<Report> {
    let mut texts = Texts::default();
    let written = done.stages.last();
    let row = |stage: &DoneStage| Stage {
        struct_size: size_of::<Stage>(),
        kind: texts.keep(stage.kind),
        plugin: texts.keep(&stage.plugin),
        format: texts.keep(&stage.format),
        rows: stage.rows,
        batches: stage.batches,
        bytes: stage.bytes,
        time_ns: nanoseconds(stage.time),
        copied_h2d: stage.copied.host_to_device.bytes,
        copied_d2h: stage.copied.device_to_host.bytes,
        copied_d2d: stage.copied.device_to_device.bytes,
        copied_h2h: stage.copied.host_to_host.bytes,
    };
    let holder = Holder::new(done.stages.iter().map(row).collect(), Vec::new(), texts);
    let (stages, n_stages) = holder.rows();
    let raw = Report {
        struct_size: size_of::<Report>(),
        rows: written.map_or(0, |stage| stage.rows),
        batches: written.map_or(0, |stage| stage.batches),
        bytes: written.map_or(0, |stage| stage.bytes),
        copied: done.stages.iter().map(|stage| stage.copied.bytes()).sum(),
        time_ns: nanoseconds(done.time),
        stages,
        n_stages,
        release: Some(lists::release::<Report>),
        private_data: Box::into_raw(holder).cast(),
    };
    // SAFETY: made above; nobody else has it.
    unsafe { Owned::new(raw) }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
