//! What can go wrong, in one shape on both sides of the boundary.

use std::borrow::Cow;
use std::ffi::{CStr, CString};
use std::fmt;

use crate::abi;
use crate::told;

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kinds of failure that `crossdock.h` lists, plus whatever number a newer peer sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Code(pub abi::Code);

macro_rules! codes {
    ($($(#[$m:meta])* $konst:ident $make:ident $text:literal),* $(,)?) => {
        impl Code {
            $( $(#[$m])* pub const $konst: Code = Code(abi::$konst); )*

            /// A word or two for people.
            pub fn text(self) -> Cow<'static, str> {
                match self {
                    $( Code::$konst => $text.into(), )*
                    Code(n) => format!("error code {n}").into(),
                }
            }
        }
        impl Error {
            $( $(#[$m])* pub fn $make(message: impl Into<String>) -> Self { Self::new(Code::$konst, message) } )*
        }
    };
}

codes! {
    /// The caller's mistake.
    INVALID_ARGUMENT invalid_argument "invalid argument",
    /// Understood, and not done here.
    UNSUPPORTED unsupported "unsupported",
    /// What was read or handed over contradicts its own format.
    BAD_DATA bad_data "bad data",
    /// Two sides speak different versions.
    VERSION version "version mismatch",
    /// Of the system, or of the session's budget.
    OUT_OF_MEMORY out_of_memory "out of memory",
    /// A device or its driver failed, or is missing.
    DEVICE device "device error",
    /// A file, a pipe, a disk.
    IO io "input/output error",
    /// The call's cancel flag was seen.
    CANCELLED cancelled "cancelled",
    /// A panic was caught at the boundary.
    PANICKED panicked "panicked",
    /// A bug in the one that reports it.
    INTERNAL internal "internal error",
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

/// A failure: its kind, one line for people (who, what, expected, got), and details where there are any.
#[derive(Clone, PartialEq, Eq)]
pub struct Error {
    code: Code,
    message: String,
    details: Option<String>,
}

impl Error {
    /// A failure of any kind; there is a constructor for each listed code.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: None }
    }

    /// Adds what does not fit into one line: a backtrace, a driver's own words.
    pub fn with_details(mut self, details: impl Into<String>) -> Self {
        self.details = Some(details.into());
        self
    }

    /// Says where it happened, in front: `context("column 'a'")` gives `column 'a': ...`.
    pub fn context(mut self, place: impl fmt::Display) -> Self {
        self.message = format!("{place}: {}", self.message);
        self
    }

    /// The kind.
    pub fn code(&self) -> Code {
        self.code
    }

    /// The line for people.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// More, if there is more.
    pub fn details(&self) -> Option<&str> {
        self.details.as_deref()
    }

    /// Writes the failure into a caller's struct, whose `struct_size` tells how much of it there is, and answers the
    /// code to return. A null pointer is legal: the code alone then tells.
    ///
    /// # Safety
    /// `to` is null or points at a `crossdock_error` whose `struct_size` is true.
    pub unsafe fn write_to(self, to: *mut abi::Error) -> abi::Code {
        // A failure must not look like success, whatever number somebody made up.
        let code = if self.code.0 == abi::OK { abi::INTERNAL } else { self.code.0 };
        // SAFETY: the caller vouches for the pointer and its size.
        let Ok(bytes) = (unsafe { told::stride(to.cast_const()) }) else { return code };
        let texts = Box::new(Texts { message: c_string(self.message), details: self.details.map(c_string) });
        let error = abi::Error {
            code,
            message: texts.message.as_ptr(),
            details: texts.details.as_ref().map_or(std::ptr::null(), |d| d.as_ptr()),
            release: Some(release_error),
            private_data: Box::into_raw(texts).cast(),
            ..abi::Error::new()
        };
        // SAFETY: as above; nothing else refers to the struct during the call that it was made for.
        unsafe { told::fill(to, bytes, error) };
        code
    }

    /// What a callee reported: its code, and the struct it may have filled in, which is released here.
    fn read_from(code: abi::Code, mut from: abi::Error) -> Self {
        let text = |p: *const std::ffi::c_char| {
            // SAFETY: a callee that sets these fields gives NUL-terminated strings that live until `release`, which is
            // called below.
            (!p.is_null()).then(|| unsafe { CStr::from_ptr(p) }.to_string_lossy().into_owned())
        };
        let error = Self {
            code: Code(code),
            message: text(from.message)
                .unwrap_or_else(|| format!("{}, without a message", Code(code).text())),
            details: text(from.details),
        };
        if let Some(release) = from.release {
            // SAFETY: `release` was set by the callee for this struct and is called once.
            unsafe { release(&mut from) };
        }
        error
    }

    /// Runs a C call with a fresh error struct and turns its code into a `Result`.
    pub fn check(call: impl FnOnce(*mut abi::Error) -> abi::Code) -> Result<()> {
        let mut error = abi::Error::new();
        match call(&mut error) {
            abi::OK => {
                // What it recovered from and left there, nobody else will look at.
                if let Some(release) = error.release {
                    // SAFETY: set by the callee for this struct, and called once.
                    unsafe { release(&mut error) };
                }
                Ok(())
            }
            code => Err(Self::read_from(code, error)),
        }
    }
}

struct Texts {
    message: CString,
    details: Option<CString>,
}

fn c_string(text: String) -> CString {
    CString::new(text).unwrap_or_else(|e| {
        let mut bytes = e.into_vec();
        bytes.retain(|b| *b != 0);
        CString::new(bytes).unwrap_or_default()
    })
}

unsafe extern "C" fn release_error(error: *mut abi::Error) {
    // SAFETY: set by `write_to` only, whose struct the caller gives back here, perhaps shorter than ours: no reference is
    // made to it. `private_data` is its Box, taken once because `release` is cleared.
    unsafe {
        drop(Box::from_raw((*error).private_data.cast::<Texts>()));
        (*error).release = None;
        (*error).message = std::ptr::null();
        (*error).details = std::ptr::null();
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.code, self.message)?;
        self.details.as_ref().map_or(Ok(()), |d| write!(f, "\n{d}"))
    }
}

impl std::error::Error for Error {}

impl From<std::io::Error> for Error {
    fn from(e: std::io::Error) -> Self {
        Error::io(e.to_string())
    }
}
