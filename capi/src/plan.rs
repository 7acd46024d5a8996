//! Plans how columns would be written.

use crossdock_plugin_api::{ColumnPlan, Device, Owned, Verdict, abi as api};

use crate::abi::WriteSettings;
use crate::door::{self, Door};
use crate::lists::{ListStorage, Texts};
use crate::session::{self, SessionHandle};
use crate::{arguments, write};

/// `crossdock_session_plan` of crossdock-host.h.
///
/// # Safety
/// The arguments meet the requirements of crossdock-host.h.
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
        // SAFETY: the header requires an `out` that is NULL or has its `struct_size`, settings that
        // are NULL or have `struct_size` bytes, and a schema that is NULL or valid.
        let (options, schema) = unsafe {
            arguments::check_out(out)?;
            (write::options(settings)?, arguments::schema(schema)?)
        };
        let (to, from) = (write::required_format(options.to)?, session::device(from));
        let columns = handle.session.plan_columns(&to, &schema, from, &options.options);
        let plan = list(&columns?);
        // SAFETY: the header requires a writable `out` that begins with its `struct_size`.
        // `check_out` has checked that it is not null and large enough.
        unsafe { plan.put(out, "crossdock_session_plan") }
    };
    // SAFETY: the header requires a handle that is NULL or not destroyed, and an `err` that is NULL
    // or initialised.
    unsafe { door::with(session, err, body) }
}

fn list(columns: &[ColumnPlan]) -> Owned<api::Plan> {
    let mut texts = Texts::default();
    let row = |column: &ColumnPlan| api::ColumnPlan {
        struct_size: size_of::<api::ColumnPlan>(),
        name: texts.add(&column.name),
        verdict: match column.verdict {
            Verdict::ZeroCopy => api::ZERO_COPY,
            Verdict::Converted => api::CONVERTED,
            Verdict::Copied => api::COPIED,
            Verdict::Unsupported => api::CANNOT,
        },
        reserved: 0,
        to: column.to,
        reason: texts.add(&column.reason),
    };
    let storage = ListStorage::new(columns.iter().map(row).collect(), Vec::new(), texts);
    let mut raw = api::Plan::new();
    (raw.columns, raw.n_columns) = storage.rows();
    raw.release = Some(release);
    raw.private_data = Box::into_raw(storage).cast();
    // SAFETY: `raw` is a valid struct that was created above, and only the result owns it.
    unsafe { Owned::new(raw) }
}

unsafe extern "C" fn release(plan: *mut api::Plan) {
    // SAFETY: only `list` sets this function, and stores a boxed value in `private_data`. `release`
    // is cleared, so the box is freed only once.
    unsafe {
        (*plan).release = None;
        (*plan).columns = std::ptr::null();
        (*plan).n_columns = 0;
        let storage = Box::from_raw((*plan).private_data.cast::<ListStorage<api::ColumnPlan>>());
        Door::default().leave(move || drop(storage));
    }
}
