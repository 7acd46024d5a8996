//! Converts tables from and to the C Device interface.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use crossdock_arrays::{
    Arrays, DeviceArray, DeviceBatch, Level, check_last_offsets, count_nulls, export_batch_to_external,
    export_schema, import_batch, import_device_array, import_schema, validate,
};
use crossdock_plugin_api::{Owned, Validate, abi};

use super::{Table, in_table, to_device};
use crate::error::{Error, Result};
use crate::session::Session;

impl Table {
    /// Creates a table from one device record batch without copying it. The batch is released after
    /// its last buffer is dropped and the host's work on its buffers has completed.
    pub fn from_device_record_batch(
        session: &Session,
        array: Owned<abi::ArrowDeviceArray>,
        schema: Owned<abi::ArrowSchema>,
    ) -> Result<Self> {
        let schema = Arc::new(import_schema(&schema).map_err(in_table)?);
        let batch = device_batch(session, array, &schema)?;
        Ok(Self { session: session.clone(), schema, batches: vec![batch] })
    }

    /// Creates a table from device arrays with the type of `field`, without copying them. Structs
    /// become batches; other arrays become chunks of a single column.
    pub fn from_device_arrays(session: &Session, field: Field, arrays: &mut dyn Arrays) -> Result<Self> {
        let DataType::Struct(fields) = field.data_type() else {
            return Self::column_from_device_arrays(session, field, arrays);
        };
        let schema = Arc::new(Schema::new_with_metadata(fields.clone(), field.metadata().clone()));
        let mut batches = Vec::new();
        while let Some(array) = arrays.next().map_err(in_table)? {
            session.check_cancelled()?;
            batches.push(device_batch(session, array, &schema)?);
        }
        Ok(Self { session: session.clone(), schema, batches })
    }

    /// Creates a table with a single column from device arrays with the type of `field`, which may
    /// be a struct. The arrays are not copied.
    pub fn column_from_device_arrays(
        session: &Session,
        field: Field,
        arrays: &mut dyn Arrays,
    ) -> Result<Self> {
        let mut table = Self::without_chunks(session, field);
        table.add_chunks(arrays)?;
        Ok(table)
    }

    /// Like [`Table::from_device_arrays`], for structs that may be null. If a struct is null, the
    /// structs become a single column, and the second result is true. Otherwise, the structs become
    /// batches.
    pub fn from_device_arrays_with_nulls(
        session: &Session,
        field: Field,
        arrays: &mut dyn Arrays,
    ) -> Result<(Self, bool)> {
        let DataType::Struct(fields) = field.data_type() else {
            return Ok((Self::column_from_device_arrays(session, field, arrays)?, true));
        };
        let schema = Arc::new(Schema::new_with_metadata(fields.clone(), field.metadata().clone()));
        let mut batches = Vec::new();
        while let Some(array) = arrays.next().map_err(in_table)? {
            session.check_cancelled()?;
            if !may_have_nulls(&array) {
                batches.push(device_batch(session, array, &schema)?);
                continue;
            }
            let array = import_device_array(array, &field, session.memory()).map_err(in_table)?;
            if count_nulls(&[&array], session.stream()).map_err(in_table)?.first() == Some(&0) {
                batches.push(validated(session, rows_from_structs(&array, &schema).map_err(in_table)?)?);
                continue;
            }
            let mut table = Self::without_chunks(session, field.with_nullable(true));
            for batch in &batches {
                table.add_chunk(structs_from_rows(batch).map_err(in_table)?)?;
            }
            table.add_chunk(array)?;
            table.add_chunks(arrays)?;
            return Ok((table, true));
        }
        Ok((Self { session: session.clone(), schema, batches }, false))
    }

    fn without_chunks(session: &Session, field: Field) -> Self {
        let schema = Arc::new(Schema::new(vec![field]));
        Self { session: session.clone(), schema, batches: Vec::new() }
    }

    /// Adds chunks to the table's single column.
    fn add_chunks(&mut self, arrays: &mut dyn Arrays) -> Result<()> {
        let field = self.schema.fields().first().cloned();
        let field = field.ok_or_else(|| Error::usage("cannot add chunks to a table without columns"))?;
        while let Some(array) = arrays.next().map_err(in_table)? {
            self.session.check_cancelled()?;
            self.add_chunk(import_device_array(array, &field, self.session.memory()).map_err(in_table)?)?;
        }
        Ok(())
    }

    fn add_chunk(&mut self, array: DeviceArray) -> Result<()> {
        let batch = DeviceBatch::try_new(self.schema.clone(), array.len(), vec![array]).map_err(in_table)?;
        self.batches.push(validated(&self.session, batch)?);
        Ok(())
    }

    /// Returns the table as device record batches with schemas, on the session's device. The record
    /// batches may outlive the table, its session and its host.
    #[allow(clippy::type_complexity)]
    pub fn to_device_record_batches(
        &self,
    ) -> Result<Vec<(Owned<abi::ArrowDeviceArray>, Owned<abi::ArrowSchema>)>> {
        let failed = |error| Error::data("cannot export a device record batch", error);
        let export = |batch: &DeviceBatch| {
            let batch = to_device(&self.session, batch.clone())?;
            let schema = export_schema(&self.schema).map_err(failed)?;
            let raw = export_batch_to_external(&batch, false, self.session.stream()).map_err(failed)?;
            check_last_offsets(&raw, &self.schema, self.session.memory()).map_err(failed)?;
            let raw = raw.into_raw();
            // SAFETY: `raw` came from an `Owned` batch without a schema, so the batch owned only
            // the array.
            Ok((unsafe { Owned::new(raw.array) }, schema))
        };
        self.batches.iter().map(export).collect()
    }
}

/// Whether an array's null count and validity bitmap allow nulls.
fn may_have_nulls(array: &abi::ArrowDeviceArray) -> bool {
    let array = &array.array;
    if array.null_count == 0 || array.n_buffers < 1 || array.buffers.is_null() {
        return false;
    }
    // SAFETY: a valid array's list has `n_buffers` entries, at least 1 here. The first is the
    // validity bitmap.
    array.null_count > 0 || !unsafe { *array.buffers }.is_null()
}

/// Converts an array of structs without nulls to rows.
fn rows_from_structs(array: &DeviceArray, schema: &SchemaRef) -> crossdock_plugin_api::Result<DeviceBatch> {
    let columns = array.children().iter().map(|child| child.slice(array.offset(), array.len()));
    let columns = columns.collect::<crossdock_plugin_api::Result<_>>()?;
    DeviceBatch::try_new(schema.clone(), array.len(), columns)?.with_default_device(array.device())
}

/// Converts rows to an array of structs.
fn structs_from_rows(batch: &DeviceBatch) -> crossdock_plugin_api::Result<DeviceArray> {
    let data_type = DataType::Struct(batch.schema().fields().clone());
    let columns = batch.columns().to_vec();
    DeviceArray::try_new(data_type, batch.len(), 0, Some(0), vec![None], columns, None)
}

/// Imports one external batch.
fn device_batch(
    session: &Session,
    array: Owned<abi::ArrowDeviceArray>,
    schema: &SchemaRef,
) -> Result<DeviceBatch> {
    let mut raw = abi::Batch::new();
    raw.array = array.into_raw();
    // SAFETY: the array came from an `Owned`, whose producer guarantees that the array is valid.
    // The batch has no schema, so it owns only the array.
    let raw = unsafe { Owned::new(raw) };
    validated(session, import_batch(raw, schema, session.memory()).map_err(in_table)?)
}

fn validated(session: &Session, batch: DeviceBatch) -> Result<DeviceBatch> {
    if session.validate_structs() == Validate::Full {
        validate(&batch, Level::Full, session.stream()).map_err(in_table)?;
    }
    Ok(batch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn may_have_nulls_reads_the_null_count_before_the_bitmap() {
        let bitmap = [1u8];
        for (null_count, has_bitmap, expected) in [
            (0, false, false),
            (0, true, false),
            (1, false, true),
            (1, true, true),
            // A null count of -1 means that the producer did not count the nulls.
            (-1, false, false),
            (-1, true, true),
        ] {
            let mut buffers = [if has_bitmap { bitmap.as_ptr().cast() } else { std::ptr::null() }];
            let mut array = abi::ArrowDeviceArray::default();
            (array.array.null_count, array.array.n_buffers) = (null_count, 1);
            array.array.buffers = buffers.as_mut_ptr();
            assert_eq!(may_have_nulls(&array), expected, "{null_count} {has_bitmap}");
            array.array.n_buffers = 0;
            assert!(!may_have_nulls(&array));
            (array.array.n_buffers, array.array.buffers) = (1, std::ptr::null_mut());
            assert!(!may_have_nulls(&array));
        }
    }
}
