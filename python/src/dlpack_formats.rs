//! What a session has prepared for tensors: the plugin's formats, what single tensors become, and exporters that have begun.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use arrow_schema::SchemaRef;
use crossdock::registry::Way;
use crossdock::{CapsuleFormat, Result, Session as HostSession, Writer};
use crossdock_arrays::DeviceBatch;
use crossdock_plugin_api::{Capsule, Code, Device, Options};

use crate::dlpack_abi::DataType;
use crate::dlpack_tensor::Form;

/// So many exporters are kept; beyond, the oldest goes.
const BEGUN: usize = 16;

/// Of one session.
///
/// No lock here is waited for by anybody who has the interpreter's: those that are held for longer than a look are only
/// tried.
#[derive(Default)]
pub struct Formats {
    reading: Mutex<Option<Arc<CapsuleFormat>>>,
    /// Of tensors of one dimension: their dtypes, and the schemas that the plugin has answered for them.
    known: Mutex<Vec<(DataType, SchemaRef)>>,
    writing: Mutex<Vec<(Device, Form, Arc<CapsuleFormat>)>>,
    begun: Mutex<Vec<Arc<Begun>>>,
}

/// An exporter of versioned tensors of one schema, on the session's device, copied where they must be.
struct Begun {
    schema: SchemaRef,
    writer: Mutex<Writer>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Formats {
    /// Tensors in.
    pub fn reading(&self, session: &HostSession) -> Result<Arc<CapsuleFormat>> {
        if let Some(format) = &*locked(&self.reading) {
            return Ok(format.clone());
        }
        let format = Arc::new(session.capsule_format("dlpack", Way::In)?);
        Ok(locked(&self.reading).insert(format).clone())
    }

    /// What a tensor of one dimension becomes, if one like it has been here.
    pub fn known(&self, dtype: DataType) -> Option<SchemaRef> {
        locked(&self.known).iter().find(|(of, _)| *of == dtype).map(|(_, schema)| schema.clone())
    }

    /// Remembers what one became.
    pub fn remember(&self, dtype: DataType, schema: &SchemaRef) {
        let mut known = locked(&self.known);
        if !known.iter().any(|(of, _)| *of == dtype) {
            known.push((dtype, schema.clone()));
        }
    }

    /// Tensors of a form out, on a device, which may be another one than the session's.
    pub fn writing(&self, session: &HostSession, device: Device, form: Form) -> Result<Arc<CapsuleFormat>> {
        let known = locked(&self.writing)
            .iter()
            .find(|(on, of, _)| (*on, *of) == (device, form))
            .map(|(.., format)| format.clone());
        if let Some(format) = known {
            return Ok(format);
        }
        let name = match form {
            Form::Versioned => "dlpack",
            Form::Legacy => "dlpack-legacy",
        };
        let format = match session.device() == device {
            true => session.capsule_format(name, Way::Out),
            false => session.host().session().device(device).open()?.capsule_format(name, Way::Out),
        };
        let format = Arc::new(format?);
        locked(&self.writing).push((device, form, format.clone()));
        Ok(format)
    }

    /// What a batch becomes as versioned tensors on the session's device, copied where they must be.
    pub fn write(&self, session: &HostSession, batch: &DeviceBatch) -> Result<Vec<Capsule>> {
        let schema = batch.schema();
        let same = |begun: &&Arc<Begun>| Arc::ptr_eq(&begun.schema, schema) || begun.schema == *schema;
        let known = locked(&self.begun).iter().find(same).cloned();
        if let Some(begun) = known {
            // Whoever finds it taken begins another one.
            match begun.writer.try_lock() {
                Ok(mut writer) => return writer.write_borrowed(batch),
                Err(TryLockError::Poisoned(writer)) => return writer.into_inner().write_borrowed(batch),
                Err(TryLockError::WouldBlock) => {}
            }
        }
        let format = self.writing(session, session.device(), Form::Versioned)?;
        let mut writer = format.write(schema, &Options::new())?;
        let tensors = writer.write_borrowed(batch)?;
        let begun = Begun { schema: schema.clone(), writer: Mutex::new(writer) };
        let mut all = locked(&self.begun);
        let oldest = (all.len() >= BEGUN).then(|| all.remove(0));
        all.push(Arc::new(begun));
        drop(all);
        drop(oldest);
        Ok(tensors)
    }

    /// After an error: an instance of the plugin that has panicked does nothing any more, and whoever asks next gets another
    /// one.
    pub fn after(&self, error: &crossdock::Error) {
        let panicked = |source: &crossdock_plugin_api::Error| source.code() == Code::PANICKED;
        if !matches!(error, crossdock::Error::Plugin { source, .. } if panicked(source)) {
            return;
        }
        let gone = (
            locked(&self.reading).take(),
            std::mem::take(&mut *locked(&self.writing)),
            std::mem::take(&mut *locked(&self.begun)),
        );
        drop(gone);
    }
}
