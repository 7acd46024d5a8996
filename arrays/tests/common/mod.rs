//! Converts arrays between arrow-rs and Crossdock through the C interface.
#![allow(dead_code)]

pub mod samples;

use std::sync::Arc;

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi, to_ffi};
use arrow_array::{Array, ArrayRef, make_array};
use arrow_schema::{Field, Schema, SchemaRef};
use crossdock_arrays::{DeviceArray, DeviceBatch, export_array, import_array};
use crossdock_memory::{Device, Memory, Stream};
use crossdock_plugin_api::{Owned, abi};
use crossdock_test_support::TestHost;

/// A test host with its memory and its CPU stream.
pub struct Fixture {
    pub host: TestHost,
    pub memory: Memory,
    pub cpu: Stream,
}

impl Fixture {
    pub fn new() -> Self {
        let host = TestHost::new();
        Self { memory: host.memory(), cpu: host.stream(Device::CPU), host }
    }

    /// Imports an array without a copy. arrow-rs remains the owner of the memory.
    pub fn import(&self, array: &dyn Array, field: &Field) -> DeviceArray {
        import_array(c_array(array), field, &self.memory).unwrap()
    }

    /// Exports an array to arrow-rs without a copy.
    pub fn export(&self, array: &DeviceArray, field: &Field) -> ArrayRef {
        let raw = export_array(array, &self.cpu).unwrap();
        to_rust(raw, field)
    }

    /// Creates a batch with columns named a, b, c...
    pub fn batch(&self, arrays: &[ArrayRef]) -> DeviceBatch {
        let fields: Vec<Field> = arrays.iter().enumerate().map(|(i, a)| field_of(i, a)).collect();
        let columns = arrays.iter().zip(&fields).map(|(a, f)| self.import(a, f)).collect();
        let schema: SchemaRef = Arc::new(Schema::new(fields));
        DeviceBatch::try_new(schema, arrays.first().map_or(0, |a| a.len()), columns).unwrap()
    }
}

pub fn field_of(i: usize, array: &ArrayRef) -> Field {
    Field::new(char::from(b'a' + (i % 26) as u8).to_string(), array.data_type().clone(), true)
}

/// Converts an arrow-rs array to a C struct that owns it.
pub fn c_array(array: &dyn Array) -> Owned<abi::ArrowArray> {
    let (array, _schema) = to_ffi(&array.to_data()).unwrap();
    // SAFETY: both types have the layout of the same struct of the C interface, and arrow-rs
    // created a valid struct.
    unsafe { Owned::new(std::mem::transmute::<FFI_ArrowArray, abi::ArrowArray>(array)) }
}

/// Lets arrow-rs convert a schema to a C struct.
pub fn c_schema(schema: &Schema) -> Owned<abi::ArrowSchema> {
    let raw = FFI_ArrowSchema::try_from(schema).unwrap();
    // SAFETY: both types have the layout of the same struct of the C interface, and arrow-rs
    // created a valid struct.
    unsafe { Owned::new(std::mem::transmute::<FFI_ArrowSchema, abi::ArrowSchema>(raw)) }
}

/// Lets arrow-rs import and fully validate a C struct.
pub fn to_rust(raw: Owned<abi::ArrowArray>, field: &Field) -> ArrayRef {
    // SAFETY: both types have the layout of the same struct of the C interface.
    let raw = unsafe { std::mem::transmute::<abi::ArrowArray, FFI_ArrowArray>(raw.into_raw()) };
    let schema = FFI_ArrowSchema::try_from(field).unwrap();
    // SAFETY: the tests export only valid arrays of the type of `field`.
    let data = unsafe { from_ffi(raw, &schema) }.unwrap();
    data.validate_full().unwrap();
    make_array(data)
}
