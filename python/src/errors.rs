//! What goes wrong, as exceptions: one place where kinds become classes.

use std::mem::ManuallyDrop;
use std::ops::Deref;

use crossdock::Error as HostError;
use crossdock_plugin_api::{Code, Error as ApiError};
use pyo3::exceptions::{
    PyBufferError, PyException, PyMemoryError, PyNotImplementedError, PyOSError, PyRuntimeError,
    PyUserWarning, PyValueError,
};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};

macro_rules! classes {
    ($($kind:ident $name:literal: $builtin:ty = $doc:literal),* $(,)?) => {
        /// The base of all, and the kinds in their order.
        struct Classes { base: Py<PyType>, kinds: Vec<Py<PyType>>, warning: Py<PyType> }

        impl Classes {
            fn new(py: Python<'_>) -> PyResult<Self> {
                let all = "Everything that Crossdock raises, but for errors of the operating system.";
                let base = class(py, "Error", &[py.get_type::<PyException>()], all)?;
                let kinds = vec![
                    $( class(py, $name, &[base.bind(py).clone(), py.get_type::<$builtin>()], $doc)? ),*
                ];
                let said = "What a plugin or the host has to say besides errors.";
                let warning = class(py, "Warning", &[py.get_type::<PyUserWarning>()], said)?;
                Ok(Self { base, kinds, warning })
            }

            fn add_to(&self, module: &Bound<'_, PyModule>) -> PyResult<()> {
                module.add("Error", self.base.clone_ref(module.py()))?;
                module.add("Warning", self.warning.clone_ref(module.py()))?;
                let names = [$( $name ),*];
                for (name, class) in names.into_iter().zip(&self.kinds) {
                    module.add(name, class.clone_ref(module.py()))?;
                }
                Ok(())
            }
        }

        /// A kind of exception.
        #[derive(Clone, Copy)]
        pub enum Kind { $( #[doc = $doc] $kind ),* }
    };
}

classes! {
    Usage "UsageError": PyValueError = "An argument makes no sense, or contradicts another one.",
    Data "DataError": PyValueError = "Data contradicts itself or its format.",
    Unsupported "UnsupportedError": PyNotImplementedError = "Understood, and not done: the message says what to do instead.",
    OutOfMemory "OutOfMemoryError": PyMemoryError = "No memory: the system's, a device's, or the session's budget.",
    Device "DeviceError": PyRuntimeError = "A device or its driver failed, or is missing.",
    Plugin "PluginError": PyRuntimeError = "A plugin was refused, or failed.",
    Export "ExportError": PyBufferError = "The data cannot be lent in that way: the message says what to do instead.",
    Cancelled "CancelledError": PyRuntimeError = "The session was closed while it worked.",
}

static CLASSES: PyOnceLock<Classes> = PyOnceLock::new();

/// A class of this name and these bases.
fn class(py: Python<'_>, name: &str, bases: &[Bound<'_, PyType>], doc: &str) -> PyResult<Py<PyType>> {
    let about = PyDict::new(py);
    about.set_item("__module__", "crossdock")?;
    about.set_item("__doc__", doc)?;
    let class = py.get_type::<PyType>().call1((name, PyTuple::new(py, bases)?, about))?;
    Ok(class.cast_into::<PyType>()?.unbind())
}

/// Puts the classes into the module.
pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    CLASSES.get_or_try_init(module.py(), || Classes::new(module.py()))?.add_to(module)
}

/// An exception of this kind.
pub fn raise(kind: Kind, message: impl Into<String>) -> PyErr {
    let message = message.into();
    Python::attach(|py| match CLASSES.get_or_try_init(py, || Classes::new(py)) {
        Ok(classes) => PyErr::from_type(
            classes.kinds.get(kind as usize).unwrap_or(&classes.base).bind(py).clone(),
            message,
        ),
        Err(error) => error,
    })
}

/// The class of warnings.
pub fn warning(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let classes = CLASSES.get_or_try_init(py, || Classes::new(py))?;
    Ok(classes.warning.bind(py).clone().into_any())
}

/// The caller's mistake.
pub fn usage(message: impl Into<String>) -> PyErr {
    raise(Kind::Usage, message)
}

/// Whether an exception is of the class for the caller's mistakes.
pub fn is_usage(py: Python<'_>, error: &PyErr) -> bool {
    let class = CLASSES.get(py).and_then(|classes| classes.kinds.get(Kind::Usage as usize));
    class.is_some_and(|class| error.is_instance(py, class.bind(py)))
}

/// The host's error, in one line with every layer's words.
pub fn of_host(error: HostError) -> PyErr {
    let line = error.one_line();
    match error {
        HostError::Usage(_) => raise(Kind::Usage, line),
        HostError::Unrecognised(_) => raise(Kind::Unsupported, line),
        HostError::Policy(_) | HostError::Refused(_) => raise(Kind::Plugin, line),
        HostError::Plugin { source, .. }
        | HostError::Data { source, .. }
        | HostError::Device { source, .. } => of_code(source.code(), line),
        // The class that Python has for this errno.
        HostError::Io { source, .. } => match source.raw_os_error() {
            Some(errno) => PyOSError::new_err((errno, line)),
            None => PyOSError::new_err(line),
        },
        HostError::Cancelled => raise(Kind::Cancelled, line),
    }
}

/// The boundary's error.
pub fn of_api(error: ApiError) -> PyErr {
    of_code(error.code(), crossdock::one_line(error.message()))
}

fn of_code(code: Code, line: String) -> PyErr {
    match code {
        Code::INVALID_ARGUMENT => raise(Kind::Usage, line),
        Code::UNSUPPORTED => raise(Kind::Unsupported, line),
        Code::BAD_DATA => raise(Kind::Data, line),
        Code::OUT_OF_MEMORY => raise(Kind::OutOfMemory, line),
        Code::DEVICE => raise(Kind::Device, line),
        Code::IO => PyOSError::new_err(line),
        Code::CANCELLED => raise(Kind::Cancelled, line),
        _ => raise(Kind::Plugin, line),
    }
}

/// `result?` with the host's error as an exception.
pub trait OrRaise<T> {
    /// The value, or the exception.
    fn or_raise(self) -> PyResult<T>;
}

impl<T> OrRaise<T> for Result<T, HostError> {
    fn or_raise(self) -> PyResult<T> {
        self.map_err(of_host)
    }
}

impl<T> OrRaise<T> for Result<T, ApiError> {
    fn or_raise(self) -> PyResult<T> {
        self.map_err(of_api)
    }
}

/// Runs `body`, which may run strangers' code in Python, and leaves an exception that is on its way as it is.
pub fn undisturbed<T>(_: Python<'_>, body: impl FnOnce() -> T) -> T {
    let (mut kind, mut value, mut traceback) =
        (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: the interpreter's lock is held, as the token says; what was taken is put back.
    unsafe { ffi::PyErr_Fetch(&mut kind, &mut value, &mut traceback) };
    let result = body();
    // SAFETY: as above.
    unsafe { ffi::PyErr_Restore(kind, value, traceback) };
    result
}

/// What a Python object holds, which goes with it: under the interpreter's lock, perhaps while an exception is on its way.
pub struct Undisturbed<T>(ManuallyDrop<T>);

impl<T> Undisturbed<T> {
    /// For a field of a Python class.
    pub fn new(value: T) -> Self {
        Self(ManuallyDrop::new(value))
    }
}

impl<T> Deref for Undisturbed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Drop for Undisturbed<T> {
    fn drop(&mut self) {
        // SAFETY: dropped once, here.
        let drop = |value: &mut ManuallyDrop<T>| unsafe { ManuallyDrop::drop(value) };
        // SAFETY: Python ends its objects with the lock held, and those that never became one are ours, who hold it too.
        let py = unsafe { Python::assume_attached() };
        undisturbed(py, || drop(&mut self.0));
    }
}
