//! Decodes dictionary-encoded columns of tables.

use std::sync::Arc;

use arrow_schema::{DataType, Schema};
use crossdock_arrays::{DeviceBatch, count_nulls, decode_dictionary, decoded_field};

use super::Table;
use crate::error::{Error, Result};

impl Table {
    /// Decodes the dictionaries of the columns at `indices`, on the columns' device. If the values
    /// of a dictionary are dictionary-encoded themselves, these values are not decoded.
    ///
    /// # Errors
    /// [`Error::Usage`] if an index is out of range or the column at the index is not
    /// dictionary-encoded, [`Error::Data`] if a key is out of range or if decoding does not support
    /// the type of the values.
    pub fn decode_dictionaries(&self, indices: &[usize]) -> Result<Table> {
        let mut fields: Vec<_> = self.schema.fields().iter().cloned().collect();
        let mut columns: Vec<_> = self.batches.iter().map(|batch| batch.columns().to_vec()).collect();
        for &i in indices {
            let n = fields.len();
            let field = fields.get_mut(i).ok_or_else(|| {
                Error::usage(format!("column {i}: the table has {n} columns, expected an index below {n}"))
            })?;
            let name = field.name().clone();
            if !matches!(field.data_type(), DataType::Dictionary(..)) {
                return Err(Error::usage(format!(
                    "column '{name}': expected a dictionary to decode, got {}",
                    crossdock_arrays::type_name(field.data_type())
                )));
            }
            let failed =
                |error| Error::data(format!("cannot decode the dictionary of column '{name}'"), error);
            let mut has_nulls = false;
            for column in columns.iter_mut().filter_map(|columns| columns.get_mut(i)) {
                self.session.check_cancelled()?;
                let dictionaries: Vec<_> = column.dictionary().into_iter().collect();
                let nulls = count_nulls(&dictionaries, self.session.stream()).map_err(failed)?;
                has_nulls |= nulls.iter().any(|nulls| *nulls > 0);
                *column = decode_dictionary(column, self.session.stream()).map_err(failed)?;
            }
            *field = Arc::new(decoded_field(field, has_nulls).map_err(failed)?);
        }
        let schema = Arc::new(Schema::new_with_metadata(fields, self.schema.metadata().clone()));
        let failed = |error| Error::data("cannot create the decoded table", error);
        let batches = self.batches.iter().zip(columns).map(|(batch, columns)| {
            let decoded = DeviceBatch::try_new(schema.clone(), batch.len(), columns)?
                .with_default_device(batch.device())?;
            Ok(decoded.with_metadata(batch.metadata().clone()))
        });
        let batches = batches.collect::<crossdock_plugin_api::Result<_>>().map_err(failed)?;
        Ok(Self { session: self.session.clone(), schema, batches })
    }
}
