//! Checks the statistics of fragments.

use std::sync::Arc;

use arrow_schema::{DataType, Schema, UnionMode};
use crossdock_arrays::{DeviceBatch, Level, batch_schema, import_result, validate};
use crossdock_plugin_api::{Device, Error as ApiError, Owned, Result as ApiResult, abi};

use crate::error::{Error, Result};
use crate::plugin::Plugin;
use crate::session::Session;
use crate::tracing_hooks::{self, Producer};

impl Session {
    /// Imports statistics of a plugin.
    ///
    /// # Errors
    /// [`Error::Data`] if the batch is malformed, or does not have Arrow's statistics schema.
    pub(super) fn import_statistics(&self, plugin: &Plugin, raw: Owned<abi::Batch>) -> Result<DeviceBatch> {
        let import = || {
            let missing = || ApiError::internal("the batch has no schema");
            let schema = Arc::new(batch_schema(&raw)?.ok_or_else(missing)?);
            check_schema(&schema)?;
            let raw = tracing_hooks::batch(raw, plugin.account(), Producer::Plugin);
            let batch = import_result(raw, &schema, self.stream())?;
            if batch.device() != Device::CPU {
                return Err(ApiError::internal(format!(
                    "the batch is on {}, expected host memory",
                    batch.device()
                )));
            }
            validate(&batch, Level::Full, self.stream())?;
            Ok(batch)
        };
        import().map_err(|error| Error::data(format!("{plugin} returned malformed statistics"), error))
    }
}

/// Checks for Arrow's statistics schema. Names of nested fields are not compared, because Arrow
/// does not fix them.
///
/// # Errors
/// An internal error that names the columns, because a plugin made the schema.
pub fn check_schema(schema: &Schema) -> ApiResult<()> {
    let is_statistics = |data_type: &DataType| {
        let DataType::Map(entries, _) = data_type else { return false };
        let DataType::Struct(fields) = entries.data_type() else { return false };
        let types: Vec<_> = fields.iter().map(|field| field.data_type()).collect();
        let [DataType::Dictionary(indices, names), DataType::Union(_, UnionMode::Dense)] = types[..] else {
            return false;
        };
        (&**indices, &**names) == (&DataType::Int32, &DataType::Utf8)
    };
    match schema.fields().as_ref() {
        [column, statistics]
            if column.name() == "column"
                && column.data_type() == &DataType::Int32
                && statistics.name() == "statistics"
                && is_statistics(statistics.data_type()) =>
        {
            Ok(())
        }
        fields => {
            let fields: Vec<_> = fields
                .iter()
                .map(|field| format!("{}: {}", field.name(), crossdock_arrays::type_name(field.data_type())))
                .collect();
            Err(ApiError::internal(format!(
                "expected the columns of Arrow's statistics schema (column: Int32, statistics: Map from Dictionary(Int32, \
                 Utf8) to a dense Union), got [{}]",
                fields.join(", ")
            )))
        }
    }
}
