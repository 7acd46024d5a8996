//! How far long work is: a bar, or a function of the caller's.

use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};

use crossdock_plugin_api::CancelFlag;
use pyo3::prelude::*;
use pyo3::types::PyBool;

use crate::errors::usage;
use crate::progress_bar::Bar;

/// What hears of bytes done and bytes in all.
pub struct Progress {
    hears: Hears,
    /// What the function raised; it also set the flag.
    raised: Arc<Mutex<Option<PyErr>>>,
}

enum Hears {
    Nobody,
    Bar(Arc<Bar>),
    Function(Py<PyAny>),
}

type Listener = dyn Fn(u64, u64) + Send + Sync;

impl Progress {
    /// None or False: nobody; True: a bar, where standard error is a terminal; else a function.
    pub fn new(wanted: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let hears = match wanted {
            None => Hears::Nobody,
            Some(wanted) => match wanted.cast::<PyBool>() {
                Ok(flag) if flag.is_true() && std::io::stderr().is_terminal() => Hears::Bar(Arc::default()),
                Ok(_) => Hears::Nobody,
                Err(_) if wanted.is_callable() => Hears::Function(wanted.clone().unbind()),
                Err(_) => {
                    return Err(usage(format!(
                        "progress={}: expected True, False, None, or a function of bytes done and bytes in all",
                        wanted.repr()?
                    )));
                }
            },
        };
        Ok(Self { hears, raised: Arc::default() })
    }

    /// To be called with bytes done and in all (0 if unknown), on any thread. A function that raises sets `cancel`.
    pub fn listener(&self, cancel: &CancelFlag) -> Option<Arc<Listener>> {
        match &self.hears {
            Hears::Nobody => None,
            Hears::Bar(bar) => {
                let bar = bar.clone();
                Some(Arc::new(move |done, total| bar.show(done, total)))
            }
            Hears::Function(function) => {
                let function = Python::attach(|py| function.clone_ref(py));
                let (raised, cancel) = (self.raised.clone(), cancel.clone());
                Some(Arc::new(move |done, total| {
                    let answer = Python::attach(|py| function.call1(py, (done, total)).map(drop));
                    if let Err(error) = answer {
                        raised.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                        cancel.cancel();
                    }
                }))
            }
        }
    }

    /// The result, unless the function raised.
    pub fn end<T>(self, result: PyResult<T>) -> PyResult<T> {
        if let Hears::Bar(bar) = &self.hears {
            bar.clear();
        }
        match self.raised.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(error) => Err(error),
            None => result,
        }
    }
}
