//! Runs jobs on a small pool of threads. The jobs read, decompress and compress buffers.
//!
//! A thread that waits for jobs runs some of the jobs itself. Therefore a pool of width `n` has
//! `n - 1` worker threads. They are started together with the first job.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crossdock_plugin_api::{Error, Result};

/// Maximum time between two calls of the function that checks for cancellation.
const CHECK_EVERY: Duration = Duration::from_millis(50);

type Job = Box<dyn FnOnce() + Send>;

/// A pool of threads.
pub struct Pool {
    shared: Arc<Shared>,
    n_workers: usize,
    threads: OnceLock<Vec<JoinHandle<()>>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    has_ended: bool,
}

/// Jobs that were started together. Dropping the group cancels the jobs that have not begun and
/// waits for the running ones, so no job outlives its group.
#[must_use]
pub struct Group {
    pool: Arc<Shared>,
    status: Arc<Status>,
}

struct Status {
    is_cancelled: AtomicBool,
    progress: Mutex<(usize, Result<()>)>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A poisoned mutex is usable, because no code that can panic runs while it is locked.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// Creates a pool of width `threads`. The width includes the thread that waits for the jobs.
    pub fn new(threads: usize) -> Self {
        Self { shared: Arc::default(), n_workers: threads.clamp(1, 256) - 1, threads: OnceLock::new() }
    }

    /// Maximum number of threads that run jobs, including the waiting thread.
    pub fn width(&self) -> usize {
        self.n_workers + 1
    }

    /// Queues `jobs`.
    pub fn start(&self, jobs: Vec<impl FnOnce() -> Result<()> + Send + 'static>) -> Group {
        let status = Arc::new(Status {
            is_cancelled: AtomicBool::new(false),
            progress: Mutex::new((jobs.len(), Ok(()))),
        });
        if !jobs.is_empty() {
            self.threads.get_or_init(|| self.spawn());
            let mut state = lock(&self.shared.state);
            state.jobs.extend(jobs.into_iter().map(|job| tracked(job, self.shared.clone(), status.clone())));
            drop(state);
            self.shared.changed.notify_all();
        }
        Group { pool: self.shared.clone(), status }
    }

    fn spawn(&self) -> Vec<JoinHandle<()>> {
        // It is not an error if a worker thread cannot be started, because the waiting thread runs
        // the jobs.
        (0..self.n_workers)
            .filter_map(|_| {
                let shared = self.shared.clone();
                let builder = std::thread::Builder::new().name("arrow-ipc".into());
                builder.spawn(move || work(&shared)).ok()
            })
            .collect()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        lock(&self.shared.state).has_ended = true;
        self.shared.changed.notify_all();
        for thread in self.threads.take().into_iter().flatten() {
            // A job may drop the last reference to the pool, and its thread cannot join itself.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

fn work(shared: &Shared) {
    let mut state = lock(&shared.state);
    while !state.has_ended {
        match state.jobs.pop_front() {
            Some(job) => {
                drop(state);
                job();
                state = lock(&shared.state);
            }
            None => state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
        }
    }
}

fn tracked(job: impl FnOnce() -> Result<()> + Send + 'static, pool: Arc<Shared>, status: Arc<Status>) -> Job {
    Box::new(move || {
        let result = if status.is_cancelled.load(Ordering::Relaxed) {
            drop(job);
            Ok(())
        } else {
            catch_unwind(AssertUnwindSafe(job)).unwrap_or_else(|payload| {
                std::mem::forget(payload);
                Err(Error::internal("a worker thread of the plugin 'arrow-ipc' panicked"))
            })
        };
        let mut progress = lock(&status.progress);
        progress.0 -= 1;
        if progress.1.is_ok() {
            progress.1 = result;
        }
        let last = progress.0 == 0;
        drop(progress);
        if last {
            // Waiting threads check their condition under this lock, so holding it here ensures
            // that none of them misses the notification.
            let _state = lock(&pool.state);
            pool.changed.notify_all();
        }
    })
}

impl Group {
    /// Whether all jobs have run.
    pub fn is_done(&self) -> bool {
        lock(&self.status.progress).0 == 0
    }

    /// Runs queued jobs until all jobs of the group have run. Returns the first error. Calls
    /// `check` between jobs and regularly while it waits. If `check` returns an error, the wait
    /// ends.
    pub fn wait(self, check: impl Fn() -> Result<()>) -> Result<()> {
        self.help(check)?;
        lock(&self.status.progress).1.clone()
    }

    fn help(&self, check: impl Fn() -> Result<()>) -> Result<()> {
        let mut state = lock(&self.pool.state);
        while !self.is_done() {
            let job = state.jobs.pop_front();
            if job.is_none() {
                let waited = self.pool.changed.wait_timeout(state, CHECK_EVERY);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            drop(state);
            let checked = check();
            if let Some(job) = job {
                // The job runs even after an error of `check`, because it was removed from the
                // queue.
                job();
            }
            checked?;
            state = lock(&self.pool.state);
        }
        Ok(())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.status.is_cancelled.store(true, Ordering::Relaxed);
        // `help` returns only errors of its check, and this check always succeeds.
        let _ = self.help(|| Ok(()));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn pool_of_any_thread_count_runs_every_job_once() {
        for threads in [1, 2, 5] {
            let pool = Pool::new(threads);
            let count = Arc::new(AtomicUsize::new(0));
            let jobs = |n: usize| {
                (0..n)
                    .map(|_| {
                        let count = count.clone();
                        move || {
                            count.fetch_add(1, Ordering::Relaxed);
                            Ok(())
                        }
                    })
                    .collect::<Vec<_>>()
            };
            let first = pool.start(jobs(100));
            let second = pool.start(jobs(50));
            second.wait(|| Ok(())).unwrap();
            first.wait(|| Ok(())).unwrap();
            pool.start(jobs(0)).wait(|| Ok(())).unwrap();
            assert_eq!(count.load(Ordering::Relaxed), 150);
        }
    }

    #[test]
    fn wait_returns_an_error_if_a_job_fails_or_panics() {
        let pool = Pool::new(2);
        let fail = |i: usize| move || if i == 3 { Err(Error::bad_data("three")) } else { Ok(()) };
        assert_eq!(pool.start((0..5).map(fail).collect()).wait(|| Ok(())).unwrap_err().message(), "three");
        let error = pool.start(vec![|| panic!("on purpose")]).wait(|| Ok(())).unwrap_err();
        assert!(error.message().contains("panicked"), "{error}");
        pool.start(vec![|| Ok(())]).wait(|| Ok(())).unwrap();
    }

    #[test]
    fn dropping_a_group_drops_its_jobs() {
        let pool = Pool::new(1);
        let resource = Arc::new(());
        let job = |resource: Arc<()>| {
            move || {
                drop(resource);
                panic!("must not run")
            }
        };
        drop(pool.start(vec![job(resource.clone())]));
        pool.start(vec![|| Ok(())]).wait(|| Ok(())).unwrap();
        assert_eq!(Arc::strong_count(&resource), 1);
    }
}
