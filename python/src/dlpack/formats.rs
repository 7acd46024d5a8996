//! Caches of a session for tensors: the plugin's formats, the schemas of imported tensors, and open
//! writers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use arrow_schema::SchemaRef;
use crossdock::registry::Way;
use crossdock::{CapsuleFormat, Result, Session as HostSession, Writer};
use crossdock_arrays::DeviceBatch;
use crossdock_plugin_api::{Capsule, Code, Device, Options};

use crate::dlpack::abi::DataType;
use crate::dlpack::tensor::Form;

/// Number of open writers to keep. The oldest is dropped.
const MAX_OPEN_WRITERS: usize = 16;

/// The caches of one session.
///
/// The lock of an open writer is held during an export. Threads acquire this lock only with
/// `try_lock`, because a thread that holds the interpreter's lock must not wait for an export. All
/// other locks are held only during a lookup.
#[derive(Default)]
pub struct Formats {
    import_format: Mutex<Option<Arc<CapsuleFormat>>>,
    /// Schemas that the plugin gave to one-dimensional tensors, by dtype.
    schemas: Mutex<Vec<(DataType, SchemaRef)>>,
    export_formats: Mutex<Vec<(Device, Form, Arc<CapsuleFormat>)>>,
    open_writers: Mutex<Vec<Arc<OpenWriter>>>,
}

/// A writer of versioned tensors. It exports batches of one schema on the session's device, and
/// copies where needed.
struct OpenWriter {
    schema: SchemaRef,
    writer: Mutex<Writer>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Formats {
    /// Returns the format that imports tensors.
    pub fn import_format(&self, session: &HostSession) -> Result<Arc<CapsuleFormat>> {
        if let Some(format) = &*locked(&self.import_format) {
            return Ok(format.clone());
        }
        let format = Arc::new(session.capsule_format("dlpack", Way::In)?);
        Ok(locked(&self.import_format).insert(format).clone())
    }

    /// Returns the schema of one-dimensional tensors of a dtype, if such a tensor was imported
    /// before.
    pub fn schema(&self, dtype: DataType) -> Option<SchemaRef> {
        locked(&self.schemas).iter().find(|(key, _)| *key == dtype).map(|(_, schema)| schema.clone())
    }

    /// Stores the schema of a one-dimensional tensor.
    pub fn set_schema(&self, dtype: DataType, schema: &SchemaRef) {
        let mut schemas = locked(&self.schemas);
        if !schemas.iter().any(|(key, _)| *key == dtype) {
            schemas.push((dtype, schema.clone()));
        }
    }

    /// Returns the format that exports legacy or versioned tensors on a device, which may differ
    /// from the session's device.
    pub fn export_format(
        &self,
        session: &HostSession,
        device: Device,
        form: Form,
    ) -> Result<Arc<CapsuleFormat>> {
        let cached = locked(&self.export_formats)
            .iter()
            .find(|entry| (entry.0, entry.1) == (device, form))
            .map(|(.., format)| format.clone());
        if let Some(format) = cached {
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
        locked(&self.export_formats).push((device, form, format.clone()));
        Ok(format)
    }

    /// Exports a batch as versioned tensors on the session's device, and copies where needed.
    pub fn write(&self, session: &HostSession, batch: &DeviceBatch) -> Result<Vec<Capsule>> {
        let schema = batch.schema();
        let same = |open: &&Arc<OpenWriter>| Arc::ptr_eq(&open.schema, schema) || open.schema == *schema;
        let open = locked(&self.open_writers).iter().find(same).cloned();
        if let Some(open) = open {
            // If another thread uses the writer, open a new writer.
            match open.writer.try_lock() {
                Ok(mut writer) => return writer.write_borrowed(batch),
                Err(TryLockError::Poisoned(writer)) => return writer.into_inner().write_borrowed(batch),
                Err(TryLockError::WouldBlock) => {}
            }
        }
        let format = self.export_format(session, session.device(), Form::Versioned)?;
        let mut writer = format.write(schema, &Options::new())?;
        let tensors = writer.write_borrowed(batch)?;
        let open = OpenWriter { schema: schema.clone(), writer: Mutex::new(writer) };
        let mut open_writers = locked(&self.open_writers);
        let oldest = (open_writers.len() >= MAX_OPEN_WRITERS).then(|| open_writers.remove(0));
        open_writers.push(Arc::new(open));
        // Dropping a writer may run plugin code, so the lock is released first.
        drop(open_writers);
        drop(oldest);
        Ok(tensors)
    }

    /// Clears the caches if the error is a panic of the plugin. The instance is unusable then, and
    /// the next call needs a new one.
    pub fn note_error(&self, error: &crossdock::Error) {
        let panicked = |source: &crossdock_plugin_api::Error| source.code() == Code::PANICKED;
        if !matches!(error, crossdock::Error::Plugin { source, .. } if panicked(source)) {
            return;
        }
        // The cleared values are dropped together after all locks are released.
        let cleared = (
            locked(&self.import_format).take(),
            std::mem::take(&mut *locked(&self.export_formats)),
            std::mem::take(&mut *locked(&self.open_writers)),
        );
        drop(cleared);
    }
}
