//! Reports the progress of long work to a bar or to a Python function.

use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};

use crossdock_plugin_api::CancelFlag;
use pyo3::prelude::*;
use pyo3::types::PyBool;

use crate::runtime::errors::usage;
use crate::runtime::progress_bar::Bar;

/// The receiver of progress reports: bytes done, and bytes in total.
pub struct Progress {
    receiver: Receiver,
    /// The exception that the function raised. The cancel flag is set too.
    raised: Arc<Mutex<Option<PyErr>>>,
}

enum Receiver {
    None,
    Bar(Arc<Bar>),
    Function(Py<PyAny>),
}

type Listener = dyn Fn(u64, u64) + Send + Sync;

impl Progress {
    /// Reads the argument `progress`. None and False mean no reports. True means a bar if standard
    /// error is a terminal. Any other argument is a function that receives the reports.
    pub fn new(argument: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let receiver = match argument {
            None => Receiver::None,
            Some(argument) => match argument.cast::<PyBool>() {
                Ok(flag) if flag.is_true() && std::io::stderr().is_terminal() => {
                    Receiver::Bar(Arc::default())
                }
                Ok(_) => Receiver::None,
                Err(_) if argument.is_callable() => Receiver::Function(argument.clone().unbind()),
                Err(_) => {
                    return Err(usage(format!(
                        "progress={}: expected True, False, None, or a function (bytes_done, bytes_total)",
                        argument.repr()?
                    )));
                }
            },
        };
        Ok(Self { receiver, raised: Arc::default() })
    }

    /// Returns a function to call with the bytes done and the bytes in total (0 if unknown), on any
    /// thread. If the Python function raises, the call sets `cancel`.
    pub fn listener(&self, cancel: &CancelFlag) -> Option<Arc<Listener>> {
        match &self.receiver {
            Receiver::None => None,
            Receiver::Bar(bar) => {
                let bar = bar.clone();
                Some(Arc::new(move |done, total| bar.show(done, total)))
            }
            Receiver::Function(function) => {
                let function = Python::attach(|py| function.clone_ref(py));
                let (raised, cancel) = (self.raised.clone(), cancel.clone());
                Some(Arc::new(move |done, total| {
                    let result = Python::attach(|py| function.call1(py, (done, total)).map(drop));
                    if let Err(error) = result {
                        raised.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                        cancel.cancel();
                    }
                }))
            }
        }
    }

    /// Removes the bar. Returns the function's exception if it raised, else `result`.
    pub fn end<T>(self, result: PyResult<T>) -> PyResult<T> {
        if let Receiver::Bar(bar) = &self.receiver {
            bar.clear();
        }
        match self.raised.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(error) => Err(error),
            None => result,
        }
    }
}
