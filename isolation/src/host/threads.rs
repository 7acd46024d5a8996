//! The threads that serve one plugin's process.

use std::io;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crate::locks::lock;

/// Counts the running threads of a group.
#[derive(Clone, Default)]
pub struct ThreadGroup(Arc<(Mutex<usize>, Condvar)>);

/// A running thread. Dropping this value decrements the count of the group.
struct RunningThread(ThreadGroup);

impl ThreadGroup {
    const NAME: &str = "crossdock-isolated";

    /// Starts a thread.
    pub fn spawn(&self, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        *lock(&self.0.0) += 1;
        let running = RunningThread(self.clone());
        let work = move || {
            work();
            drop(running);
        };
        std::thread::Builder::new().name(Self::NAME.into()).spawn(work).map(drop)
    }

    /// Waits until all threads of the group have ended, but not longer than `time`. The threads may
    /// hold memory and streams, which must not outlive their host. The time is limited because the
    /// threads may call functions of the application. A thread of the group does not wait, because
    /// it would wait for itself.
    pub fn wait_within(&self, time: Duration) {
        if std::thread::current().name() != Some(Self::NAME) {
            drop(self.0.1.wait_timeout_while(lock(&self.0.0), time, |running| *running > 0));
        }
    }
}

impl Drop for RunningThread {
    fn drop(&mut self) {
        let ThreadGroup(threads) = &self.0;
        *lock(&threads.0) -= 1;
        threads.1.notify_all();
    }
}
