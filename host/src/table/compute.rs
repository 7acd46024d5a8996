//! Operations on rows and columns. They run on the device of the table.

use std::sync::Arc;

use arrow_schema::extension::{EXTENSION_TYPE_METADATA_KEY, EXTENSION_TYPE_NAME_KEY};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use crossdock_arrays::filter::Literal;
use crossdock_arrays::metadata::with_dictionary_values;
use crossdock_arrays::{
    CastMode, DeviceArray, DeviceBatch, NUMBER_EXTENSION, RowIndices, cast_values, dictionary_encode,
    dictionary_keys, elements_and_offsets, fill_null, filter_rows, first_null, lists_of_fixed_size,
    null_mask,
};
use crossdock_kernel_library::with_threads;
use crossdock_memory::Stream;
use crossdock_plugin_api::{Device, Error as ApiError, Result as ApiResult};

use super::{Table, in_table};
use crate::error::{Error, Result};
use crate::filter::{Condition, Filter, Predicate};
use crate::writer::schema_difference;

impl Table {
    /// The device of the table; the device of its session if it has no batches.
    pub fn device(&self) -> Device {
        self.batches.first().map_or(self.session.device(), DeviceBatch::device)
    }

    /// Returns the same rows as one batch. A table of one batch is not copied.
    ///
    /// # Errors
    /// [`Error::Data`] if the batches cannot be concatenated, for example because offsets of 32
    /// bits cannot represent the result.
    pub fn combine(&self) -> Result<Table> {
        let batch = match self.batches.as_slice() {
            [_] => return Ok(self.clone()),
            [] => self.empty_batch()?,
            // A table that was built from batches of other tables may be on several devices.
            _ => {
                let one_device = self.move_to(self.device())?;
                DeviceBatch::concatenate(&one_device.batches, self.session.stream()).map_err(in_table)?
            }
        };
        Ok(self.with_batches(vec![batch]))
    }

    /// Concatenates the rows of tables with one schema, in order. The buffers are shared.
    ///
    /// # Errors
    /// [`Error::Usage`] if there is no table, or the schemas differ.
    pub fn concatenate(tables: &[Table]) -> Result<Table> {
        let Some((first, others)) = tables.split_first() else {
            return Err(Error::usage("expected at least one table to concatenate, got none"));
        };
        let mut batches = first.batches.clone();
        for (i, table) in others.iter().enumerate() {
            if let Some(difference) = schema_difference(&first.schema, &table.schema) {
                return Err(Error::usage(format!(
                    "table {} does not have the schema of the first table: {difference}",
                    i + 1
                )));
            }
            let renamed = table.with_schema(&first.schema)?;
            batches.extend(renamed.batches);
        }
        Ok(first.with_batches(batches))
    }

    /// Returns the rows at `indices`, a table of one column of integers, in that order. The row of
    /// a null index is null. Several batches are combined first.
    ///
    /// # Errors
    /// [`Error::Data`] if an index is out of range, or null for a column that cannot have nulls.
    pub fn take(&self, indices: &Table) -> Result<Table> {
        let all = self.combine()?;
        let indices = indices.only_column(self.device())?;
        let stream = self.stream()?;
        let rows = usize::try_from(all.rows()).unwrap_or(usize::MAX);
        let failed = |error: ApiError| Error::data(place("indices", error.row()), error);
        let has_nulls = indices.count_nulls(&stream).map_err(failed)? > 0;
        let fields = self.schema.fields().iter();
        let nullable =
            fields.map(|field| field.as_ref().clone().with_nullable(field.is_nullable() || has_nulls));
        let schema =
            Arc::new(Schema::new_with_metadata(nullable.collect::<Vec<_>>(), self.schema.metadata().clone()));
        with_threads(&self.session.kernel_threads(), || {
            let indices = RowIndices::new(&indices, rows, &stream).map_err(failed)?;
            let [batch] = all.batches.as_slice() else { return Err(in_table(not_one())) };
            let columns = schema.fields().iter().zip(batch.columns()).map(|(field, column)| {
                self.session.check_cancelled()?;
                indices.take(column).map_err(|error| in_column(field, None, error))
            });
            let columns = columns.collect::<Result<Vec<_>>>()?;
            self.one_batch(schema.clone(), indices.len(), columns)
        })
    }

    /// Returns the rows whose value in `mask`, a table of one column of booleans, is true. A null
    /// selects no row.
    ///
    /// # Errors
    /// [`Error::Data`] unless the mask has one boolean for each row.
    pub fn filter(&self, mask: &Table) -> Result<Table> {
        let failed = |error: ApiError| Error::data("mask", error);
        if mask.rows() != self.rows() {
            return Err(Error::usage(format!(
                "mask: expected one boolean for each of {} rows, got {} values",
                self.rows(),
                mask.rows()
            )));
        }
        let (mask, stream) = (mask.only_column(self.device())?, self.stream()?);
        let (mut batches, mut first) = (Vec::new(), 0);
        for batch in self.move_to(self.device())?.batches {
            self.session.check_cancelled()?;
            let of_batch = mask.slice(first, batch.len()).map_err(failed)?;
            first += batch.len();
            let filtered =
                with_threads(&self.session.kernel_threads(), || filter_rows(&batch, &of_batch, &stream));
            batches.extend(filtered.map_err(failed)?);
        }
        Ok(self.with_batches(batches))
    }

    /// Converts the column at `index` to another type; see [`cast_values`].
    ///
    /// # Errors
    /// [`Error::Data`] if there is no such conversion or a value cannot be represented. The error
    /// names the column and the row.
    pub fn cast(&self, index: usize, to: &DataType, mode: CastMode) -> Result<Table> {
        self.map_column(
            index,
            |array, stream| cast_values(array, to, mode, stream),
            |field| match field.data_type() == to {
                true => field,
                false => without_extension(field).with_data_type(to.clone()),
            },
        )
    }

    /// Replaces the nulls of the column at `index` by a value of its type.
    ///
    /// # Errors
    /// [`Error::Data`] if the value is no value of the type, or if the type is nested.
    pub fn fill_null(&self, index: usize, value: &Literal) -> Result<Table> {
        self.map_column(
            index,
            |array, stream| fill_null(array, value, stream),
            |field| field.with_nullable(false),
        )
    }

    /// Encodes the column at `index` as a dictionary with keys of type `int32`. Several batches are
    /// combined first, so that there is one dictionary.
    ///
    /// # Errors
    /// [`Error::Data`] if the type is nested.
    pub fn dictionary_encode(&self, index: usize) -> Result<Table> {
        let encoded = |field: Field| match field.data_type() {
            DataType::Dictionary(..) => field,
            other => {
                let other = other.clone();
                let encoded = DataType::Dictionary(Box::new(DataType::Int32), Box::new(other));
                // The extension type is that of the values.
                let of_values =
                    field.metadata().iter().filter(|(key, _)| EXTENSION_KEYS.contains(&key.as_str()));
                let of_values = of_values.map(|(key, value)| (key.clone(), value.clone())).collect();
                let field = without_extension(field).with_data_type(encoded);
                let metadata = with_dictionary_values(field.metadata().clone(), &of_values);
                field.with_metadata(metadata)
            }
        };
        self.combine()?.map_column(index, dictionary_encode, encoded)
    }

    /// Converts the lists of the column at `index`, which all have the same length, to lists of
    /// fixed size. Several batches are combined first.
    ///
    /// # Errors
    /// [`Error::Data`] that names the first row of another length.
    pub fn lists_of_fixed_size(&self, index: usize) -> Result<Table> {
        let combined = self.combine()?;
        // The size is known only afterwards, so the column is converted before the field.
        let column = combined.batches.first().and_then(|batch| batch.column(index));
        let (field, Some(column)) = (combined.field(index)?, column) else { return Err(in_table(not_one())) };
        let lists = lists_of_fixed_size(column, &self.stream()?);
        let lists = lists.map_err(|error| in_column(field, Some(0), error))?;
        let of = lists.data_type().clone();
        combined.map_column(
            index,
            |_, _| Ok(lists.clone()),
            |field| without_extension(field).with_data_type(of).with_nullable(false),
        )
    }

    /// The elements of the lists of the column at `index`, and the offsets of each list in these
    /// elements: two tables of one column. Several batches are combined first.
    ///
    /// # Errors
    /// [`Error::Data`] if a list is null, or if the column has no lists with offsets.
    pub fn elements_and_offsets(&self, index: usize) -> Result<(Table, Table)> {
        let combined = self.combine()?;
        let column = combined.batches.first().and_then(|batch| batch.column(index));
        let (field, Some(column)) = (combined.field(index)?, column) else { return Err(in_table(not_one())) };
        let parts = elements_and_offsets(column, &self.stream()?);
        let (elements, offsets) = parts.map_err(|error| in_column(field, Some(0), error))?;
        let table = |name: &str, array: DeviceArray| {
            let child = match field.data_type() {
                DataType::List(child) | DataType::LargeList(child)
                    if *child.data_type() == *array.data_type() =>
                {
                    child.as_ref().clone()
                }
                _ => Field::new("", array.data_type().clone(), false),
            };
            let schema = Schema::new(vec![child.with_name(name)]);
            self.one_batch(Arc::new(schema), array.len(), vec![array])
        };
        Ok((table(field.name(), elements)?, table("offsets", offsets)?))
    }

    /// The keys of the dictionary-encoded column at `index`, as integers. Several batches are
    /// combined first, so that there is one dictionary.
    ///
    /// # Errors
    /// [`Error::Data`] if the column is not dictionary-encoded.
    pub fn dictionary_keys(&self, index: usize) -> Result<Table> {
        let keys = |field: Field| match field.data_type() {
            DataType::Dictionary(keys, _) => {
                let keys = keys.as_ref().clone();
                Field::new(field.name(), keys, field.is_nullable())
            }
            _ => field,
        };
        self.combine()?.map_column(index, |array, _| dictionary_keys(array), keys)
    }

    /// Combines the columns of tables of one column each into one table. If the tables have other
    /// batches, they are combined first.
    ///
    /// # Errors
    /// [`Error::Usage`] if there is no table, or if the numbers of rows differ.
    pub fn from_column_tables(columns: &[(String, Table)]) -> Result<Table> {
        let Some(((_, first), others)) = columns.split_first() else {
            return Err(Error::usage("expected at least one column, got none"));
        };
        let first_name = columns.first().map_or("", |(name, _)| name);
        for (name, table) in others {
            if table.rows() != first.rows() {
                return Err(Error::usage(format!(
                    "column '{name}' has {} rows, and column '{first_name}' has {}",
                    table.rows(),
                    first.rows()
                )));
            }
        }
        let lengths = |table: &Table| table.batches.iter().map(DeviceBatch::len).collect::<Vec<_>>();
        let are_aligned = others.iter().all(|(_, table)| lengths(table) == lengths(first));
        let device = first.device();
        let mut fields = Vec::with_capacity(columns.len());
        let mut arrays: Vec<Vec<DeviceArray>> = Vec::new();
        for (name, table) in columns {
            let table = if are_aligned { table.clone() } else { table.combine()? };
            let table = table.move_to(device)?;
            fields.push(table.field(0)?.clone().with_name(name));
            arrays.resize_with(table.batches.len(), Vec::new);
            for (row, batch) in arrays.iter_mut().zip(&table.batches) {
                row.extend(batch.columns().iter().take(1).cloned());
            }
        }
        let schema = Arc::new(Schema::new(fields));
        let batches = arrays.into_iter().map(|columns| {
            let len = columns.first().map_or(0, DeviceArray::len);
            let batch = DeviceBatch::try_new(schema.clone(), len, columns);
            batch.and_then(|batch| batch.with_default_device(device)).map_err(in_table)
        });
        Ok(Self { session: first.session.clone(), batches: batches.collect::<Result<_>>()?, schema })
    }

    /// Returns the rows that fulfil all comparisons, as in a scan.
    ///
    /// # Errors
    /// [`Error::Usage`] if a column does not exist or cannot be compared with the literal.
    pub fn filter_by(&self, predicates: &[Predicate]) -> Result<Table> {
        let mut conditions = Vec::with_capacity(predicates.len());
        for predicate in predicates {
            let path = predicate.column.resolve(&self.schema);
            let condition = Condition::new(&self.schema, &path, predicate)?;
            if condition.is_never() {
                return Ok(self.with_batches(Vec::new()));
            }
            conditions.push(condition);
        }
        let Some(filter) = Filter::new(conditions, &self.session) else { return Ok(self.clone()) };
        let mut batches = Vec::new();
        for batch in &self.batches {
            self.session.check_cancelled()?;
            batches.extend(filter.apply(batch).map_err(|error| Error::data("cannot filter rows", error))?);
        }
        Ok(self.with_batches(batches))
    }

    /// A column of booleans that are true for each null of the column at `index`.
    ///
    /// # Errors
    /// [`Error::Usage`] if the index is out of range.
    pub fn null_mask(&self, index: usize) -> Result<Table> {
        let mask = |field: Field| Field::new(field.name(), DataType::Boolean, false);
        self.select(&[index])?.map_column(0, null_mask, mask)
    }

    /// The first row whose value in the only column is null.
    ///
    /// # Errors
    /// [`Error::Usage`] unless there is one column.
    pub fn first_null(&self) -> Result<Option<u64>> {
        let column = self.only_column(self.device())?;
        first_null(&column, &self.stream()?).map_err(in_table)
    }

    fn with_batches(&self, batches: Vec<DeviceBatch>) -> Table {
        Self { session: self.session.clone(), schema: self.schema.clone(), batches }
    }

    /// A stream of the table's device.
    fn stream(&self) -> Result<Stream> {
        self.session.memory().default_stream(self.device()).map_err(in_table)
    }

    fn field(&self, index: usize) -> Result<&Field> {
        let n = self.schema.fields().len();
        let field = self.schema.fields().get(index).map(AsRef::as_ref);
        field.ok_or_else(|| {
            Error::usage(format!("column {index}: the table has {n} columns, expected an index below {n}"))
        })
    }

    /// The values of a table of one column on `device`, as one array.
    fn only_column(&self, device: Device) -> Result<DeviceArray> {
        let combined = self.combine()?.move_to(device)?;
        let [batch] = combined.batches.as_slice() else { return Err(in_table(not_one())) };
        match batch.columns() {
            [column] => Ok(column.clone()),
            columns => Err(Error::usage(format!("expected one column, got {}", columns.len()))),
        }
    }

    fn one_batch(&self, schema: SchemaRef, len: usize, columns: Vec<DeviceArray>) -> Result<Table> {
        let batch = DeviceBatch::try_new(schema.clone(), len, columns);
        let batch = batch.and_then(|batch| batch.with_default_device(self.device())).map_err(in_table)?;
        Ok(Self { session: self.session.clone(), schema, batches: vec![batch] })
    }

    /// Replaces the column at `index` of each batch, and its field.
    fn map_column(
        &self,
        index: usize,
        convert: impl Fn(&DeviceArray, &Stream) -> ApiResult<DeviceArray>,
        to_field: impl FnOnce(Field) -> Field,
    ) -> Result<Table> {
        let field = self.field(index)?;
        let mut fields: Vec<_> = self.schema.fields().iter().cloned().collect();
        if let Some(slot) = fields.get_mut(index) {
            *slot = Arc::new(to_field(field.clone()));
        }
        let schema = Arc::new(Schema::new_with_metadata(fields, self.schema.metadata().clone()));
        let (mut batches, mut first) = (Vec::with_capacity(self.batches.len()), 0);
        for batch in &self.batches {
            self.session.check_cancelled()?;
            let mut columns = batch.columns().to_vec();
            let failed = |error| in_column(field, Some(first), error);
            if let Some(column) = columns.get_mut(index) {
                let converted =
                    with_threads(&self.session.kernel_threads(), || convert(column, self.session.stream()));
                *column = converted.map_err(failed)?;
            }
            let new = DeviceBatch::try_new(schema.clone(), batch.len(), columns);
            let new = new.and_then(|new| new.with_default_device(batch.device())).map_err(failed)?;
            batches.push(new.with_metadata(batch.metadata().clone()));
            first += batch.len() as u64;
        }
        Ok(Self { session: self.session.clone(), schema, batches })
    }
}

/// The keys of the metadata that describe the extension type of a field.
const EXTENSION_KEYS: [&str; 3] = [EXTENSION_TYPE_NAME_KEY, EXTENSION_TYPE_METADATA_KEY, NUMBER_EXTENSION];

/// The field without the extension type, which belongs to the storage type of the field.
fn without_extension(field: Field) -> Field {
    let mut metadata = field.metadata().clone();
    for key in EXTENSION_KEYS {
        metadata.remove(key);
    }
    field.with_metadata(metadata)
}

fn not_one() -> ApiError {
    ApiError::internal("a combined table without its batch or column")
}

/// The name of a column or an argument, and the row if it is known.
fn place(name: &str, row: Option<u64>) -> String {
    match row {
        Some(row) => format!("{name}, row {row}"),
        None => name.to_owned(),
    }
}

/// Names the column of an error and its row. `first` is the number of rows before the batch.
fn in_column(field: &Field, first: Option<u64>, error: ApiError) -> Error {
    let row = error.row().map(|row| row.saturating_add(first.unwrap_or(0)));
    let error = match row {
        Some(row) => error.with_row(row),
        None => error,
    };
    Error::data(place(&format!("column '{}'", field.name()), row), error)
}
