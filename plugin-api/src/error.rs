//! Errors, and their conversion to and from `crossdock_error`.

use std::borrow::Cow;
use std::ffi::{CStr, CString};
use std::fmt;

use crate::abi;
use crate::sized_struct;

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A value of type `crossdock_code`. Other versions may use codes that have no constant here.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Code(pub abi::Code);

macro_rules! codes {
    ($($(#[$m:meta])* $konst:ident $make:ident $text:literal),* $(,)?) => {
        impl Code {
            $( $(#[$m])* pub const $konst: Code = Code(abi::$konst); )*

            /// The name of the code, for messages to users.
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
    /// The caller passed an invalid argument.
    INVALID_ARGUMENT invalid_argument "invalid argument",
    /// The request is valid, but not supported.
    UNSUPPORTED unsupported "unsupported",
    /// Input data violates its format.
    BAD_DATA bad_data "bad data",
    /// Host and plugin have different versions.
    VERSION version "version mismatch",
    /// The system has no free memory, or the session has reached its memory limit.
    OUT_OF_MEMORY out_of_memory "out of memory",
    /// A device or its driver is missing or failed.
    DEVICE device "device error",
    /// Reading or writing a file or pipe failed.
    IO io "input/output error",
    /// The call's cancel flag was set.
    CANCELLED cancelled "cancelled",
    /// A panic was caught at the boundary.
    PANICKED panicked "panicked",
    /// The component that returns the error has a bug.
    INTERNAL internal "internal error",
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

/// An error. It consists of a code, a message of one line, and optional details. It may also state
/// the position in the input, and whether another attempt may succeed.
#[derive(Clone, PartialEq, Eq)]
pub struct Error {
    code: Code,
    /// `CROSSDOCK_ERROR_*`. `offset` and `row` are 0 unless their flags are set.
    flags: u32,
    offset: u64,
    row: u64,
    message: String,
    details: Option<String>,
}

impl Error {
    /// Creates an error with any code. For each code of this list there is also a constructor.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, flags: 0, offset: 0, row: 0, message: message.into(), details: None }
    }

    /// Sets the details, which are text of several lines, such as a backtrace or the message of a
    /// driver.
    pub fn with_details(mut self, details: impl Into<String>) -> Self {
        self.details = Some(details.into());
        self
    }

    /// States that the same call may succeed later.
    pub fn with_retry(mut self) -> Self {
        self.flags |= abi::ERROR_RETRY;
        self
    }

    /// Sets the position in the input, in bytes.
    pub fn with_offset(mut self, offset: u64) -> Self {
        self.flags |= abi::ERROR_HAS_OFFSET;
        self.offset = offset;
        self
    }

    /// Sets the row of the input. The first row is 0.
    pub fn with_row(mut self, row: u64) -> Self {
        self.flags |= abi::ERROR_HAS_ROW;
        self.row = row;
        self
    }

    /// Sets the position in the input, in bytes, unless the error already states one.
    pub fn or_offset(self, offset: u64) -> Self {
        if self.offset().is_some() { self } else { self.with_offset(offset) }
    }

    /// Prepends the position `at byte N` in the input to the message, and sets the position unless
    /// the error already states one.
    pub fn at_byte(self, offset: u64) -> Self {
        self.or_offset(offset).context(format_args!("at byte {offset}"))
    }

    /// Takes over from `cause`, the error that led to this one, whether another attempt may
    /// succeed, the position and the row, unless this error states its own.
    pub fn with_position_of(mut self, cause: &Self) -> Self {
        self.flags |= cause.flags & abi::ERROR_RETRY;
        if let Some(offset) = cause.offset() {
            self = self.or_offset(offset);
        }
        match (self.row(), cause.row()) {
            (None, Some(row)) => self.with_row(row),
            _ => self,
        }
    }

    /// Prepends a context to the message. After `context("column 'a'")`, the message begins with
    /// `column 'a': `.
    pub fn context(mut self, place: impl fmt::Display) -> Self {
        self.message = format!("{place}: {}", self.message);
        self
    }

    /// The code.
    pub fn code(&self) -> Code {
        self.code
    }

    /// The message, which is one line.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The details, if there are any.
    pub fn details(&self) -> Option<&str> {
        self.details.as_deref()
    }

    /// Whether the same call may succeed later.
    pub fn may_retry(&self) -> bool {
        self.flags & abi::ERROR_RETRY != 0
    }

    /// The position in the input, in bytes, if it is known.
    pub fn offset(&self) -> Option<u64> {
        (self.flags & abi::ERROR_HAS_OFFSET != 0).then_some(self.offset)
    }

    /// The row of the input, if it is known. The first row is 0.
    pub fn row(&self) -> Option<u64> {
        (self.flags & abi::ERROR_HAS_ROW != 0).then_some(self.row)
    }

    /// Writes the error to the caller's struct unless `to` is null. Returns the code.
    ///
    /// # Safety
    /// `to` is null or points to a `crossdock_error` of `struct_size` bytes.
    pub unsafe fn write_to(self, to: *mut abi::Error) -> abi::Code {
        // `Error::new` accepts any code, but an error must not have the code of success.
        let code = if self.code.0 == abi::OK { abi::INTERNAL } else { self.code.0 };
        // SAFETY: the caller guarantees that `to` is null or points to a struct that begins with
        // its `struct_size`.
        let Ok(bytes) = (unsafe { sized_struct::stride(to.cast_const()) }) else { return code };
        let texts = Box::new(Texts { message: c_string(self.message), details: self.details.map(c_string) });
        let error = abi::Error {
            code,
            flags: self.flags,
            offset: self.offset,
            row: self.row,
            message: texts.message.as_ptr(),
            details: texts.details.as_ref().map_or(std::ptr::null(), |d| d.as_ptr()),
            release: Some(release_error),
            private_data: Box::into_raw(texts).cast(),
            ..abi::Error::new()
        };
        // SAFETY: `stride` rejects null. The caller guarantees that the struct has `bytes` bytes,
        // which no other code uses during the call.
        unsafe { sized_struct::fill(to, bytes, error) };
        code
    }

    /// Creates an error from a callee's code and error struct, and releases the struct.
    fn read_from(code: abi::Code, mut from: abi::Error) -> Self {
        let text = |p: *const std::ffi::c_char| {
            // SAFETY: the pointer is not null, so the header guarantees a NUL-terminated string
            // that is valid until `release`, which this function calls last.
            (!p.is_null()).then(|| unsafe { CStr::from_ptr(p) }.to_string_lossy().into_owned())
        };
        // Unknown flags are ignored, as in every result.
        let flags = from.flags & (abi::ERROR_RETRY | abi::ERROR_HAS_OFFSET | abi::ERROR_HAS_ROW);
        let error = Self {
            code: Code(code),
            flags,
            offset: if flags & abi::ERROR_HAS_OFFSET == 0 { 0 } else { from.offset },
            row: if flags & abi::ERROR_HAS_ROW == 0 { 0 } else { from.row },
            message: text(from.message)
                .unwrap_or_else(|| format!("{}, without a message", Code(code).text())),
            details: text(from.details),
        };
        if let Some(release) = from.release {
            // SAFETY: the callee set `release` for this struct, and this is the only call of it.
            unsafe { release(&mut from) };
        }
        error
    }

    /// Calls a C function and passes it an empty error struct.
    ///
    /// # Errors
    /// Returns the error of the function.
    pub fn check(call: impl FnOnce(*mut abi::Error) -> abi::Code) -> Result<()> {
        let mut error = abi::Error::new();
        match call(&mut error) {
            abi::OK => {
                // A callee that succeeds must leave the struct empty. If a callee violates this
                // rule, its error is released here, so that it does not leak.
                if let Some(release) = error.release {
                    // SAFETY: the callee set `release` for this struct, and this is the only call
                    // of it.
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
    // SAFETY: only `write_to` sets this function, with a boxed `Texts` in `private_data`. The code
    // creates no reference to the struct, because it may be shorter than in this build. Clearing
    // `release` ensures that this runs only once.
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
