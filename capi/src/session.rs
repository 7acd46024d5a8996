//! Implements the functions that create, cancel and destroy sessions.

use crossdock::Session;
use crossdock_plugin_api::{Device, Error, Result, Validate, abi as api};

use crate::abi::{SESSION_VALIDATE, SessionSettings};
use crate::arguments;
use crate::door::{self, Door, Handle};
use crate::host::HostHandle;

/// The object behind a `crossdock_session`.
pub struct SessionHandle {
    pub session: Session,
    /// The level at which batches from the application are validated.
    pub validate_structs: Validate,
    pub door: Door,
}

impl Handle for SessionHandle {
    const WHAT: &'static str = "the session";
    fn door(&self) -> &Door {
        &self.door
    }
}

/// `crossdock_session_create` of crossdock-host.h.
///
/// # Safety
/// The arguments meet the requirements of crossdock-host.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crossdock_session_create(
    host: *mut HostHandle,
    settings: *const SessionSettings,
    out: *mut *mut SessionHandle,
    err: *mut api::Error,
) -> api::Code {
    let body = |handle: &HostHandle| {
        // SAFETY: the header requires settings that are NULL or have `struct_size` bytes.
        let settings = unsafe { arguments::settings(settings, "the session's settings") }?;
        arguments::check_not_null(out, "out")?;
        let session = open(handle, &settings)?;
        // SAFETY: `out` is not null, as checked above, and the header requires it to be writable.
        unsafe { door::put_handle(out, session) };
        Ok(())
    };
    // SAFETY: the header requires a handle that is NULL or not destroyed, and an `err` that is NULL
    // or initialised.
    unsafe { door::with(host, err, body) }
}

fn open(handle: &HostHandle, settings: &SessionSettings) -> Result<SessionHandle> {
    let flags = arguments::flags(settings.flags, SESSION_VALIDATE, "the session's settings")?;
    let validate = match (flags & SESSION_VALIDATE, settings.validate) {
        (0, _) => None,
        (_, api::VALIDATE_LAYOUT) => Some(Validate::Layout),
        (_, api::VALIDATE_FULL) => Some(Validate::Full),
        (_, other) => {
            return Err(Error::invalid_argument(format!(
                "validate is {other}, expected 0 (layout) or 1 (full)"
            )));
        }
    };
    let mut builder = handle.host.session().device(device(settings.device)).byte_budget(settings.byte_budget);
    if let Some(validate) = validate {
        builder = builder.validate(validate);
    }
    let session = builder.open()?;
    let validate_structs = validate.unwrap_or(Validate::Layout);
    Ok(SessionHandle { session, validate_structs, door: handle.door.for_new_object() })
}

/// Converts a device that the application passes. All zeros stand for the CPU.
pub fn device(raw: Device) -> Device {
    if raw.r#type == 0 && raw.id == 0 { Device::CPU } else { Device::from_arrow(raw.r#type, raw.id) }
}

/// `crossdock_session_destroy` of crossdock-host.h.
///
/// # Safety
/// The arguments meet the requirements of crossdock-host.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crossdock_session_destroy(session: *mut SessionHandle) {
    // SAFETY: the header requires a handle that is NULL or was not destroyed before.
    unsafe { door::destroy(session) };
}

/// `crossdock_session_cancel` of crossdock-host.h. This is the only function that does not use
/// [`door`], because it must be async-signal-safe. It only loads a pointer and stores an integer.
///
/// # Safety
/// The arguments meet the requirements of crossdock-host.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crossdock_session_cancel(session: *mut SessionHandle) {
    // SAFETY: the header requires a session that is NULL or not destroyed.
    if let Some(handle) = unsafe { session.as_ref() } {
        handle.session.cancel_flag().cancel();
    }
}
