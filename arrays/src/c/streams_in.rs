//! Strangers' streams: C Stream and C Device Stream, as consumers see them.

use std::collections::VecDeque;
use std::ffi::{CStr, c_char, c_int};

use crossdock_plugin_api::{Device, Error, Owned, Result, abi};

/// What arrays come from.
pub trait Arrays: Send {
    /// The next array, its device known; `None` at the end.
    fn next(&mut self) -> Result<Option<Owned<abi::ArrowDeviceArray>>>;
}

impl Arrays for VecDeque<Owned<abi::ArrowDeviceArray>> {
    fn next(&mut self) -> Result<Option<Owned<abi::ArrowDeviceArray>>> {
        Ok(self.pop_front())
    }
}

/// A host array as a device array.
pub fn on_cpu(array: Owned<abi::ArrowArray>) -> Owned<abi::ArrowDeviceArray> {
    let device = Device::CPU;
    let array = abi::ArrowDeviceArray {
        array: array.into_raw(),
        device_id: device.id,
        device_type: device.r#type,
        ..abi::ArrowDeviceArray::default()
    };
    // SAFETY: the array was ours, and is moved into a struct that has its release.
    unsafe { Owned::new(array) }
}

/// The two stream structs differ in the array that they give and in nothing else that matters here.
macro_rules! stream {
    ($(#[$m:meta])* $name:ident, $raw:ident, $array:ident, $what:literal, $device:expr) => {
        $(#[$m])*
        pub struct $name(Owned<abi::$raw>);

        impl $name {
            /// Takes the stream.
            pub fn new(raw: Owned<abi::$raw>) -> Self {
                Self(raw)
            }

            /// The schema of its arrays; it may be asked for again.
            ///
            /// # Errors
            /// What the stream says.
            pub fn schema(&mut self) -> Result<Owned<abi::ArrowSchema>> {
                let get = self.0.get_schema.ok_or_else(|| missing($what, "get_schema"))?;
                let mut out = abi::ArrowSchema::default();
                // SAFETY: the stream's own function on itself.
                let code = unsafe { get(self.0.as_mut_ptr(), &mut out) };
                self.check(code, "get_schema")?;
                // SAFETY: on success the schema is ours.
                let schema = unsafe { Owned::new(out) };
                if schema.is_released() {
                    return Err(Error::bad_data(concat!($what, ": get_schema succeeded and gave a released schema")));
                }
                Ok(schema)
            }

            fn check(&mut self, code: c_int, function: &str) -> Result<()> {
                if code == 0 {
                    return Ok(());
                }
                // SAFETY: the stream's own function on itself; its string is read before the next call.
                let text = self.0.get_last_error.map(|get| unsafe { words(get(self.0.as_mut_ptr())) }).unwrap_or_default();
                let system = std::io::Error::from_raw_os_error(code);
                let text = if text.is_empty() { "it gives no reason".to_string() } else { text };
                Err(Error::bad_data(format!("{}: {function} failed: {text} ({system})", $what)))
            }
        }

        impl Arrays for $name {
            fn next(&mut self) -> Result<Option<Owned<abi::ArrowDeviceArray>>> {
                let next = self.0.get_next.ok_or_else(|| missing($what, "get_next"))?;
                let mut out = abi::$array::default();
                // SAFETY: the stream's own function on itself.
                let code = unsafe { next(self.0.as_mut_ptr(), &mut out) };
                self.check(code, "get_next")?;
                // SAFETY: on success the array is ours.
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
    /// A C Stream: arrays in host memory.
    DataStream, ArrowArrayStream, ArrowArray, "the Arrow C stream", |_, array| Ok(on_cpu(array))
}
stream! {
    /// A C Device Stream: arrays on devices of the one type that the stream declares.
    DeviceStream, ArrowDeviceArrayStream, ArrowDeviceArray, "the Arrow C device stream", |stream, array| {
        if array.device_type == stream.0.device_type {
            return Ok(array);
        }
        Err(Error::bad_data(format!(
            "the Arrow C device stream gave an array on device type {}, expected {} as it declares",
            array.device_type, stream.0.device_type
        )))
    }
}

fn missing(what: &str, function: &str) -> Error {
    Error::bad_data(format!("{what} has no '{function}' function"))
}

/// # Safety
/// `text` is null or NUL-terminated.
unsafe fn words(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: not null, and the caller's word.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
