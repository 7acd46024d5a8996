//! `crossdock_session_plan`.

use crossdock_plugin_api::{ColumnPlan, Device, Owned, Verdict, abi as api};

use crate::abi::WriteSettings;
use crate::door::{self, Door};
use crate::lists::{Holder, Texts};
use crate::session::{self, SessionHandle};
use crate::{arguments, error, write};

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crossdock_session_plan(
    session: *mut SessionHandle,
    schema: *const api::ArrowSchema,
    from: Device,
    settings: *const WriteSettings,
    out: *mut api::Plan,
    err: *mut api::Error,
) -> api::Code {
    let body = |handle: &SessionHandle| {
        // SAFETY: the caller's out parameter, settings and schema.
        let (options, schema) = unsafe {
            arguments::place(out)?;
            (write::options(settings)?, arguments::schema(schema)?)
        };
        let (to, from) = (write::named(options.to)?, session::device(from));
        let columns = handle.session.plan_columns(&to, &schema, from, &options.options);
        let plan = list(&columns.map_err(error::of_host)?);
        // SAFETY: the caller's out parameter.
        unsafe { plan.put(out, "crossdock_session_plan") }
    };
    // SAFETY: the caller's handle and error struct.
    unsafe { door::with(session, err, body) }
}

fn list(columns: &[ColumnPlan]) -> Owned<api::Plan> {
    let mut texts = Texts::default();
    let row = |column: &ColumnPlan| api::ColumnPlan {
        struct_size: size_of::<api::ColumnPlan>(),
        name: texts.keep(&column.name),
        verdict: match column.verdict {
            Verdict::ZeroCopy => api::ZERO_COPY,
            Verdict::Converted => api::CONVERTED,
            Verdict::Copied => api::COPIED,
            Verdict::Unsupported => api::CANNOT,
        },
        reserved: 0,
        to: column.to,
        reason: texts.keep(&column.reason),
    };
    let holder = Holder::new(columns.iter().map(row).collect(), Vec::new(), texts);
    let mut raw = api::Plan::new();
    (raw.columns, raw.n_columns) = holder.rows();
    raw.release = Some(release);
    raw.private_data = Box::into_raw(holder).cast();
    // SAFETY: made above; nobody else has it.
    unsafe { Owned::new(raw) }
}

unsafe extern "C" fn release(plan: *mut api::Plan) {
    // SAFETY: set by `list` only; released once because `release` is cleared.
    unsafe {
        (*plan).release = None;
        (*plan).columns = std::ptr::null();
        (*plan).n_columns = 0;
        let holder = Box::from_raw((*plan).private_data.cast::<Holder<api::ColumnPlan>>());
        Door::default().leave(move || drop(holder));
    }
}
