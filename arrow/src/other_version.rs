//! Converts record batches of another major version of arrow-rs.

/// Declares two functions that convert record batches of another version of the crate
/// `arrow-array` to and from this crate's version. They pass the buffers through Arrow's C structs,
/// without a copy. The arguments are the name of the other version in the crate that uses the
/// macro, and the names of the functions.
///
/// With `arrow-array-58 = { package = "arrow-array", version = "58", features = ["ffi"] }` as a
/// dependency:
///
/// ```
/// # use crossdock_arrow::arrow_array as arrow_array_58;
/// crossdock_arrow::other_arrow!(arrow_array_58, to_current, to_58);
///
/// let column: arrow_array_58::ArrayRef =
///     std::sync::Arc::new(arrow_array_58::Int32Array::from(vec![Some(1), None]));
/// let old = arrow_array_58::RecordBatch::try_from_iter([("a", column)])?;
/// let batch: crossdock_arrow::arrow_array::RecordBatch = to_current(old.clone())?;
/// assert_eq!(batch.num_rows(), 2);
/// assert_eq!(to_58(batch)?, old);
/// # Ok::<(), crossdock_arrow::BoxError>(())
/// ```
#[macro_export]
macro_rules! other_arrow {
    ($other:ident, $to_current:ident, $to_other:ident) => {
        $crate::other_arrow!(@convert $to_current, ($other), ($crate::arrow_array));
        $crate::other_arrow!(@convert $to_other, ($crate::arrow_array), ($other));
    };
    (@convert $function:ident, ($($from:tt)+), ($($to:tt)+)) => {
        /// Converts a record batch.
        ///
        /// # Errors
        /// The other version does not know the type of a column.
        #[allow(dead_code)]
        fn $function(
            batch: $($from)+::RecordBatch,
        ) -> ::std::result::Result<$($to)+::RecordBatch, $crate::BoxError> {
            let schema = $($from)+::ffi::FFI_ArrowSchema::try_from(batch.schema().as_ref())?;
            let n_rows = batch.num_rows();
            let array = $($from)+::StructArray::from(batch);
            let array = $($from)+::ffi::FFI_ArrowArray::new(&$($from)+::Array::to_data(&array));
            // SAFETY: all versions declare the structs of Arrow's C data interface, and the
            // `transmute` moves their ownership.
            let (array, schema) = unsafe {
                (
                    ::std::mem::transmute::<$($from)+::ffi::FFI_ArrowArray, $($to)+::ffi::FFI_ArrowArray>(array),
                    ::std::mem::transmute::<$($from)+::ffi::FFI_ArrowSchema, $($to)+::ffi::FFI_ArrowSchema>(
                        schema,
                    ),
                )
            };
            // SAFETY: arrow-rs exported the array and its schema together from a record batch.
            let data = unsafe { $($to)+::ffi::from_ffi(array, &schema) }?;
            let columns = $($to)+::StructArray::from(data).into_parts().1;
            let options = $($to)+::RecordBatchOptions::new().with_row_count(Some(n_rows));
            let schema = ::std::sync::Arc::new((&schema).try_into()?);
            Ok($($to)+::RecordBatch::try_new_with_options(schema, columns, &options)?)
        }
    };
}
