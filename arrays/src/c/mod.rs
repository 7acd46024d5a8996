//! Imports and exports of the Arrow C Data, C Device and stream interfaces.

mod arena;
mod array_in;
mod array_out;
mod batch_in;
mod last_offsets;
mod metadata;
mod plain;
mod prepare;
mod schema_in;
mod schema_out;
mod streams_in;
mod streams_out;

pub use array_in::{import_array, import_device_array};
pub use array_out::{
    export_array, export_batch, export_batch_to_external, export_batches, export_device_array, export_pending,
};
pub use batch_in::{
    check_batch_array, count_rows, import_batch, import_pending, import_pending_result, import_result,
};
pub use last_offsets::check_last_offsets;
pub use plain::{export_plain, plain_values};
pub use schema_in::{
    batch_schema, import_field, import_field_ref, import_field_replacing, import_schema, import_schema_ref,
};
pub use schema_out::{export_field, export_schema};
pub use streams_in::{Arrays, DataStream, DeviceStream, on_cpu};
pub use streams_out::{ArrayQueue, NextArray, StreamSchema, export_data_stream, export_device_stream};
