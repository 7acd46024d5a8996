//! Arrow arrays on any device.
//!
//! A [`DeviceBatch`] is a schema and its columns, each a tree of [`DeviceArray`]s over buffers that may lie on any
//! device. Nothing here dereferences a buffer's address: contents are looked at by kernels, or by copies to the host.
//! [`layout`](mod@layout) is the one table of types that everything else walks.

mod array;
mod batch;
pub mod by_value;
mod c;
mod call;
mod cast;
mod check;
mod concatenate;
mod decode_dictionary;
mod equal;
mod host;
pub mod layout;
pub mod metadata;
mod moving;
mod nullability;
mod nulls;
mod numbers;
mod print;
mod sizes;
pub mod take;
mod validate;

pub use array::DeviceArray;
pub use batch::DeviceBatch;
pub use c::{
    ArrayQueue, Arrays, DataStream, DeviceStream, StreamSchema, batch_schema, check_batch_array, check_ends,
    export_array, export_batch, export_device_array, export_field, export_plain, export_schema, import_array,
    import_batch, import_device_array, import_field, import_field_ref, import_field_replacing, import_result,
    import_schema, import_schema_ref, lend_batch, on_cpu, plain_values,
};
pub use call::call_stream;
pub use cast::{cast, is_cast};
pub use crossdock_plugin_api::{Device, Error, Result};
pub use decode_dictionary::{decode_dictionary, decoded_field};
pub use equal::{equal, first_difference};
pub use layout::{BufferKind, Layout};
pub use nullability::{check_nullability, forbidden_nulls};
pub use nulls::count_nulls;
pub use print::{cells, format_batch, header, lines};
pub use validate::{Level, validate};

/// How deep schemas and arrays may nest, the column itself counted.
pub const MAX_DEPTH: usize = 64;
