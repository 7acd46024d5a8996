//! What a session has prepared for tensors: the plugin's formats, and what single tensors become.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use arrow_schema::SchemaRef;
use crossdock::registry::Way;
use crossdock::{CapsuleFormat, Result, Session as HostSession};
use crossdock_plugin_api::Device;
use dlpark::ffi::DLDataType;

use crate::dlpack_tensor::Form;
use crate::session::Shared;

/// Of one session.
#[derive(Default)]
pub struct Formats {
    reading: OnceLock<CapsuleFormat>,
    /// Of tensors of one dimension: their dtypes, and the schemas that the plugin has answered for them.
    known: Mutex<Vec<(DLDataType, SchemaRef)>>,
    writing: Mutex<Vec<(Device, Form, CapsuleFormat)>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Formats {
    /// Tensors in.
    pub fn reading(&self, shared: &Shared) -> Result<&CapsuleFormat> {
        match self.reading.get() {
            Some(format) => Ok(format),
            None => {
                let format = shared.format("dlpack", Way::In)?;
                Ok(self.reading.get_or_init(|| format))
            }
        }
    }

    /// Tensors of a form out, on a device, which may be another one than the session's.
    pub fn writing(&self, session: &HostSession, device: Device, form: Form) -> Result<CapsuleFormat> {
        let known = |all: &[(Device, Form, CapsuleFormat)]| {
            let found = all.iter().find(|(on, of, _)| (*on, *of) == (device, form));
            found.map(|(.., format)| format.clone())
        };
        if let Some(format) = known(&locked(&self.writing)) {
            return Ok(format);
        }
        let name = match form {
            Form::Versioned => "dlpack",
            Form::Legacy => "dlpack-legacy",
        };
        let format = match session.device() == device {
            true => session.capsule_format(name, Way::Out),
            false => session.host().session().device(device).open()?.capsule_format(name, Way::Out),
        }?;
        let mut all = locked(&self.writing);
        if known(&all).is_none() {
            all.push((device, form, format.clone()));
        }
        Ok(format)
    }

    /// What a tensor of one dimension becomes, if one like it has been here.
    pub fn known(&self, dtype: DLDataType) -> Option<SchemaRef> {
        locked(&self.known).iter().find(|(of, _)| *of == dtype).map(|(_, schema)| schema.clone())
    }

    /// Remembers what one became.
    pub fn remember(&self, dtype: DLDataType, schema: &SchemaRef) {
        let mut known = locked(&self.known);
        if !known.iter().any(|(of, _)| *of == dtype) {
            known.push((dtype, schema.clone()));
        }
    }
}
