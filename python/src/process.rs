//! The process that objects belong to, and its end.
//!
//! A forked child inherits objects without the threads and the driver's state behind them: it may not use them, and runs no
//! release of theirs. At the end of the interpreter what waits for a device is given back, and what comes later is left to
//! the system: a thread that would take the interpreter's lock then ends the process.

use std::cell::Cell;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicUsize, Ordering};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use crossdock_memory_backend::{Backend, ProcessWide, WeakBackend};
use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::usage;

/// How often this process was forked off before it was itself.
static GENERATION: AtomicU32 = AtomicU32::new(0);
static ENDING: AtomicBool = AtomicBool::new(false);

/// Something that belongs to the process that made it. Elsewhere, and at the interpreter's end, it is not dropped.
pub struct Own<T> {
    value: ManuallyDrop<T>,
    generation: u32,
}

impl<T> Own<T> {
    /// It belongs to this process.
    pub fn new(value: T) -> Self {
        Self { value: ManuallyDrop::new(value), generation: generation() }
    }

    /// # Errors
    /// UsageError in a forked child.
    pub fn get(&self) -> PyResult<&T> {
        if self.generation == generation() {
            return Ok(&self.value);
        }
        Err(usage(
            "it was made before this process was forked off, and has no device and no threads here: start processes with \
             \"spawn\", and pass tables as Arrow IPC bytes",
        ))
    }
}

impl<T> Drop for Own<T> {
    fn drop(&mut self) {
        if !is_over(self.generation) {
            // SAFETY: dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.value) }
        }
    }
}

/// Whose pending releases [`end`] waits for. A backend lives as long as any memory of it, its session or not.
static BACKENDS: ProcessWide<Vec<WeakBackend>> = ProcessWide::new();

/// Remembers a session's backend until it is gone.
pub fn remember(backend: &Backend) {
    let mut backends = BACKENDS.lock();
    backends.retain(|backend| backend.upgrade().is_some());
    backends.push(backend.downgrade());
}

/// Whether what is given back now would be given back to a process that is no more, or into its end.
pub fn is_over(generation: u32) -> bool {
    generation != GENERATION.load(Ordering::Relaxed) || ENDING.load(Ordering::Relaxed)
}

/// How often this process was forked off before it was itself.
pub fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// How many threads are in a call.
static CALLS: AtomicUsize = AtomicUsize::new(0);
/// The thread that ends the interpreter, once it does: the only one that may begin calls from then on.
static ENDS: OnceLock<ThreadId> = OnceLock::new();
/// How long the interpreter's end waits for calls of other threads. Some wait for ever, as for a pipe.
const CALLS_END_WITHIN: Duration = Duration::from_secs(2);

thread_local! {
    /// How many calls of this thread are in each other.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// A call, until this is dropped.
pub struct InCall(PhantomData<*const ()>);

/// Begins a call: work without the interpreter's lock, or Python code that is called from here.
///
/// The interpreter's end waits for calls that have begun. A thread that begins one later sleeps for ever, as Python's own threads do
/// from Python 3.14 on: libraries are taken down while it would still use them, and earlier versions of Python end a thread by
/// unwinding its stack, which aborts the process where frames of Rust are on it.
pub fn begin(py: Python<'_>) -> InCall {
    if DEPTH.get() == 0 {
        CALLS.fetch_add(1, Ordering::SeqCst);
        if ENDS.get().is_some_and(|thread| *thread != std::thread::current().id()) {
            CALLS.fetch_sub(1, Ordering::SeqCst);
            py.detach(|| {
                loop {
                    std::thread::park();
                }
            });
        }
    }
    DEPTH.set(DEPTH.get() + 1);
    InCall(PhantomData)
}

impl Drop for InCall {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
        if DEPTH.get() == 0 {
            CALLS.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Works without the interpreter's lock, as a call.
pub fn detach<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    let _call = begin(py);
    py.detach(work)
}

/// At the interpreter's end, while it still runs: strangers' arrays that wait for a device are released, some of them by
/// taking the interpreter's lock, which is given up meanwhile.
#[pyfunction]
fn end(py: Python<'_>) {
    // Later ends are of the same thread.
    let _ = ENDS.set(std::thread::current().id());
    let backends = std::mem::take(&mut *BACKENDS.lock());
    py.detach(|| {
        let begun = Instant::now();
        while CALLS.load(Ordering::SeqCst) > 0 && begun.elapsed() < CALLS_END_WITHIN {
            std::thread::sleep(Duration::from_millis(1));
        }
        backends.iter().filter_map(WeakBackend::upgrade).for_each(|backend| backend.settle_and_leak())
    });
    ENDING.store(true, Ordering::Relaxed);
}

/// In a forked child.
#[pyfunction]
fn forked() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    // Other threads' calls are not in this process.
    CALLS.store(usize::from(DEPTH.get() > 0), Ordering::SeqCst);
    std::mem::forget(std::mem::take(&mut *BACKENDS.lock()));
}

/// The interpreter that imported the module first; its classes and callbacks are everybody's.
static INTERPRETER: AtomicI64 = AtomicI64::new(NOBODY);
const NOBODY: i64 = -1;

/// # Errors
/// ImportError in a second interpreter of the process.
pub fn refuse_subinterpreters(_: Python<'_>) -> PyResult<()> {
    // SAFETY: the lock is held, so that there is a current interpreter.
    let own = unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) };
    match INTERPRETER.compare_exchange(NOBODY, own, Ordering::Relaxed, Ordering::Relaxed) {
        Err(first) if first != own => Err(PyImportError::new_err(
            "crossdock does not work in several interpreters of one process: use it in the one that imported it first, or in \
             another process",
        )),
        _ => Ok(()),
    }
}

/// Has Python call both.
pub fn watch(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    py.import("atexit")?.call_method1("register", (wrap_pyfunction!(end, module)?,))?;
    let after = PyDict::new(py);
    after.set_item("after_in_child", wrap_pyfunction!(forked, module)?)?;
    py.import("os")?.call_method("register_at_fork", (), Some(&after))?;
    Ok(())
}
