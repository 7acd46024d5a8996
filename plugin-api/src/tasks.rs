//! Tasks on the threads of the session, for a plugin.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::abi;
use crate::error::{Error, Result};
use crate::host::Host;

/// Maximum time between two calls of the function that checks for cancellation.
const CHECK_INTERVAL_MS: u32 = 50;

/// The tasks of a host. Cheap to clone. It holds a reference to the host.
#[derive(Clone)]
pub struct Tasks(Arc<Inner>);

struct Inner {
    /// The first argument of every function.
    object: NonNull<abi::HostTasks>,
    group_create:
        unsafe extern "C" fn(*const abi::HostTasks, *mut *mut abi::TaskGroup, *mut abi::Error) -> abi::Code,
    run: unsafe extern "C" fn(
        *const abi::HostTasks,
        *mut abi::TaskGroup,
        abi::Callback,
        *mut c_void,
        *mut abi::Error,
    ) -> abi::Code,
    wait: unsafe extern "C" fn(
        *const abi::HostTasks,
        *mut abi::TaskGroup,
        u32,
        *mut u32,
        *mut abi::Error,
    ) -> abi::Code,
    group_release: unsafe extern "C" fn(*const abi::HostTasks, *mut abi::TaskGroup),
    width: usize,
    _host: Host,
}

// SAFETY: the header allows calls of all functions on any thread, and `_host` keeps the object
// alive.
unsafe impl Send for Inner {}
// SAFETY: the header allows concurrent calls of all functions.
unsafe impl Sync for Inner {}

impl Tasks {
    /// Returns the tasks that `host` offers.
    ///
    /// # Errors
    /// `VERSION` if the host does not offer `crossdock.host.tasks/1`.
    pub fn from_host(host: &Host) -> Result<Self> {
        // SAFETY: `HostTasks` is what the header defines for this id.
        let tasks = unsafe { host.interface::<abi::HostTasks>(abi::HOST_TASKS_ID) };
        let missing =
            || Error::version("the host does not offer 'crossdock.host.tasks/1', which this plugin needs");
        let (object, table) = tasks.ok_or_else(missing)?;
        let (Some(group_create), Some(run), Some(wait), Some(group_release)) =
            (table.group_create, table.run, table.wait, table.group_release)
        else {
            return Err(missing());
        };
        let width = host.threads();
        Ok(Self(Arc::new(Inner {
            object,
            group_create,
            run,
            wait,
            group_release,
            width,
            _host: host.clone(),
        })))
    }

    /// Maximum number of threads that run tasks, including one thread that waits.
    pub fn width(&self) -> usize {
        self.0.width
    }

    /// Queues `jobs`.
    ///
    /// # Errors
    /// The host's error. In this case, the jobs that have not begun do not run.
    pub fn start<J>(&self, jobs: impl IntoIterator<Item = J>) -> Result<TaskGroup>
    where
        J: FnOnce() -> Result<()> + Send + 'static,
    {
        let Inner { object, group_create, run, .. } = &*self.0;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the function belongs to the object, and `raw` is writable.
        Error::check(|err| unsafe { group_create(object.as_ptr(), &mut raw, err) })?;
        let group = TaskGroup { tasks: self.clone(), raw, status: Arc::default() };
        for job in jobs {
            let task = Box::into_raw(Box::new(Task { job, status: group.status.clone() }));
            let f = abi::Callback(Some(run_task::<J>));
            // SAFETY: the group belongs to the object, and `run_task` takes ownership of `task`.
            let queued = Error::check(|err| unsafe { run(object.as_ptr(), raw, f, task.cast(), err) });
            if let Err(error) = queued {
                // SAFETY: the host does not call the function if `run` fails, so `task` has no
                // other owner.
                drop(unsafe { Box::from_raw(task) });
                return Err(error);
            }
        }
        Ok(group)
    }
}

/// Jobs that were started together. Dropping the group cancels the jobs that have not begun and
/// waits for the running ones, so no job outlives its group.
#[must_use]
pub struct TaskGroup {
    tasks: Tasks,
    raw: *mut abi::TaskGroup,
    status: Arc<Status>,
}

// SAFETY: the header allows calls of all functions for a group on any thread.
unsafe impl Send for TaskGroup {}
// SAFETY: the header allows concurrent calls of all functions for a group.
unsafe impl Sync for TaskGroup {}

#[derive(Default)]
struct Status {
    is_cancelled: AtomicBool,
    failed: Mutex<Option<Error>>,
}

impl Status {
    /// The first error.
    fn failed(&self) -> MutexGuard<'_, Option<Error>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Task<J> {
    job: J,
    status: Arc<Status>,
}

unsafe extern "C" fn run_task<J: FnOnce() -> Result<()>>(task: *mut c_void) {
    // SAFETY: `Tasks::start` passed ownership of a boxed task, and the host calls this function
    // once.
    let Task { job, status } = *unsafe { Box::from_raw(task.cast::<Task<J>>()) };
    let run = || if status.is_cancelled.load(Ordering::Relaxed) { Ok(()) } else { job() };
    let result = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|payload| {
        // Dropping the payload may panic again.
        std::mem::forget(payload);
        Err(Error::internal("a task of the plugin panicked"))
    });
    if let Err(error) = result {
        status.failed().get_or_insert(error);
    }
}

impl TaskGroup {
    /// Whether all jobs have returned.
    pub fn is_done(&self) -> bool {
        // If `wait` fails, the host is broken, and `wait` reports it.
        self.wait_for(0).unwrap_or(true)
    }

    /// Waits until all jobs have returned, and runs jobs in the meantime. Returns the first error.
    /// Calls `check` regularly. If `check` returns an error, the wait ends.
    pub fn wait(self, check: impl Fn() -> Result<()>) -> Result<()> {
        while !self.wait_for(CHECK_INTERVAL_MS)? {
            check()?;
        }
        let failed = self.status.failed().take();
        failed.map_or(Ok(()), Err)
    }

    fn wait_for(&self, milliseconds: u32) -> Result<bool> {
        let Inner { object, wait, .. } = &*self.tasks.0;
        let mut done = 0;
        // SAFETY: the group belongs to the object, and `done` is writable.
        Error::check(|err| unsafe { wait(object.as_ptr(), self.raw, milliseconds, &mut done, err) })?;
        Ok(done != 0)
    }
}

impl Drop for TaskGroup {
    fn drop(&mut self) {
        self.status.is_cancelled.store(true, Ordering::Relaxed);
        while let Ok(false) = self.wait_for(CHECK_INTERVAL_MS) {}
        let Inner { object, group_release, .. } = &*self.tasks.0;
        // SAFETY: the group belongs to the object, and it is released only here.
        unsafe { group_release(object.as_ptr(), self.raw) };
    }
}
