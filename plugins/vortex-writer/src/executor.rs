//! Runs the futures and the jobs of the crate's writer.

use std::sync::{Mutex, PoisonError};

use async_executor::{Executor, Task};
use futures::future::BoxFuture;
use vortex::io::runtime::{self, AbortHandle, AbortHandleRef};

/// A unit of computation, such as the compression of a chunk.
pub type Job = Box<dyn FnOnce() + Send + 'static>;

/// Futures, which run only when [`Queue::run_future`] is called, and jobs, which run when the
/// caller takes them.
#[derive(Default)]
pub struct Queue {
    futures: Executor<'static>,
    jobs: Mutex<Vec<Job>>,
}

impl Queue {
    /// Polls a future that is ready to continue. Returns whether there was one.
    pub fn run_future(&self) -> bool {
        self.futures.try_tick()
    }

    /// Takes all jobs that were queued since the last call.
    pub fn take_jobs(&self) -> Vec<Job> {
        std::mem::take(&mut self.jobs.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl runtime::Executor for Queue {
    fn spawn(&self, future: BoxFuture<'static, ()>) -> AbortHandleRef {
        Box::new(Spawned(Some(self.futures.spawn(future))))
    }

    fn spawn_cpu(&self, job: Job) -> AbortHandleRef {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).push(job);
        Box::new(Spawned(None))
    }

    fn spawn_blocking_io(&self, job: Job) -> AbortHandleRef {
        self.spawn_cpu(job)
    }
}

/// A future that runs to its end unless it is aborted. A job checks itself whether its result is
/// still needed, so it has nothing to abort.
struct Spawned(Option<Task<()>>);

impl AbortHandle for Spawned {
    fn abort(mut self: Box<Self>) {
        // Dropping a task cancels it.
        drop(self.0.take());
    }
}

impl Drop for Spawned {
    fn drop(&mut self) {
        if let Some(task) = self.0.take() {
            task.detach();
        }
    }
}
