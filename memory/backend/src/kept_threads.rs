//! Runs jobs on threads that are kept for later jobs. In a process that uses CUDA, a new thread is
//! slow to start and to end, because the driver keeps state for each thread.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Builder;

use crate::forks;
use crate::process_wide::ProcessWide;

/// The maximum number of threads that wait for a job.
const MAX_IDLE: usize = 8;

/// The threads that wait for a job.
static IDLE: ProcessWide<Idle> = ProcessWide::new();

#[derive(Default)]
struct Idle {
    /// The number of forks before the process that started the threads. A forked child does not
    /// have them.
    forks: u32,
    threads: Vec<Sender<Job>>,
}

impl Idle {
    /// The threads of this process.
    fn threads(&mut self) -> &mut Vec<Sender<Job>> {
        if self.forks != forks::count() {
            // Dropping a sender could wait for a lock that a thread of the parent held at the fork.
            std::mem::forget(std::mem::take(&mut self.threads));
            self.forks = forks::count();
        }
        &mut self.threads
    }
}

struct Job {
    run: Work,
    /// Dropped after `run` has returned.
    done: Sender<()>,
}

type Work = Box<dyn FnOnce() + Send>;

/// Runs `work` on a thread that waits for work, or on a new one. The result is disconnected,
/// without a message, after `work` was run and dropped.
///
/// # Errors
/// Returns `work` if no thread can be started.
pub fn run_on_kept_thread(work: Work) -> Result<Receiver<()>, Work> {
    let (done, ended) = channel();
    let mut job = Job { run: work, done };
    let waiting = IDLE.lock().threads().pop();
    if let Some(thread) = waiting {
        match thread.send(job) {
            Ok(()) => return Ok(ended),
            Err(failed) => job = failed.0,
        }
    }
    let (thread, jobs) = channel::<Job>();
    let own = thread.clone();
    let serve = move || {
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
    if Builder::new().name("crossdock-kept".to_owned()).spawn(serve).is_err() {
        return Err(job.run);
    }
    thread.send(job).map_or_else(|failed| Err(failed.0.run), |()| Ok(ended))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::mpsc::RecvError;

    use super::*;

    /// Runs `work`, and returns the id of its thread.
    fn run(work: impl FnOnce() + Send + 'static) -> String {
        let (id, received) = channel();
        let job = Box::new(move || {
            id.send(format!("{:?}", std::thread::current().id())).unwrap_or_default();
            work();
        });
        let Ok(ended) = run_on_kept_thread(job) else { return "no thread".to_owned() };
        let id = received.recv().unwrap_or_default();
        assert_eq!(ended.recv(), Err(RecvError));
        id
    }

    #[test]
    fn thread_is_kept_until_a_job_panics() {
        let ids: HashSet<_> = (0..50).map(|_| run(|| ())).collect();
        assert_eq!(ids.len(), 1, "{ids:?}");
        assert_eq!(ids, HashSet::from([run(|| panic!("the panic of a test"))]));
        let after = run(|| ());
        assert!(!ids.contains(&after), "{after}");
    }
}
