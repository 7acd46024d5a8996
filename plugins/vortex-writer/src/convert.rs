//! Converts schemas and batches to the types of the crate `vortex`, through Arrow's C structs.

use arrow_schema::{Fields, Schema};
use crossdock_arrays::{DeviceBatch, export_batch_to_external, export_schema};
use crossdock_memory::Stream;
use crossdock_plugin_api::{Error, Owned, Result, abi};
use vortex::array::validity::Validity;
use vortex::array::{ArrayRef, IntoArray, VortexSessionExecute, arrays};
use vortex::arrow::ArrowSessionExt;
use vortex::dtype::{DType, FieldName, Nullability};
use vortex::error::VortexResult;
use vortex::expr::stats::Stat;
use vortex::extension::datetime::{AnyTemporal, TemporalMetadata};
use vortex::scalar::{Scalar, ScalarValue};
use vortex::session::VortexSession;
use vortex_arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi_and_data_type};
use vortex_arrow_array::{Array, FixedSizeListArray, StructArray, make_array};
use vortex_arrow_data::ArrayData;
use vortex_arrow_schema::{ArrowError, DataType, FieldRef};

use crate::error::{guarded, of_batch, text_of};

/// The columns of a table for the crate.
pub struct Table {
    /// Arrow's type: a struct of the columns.
    data_type: DataType,
    columns: Vec<(FieldRef, DType)>,
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
        let DataType::Struct(fields) = &data_type else {
            return Err(Error::internal(format!("the type of a table is {data_type}, expected a struct")));
        };
        let convert = |field: &FieldRef| {
            let dtype = session.arrow().from_arrow_field(field).and_then(|dtype| {
                check_zones(&dtype)?;
                Ok(dtype)
            });
            let dtype = dtype.map_err(|error| {
                Error::unsupported(format!(
                    "Vortex has no type for {}: {}",
                    field.data_type(),
                    text_of(&error)
                ))
            });
            Ok((field.clone(), dtype.map_err(|error| error.context(named(field)))?))
        };
        let columns = fields.iter().map(convert).collect::<Result<_>>()?;
        Ok(Self { data_type, columns })
    }

    /// Vortex's type of the table.
    pub fn dtype(&self) -> DType {
        let fields =
            self.columns.iter().map(|(field, dtype)| (FieldName::from(&**field.name()), dtype.clone()));
        DType::Struct(fields.collect(), Nullability::NonNullable)
    }

    /// Converts a batch in host memory whose contents were validated. The result refers to the
    /// buffers of the batch.
    ///
    /// # Errors
    /// Unsupported if the crate rejects a column. The error names the column.
    pub fn array(&self, batch: &DeviceBatch, session: &VortexSession, stream: &Stream) -> Result<ArrayRef> {
        let mut raw = export_batch_to_external(batch, false, stream)?.into_raw();
        // SAFETY: `into_raw` passed the ownership of the array and of the schema. The owner of the
        // schema is dropped here. `from_raw` moves the array, and marks the source as released.
        let array = unsafe {
            drop(Owned::<abi::ArrowSchema>::take(&mut raw.schema));
            FFI_ArrowArray::from_raw((&raw mut raw.array.array).cast())
        };
        // SAFETY: the array was exported from a batch with the columns of `self.data_type`.
        let data = unsafe { from_ffi_and_data_type(array, self.data_type.clone()) };
        let data = data.and_then(without_offsets);
        let data = data.map_err(|error| Error::internal(format!("cannot import the batch: {error}")))?;
        let convert = |((field, dtype), column): (&(FieldRef, DType), &ArrayData)| {
            let column = session.arrow().from_arrow_array(make_array(column.clone()), field);
            let column = column.map_err(|error| of_batch(&error).context(named(field)))?;
            if column.dtype() != dtype {
                let got = column.dtype();
                let error = Error::internal(format!("the batch has Vortex's type {got}, expected {dtype}"));
                return Err(error.context(named(field)));
            }
            Ok(column)
        };
        let columns = self.columns.iter().zip(data.child_data()).map(convert).collect::<Result<Vec<_>>>()?;
        let names = self.columns.iter().map(|(field, _)| FieldName::from(&**field.name()));
        let table =
            arrays::StructArray::try_new(names.collect(), columns, batch.len(), Validity::NonNullable);
        Ok(table.map_err(|error| of_batch(&error))?.into_array())
    }

    /// The error of the first column whose values the crate rejects. It rejects values when it
    /// computes statistics.
    pub fn explain(&self, array: &ArrayRef, session: &VortexSession) -> Option<Error> {
        let mut columns = self.columns.iter().zip(array.children_iter());
        columns.find_map(|((field, _), column)| {
            let checked = guarded(|| statistics(column, session).map_err(|error| of_batch(&error)));
            checked.err().map(|error| error.context(named(field)))
        })
    }
}

fn named(field: &FieldRef) -> String {
    format!("column '{}'", field.name())
}

fn statistics(array: &ArrayRef, session: &VortexSession) -> VortexResult<()> {
    array.statistics().compute_all(&[Stat::Min, Stat::Max], &mut session.create_execution_ctx())?;
    array.children_iter().try_for_each(|child| statistics(child, session))
}

/// Checks that the crate knows the time zones of a type. It would panic when it computes
/// statistics.
fn check_zones(dtype: &DType) -> VortexResult<()> {
    match dtype {
        DType::List(item, _) | DType::FixedSizeList(item, ..) => check_zones(item),
        DType::Map(map, _) => check_zones(&map.key_dtype()).and_then(|()| check_zones(&map.value_dtype())),
        DType::Struct(fields, _) => fields.fields().try_for_each(|field| check_zones(&field)),
        DType::Extension(extension)
            if matches!(
                extension.metadata_opt::<AnyTemporal>(),
                Some(TemporalMetadata::Timestamp(_, Some(_)))
            ) =>
        {
            Scalar::try_new(dtype.clone(), Some(ScalarValue::from(0i64))).map(drop)
        }
        _ => Ok(()),
    }
}

/// Moves the offsets of structs and of lists of a fixed size to their children. If a struct in a
/// struct has an offset, `make_array` of arrow-rs 59 applies the offset twice, and panics.
fn without_offsets(data: ArrayData) -> Result<ArrayData, ArrowError> {
    let children: Vec<_> =
        data.child_data().iter().cloned().map(without_offsets).collect::<Result<_, _>>()?;
    let (begin, len, nulls) = (data.offset(), data.len(), data.nulls().cloned());
    let mut columns = children.iter().cloned().map(make_array);
    match data.data_type() {
        DataType::Struct(fields) => {
            let columns = columns.map(|column| column.slice(begin, len)).collect();
            Ok(StructArray::try_new_with_length(fields.clone(), columns, nulls, len)?.into_data())
        }
        DataType::FixedSizeList(item, size) => {
            let n = usize::try_from(*size).unwrap_or(0);
            let missing = || ArrowError::CDataInterface("a list has no child".into());
            let items = columns.next().ok_or_else(missing)?.slice(begin * n, len * n);
            Ok(FixedSizeListArray::try_new_with_length(item.clone(), *size, items, nulls, len)?.into_data())
        }
        _ if children.is_empty() => Ok(data),
        // SAFETY: the new children have the values of the old ones.
        _ => Ok(unsafe { data.into_builder().child_data(children).build_unchecked() }),
    }
}
