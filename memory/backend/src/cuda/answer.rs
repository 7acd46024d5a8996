//! What the driver answers when it refuses, in words.

use std::ffi::{CStr, c_int};
use std::fmt;

use crossdock_plugin_api::{Error, Result};

use super::driver::{Driver, OUT_OF_MEMORY, SUCCESS};

/// A code other than success, and which function gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    function: &'static str,
    code: c_int,
    /// The driver's name for the code, if it has one.
    name: Option<&'static str>,
}

impl Answer {
    /// For a function that could not even be called.
    pub(crate) const fn not_started(function: &'static str) -> Self {
        Self { function, code: 3, name: Some("CUDA_ERROR_NOT_INITIALIZED") }
    }

    pub(crate) fn is_out_of_memory(&self) -> bool {
        self.code == OUT_OF_MEMORY
    }
}

impl Driver {
    /// A code as an error that names the function.
    #[inline]
    pub(crate) fn check(&self, function: &'static str, code: c_int) -> Result<()> {
        self.accept(function, code).map_err(Error::from)
    }

    /// The same, before it becomes an error of the vtable's.
    #[inline]
    pub(crate) fn accept(&self, function: &'static str, code: c_int) -> Result<(), Answer> {
        if code == SUCCESS { Ok(()) } else { Err(self.answer(function, code)) }
    }

    #[cold]
    pub(crate) fn answer(&self, function: &'static str, code: c_int) -> Answer {
        let mut name = std::ptr::null();
        // SAFETY: a pointer to a local; the driver knows which codes it knows.
        let known = unsafe { (self.get_error_name)(code, &mut name) } == SUCCESS && !name.is_null();
        // SAFETY: a constant of the driver's, which is loaded for the life of the process.
        let name = known.then(|| unsafe { CStr::from_ptr::<'static>(name) });
        Answer { function, code, name: name.and_then(|name| name.to_str().ok()) }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { function, code, name } = *self;
        f.write_str("the CUDA driver answered ")?;
        match name {
            Some(name) => write!(f, "{name} ({code})")?,
            None => write!(f, "code {code}")?,
        }
        write!(f, " to {function}{}", hint(code))
    }
}

impl From<Answer> for Error {
    fn from(answer: Answer) -> Self {
        let text = answer.to_string();
        if answer.is_out_of_memory() { Self::out_of_memory(text) } else { Self::device(text) }
    }
}

/// What follows from codes that tell more than which call failed.
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
    fn a_code_is_told_with_the_driver_s_name_for_it_and_what_follows() {
        let named = |function, code, name| Answer { function, code, name: Some(name) };
        let full = named("cuMemHostAlloc", OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY");
        let told = "the CUDA driver answered CUDA_ERROR_OUT_OF_MEMORY (2) to cuMemHostAlloc";
        assert_eq!(full.to_string(), told);
        assert_eq!(Error::from(full).code(), Code(abi::OUT_OF_MEMORY));
        let captured = named("cuMemFreeAsync", 900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED");
        assert!(captured.to_string().ends_with("end the capture first"), "{captured}");
        let unknown = Answer { function: "cuInit", code: 4242, name: None };
        assert_eq!(unknown.to_string(), "the CUDA driver answered code 4242 to cuInit");
        assert_eq!(Error::from(unknown).code(), Code(abi::DEVICE));
    }
}
