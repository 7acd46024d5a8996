//! Streams of ours for strangers: C Stream and C Device Stream over arrays that are there.

use std::collections::VecDeque;
use std::ffi::{CStr, CString, c_char, c_int};

use arrow_schema::{FieldRef, SchemaRef};
use crossdock_plugin_api::door::Poison;
use crossdock_plugin_api::{Device, Error, Owned, Result, abi};

use super::schema_out::{export_field, export_schema};

/// Arrays that wait for a stream to give them, all of one device type.
#[derive(Default)]
pub struct ArrayQueue(VecDeque<Owned<abi::ArrowDeviceArray>>);

impl ArrayQueue {
    /// Adds an array to the end.
    ///
    /// # Errors
    /// It lies on another type of device than the first one.
    pub fn push(&mut self, array: Owned<abi::ArrowDeviceArray>) -> Result<()> {
        if let Some(first) = self.0.front()
            && first.device_type != array.device_type
        {
            return Err(Error::internal(format!(
                "a stream has arrays on device type {} and was given one on device type {}",
                first.device_type, array.device_type
            )));
        }
        self.0.push_back(array);
        Ok(())
    }

    /// A C Device Stream; `declared` is its device if it is empty.
    pub fn into_device_stream(
        self,
        schema: impl Into<StreamSchema>,
        declared: Device,
    ) -> Owned<abi::ArrowDeviceArrayStream> {
        let device_type = self.0.front().map_or(declared.r#type, |array| array.device_type);
        let raw = abi::ArrowDeviceArrayStream {
            device_type,
            get_schema: Some(device::get_schema),
            get_next: Some(device::get_next),
            get_last_error: Some(device::get_last_error),
            release: Some(device::release),
            private_data: Shell::raw(self, schema.into()).cast(),
        };
        // SAFETY: made above; nobody else has it.
        unsafe { Owned::new(raw) }
    }

    /// A C Stream; the arrays are in host memory.
    pub fn into_data_stream(self, schema: impl Into<StreamSchema>) -> Owned<abi::ArrowArrayStream> {
        let raw = abi::ArrowArrayStream {
            get_schema: Some(data::get_schema),
            get_next: Some(data::get_next),
            get_last_error: Some(data::get_last_error),
            release: Some(data::release),
            private_data: Shell::raw(self, schema.into()).cast(),
        };
        // SAFETY: made above; nobody else has it.
        unsafe { Owned::new(raw) }
    }
}

/// What a stream's arrays are.
pub enum StreamSchema {
    /// Record batches.
    Batches(SchemaRef),
    /// Arrays of one type.
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

/// What stands behind both streams.
struct Shell {
    queue: ArrayQueue,
    schema: StreamSchema,
    last_error: Option<CString>,
}

/// The specification asks for an errno; the words are in `get_last_error`.
const EINVAL: c_int = 22;

impl Shell {
    fn raw(queue: ArrayQueue, schema: StreamSchema) -> *mut Shell {
        Box::into_raw(Box::new(Shell { queue, schema, last_error: None }))
    }

    /// Through the door: whatever happens becomes an errno and words.
    fn enter(&mut self, body: impl FnOnce(&mut Self) -> Result<()>) -> c_int {
        let poison = Poison::new();
        let result = Error::check(|err| {
            // SAFETY: `check`'s own error struct.
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
        self.enter(|shell| {
            let schema = match &shell.schema {
                StreamSchema::Batches(schema) => export_schema(schema)?,
                StreamSchema::Arrays(field) => export_field(field)?,
            };
            // SAFETY: the consumer's out parameter.
            unsafe { crossdock_plugin_api::door::put(out, "get_schema", || schema.into_raw()) }
        })
    }

    fn next<T: Default>(&mut self, out: *mut T, as_t: impl FnOnce(abi::ArrowDeviceArray) -> T) -> c_int {
        self.enter(|shell| {
            let array = shell.queue.0.pop_front();
            // SAFETY: the consumer's out parameter. Zero bytes are a released array: the end.
            unsafe {
                crossdock_plugin_api::door::put(out, "get_next", || {
                    array.map_or_else(T::default, |array| as_t(array.into_raw()))
                })
            }
        })
    }

    fn words(&self) -> *const c_char {
        self.last_error.as_deref().map_or(std::ptr::null(), CStr::as_ptr)
    }
}

macro_rules! functions {
    ($module:ident, $stream:ident, $array:ident, $as_array:expr) => {
        mod $module {
            use super::*;

            /// # Safety
            /// `stream` was made by this file and is not released; calls are serialised by the consumer.
            unsafe fn shell<'a>(stream: *mut abi::$stream) -> &'a mut Shell {
                // SAFETY: `private_data` is the Box that `Shell::raw` made, until release.
                unsafe { &mut *(*stream).private_data.cast::<Shell>() }
            }

            pub(super) unsafe extern "C" fn get_schema(
                stream: *mut abi::$stream,
                out: *mut abi::ArrowSchema,
            ) -> c_int {
                // SAFETY: called by the consumer of a live stream.
                unsafe { shell(stream) }.schema(out)
            }

            pub(super) unsafe extern "C" fn get_next(
                stream: *mut abi::$stream,
                out: *mut abi::$array,
            ) -> c_int {
                // SAFETY: as above.
                unsafe { shell(stream) }.next(out, $as_array)
            }

            pub(super) unsafe extern "C" fn get_last_error(stream: *mut abi::$stream) -> *const c_char {
                // SAFETY: as above.
                unsafe { shell(stream) }.words()
            }

            pub(super) unsafe extern "C" fn release(stream: *mut abi::$stream) {
                // SAFETY: released once, because `release` is cleared; the Box is `Shell::raw`'s.
                unsafe {
                    (*stream).release = None;
                    let shell = Box::from_raw((*stream).private_data.cast::<Shell>());
                    Poison::new().leave(move || drop(shell));
                }
            }
        }
    };
}

functions!(device, ArrowDeviceArrayStream, ArrowDeviceArray, |array| array);
functions!(data, ArrowArrayStream, ArrowArray, |array| array.array);
