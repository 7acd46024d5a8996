//! Arrow arrays on any device.
//!
//! A [`DeviceBatch`] consists of a schema and columns. Each column is a tree of [`DeviceArray`]s,
//! whose buffers may be on any device. This crate never dereferences the address of a device
//! buffer: kernels read the contents, or the host reads a copy. All functions use the description
//! of the types in the table [`layout`](mod@layout).

mod array;
mod batch;
pub mod by_value;
mod c;
mod call;
mod check;
mod compute;
mod concatenate;
mod decode_dictionary;
mod equal;
mod expect;
pub mod filter;
mod host;
pub mod layout;
pub mod metadata;
mod moving;
mod nullability;
mod nulls;
mod number_extension;
mod numbers;
mod parse_type;
mod pending;
mod print;
mod projection;
mod sizes;
pub mod take;
mod type_name;
mod validate;

pub use array::DeviceArray;
pub use batch::DeviceBatch;
pub use c::{
    ArrayQueue, Arrays, DataStream, DeviceStream, NextArray, StreamSchema, batch_schema, check_batch_array,
    check_last_offsets, count_rows, export_array, export_batch, export_batch_to_external, export_batches,
    export_data_stream, export_device_array, export_device_stream, export_field, export_pending,
    export_plain, export_schema, import_array, import_batch, import_device_array, import_field,
    import_field_ref, import_field_replacing, import_pending, import_pending_result, import_result,
    import_schema, import_schema_ref, on_cpu, plain_values,
};
pub use call::call_stream;
pub use compute::{
    CastMode, RowIndices, can_cast, cast, cast_values, dictionary_encode, elements_and_offsets, fill_null,
    filter_rows, first_null, lists_of_fixed_size, null_mask,
};
pub use crossdock_plugin_api::{Device, Error, Result};
pub use decode_dictionary::{decode_dictionary, decoded_field, dictionary_keys};
pub use equal::{equal, first_difference};
pub use expect::expect_schema;
pub use layout::{BufferKind, Layout, fixed_width};
pub use moving::copy_to_block;
pub use nullability::{check_nullability, find_forbidden_nulls};
pub use nulls::{count_nulls, resolve_null_counts};
pub use number_extension::{ExtensionNumber, NUMBER_EXTENSION};
pub use parse_type::parse_type;
pub use pending::{IntType, PendingBatch};
pub use print::{cells, format_batch, header, json_rows, lines};
pub use projection::Projection;
pub use type_name::{field_type_name, type_name};
pub use validate::{Level, StartedValidation, validate};

/// Maximum nesting depth of schemas and arrays. The column itself is level 1.
pub const MAX_DEPTH: usize = 64;
