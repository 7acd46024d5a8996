//! Exports arrays as C Stream and C Device Stream.

use std::collections::VecDeque;
use std::ffi::{CStr, CString, c_char, c_int};

use arrow_schema::{FieldRef, SchemaRef};
use crossdock_plugin_api::door::Poison;
use crossdock_plugin_api::{Device, Error, Owned, Result, abi};

use super::schema_out::{export_field, export_schema};

/// The arrays of a stream to export. All of them are on devices of one type.
#[derive(Default)]
pub struct ArrayQueue(VecDeque<Owned<abi::ArrowDeviceArray>>);

impl ArrayQueue {
    /// Appends an array.
    ///
    /// # Errors
    /// Returns an error if the array's device type differs from the first array's.
    pub fn push(&mut self, array: Owned<abi::ArrowDeviceArray>) -> Result<()> {
        if let Some(first) = self.0.front()
            && first.device_type != array.device_type
        {
            return Err(Error::internal(format!(
                "cannot append an array on device type {1} to a stream of arrays on device type {0}",
                first.device_type, array.device_type
            )));
        }
        self.0.push_back(array);
        Ok(())
    }

    /// Converts the queue to a C Device Stream. If the queue is empty, the stream has the device
    /// type of `declared`.
    pub fn into_device_stream(
        self,
        schema: impl Into<StreamSchema>,
        declared: Device,
    ) -> Owned<abi::ArrowDeviceArrayStream> {
        let device =
            self.0.front().map_or(declared, |array| Device { r#type: array.device_type, ..declared });
        export_device_stream(schema, device, self.into_next())
    }

    /// Converts the queue to a C Stream. The arrays must be in host memory.
    pub fn into_data_stream(self, schema: impl Into<StreamSchema>) -> Owned<abi::ArrowArrayStream> {
        export_data_stream(schema, self.into_next())
    }

    fn into_next(mut self) -> impl FnMut() -> NextArray + Send + 'static {
        move || Ok(self.0.pop_front())
    }
}

/// The next array of a stream; `None` at the end.
pub type NextArray = Result<Option<Owned<abi::ArrowDeviceArray>>>;

/// Exports a C Device Stream. `next` returns its arrays, which must all be on devices of the type
/// of `device`.
pub fn export_device_stream(
    schema: impl Into<StreamSchema>,
    device: Device,
    next: impl FnMut() -> NextArray + Send + 'static,
) -> Owned<abi::ArrowDeviceArrayStream> {
    let raw = abi::ArrowDeviceArrayStream {
        device_type: device.r#type,
        get_schema: Some(device::get_schema),
        get_next: Some(device::get_next),
        get_last_error: Some(device::get_last_error),
        release: Some(device::release),
        private_data: StreamState::raw(Box::new(next), schema.into()).cast(),
    };
    // SAFETY: all fields of the struct are set, and its `release` frees `private_data`.
    unsafe { Owned::new(raw) }
}

/// Exports a C Stream. `next` returns its arrays, which must be in host memory and ready.
pub fn export_data_stream(
    schema: impl Into<StreamSchema>,
    next: impl FnMut() -> NextArray + Send + 'static,
) -> Owned<abi::ArrowArrayStream> {
    let raw = abi::ArrowArrayStream {
        get_schema: Some(data::get_schema),
        get_next: Some(data::get_next),
        get_last_error: Some(data::get_last_error),
        release: Some(data::release),
        private_data: StreamState::raw(Box::new(next), schema.into()).cast(),
    };
    // SAFETY: all fields of the struct are set, and its `release` frees `private_data`.
    unsafe { Owned::new(raw) }
}

/// The schema of a stream's arrays.
pub enum StreamSchema {
    /// The arrays are record batches with this schema.
    Batches(SchemaRef),
    /// The arrays have the type of this field.
    Arrays(FieldRef),
}

impl From<SchemaRef> for StreamSchema {
    fn from(schema: SchemaRef) -> Self {
        Self::Batches(schema)
    }
}

impl From<FieldRef> for StreamSchema {
    fn from(field: FieldRef) -> Self {
        Self::Arrays(field)
    }
}

/// The private data of both kinds of stream.
struct StreamState {
    next: Box<dyn FnMut() -> NextArray + Send>,
    schema: StreamSchema,
    last_error: Option<CString>,
}

/// The functions of a stream return this errno value for every error. `get_last_error` returns the
/// message.
const EINVAL: c_int = 22;

impl StreamState {
    fn raw(next: Box<dyn FnMut() -> NextArray + Send>, schema: StreamSchema) -> *mut StreamState {
        Box::into_raw(Box::new(StreamState { next, schema, last_error: None }))
    }

    /// FFI door: runs `body`, stops panics, stores the error message and returns an errno value.
    fn enter(&mut self, body: impl FnOnce(&mut Self) -> Result<()>) -> c_int {
        let poison = Poison::new();
        let result = Error::check(|err| {
            // SAFETY: `Error::check` passes a writable error struct.
            unsafe { poison.enter(err, || body(self)) }
        });
        match result {
            Ok(()) => 0,
            Err(error) => {
                self.last_error = CString::new(error.message().replace('\0', " ")).ok();
                EINVAL
            }
        }
    }

    fn schema(&mut self, out: *mut abi::ArrowSchema) -> c_int {
        self.enter(|state| {
            let schema = match &state.schema {
                StreamSchema::Batches(schema) => export_schema(schema)?,
                StreamSchema::Arrays(field) => export_field(field)?,
            };
            // SAFETY: the C Stream interface requires that `out` is writable; `put` rejects NULL.
            unsafe { crossdock_plugin_api::door::put(out, "get_schema", || schema.into_raw()) }
        })
    }

    fn next<T: Default>(&mut self, out: *mut T, as_t: impl FnOnce(abi::ArrowDeviceArray) -> T) -> c_int {
        self.enter(|state| {
            let array = (state.next)()?;
            // SAFETY: the C Stream interface requires that `out` is writable; `put` rejects NULL. A
            // zeroed struct is a released array, which means the end of the stream.
            unsafe {
                crossdock_plugin_api::door::put(out, "get_next", || {
                    array.map_or_else(T::default, |array| as_t(array.into_raw()))
                })
            }
        })
    }

    fn error_text(&self) -> *const c_char {
        self.last_error.as_deref().map_or(std::ptr::null(), CStr::as_ptr)
    }
}

macro_rules! functions {
    ($module:ident, $stream:ident, $array:ident, $as_array:expr) => {
        mod $module {
            use super::*;

            /// # Safety
            /// `stream` was created by this file and is not released. The consumer makes one call
            /// at a time.
            unsafe fn state<'a>(stream: *mut abi::$stream) -> &'a mut StreamState {
                // SAFETY: `StreamState::raw` set `private_data`, which only `release` frees. The
                // consumer does not call two functions of a stream at once.
                unsafe { &mut *(*stream).private_data.cast::<StreamState>() }
            }

            pub(super) unsafe extern "C" fn get_schema(
                stream: *mut abi::$stream,
                out: *mut abi::ArrowSchema,
            ) -> c_int {
                // SAFETY: the consumer passes an unreleased stream from this file.
                unsafe { state(stream) }.schema(out)
            }

            pub(super) unsafe extern "C" fn get_next(
                stream: *mut abi::$stream,
                out: *mut abi::$array,
            ) -> c_int {
                // SAFETY: the consumer passes an unreleased stream from this file.
                unsafe { state(stream) }.next(out, $as_array)
            }

            pub(super) unsafe extern "C" fn get_last_error(stream: *mut abi::$stream) -> *const c_char {
                // SAFETY: the consumer passes an unreleased stream from this file.
                unsafe { state(stream) }.error_text()
            }

            pub(super) unsafe extern "C" fn release(stream: *mut abi::$stream) {
                // SAFETY: the consumer passes an unreleased stream from this file. `release` is set
                // to `None`, so the box that `StreamState::raw` created is freed only once.
                unsafe {
                    (*stream).release = None;
                    let state = Box::from_raw((*stream).private_data.cast::<StreamState>());
                    Poison::new().run_release(move || drop(state));
                }
            }
        }
    };
}

functions!(device, ArrowDeviceArrayStream, ArrowDeviceArray, |array| array);
functions!(data, ArrowArrayStream, ArrowArray, |array| array.array);
