//! Describes errors of the driver.

use std::ffi::{CStr, c_int};
use std::fmt;

use crossdock_plugin_api::{Error, Result};

use super::driver::{Driver, OUT_OF_MEMORY, SUCCESS};

/// An error code, and the function that returned it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DriverError {
    function: &'static str,
    code: c_int,
    /// The driver's name for the code, if it has one.
    name: Option<&'static str>,
}

impl DriverError {
    /// The error for a function that cannot be called because the driver has not been started.
    pub(crate) const fn not_initialized(function: &'static str) -> Self {
        Self { function, code: 3, name: Some("CUDA_ERROR_NOT_INITIALIZED") }
    }

    pub(crate) fn is_out_of_memory(&self) -> bool {
        self.code == OUT_OF_MEMORY
    }
}

impl Driver {
    /// Converts an error code to an error that names the function.
    #[inline]
    pub(crate) fn check(&self, function: &'static str, code: c_int) -> Result<()> {
        self.check_code(function, code).map_err(Error::from)
    }

    /// Converts an error code to a [`DriverError`].
    #[inline]
    pub(crate) fn check_code(&self, function: &'static str, code: c_int) -> Result<(), DriverError> {
        if code == SUCCESS { Ok(()) } else { Err(self.error(function, code)) }
    }

    #[cold]
    pub(crate) fn error(&self, function: &'static str, code: c_int) -> DriverError {
        let mut name = std::ptr::null();
        // SAFETY: the pointer is to a local; the function accepts any code.
        let is_known = unsafe { (self.get_error_name)(code, &mut name) } == SUCCESS && !name.is_null();
        // SAFETY: the name is a constant of the driver, which stays loaded until the process ends.
        let name = is_known.then(|| unsafe { CStr::from_ptr::<'static>(name) });
        DriverError { function, code, name: name.and_then(|name| name.to_str().ok()) }
    }
}

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { function, code, name } = *self;
        f.write_str("the CUDA driver returned ")?;
        match name {
            Some(name) => write!(f, "{name} ({code})")?,
            None => write!(f, "code {code}")?,
        }
        write!(f, " from {function}{}", hint(code))
    }
}

impl From<DriverError> for Error {
    fn from(error: DriverError) -> Self {
        let text = error.to_string();
        if error.is_out_of_memory() { Self::out_of_memory(text) } else { Self::device(text) }
    }
}

/// Advice for codes with a cause outside of the failed call.
fn hint(code: c_int) -> &'static str {
    match code {
        4 => ": the process is ending",
        209 => ": no code for this GPU",
        700 | 714..=719 => {
            ": a kernel broke this process's context, and nothing on the GPU can be used until it ends"
        }
        900..=908 => ": a stream is under graph capture; end the capture first",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossdock_plugin_api::{Code, abi};

    #[test]
    fn error_states_code_name_function_and_advice() {
        let named = |function, code, name| DriverError { function, code, name: Some(name) };
        let full = named("cuMemHostAlloc", OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY");
        let expected = "the CUDA driver returned CUDA_ERROR_OUT_OF_MEMORY (2) from cuMemHostAlloc";
        assert_eq!(full.to_string(), expected);
        assert_eq!(Error::from(full).code(), Code(abi::OUT_OF_MEMORY));
        let captured = named("cuMemFreeAsync", 900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED");
        assert!(captured.to_string().ends_with("end the capture first"), "{captured}");
        let unknown = DriverError { function: "cuInit", code: 4242, name: None };
        assert_eq!(unknown.to_string(), "the CUDA driver returned code 4242 from cuInit");
        assert_eq!(Error::from(unknown).code(), Code(abi::DEVICE));
    }
}
