//! Runs tasks on a few threads.
//!
//! A thread that waits for tasks runs some of them itself. Therefore a pool of width `n` has `n -
//! 1` threads. They are started together with the first task.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossdock_plugin_api::{Error, Result};

use crate::cuda::note_own_thread;
use crate::forks;

/// Maximum number of threads of a pool.
const MAX_WIDTH: usize = 256;

/// The threads of one session, which run the tasks of all its plugins.
pub struct TaskPool {
    shared: Arc<Shared>,
    width: usize,
    threads: OnceLock<Vec<JoinHandle<()>>>,
    next_owner: AtomicU64,
    /// Number of forks when the pool was created.
    forks: u32,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Notifies the threads of the pool: a task was queued, or the pool has ended.
    queued: Condvar,
    /// Notifies waiting threads: a task was queued, or a group has ended.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    tasks: VecDeque<Task>,
    has_ended: bool,
}

struct Task {
    owner: Owner,
    group: Arc<Group>,
    run: Box<dyn FnOnce() + Send>,
}

/// Identifies the instance that a task belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Owner(u64);

/// The pool, as one instance uses it. Clones belong to the same instance.
#[derive(Clone)]
pub struct InstanceTasks {
    pool: Arc<TaskPool>,
    owner: Owner,
}

/// Tasks that are waited for together.
#[derive(Default)]
pub(super) struct Group {
    /// Number of tasks that have not returned.
    n_pending: AtomicUsize,
    has_panicked: AtomicBool,
}

impl Group {
    pub(super) fn is_done(&self) -> bool {
        self.n_pending.load(Ordering::Acquire) == 0
    }

    pub(super) fn has_panicked(&self) -> bool {
        self.has_panicked.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A poisoned mutex is usable, because no code that can panic runs while it is locked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        note_own_thread();
        let mut state = self.lock();
        while !state.has_ended {
            match state.tasks.pop_front() {
                Some(task) => {
                    drop(state);
                    self.run(task);
                    state = self.lock();
                }
                None => state = self.queued.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    fn run(&self, task: Task) {
        let Task { group, run, .. } = task;
        if let Err(payload) = catch_unwind(AssertUnwindSafe(run)) {
            // Dropping the payload may panic again.
            std::mem::forget(payload);
            group.has_panicked.store(true, Ordering::Relaxed);
        }
        self.note_returned(&group);
    }

    fn note_returned(&self, group: &Group) {
        if group.n_pending.fetch_sub(1, Ordering::AcqRel) == 1 {
            // A waiting thread checks the group under this lock, so it cannot miss the
            // notification.
            drop(self.lock());
            self.changed.notify_all();
        }
    }
}

impl TaskPool {
    /// Creates a pool of width `threads`, which includes a thread that waits for tasks. Does not
    /// start threads yet.
    pub fn new(threads: usize) -> Arc<Self> {
        Arc::new(Self {
            shared: Arc::default(),
            width: threads.clamp(1, MAX_WIDTH),
            threads: OnceLock::new(),
            next_owner: AtomicU64::new(1),
            forks: forks::count(),
        })
    }

    /// Maximum number of threads that run tasks, including one that waits.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Returns the pool for another instance.
    pub fn for_instance(self: &Arc<Self>) -> InstanceTasks {
        InstanceTasks { owner: Owner(self.next_owner.fetch_add(1, Ordering::Relaxed)), pool: self.clone() }
    }

    /// Queues tasks of a group: after all others, or before them.
    fn start(
        &self,
        owner: Owner,
        group: &Arc<Group>,
        is_first: bool,
        runs: impl ExactSizeIterator<Item = Box<dyn FnOnce() + Send>>,
    ) -> Result<()> {
        self.reject_forked()?;
        self.threads.get_or_init(|| self.spawn());
        let n = runs.len();
        group.n_pending.fetch_add(n, Ordering::Relaxed);
        let tasks = runs.map(|run| Task { owner, group: group.clone(), run });
        let mut state = self.shared.lock();
        match is_first {
            true => tasks.for_each(|task| state.tasks.push_front(task)),
            false => state.tasks.extend(tasks),
        }
        drop(state);
        // Threads that find no task would only take the lock from the others.
        if n < self.width {
            (0..n).for_each(|_| self.shared.queued.notify_one());
        } else {
            self.shared.queued.notify_all();
        }
        self.shared.changed.notify_all();
        Ok(())
    }

    fn reject_forked(&self) -> Result<()> {
        if self.forks == forks::count() {
            return Ok(());
        }
        Err(Error::unsupported("this process was forked after the session was opened: open a new session"))
    }

    /// Runs queued tasks of `owner` until all tasks of `group` have returned, or until `time` has
    /// passed. Returns whether all tasks of the group have returned.
    fn wait(&self, owner: Owner, group: &Group, time: Duration) -> Result<bool> {
        if group.is_done() || time.is_zero() {
            return Ok(group.is_done());
        }
        self.reject_forked()?;
        let end = Instant::now().checked_add(time);
        loop {
            let mut state = self.shared.lock();
            if group.is_done() {
                return Ok(true);
            }
            let left = end.map_or(time, |end| end.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Ok(false);
            }
            match state.tasks.iter().position(|task| task.owner == owner) {
                Some(index) => {
                    let task = state.tasks.remove(index);
                    drop(state);
                    task.into_iter().for_each(|task| self.shared.run(task));
                }
                None => {
                    drop(self.shared.changed.wait_timeout(state, left));
                }
            }
        }
    }

    fn spawn(&self) -> Vec<JoinHandle<()>> {
        // It is not an error if a thread cannot be started, because waiting threads run tasks.
        (1..self.width)
            .filter_map(|_| {
                let shared = self.shared.clone();
                std::thread::Builder::new().name("crossdock-task".into()).spawn(move || shared.work()).ok()
            })
            .collect()
    }
}

impl InstanceTasks {
    /// Maximum number of threads that run tasks, including one that waits.
    pub fn width(&self) -> usize {
        self.pool.width
    }

    /// Queues a task.
    ///
    /// # Errors
    /// In a process that was forked after the pool was created, because it has no threads.
    pub(super) fn start(&self, group: &Arc<Group>, run: Box<dyn FnOnce() + Send>) -> Result<()> {
        self.pool.start(self.owner, group, false, std::iter::once(run))
    }

    /// Runs queued tasks of the instance until all tasks of `group` have returned, or until `time`
    /// has passed. Returns whether all tasks of the group have returned.
    pub(super) fn wait(&self, group: &Group, time: Duration) -> Result<bool> {
        self.pool.wait(self.owner, group, time)
    }

    /// Runs `f` on this thread until it returns `false`. In the meantime, other threads run it at
    /// most `n - 1` times, as tasks of the instance. Returns when all calls have returned.
    ///
    /// # Errors
    /// If a call on another thread panics.
    pub fn share(&self, n: usize, f: &(dyn Fn() -> bool + Sync)) -> Result<()> {
        let group = Arc::<Group>::default();
        let guard = SharedCall { pool: &self.pool, group: &group };
        let pointer = std::ptr::from_ref(f);
        // SAFETY: the lifetime is extended. `guard` removes the tasks that have not begun and waits
        // for the others, before `f` can be dropped.
        let f_of_tasks: &'static (dyn Fn() -> bool + Sync) = unsafe {
            &*std::mem::transmute::<*const (dyn Fn() -> bool + Sync + '_), *const (dyn Fn() -> bool + Sync)>(
                pointer,
            )
        };
        if self.width() > 1 && n > 1 {
            let run = move || {
                f_of_tasks();
            };
            let runs = (1..n).map(|_| Box::new(run) as Box<dyn FnOnce() + Send>);
            // They run before tasks that have not begun, so that tasks end one after the other, and
            // not all at about the same time. If they cannot be queued, this thread does all the
            // work.
            let _ = self.pool.start(self.owner, &group, true, runs);
        }
        while f() {}
        drop(guard);
        if group.has_panicked() {
            return Err(Error::internal("a thread of the host panicked"));
        }
        Ok(())
    }
}

/// Ends the tasks of [`InstanceTasks::share`], also if the caller's own call panics.
struct SharedCall<'a> {
    pool: &'a TaskPool,
    group: &'a Arc<Group>,
}

impl Drop for SharedCall<'_> {
    fn drop(&mut self) {
        let shared = &self.pool.shared;
        let mut state = shared.lock();
        let before = state.tasks.len();
        state.tasks.retain(|task| !Arc::ptr_eq(&task.group, self.group));
        self.group.n_pending.fetch_sub(before - state.tasks.len(), Ordering::AcqRel);
        while !self.group.is_done() {
            state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for TaskPool {
    fn drop(&mut self) {
        let threads = self.threads.take().into_iter().flatten();
        if self.forks != forks::count() {
            // A forked process does not have these threads.
            return std::mem::forget(threads);
        }
        self.shared.lock().has_ended = true;
        self.shared.queued.notify_all();
        for thread in threads {
            // A task may drop the last reference to the pool, and its thread cannot join itself.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}
