//! Exception classes, and the conversion of the host's errors into them.

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
        /// The base class, and one class for each `Kind`, in the order of `Kind`.
        struct Classes { base: Py<PyType>, kinds: Vec<Py<PyType>>, warning: Py<PyType> }

        impl Classes {
            fn new(py: Python<'_>) -> PyResult<Self> {
                let all =
                    "Base class of all exceptions of Crossdock, except errors of the operating system.\n\n\
                    >>> issubclass(cd.UsageError, cd.Error)\n\
                    True";
                let base = class(py, "Error", &[py.get_type::<PyException>()], all)?;
                let base_class = base.bind(py);
                base_class.setattr("retry", false)?;
                base_class.setattr("offset", py.None())?;
                base_class.setattr("row", py.None())?;
                let kinds = vec![
                    $( class(py, $name, &[base.bind(py).clone(), py.get_type::<$builtin>()], $doc)? ),*
                ];
                let doc = "A warning of the host or of a plugin.";
                let warning = class(py, "Warning", &[py.get_type::<PyUserWarning>()], doc)?;
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

        /// The class of an exception.
        #[derive(Clone, Copy)]
        pub enum Kind { $( #[doc = $doc] $kind ),* }
    };
}

classes! {
    Usage "UsageError": PyValueError =
        "An argument is invalid, or contradicts another argument.\n\n\
        >>> cd.Session(threads=0)\n\
        Traceback (most recent call last):\n\
        crossdock.UsageError: threads=0: expected at least 1",
    Data "DataError": PyValueError =
        "The data violates its format.\n\n\
        >>> session.read_ipc(b\"ARROW1\")\n\
        Traceback (most recent call last):\n\
        crossdock.DataError: ...the input is truncated: it ends after 6 bytes...",
    Unsupported "UnsupportedError": PyNotImplementedError =
        "The request is valid but not supported. The message says what to do instead.\n\n\
        >>> session.read(b\"no table\")\n\
        Traceback (most recent call last):\n\
        crossdock.UnsupportedError: no plugin recognises 'bytes in memory': ...",
    OutOfMemory "OutOfMemoryError": PyMemoryError =
        "The system, a device, or the session's budget has no memory left.\n\n\
        >>> cd.Session(memory=16).read(folder / \"people.arrow\", map=False)\n\
        Traceback (most recent call last):\n\
        crossdock.OutOfMemoryError: ...the limit of 16 bytes leaves 16...",
    Device "DeviceError": PyRuntimeError =
        "A device or its driver is missing or failed.\n\n\
        >>> cd.Session(\"cuda:999\")\n\
        Traceback (most recent call last):\n\
        crossdock.DeviceError: cannot work on cuda:999: ...",
    Plugin "PluginError": PyRuntimeError =
        "A plugin failed, or may not be loaded.\n\n\
        >>> cd.Session(plugins=[folder / \"people.arrow\"])\n\
        Traceback (most recent call last):\n\
        crossdock.PluginError: ...the file is not an ELF shared library",
    Export "ExportError": PyBufferError =
        "The data cannot be exported in this way. The message says what to do instead.\n\n\
        >>> np.from_dlpack(table[\"name\"])\n\
        Traceback (most recent call last):\n\
        crossdock.ExportError: ...DLPack holds numbers and booleans only...",
    Cancelled "CancelledError": PyRuntimeError = "The session was closed during the call.",
}

static CLASSES: PyOnceLock<Classes> = PyOnceLock::new();

/// Creates a class of the package.
fn class(py: Python<'_>, name: &str, bases: &[Bound<'_, PyType>], doc: &str) -> PyResult<Py<PyType>> {
    let namespace = PyDict::new(py);
    namespace.set_item("__module__", "crossdock")?;
    namespace.set_item("__doc__", doc)?;
    let class = py.get_type::<PyType>().call1((name, PyTuple::new(py, bases)?, namespace))?;
    Ok(class.cast_into::<PyType>()?.unbind())
}

/// Adds the classes to the module.
pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    CLASSES.get_or_try_init(module.py(), || Classes::new(module.py()))?.add_to(module)
}

/// Creates an exception of this class.
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

/// Returns the class of warnings.
pub fn warning(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let classes = CLASSES.get_or_try_init(py, || Classes::new(py))?;
    Ok(classes.warning.bind(py).clone().into_any())
}

/// Creates a UsageError.
pub fn usage(message: impl Into<String>) -> PyErr {
    raise(Kind::Usage, message)
}

/// Returns whether an exception is a UsageError.
pub fn is_usage(py: Python<'_>, error: &PyErr) -> bool {
    let class = CLASSES.get(py).and_then(|classes| classes.kinds.get(Kind::Usage as usize));
    class.is_some_and(|class| error.is_instance(py, class.bind(py)))
}

/// Converts an error of the host. The message has the text of every layer, in one line.
pub fn from_host(error: HostError) -> PyErr {
    let line = error.one_line();
    match error {
        HostError::Usage(_) => raise(Kind::Usage, line),
        HostError::Unrecognised(_) => raise(Kind::Unsupported, line),
        HostError::Policy(_) | HostError::Refused(_) => raise(Kind::Plugin, line),
        HostError::Plugin { source, .. }
        | HostError::Data { source, .. }
        | HostError::Device { source, .. } => from_code(&source, line),
        // OSError selects its subclass by the errno, and appends the file name to the message.
        HostError::Io { source, path, .. } => match (source.raw_os_error(), path) {
            (Some(errno), Some(path)) => PyOSError::new_err((errno, reason(&source), path.into_os_string())),
            (Some(errno), None) => PyOSError::new_err((errno, line)),
            (None, _) => PyOSError::new_err(line),
        },
        HostError::Cancelled => raise(Kind::Cancelled, line),
    }
}

/// Returns the text of an error of the operating system without its number, which Python adds.
fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split_once(" (os error ").map_or(text.clone(), |(reason, _)| reason.to_owned())
}

/// Converts an error of the plugin interface.
pub fn from_api(error: ApiError) -> PyErr {
    from_code(&error, crossdock::one_line(error.message()))
}

/// Creates the exception for the code of `error`. Its attributes `retry`, `offset` and `row` are
/// those of the error.
fn from_code(error: &ApiError, line: String) -> PyErr {
    let raised = class_of(error.code(), line);
    if error.may_retry() || error.offset().is_some() || error.row().is_some() {
        Python::attach(|py| {
            let value = raised.value(py);
            let attributes = value
                .setattr("retry", error.may_retry())
                .and_then(|()| value.setattr("offset", error.offset()))
                .and_then(|()| value.setattr("row", error.row()));
            attributes.map_or_else(|error| error, |()| raised.clone_ref(py))
        })
    } else {
        raised
    }
}

fn class_of(code: Code, line: String) -> PyErr {
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

/// Converts the error of a result into an exception.
pub trait OrRaise<T> {
    /// Returns the value, or the exception.
    fn or_raise(self) -> PyResult<T>;
}

impl<T> OrRaise<T> for Result<T, HostError> {
    fn or_raise(self) -> PyResult<T> {
        self.map_err(from_host)
    }
}

impl<T> OrRaise<T> for Result<T, ApiError> {
    fn or_raise(self) -> PyResult<T> {
        self.map_err(from_api)
    }
}

/// Runs `body`, which may call external Python code, and restores the pending exception afterwards.
pub fn keep_exception<T>(_: Python<'_>, body: impl FnOnce() -> T) -> T {
    let (mut kind, mut value, mut traceback) =
        (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: the token proves that the interpreter's lock is held. `PyErr_Restore` below takes the
    // references.
    unsafe { ffi::PyErr_Fetch(&mut kind, &mut value, &mut traceback) };
    let result = body();
    // SAFETY: the lock is held, and `PyErr_Fetch` passed ownership of these references to this
    // function.
    unsafe { ffi::PyErr_Restore(kind, value, traceback) };
    result
}

/// A field of a Python class. Dropping it keeps a pending exception, because Python may deallocate
/// objects while an exception is set.
pub struct KeepException<T>(ManuallyDrop<T>);

impl<T> KeepException<T> {
    /// Wraps the field's value.
    pub fn new(value: T) -> Self {
        Self(ManuallyDrop::new(value))
    }
}

impl<T> Deref for KeepException<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Drop for KeepException<T> {
    fn drop(&mut self) {
        // SAFETY: `ManuallyDrop::drop` must run once. Only this `drop` calls it.
        let drop = |value: &mut ManuallyDrop<T>| unsafe { ManuallyDrop::drop(value) };
        // SAFETY: Python deallocates its objects with the lock held. A value that never became a
        // Python object is dropped by a method, which holds the lock too.
        let py = unsafe { Python::assume_attached() };
        keep_exception(py, || drop(&mut self.0));
    }
}

/// Prefixes an exception's message with the argument or column that it is about. The exception
/// object stays the same.
pub fn with_context(py: Python<'_>, what: &str, error: PyErr) -> PyErr {
    let value = error.value(py);
    let add_context = || -> PyResult<()> {
        let arguments = value.getattr("args")?.cast_into::<PyTuple>()?;
        match arguments.get_item(0).ok().and_then(|message| message.cast_into::<pyo3::types::PyString>().ok())
        {
            Some(message) if arguments.len() == 1 => value.setattr("args", (format!("{what}: {message}"),)),
            // The arguments are not a single message, so the context is added as a note.
            _ => value.call_method1("add_note", (what,)).map(drop),
        }
    };
    // An exception whose arguments cannot be changed is raised without the context.
    let _ = add_context();
    error
}
