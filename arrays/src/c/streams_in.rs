//! Reads the C Streams and C Device Streams of external producers.

use std::collections::VecDeque;
use std::ffi::{CStr, c_char, c_int};

use crossdock_plugin_api::{Device, Error, Owned, Result, abi};

/// A source of arrays.
pub trait Arrays: Send {
    /// Returns the next array with its device; `None` at the end.
    fn next(&mut self) -> Result<Option<Owned<abi::ArrowDeviceArray>>>;
}

impl Arrays for VecDeque<Owned<abi::ArrowDeviceArray>> {
    fn next(&mut self) -> Result<Option<Owned<abi::ArrowDeviceArray>>> {
        Ok(self.pop_front())
    }
}

/// Converts a host array to a device array on the CPU.
pub fn on_cpu(array: Owned<abi::ArrowArray>) -> Owned<abi::ArrowDeviceArray> {
    let device = Device::CPU;
    let array = abi::ArrowDeviceArray {
        array: array.into_raw(),
        device_id: device.id,
        device_type: device.r#type,
        ..abi::ArrowDeviceArray::default()
    };
    // SAFETY: `into_raw` passed the ownership of the array, and all fields of the struct are set.
    unsafe { Owned::new(array) }
}

/// Defines the type for one of the two stream structs, which differ only in the type of their
/// arrays.
macro_rules! stream {
    ($(#[$m:meta])* $name:ident, $raw:ident, $array:ident, $what:literal, $device:expr) => {
        $(#[$m])*
        pub struct $name(Owned<abi::$raw>);

        impl $name {
            /// Takes ownership of the stream.
            pub fn new(raw: Owned<abi::$raw>) -> Self {
                Self(raw)
            }

            /// Returns the schema of the arrays. May be called repeatedly.
            ///
            /// # Errors
            /// Returns the error that the stream reports, or an error if the schema is invalid.
            pub fn schema(&mut self) -> Result<Owned<abi::ArrowSchema>> {
                let get = self.0.get_schema.ok_or_else(|| missing($what, "get_schema"))?;
                let mut out = abi::ArrowSchema::default();
                // SAFETY: `Owned` holds an unreleased stream, and `out` is a local variable.
                let code = unsafe { get(self.0.as_mut_ptr(), &mut out) };
                self.check(code, "get_schema")?;
                // SAFETY: on success the stream passes the ownership of the schema.
                let schema = unsafe { Owned::new(out) };
                if schema.is_released() {
                    return Err(Error::bad_data(concat!($what, ": get_schema succeeded, but returned a released schema")));
                }
                Ok(schema)
            }

            fn check(&mut self, code: c_int, function: &str) -> Result<()> {
                if code == 0 {
                    return Ok(());
                }
                // SAFETY: `Owned` holds an unreleased stream, and `to_text` copies the string
                // before the next call of the stream.
                let text = self.0.get_last_error.map(|get| unsafe { to_text(get(self.0.as_mut_ptr())) }).unwrap_or_default();
                let system = std::io::Error::from_raw_os_error(code);
                let text = if text.is_empty() { "no error message".to_string() } else { text };
                Err(Error::bad_data(format!("{}: {function} failed: {text} ({system})", $what)))
            }
        }

        impl Arrays for $name {
            fn next(&mut self) -> Result<Option<Owned<abi::ArrowDeviceArray>>> {
                let next = self.0.get_next.ok_or_else(|| missing($what, "get_next"))?;
                let mut out = abi::$array::default();
                // SAFETY: `Owned` holds an unreleased stream, and `out` is a local variable.
                let code = unsafe { next(self.0.as_mut_ptr(), &mut out) };
                self.check(code, "get_next")?;
                // SAFETY: on success the stream passes the ownership of the array.
                let array = unsafe { Owned::new(out) };
                if array.is_released() {
                    return Ok(None);
                }
                let device: fn(&Self, Owned<abi::$array>) -> Result<Owned<abi::ArrowDeviceArray>> = $device;
                device(self, array).map(Some)
            }
        }
    };
}

stream! {
    /// A C Stream. Its arrays are in host memory.
    DataStream, ArrowArrayStream, ArrowArray, "the Arrow C stream", |_, array| Ok(on_cpu(array))
}
stream! {
    /// A C Device Stream. Its arrays are on devices of the type that the stream declares.
    DeviceStream, ArrowDeviceArrayStream, ArrowDeviceArray, "the Arrow C device stream", |stream, array| {
        if array.device_type == stream.0.device_type {
            return Ok(array);
        }
        Err(Error::bad_data(format!(
            "the Arrow C device stream returned an array on device type {}, expected its declared device type {}",
            array.device_type, stream.0.device_type
        )))
    }
}

fn missing(what: &str, function: &str) -> Error {
    Error::bad_data(format!("{what} has no '{function}' function"))
}

/// # Safety
/// `text` is null or NUL-terminated.
unsafe fn to_text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: `text` is not NULL, so the caller guarantees that it is NUL-terminated.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
