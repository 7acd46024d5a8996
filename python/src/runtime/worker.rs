//! Runs calls on threads that are kept. In a process that uses CUDA, a new thread is slow to start
//! and to end, because the driver keeps state for each thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{Builder, Result};
use std::time::Duration;

use crossdock_memory_backend::ProcessWide;

use crate::runtime::process::generation;

/// The maximum number of threads that wait for a call.
const MAX_IDLE: usize = 8;

/// The threads that wait for a call.
static IDLE: ProcessWide<Idle> = ProcessWide::new();

#[derive(Default)]
struct Idle {
    /// The process that started the threads. A forked child does not have them.
    generation: u32,
    threads: Vec<Sender<Job>>,
}

impl Idle {
    /// The threads of this process.
    fn threads(&mut self) -> &mut Vec<Sender<Job>> {
        if self.generation != generation() {
            // Dropping a sender could wait for a lock that a thread of the parent held at the fork.
            std::mem::forget(std::mem::take(&mut self.threads));
            self.generation = generation();
        }
        &mut self.threads
    }
}

struct Job {
    run: Box<dyn FnOnce() + Send>,
    /// Dropped after `run` has returned.
    done: Sender<()>,
}

/// Waits for a job when it is dropped.
struct Running(Receiver<()>);

impl Drop for Running {
    fn drop(&mut self) {
        // The thread sends nothing: an error means that the job has ended.
        let _ = self.0.recv();
    }
}

/// Runs `work` on another thread. Until it returns, calls `check` on this thread after each
/// `interval`. If no thread can be started, runs `work` on this thread.
///
/// # Errors
/// What `work` panicked with.
pub fn run<T: Send>(
    work: impl FnOnce() -> T + Send,
    interval: Duration,
    mut check: impl FnMut(),
) -> Result<T> {
    let mut result = None;
    let run: Box<dyn FnOnce() + Send + '_> = Box::new(|| result = Some(catch_unwind(AssertUnwindSafe(work))));
    // SAFETY: only the lifetime changes. The box is consumed before `done` is dropped, and
    // `running` waits for this, also if `check` panics. So `work` and `result` live long enough.
    let run = unsafe { std::mem::transmute::<Box<dyn FnOnce() + Send + '_>, Box<dyn FnOnce() + Send>>(run) };
    let (done, ended) = channel();
    let running = Running(ended);
    start(Job { run, done });
    while let Err(RecvTimeoutError::Timeout) = running.0.recv_timeout(interval) {
        check();
    }
    drop(running);
    result.unwrap_or_else(|| Err(Box::new("the thread ended before the call")))
}

/// Gives the job to a thread that waits, or to a new one.
fn start(mut job: Job) {
    loop {
        let Some(thread) = IDLE.lock().threads().pop() else { break };
        match thread.send(job) {
            Ok(()) => return,
            Err(failed) => job = failed.0,
        }
    }
    let (thread, jobs) = channel::<Job>();
    let own = thread.clone();
    let run = move || {
        for Job { run, done } in jobs {
            run();
            let mut idle = IDLE.lock();
            let threads = idle.threads();
            if threads.len() >= MAX_IDLE {
                break;
            }
            threads.push(own.clone());
            drop(idle);
            drop(done);
        }
    };
    match Builder::new().name("crossdock-call".to_owned()).spawn(run) {
        // The channel is open, because the thread has `own`.
        Ok(_) => drop(thread.send(job)),
        Err(_) => (job.run)(),
    }
}
