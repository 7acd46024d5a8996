//! Passes record batches and arrays of arrow-rs to and from the host through Arrow's C structs.

use arrow_array::ffi::{FFI_ArrowArray, from_ffi_and_data_type};
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, StructArray};
use arrow_schema::{DataType, Field, SchemaRef};
use crossdock_arrays::{
    DeviceArray, DeviceBatch, Level, check_nullability, export_batch_to_external, import_array, validate,
};
use crossdock_memory::{Memory, Stream};
use crossdock_plugin_api::{Device, Error, Owned, Result, abi};

const _: () = assert!(size_of::<FFI_ArrowArray>() == size_of::<abi::ArrowArray>());
const _: () = assert!(align_of::<FFI_ArrowArray>() == align_of::<abi::ArrowArray>());

/// Passes a record batch in host memory to the host, without a copy. The host counts its memory
/// from the moment it receives the batch.
pub fn to_host(batch: RecordBatch) -> Owned<abi::Batch> {
    let mut out = abi::Batch::new();
    out.array.array = exported(&StructArray::from(batch));
    out.array.device_type = Device::CPU.r#type;
    out.array.device_id = Device::CPU.id;
    // SAFETY: the struct owns the array, and there is no other copy of it.
    unsafe { Owned::new(out) }
}

/// Converts an array to one in host memory that the host counts, without a copy.
///
/// # Errors
/// The array does not have the type of `field`.
pub fn to_device_array(array: &ArrayRef, field: &Field, memory: &Memory) -> Result<DeviceArray> {
    // SAFETY: the struct owns the array, and there is no other copy of it.
    let raw = unsafe { Owned::new(exported(array)) };
    let mut array = import_array(raw, field, memory)?;
    // The host counts only buffers of a known size against the budget.
    array.resolve_sizes(&memory.default_stream(Device::CPU)?)?;
    Ok(array)
}

fn exported(array: &dyn Array) -> abi::ArrowArray {
    let array = FFI_ArrowArray::new(&array.to_data());
    // SAFETY: both types declare Arrow's C struct, and the `transmute` moves its ownership.
    unsafe { std::mem::transmute::<FFI_ArrowArray, abi::ArrowArray>(array) }
}

/// Converts a batch in host memory to a record batch that refers to the buffers of the batch.
/// Validates the contents of the buffers first, because arrow-rs relies on them. The types of
/// `schema` are those of the batch, except for the time zones of timestamps.
///
/// # Errors
/// Bad data if the contents are invalid or a column that is not nullable contains nulls, internal
/// if arrow-rs rejects the batch.
pub fn from_host(batch: &DeviceBatch, schema: &SchemaRef, stream: &Stream) -> Result<RecordBatch> {
    let (expected, actual) = (batch.schema().fields(), schema.fields());
    if expected.len() != actual.len() || !expected.iter().zip(actual).all(|(a, b)| has_layout(a, b)) {
        return Err(Error::internal("the types of the schema are not those of the batch"));
    }
    let mut batch = batch.clone();
    batch.resolve_sizes(stream)?;
    check_nullability(&batch, stream)?;
    validate(&batch, Level::Full, stream)?;
    let len = batch.len();
    let mut raw = export_batch_to_external(&batch, false, stream)?.into_raw();
    // SAFETY: `into_raw` passed the ownership of the array and of the schema. The owner of the
    // schema is dropped here. `from_raw` moves the array, and marks the source as released.
    let array = unsafe {
        drop(Owned::<abi::ArrowSchema>::take(&mut raw.schema));
        FFI_ArrowArray::from_raw((&raw mut raw.array.array).cast())
    };
    // SAFETY: `has_layout` checked that the columns of the batch, from which the array was
    // exported, have the layouts of the types of `schema`. Their contents were validated.
    let data = unsafe { from_ffi_and_data_type(array, DataType::Struct(schema.fields().clone())) };
    let failed = |error| Error::internal(format!("cannot import the batch: {error}"));
    let columns = StructArray::from(data.map_err(failed)?).into_parts().1;
    let options = RecordBatchOptions::new().with_row_count(Some(len));
    RecordBatch::try_new_with_options(schema.clone(), columns, &options).map_err(failed)
}

/// Whether the values of two fields have the same layout: their types are equal except for the time
/// zones of timestamps.
fn has_layout(a: &Field, b: &Field) -> bool {
    a.is_nullable() == b.is_nullable() && has_type_layout(a.data_type(), b.data_type())
}

fn has_type_layout(a: &DataType, b: &DataType) -> bool {
    use DataType::{
        Dictionary, FixedSizeList, LargeList, LargeListView, List, ListView, Map, Struct, Timestamp,
    };
    match (a, b) {
        (Timestamp(a, _), Timestamp(b, _)) => a == b,
        (Struct(a), Struct(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| has_layout(a, b)),
        (List(a), List(b))
        | (LargeList(a), LargeList(b))
        | (ListView(a), ListView(b))
        | (LargeListView(a), LargeListView(b)) => has_layout(a, b),
        (FixedSizeList(a, m), FixedSizeList(b, n)) => m == n && has_layout(a, b),
        (Map(a, s), Map(b, t)) => s == t && has_layout(a, b),
        (Dictionary(k, a), Dictionary(l, b)) => k == l && has_type_layout(a, b),
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::Int64Array;
    use arrow_schema::{Schema, TimeUnit};
    use crossdock_arrays::import_batch;
    use crossdock_test_support::TestHost;

    use super::*;

    #[test]
    fn batch_is_only_converted_to_types_with_its_layout() {
        let host = TestHost::new();
        let column: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
        let batch = RecordBatch::try_from_iter([("a", column)]).unwrap();
        let schema = batch.schema();
        let imported = import_batch(to_host(batch.clone()), &schema, &host.memory()).unwrap();
        let stream = host.stream(Device::CPU);
        assert_eq!(from_host(&imported, &schema, &stream).unwrap(), batch);
        let nullable = schema.field(0).is_nullable();
        for other in [DataType::Decimal256(50, 2), DataType::Int32, DataType::Utf8] {
            let other = Arc::new(Schema::new(vec![Field::new("a", other, nullable)]));
            let error = from_host(&imported, &other, &stream).unwrap_err();
            assert_eq!(error.message(), "the types of the schema are not those of the batch");
        }
        let empty = Arc::new(Schema::empty());
        assert!(from_host(&imported, &empty, &stream).is_err());
    }

    #[test]
    fn time_zones_do_not_change_the_layout() {
        let field = |zone: Option<&str>| {
            let timestamp = DataType::Timestamp(TimeUnit::Second, zone.map(Into::into));
            let list = DataType::List(Arc::new(Field::new("item", timestamp, true)));
            Field::new("a", DataType::Struct(vec![Field::new("b", list, true)].into()), true)
        };
        assert!(has_layout(&field(Some("+00:00")), &field(Some("Europe/Berlin"))));
        assert!(has_layout(&field(None), &field(Some("Europe/Berlin"))));
        assert!(!has_layout(&field(None), &Field::new("a", DataType::Int64, true)));
    }
}
