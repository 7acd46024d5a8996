//! Ties objects to the process that created them, and prepares the end of the interpreter.
//!
//! A forked child inherits objects without their threads and without the driver's state. The child
//! may not use such objects and does not release them. At the end of the interpreter, pending
//! releases run. Objects that are dropped later are leaked, because a release could wait for the
//! interpreter's lock, which would end the process at this point.

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

use crate::runtime::errors::usage;

/// Number of forks between the first process and this one.
static GENERATION: AtomicU32 = AtomicU32::new(0);
static ENDING: AtomicBool = AtomicBool::new(false);

/// A value that belongs to the process that created it. A forked child, and a process whose
/// interpreter has ended, do not drop it.
pub struct ProcessLocal<T> {
    value: ManuallyDrop<T>,
    generation: u32,
}

impl<T> ProcessLocal<T> {
    /// Creates a value that belongs to this process.
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
            "this object was created before the process was forked, and cannot be used in the child: start processes with \
             \"spawn\", and pass objects as arguments, which are pickled",
        ))
    }
}

impl<T> Drop for ProcessLocal<T> {
    fn drop(&mut self) {
        if !must_leak(self.generation) {
            // SAFETY: `ManuallyDrop::drop` must run once. Only this `drop` calls it.
            unsafe { ManuallyDrop::drop(&mut self.value) }
        }
    }
}

/// The backends whose pending releases [`end`] waits for. A backend lives as long as any of its
/// memory, also after its session.
static BACKENDS: ProcessWide<Vec<WeakBackend>> = ProcessWide::new();

/// Adds a session's backend to the backends that [`end`] waits for.
pub fn remember(backend: &Backend) {
    let mut backends = BACKENDS.lock();
    backends.retain(|backend| backend.upgrade().is_some());
    backends.push(backend.downgrade());
}

/// Returns whether an object must be leaked: another process created it, or the interpreter has
/// ended.
pub fn must_leak(generation: u32) -> bool {
    generation != GENERATION.load(Ordering::Relaxed) || ENDING.load(Ordering::Relaxed)
}

/// Returns the number of forks between the first process and this one.
pub fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Number of threads that are in a call.
static CALLS: AtomicUsize = AtomicUsize::new(0);
/// The thread that ends the interpreter. Once it is set, no other thread may begin a call.
static ENDING_THREAD: OnceLock<ThreadId> = OnceLock::new();
/// How long the interpreter's end waits for calls of other threads. A call that reads a pipe may
/// never return.
const MAX_WAIT_FOR_CALLS: Duration = Duration::from_secs(2);

thread_local! {
    /// Number of nested calls of this thread.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// Marks the thread as being in a call until it is dropped.
pub struct InCall(PhantomData<*const ()>);

/// Begins a call: work without the interpreter's lock, or a call of Python code.
///
/// The interpreter's end waits for calls that have begun. A thread that begins a call later sleeps
/// forever, as Python's own threads do since Python 3.14, because the libraries that it would use
/// are being unloaded. Earlier versions of Python would end the thread by unwinding its stack,
/// which aborts the process if Rust frames are on the stack.
pub fn begin(py: Python<'_>) -> InCall {
    if DEPTH.get() == 0 {
        CALLS.fetch_add(1, Ordering::SeqCst);
        if ENDING_THREAD.get().is_some_and(|thread| *thread != std::thread::current().id()) {
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

/// Runs `work` without the interpreter's lock, as a call.
pub fn detach<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    let _call = begin(py);
    py.detach(work)
}

/// Runs pending releases of external arrays at the end of the interpreter, while Python code can
/// still run. Some releases acquire the interpreter's lock, so this function releases it.
#[pyfunction]
fn end(py: Python<'_>) {
    // An error means that the same thread has called this function before.
    let _ = ENDING_THREAD.set(std::thread::current().id());
    let backends = std::mem::take(&mut *BACKENDS.lock());
    py.detach(|| {
        let start = Instant::now();
        while CALLS.load(Ordering::SeqCst) > 0 && start.elapsed() < MAX_WAIT_FOR_CALLS {
            std::thread::sleep(Duration::from_millis(1));
        }
        backends.iter().filter_map(WeakBackend::upgrade).for_each(|backend| backend.settle_and_leak())
    });
    ENDING.store(true, Ordering::Relaxed);
}

/// Runs in a forked child.
#[pyfunction]
fn forked() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    // The child has only the forking thread.
    CALLS.store(usize::from(DEPTH.get() > 0), Ordering::SeqCst);
    std::mem::forget(std::mem::take(&mut *BACKENDS.lock()));
}

/// The interpreter that imported the module first. All classes and callbacks belong to it.
static INTERPRETER: AtomicI64 = AtomicI64::new(NO_INTERPRETER);
const NO_INTERPRETER: i64 = -1;

/// # Errors
/// ImportError in a second interpreter of the process.
pub fn refuse_subinterpreters(_: Python<'_>) -> PyResult<()> {
    // SAFETY: the token proves that the lock is held, so there is a current interpreter.
    let current = unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) };
    match INTERPRETER.compare_exchange(NO_INTERPRETER, current, Ordering::Relaxed, Ordering::Relaxed) {
        Err(first) if first != current => Err(PyImportError::new_err(
            "crossdock can be used in one interpreter per process: use it in the interpreter that imported it first, or start \
             another process",
        )),
        _ => Ok(()),
    }
}

/// Registers `end` with `atexit` and `forked` with `os.register_at_fork`.
pub fn register_hooks(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    py.import("atexit")?.call_method1("register", (wrap_pyfunction!(end, module)?,))?;
    let after = PyDict::new(py);
    after.set_item("after_in_child", wrap_pyfunction!(forked, module)?)?;
    py.import("os")?.call_method("register_at_fork", (), Some(&after))?;
    Ok(())
}
