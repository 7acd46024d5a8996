//! A few threads for reading, decompressing and compressing while the caller does something else.
//!
//! Whoever waits for work helps with it, so a pool of `n` keeps `n` threads busy with `n - 1` of its own, and one of
//! 1 has none. Threads start with the first work: an instance that never needs them costs nothing.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crossdock_plugin_api::{Error, Result};

/// How long a waiting thread sleeps at most before it asks whether to go on waiting.
const CHECK_EVERY: Duration = Duration::from_millis(50);

type Job = Box<dyn FnOnce() + Send>;

/// The threads.
pub struct Pool {
    shared: Arc<Shared>,
    own_threads: usize,
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
    ended: bool,
}

/// Jobs that were started together. Dropping it calls off those that nobody has begun and waits for the others, so
/// that nothing which they hold outlives it.
#[must_use]
pub struct Group {
    pool: Arc<Shared>,
    status: Arc<Status>,
}

struct Status {
    called_off: AtomicBool,
    progress: Mutex<(usize, Result<()>)>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code that can panic runs while one of these is held.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// A pool that keeps `threads` threads busy, the one that waits included.
    pub fn new(threads: usize) -> Self {
        Self { shared: Arc::default(), own_threads: threads.clamp(1, 256) - 1, threads: OnceLock::new() }
    }

    /// How many threads are busy at most.
    pub fn width(&self) -> usize {
        self.own_threads + 1
    }

    /// Starts `jobs`.
    pub fn start(&self, jobs: Vec<impl FnOnce() -> Result<()> + Send + 'static>) -> Group {
        let status = Arc::new(Status {
            called_off: AtomicBool::new(false),
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
        // A thread that cannot be had is no failure: whoever waits does its work.
        (0..self.own_threads)
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
        lock(&self.shared.state).ended = true;
        self.shared.changed.notify_all();
        for thread in self.threads.take().into_iter().flatten() {
            // A job may hold the last reference to the instance, and a thread cannot join itself.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

fn work(shared: &Shared) {
    let mut state = lock(&shared.state);
    while !state.ended {
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
        let result = if status.called_off.load(Ordering::Relaxed) {
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
            // Under the lock that waiting threads check under, so that none of them misses it.
            let _state = lock(&pool.state);
            pool.changed.notify_all();
        }
    })
}

impl Group {
    /// Whether all of it has run.
    pub fn is_done(&self) -> bool {
        lock(&self.status.progress).0 == 0
    }

    /// Helps until all of it has run; the first failure, if any. Between jobs, and every now and then, `check` may end
    /// the waiting.
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
                // Also when the waiting ends here: nobody else has this job any more.
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
        self.status.called_off.store(true, Ordering::Relaxed);
        // Nothing to report to any more: the check never fails.
        let _ = self.help(|| Ok(()));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn every_job_runs_once_whatever_the_number_of_threads() {
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
    fn a_failure_and_a_panic_reach_the_one_who_waits() {
        let pool = Pool::new(2);
        let fail = |i: usize| move || if i == 3 { Err(Error::bad_data("three")) } else { Ok(()) };
        assert_eq!(pool.start((0..5).map(fail).collect()).wait(|| Ok(())).unwrap_err().message(), "three");
        let error = pool.start(vec![|| panic!("on purpose")]).wait(|| Ok(())).unwrap_err();
        assert!(error.message().contains("panicked"), "{error}");
        pool.start(vec![|| Ok(())]).wait(|| Ok(())).unwrap();
    }

    #[test]
    fn a_dropped_group_lets_go_of_what_its_jobs_held() {
        let pool = Pool::new(1);
        let held = Arc::new(());
        let job = |held: Arc<()>| {
            move || {
                drop(held);
                panic!("must not run")
            }
        };
        drop(pool.start(vec![job(held.clone())]));
        pool.start(vec![|| Ok(())]).wait(|| Ok(())).unwrap();
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
