//! Dictionary-encoded columns as their values.

use std::sync::Arc;

use arrow_schema::{DataType, Schema};
use crossdock_arrays::{DeviceBatch, count_nulls, decode_dictionary, decoded_field};

use super::Table;
use crate::error::{Error, Result};

impl Table {
    /// The table with the columns at `indices` as the values that their keys stand for, where they are. Values that are
    /// dictionary-encoded themselves stay so.
    ///
    /// # Errors
    /// [`Error::Usage`] that names a column that is not dictionary-encoded, or where there is none; [`Error::Data`] for keys that
    /// point at no value, and for values of a type that is not decoded.
    pub fn decode_dictionaries(&self, indices: &[usize]) -> Result<Table> {
        let mut fields: Vec<_> = self.schema.fields().iter().cloned().collect();
        let mut columns: Vec<_> = self.batches.iter().map(|batch| batch.columns().to_vec()).collect();
        for &i in indices {
            let n = fields.len();
            let field = fields.get_mut(i).ok_or_else(|| {
                Error::usage(format!(
                    "column {i} was asked for, and the table has columns 0 to {n} exclusive"
                ))
            })?;
            let name = field.name().clone();
            if !matches!(field.data_type(), DataType::Dictionary(..)) {
                return Err(Error::usage(format!(
                    "column '{name}': expected a dictionary to decode, got {}",
                    field.data_type()
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
        let failed = |error| Error::data("cannot take decoded columns", error);
        let batches = self.batches.iter().zip(columns).map(|(batch, columns)| {
            let decoded =
                DeviceBatch::try_new(schema.clone(), batch.len(), columns)?.lying_on(batch.device())?;
            Ok(decoded.with_metadata(batch.metadata().clone()))
        });
        let batches = batches.collect::<crossdock_plugin_api::Result<_>>().map_err(failed)?;
        Ok(Self { session: self.session.clone(), schema, batches })
    }
}
