//! Tables from and to the C Device interface.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use crossdock_arrays::{
    Arrays, DeviceArray, DeviceBatch, Level, check_ends, count_nulls, export_schema, import_batch,
    import_device_array, import_schema, lend_batch, validate,
};
use crossdock_plugin_api::{Owned, Validate, abi};

use super::{Table, in_table, to_device};
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

    /// One column of device arrays of `field`'s type, which may be a struct. They stay where they are.
    pub fn column_from_device_arrays(
        session: &Session,
        field: Field,
        arrays: &mut dyn Arrays,
    ) -> Result<Self> {
        let mut table = Self::of_no_chunks(session, field);
        table.add_chunks(arrays)?;
        Ok(table)
    }

    /// The same as [`Table::from_device_arrays`] where a struct may be a column: batches, unless some struct is null. Then
    /// it is the table's one column, and the answer is true.
    pub fn from_device_arrays_by_nulls(
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
                batches.push(validated(session, rows_of(&array, &schema).map_err(in_table)?)?);
                continue;
            }
            let mut table = Self::of_no_chunks(session, field.with_nullable(true));
            for batch in &batches {
                table.add_chunk(structs_of(batch).map_err(in_table)?)?;
            }
            table.add_chunk(array)?;
            table.add_chunks(arrays)?;
            return Ok((table, true));
        }
        Ok((Self { session: session.clone(), schema, batches }, false))
    }

    fn of_no_chunks(session: &Session, field: Field) -> Self {
        let schema = Arc::new(Schema::new(vec![field]));
        Self { session: session.clone(), schema, batches: Vec::new() }
    }

    /// To the table's one column.
    fn add_chunks(&mut self, arrays: &mut dyn Arrays) -> Result<()> {
        let field = self.schema.fields().first().cloned();
        let field = field.ok_or_else(|| Error::usage("a table without columns has no chunks"))?;
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

    /// The table as device record batches, on the session's device, each with a schema. They hold what they need: they
    /// may outlive the table, its session and its host.
    #[allow(clippy::type_complexity)]
    pub fn to_device_record_batches(
        &self,
    ) -> Result<Vec<(Owned<abi::ArrowDeviceArray>, Owned<abi::ArrowSchema>)>> {
        let failed = |error| Error::data("cannot give a device record batch", error);
        let export = |batch: &DeviceBatch| {
            let batch = to_device(&self.session, batch.clone())?;
            let schema = export_schema(&self.schema).map_err(failed)?;
            let raw = lend_batch(&batch, false, self.session.stream()).map_err(failed)?;
            check_ends(&raw, &self.schema, self.session.memory()).map_err(failed)?;
            let raw = raw.into_raw();
            // SAFETY: the batch was the `Owned` one's; without a schema, the array is all that it owned.
            Ok((unsafe { Owned::new(raw.array) }, schema))
        };
        self.batches.iter().map(export).collect()
    }
}

/// Whether some of an array's own values may be null, as far as its struct tells.
fn may_have_nulls(array: &abi::ArrowDeviceArray) -> bool {
    let array = &array.array;
    if array.null_count == 0 || array.n_buffers < 1 || array.buffers.is_null() {
        return false;
    }
    // SAFETY: a valid array's list has `n_buffers` entries, of which the first is a struct's validity.
    array.null_count > 0 || !unsafe { *array.buffers }.is_null()
}

/// Structs of which none is null, as rows.
fn rows_of(array: &DeviceArray, schema: &SchemaRef) -> crossdock_plugin_api::Result<DeviceBatch> {
    let columns = array.children().iter().map(|child| child.slice(array.offset(), array.len()));
    let columns = columns.collect::<crossdock_plugin_api::Result<_>>()?;
    DeviceBatch::try_new(schema.clone(), array.len(), columns)?.lying_on(array.device())
}

/// Rows as structs.
fn structs_of(batch: &DeviceBatch) -> crossdock_plugin_api::Result<DeviceArray> {
    let data_type = DataType::Struct(batch.schema().fields().clone());
    let columns = batch.columns().to_vec();
    DeviceArray::try_new(data_type, batch.len(), 0, Some(0), vec![None], columns, None)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_may_have_nulls_if_it_counts_some_or_has_a_bitmap_and_does_not_count_none() {
        let bitmap = [1u8];
        for (null_count, has_bitmap, expected) in [
            (0, false, false),
            (0, true, false),
            (1, false, true),
            (1, true, true),
            // It was not counted.
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
