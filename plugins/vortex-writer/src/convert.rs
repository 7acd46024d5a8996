//! Converts schemas and batches to the types of the crate `vortex`, through Arrow's C structs.

use arrow_schema::{Fields, Schema};
use crossdock_arrays::{DeviceBatch, export_batch_to_external, export_schema};
use crossdock_memory::Stream;
use crossdock_plugin_api::{Error, Owned, Result, abi};
use vortex::array::ArrayRef;
use vortex::arrow::ArrowSessionExt;
use vortex::dtype::DType;
use vortex::session::VortexSession;
use vortex_arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi_and_data_type};
use vortex_arrow_array::make_array;
use vortex_arrow_schema::{DataType, Field};

use crate::error::{of_writer, text_of};

/// The type of a table for the crate.
pub struct Table {
    /// Arrow's type: a struct of the columns.
    field: Field,
    /// Vortex's type.
    pub dtype: DType,
}

impl Table {
    /// Converts the columns `fields`, which have no metadata.
    ///
    /// # Errors
    /// Unsupported if the crate rejects a column. The error names the column.
    pub fn new(fields: &Fields, session: &VortexSession) -> Result<Self> {
        let raw = export_schema(&Schema::new(fields.clone()))?;
        // SAFETY: both types declare Arrow's C struct, and `raw` is a valid schema, which outlives
        // the reference.
        let raw = unsafe { &*std::ptr::from_ref::<abi::ArrowSchema>(&raw).cast::<FFI_ArrowSchema>() };
        let data_type = DataType::try_from(raw).map_err(|error| {
            Error::unsupported(format!("the crate arrow-schema of Vortex does not read the schema: {error}"))
        })?;
        let DataType::Struct(columns) = &data_type else {
            return Err(Error::internal(format!("the type of a table is {data_type}, expected a struct")));
        };
        for column in columns {
            session.arrow().from_arrow_field(column).map_err(|error| {
                let why = text_of(&error);
                Error::unsupported(format!("column '{}': Vortex has no type for it: {why}", column.name()))
            })?;
        }
        let field = Field::new("", data_type, false);
        let dtype = session.arrow().from_arrow_field(&field).map_err(|error| of_writer(&error))?;
        Ok(Self { field, dtype })
    }

    /// Converts a batch in host memory whose contents were validated. The result refers to the
    /// buffers of the batch.
    ///
    /// # Errors
    /// Internal if the crate rejects the batch.
    pub fn array(&self, batch: &DeviceBatch, session: &VortexSession, stream: &Stream) -> Result<ArrayRef> {
        let mut raw = export_batch_to_external(batch, false, stream)?.into_raw();
        // SAFETY: `into_raw` passed the ownership of the array and of the schema. The owner of the
        // schema is dropped here. `from_raw` moves the array, and marks the source as released.
        let array = unsafe {
            drop(Owned::<abi::ArrowSchema>::take(&mut raw.schema));
            FFI_ArrowArray::from_raw((&raw mut raw.array.array).cast())
        };
        // SAFETY: the array was exported from a batch with the columns of `self.field`.
        let data = unsafe { from_ffi_and_data_type(array, self.field.data_type().clone()) };
        let data = data.map_err(|error| Error::internal(format!("cannot import the batch: {error}")))?;
        let array = session.arrow().from_arrow_array(make_array(data), &self.field);
        let array = array.map_err(|error| of_writer(&error))?;
        if *array.dtype() != self.dtype {
            return Err(Error::internal(format!(
                "the batch has Vortex's type {}, expected {}",
                array.dtype(),
                self.dtype
            )));
        }
        Ok(array)
    }
}
