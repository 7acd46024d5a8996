//! Tables from and to the C Device interface.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use crossdock_arrays::{
    Arrays, DeviceBatch, Level, check_ends, export_batch, export_schema, import_batch, import_device_array,
    import_schema, validate,
};
use crossdock_plugin_api::{Owned, Validate, abi};

use super::{Table, in_table};
use crate::error::{Error, Result};
use crate::session::Session;

impl Table {
    /// A table of one device record batch, which stays where it is. It is released when the last of its buffers is
    /// gone, after our last use of it.
    pub fn from_device_record_batch(
        session: &Session,
        array: Owned<abi::ArrowDeviceArray>,
        schema: Owned<abi::ArrowSchema>,
    ) -> Result<Self> {
        let schema = Arc::new(import_schema(&schema).map_err(in_table)?);
        let batch = device_batch(session, array, &schema)?;
        Ok(Self { session: session.clone(), schema, batches: vec![batch] })
    }

    /// A table of device arrays of `field`'s type: batches where that is a struct, else chunks of the table's one column.
    /// They stay where they are.
    pub fn from_device_arrays(session: &Session, field: Field, arrays: &mut dyn Arrays) -> Result<Self> {
        let column = match field.data_type() {
            DataType::Struct(_) => None,
            _ => Some(Arc::new(field.clone())),
        };
        let schema = Arc::new(match (&column, field.data_type()) {
            (None, DataType::Struct(fields)) => {
                Schema::new_with_metadata(fields.clone(), field.metadata().clone())
            }
            _ => Schema::new(vec![field]),
        });
        let mut batches = Vec::new();
        while let Some(array) = arrays.next().map_err(in_table)? {
            session.check_cancelled()?;
            batches.push(match &column {
                None => device_batch(session, array, &schema)?,
                Some(field) => {
                    let array = import_device_array(array, field, session.memory()).map_err(in_table)?;
                    let batch = DeviceBatch::try_new(schema.clone(), array.len(), vec![array]);
                    validated(session, batch.map_err(in_table)?)?
                }
            });
        }
        Ok(Self { session: session.clone(), schema, batches })
    }

    /// The table as device record batches, on the session's device, each with a schema. They hold what they need: they
    /// may outlive the table, its session and its host.
    #[allow(clippy::type_complexity)]
    pub fn to_device_record_batches(
        &self,
    ) -> Result<Vec<(Owned<abi::ArrowDeviceArray>, Owned<abi::ArrowSchema>)>> {
        let failed = |error| Error::data("cannot give a device record batch", error);
        let export = |batch: &DeviceBatch| {
            let batch = self.moved_to_session(batch.clone())?;
            let schema = export_schema(&self.schema).map_err(failed)?;
            let raw = export_batch(&batch, false, self.session.stream()).map_err(failed)?;
            check_ends(&raw, &self.schema, self.session.memory()).map_err(failed)?;
            let raw = raw.into_raw();
            // SAFETY: the batch was the `Owned` one's; without a schema, the array is all that it owned.
            Ok((unsafe { Owned::new(raw.array) }, schema))
        };
        self.batches.iter().map(export).collect()
    }
}

/// One batch of a stranger's.
fn device_batch(
    session: &Session,
    array: Owned<abi::ArrowDeviceArray>,
    schema: &SchemaRef,
) -> Result<DeviceBatch> {
    let mut raw = abi::Batch::new();
    raw.array = array.into_raw();
    // SAFETY: the array was the `Owned` one's, whose maker vouched for it; a batch without a schema of its own.
    let raw = unsafe { Owned::new(raw) };
    validated(session, import_batch(raw, schema, session.memory()).map_err(in_table)?)
}

fn validated(session: &Session, batch: DeviceBatch) -> Result<DeviceBatch> {
    if session.validate_structs() == Validate::Full {
        validate(&batch, Level::Full, session.stream()).map_err(in_table)?;
    }
    Ok(batch)
}
