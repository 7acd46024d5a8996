//! `crossdock_session_*`: the session's handle.

use crossdock::Session;
use crossdock_plugin_api::{Device, Error, Result, Validate, abi as api};

use crate::abi::{SESSION_VALIDATE, SessionSettings};
use crate::door::{self, Door, Handle};
use crate::host::HostHandle;
use crate::{arguments, error};

/// What a `crossdock_session` is.
pub struct SessionHandle {
    pub session: Session,
    /// How closely batches from the application are looked at.
    pub validate_structs: Validate,
    pub door: Door,
}

impl Handle for SessionHandle {
    const WHAT: &'static str = "the session";
    fn door(&self) -> &Door {
        &self.door
    }
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crossdock_session_create(
    host: *mut HostHandle,
    settings: *const SessionSettings,
    out: *mut *mut SessionHandle,
    err: *mut api::Error,
) -> api::Code {
    let body = |handle: &HostHandle| {
        // SAFETY: the caller's settings.
        let settings = unsafe { arguments::settings(settings, "the session's settings") }?;
        arguments::given(out, "out")?;
        let session = open(handle, &settings)?;
        // SAFETY: not null, the caller's out parameter.
        unsafe { door::give(out, session) };
        Ok(())
    };
    // SAFETY: the caller's handle and error struct.
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
    let session = builder.open().map_err(error::of_host)?;
    let validate_structs = validate.unwrap_or(Validate::Layout);
    Ok(SessionHandle { session, validate_structs, door: handle.door.another() })
}

/// A device as the application names it: all zero is the CPU, whose number does not matter.
pub fn device(given: Device) -> Device {
    if given.r#type == 0 && given.id == 0 { Device::CPU } else { Device::from_arrow(given.r#type, given.id) }
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crossdock_session_destroy(session: *mut SessionHandle) {
    // SAFETY: the caller's handle, given back.
    unsafe { door::destroy(session) };
}

/// See the header. The one function that does not go through the door, so that a signal handler may call it: it loads a
/// pointer and stores a number.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crossdock_session_cancel(session: *mut SessionHandle) {
    // SAFETY: the caller's handle; null becomes None.
    if let Some(handle) = unsafe { session.as_ref() } {
        handle.session.cancel_flag().cancel();
    }
}
