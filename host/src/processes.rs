//! Keeps the processes of isolated plugins until the session ends. Starting a process takes
//! milliseconds, and much longer if it starts a CUDA driver.

use std::sync::{Mutex, PoisonError};

use crossdock_isolation::{KeptProcess, PluginProcess};
use crossdock_memory_backend::{Backend, fork_count};

use crate::reclaimer::{self, PendingDestroy};

/// The processes of a session's plugins. Dropping the list releases them on the reclaimer's thread,
/// because the end of a process takes time.
#[derive(Default)]
pub(crate) struct Processes(Mutex<Vec<KeptProcess>>);

impl Processes {
    /// Keeps a process, and drops those that have ended.
    pub fn keep(&self, process: &PluginProcess) {
        let Some(kept) = process.keep() else { return };
        let mut processes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if processes.iter().any(|known| known.is(process)) {
            return;
        }
        let ended: Vec<_> = processes.extract_if(.., |known| !known.is_running()).collect();
        processes.push(kept);
        drop(processes);
        drop(ended);
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        let processes = std::mem::take(self.0.get_mut().unwrap_or_else(PoisonError::into_inner));
        for process in processes {
            reclaimer::destroy_when_idle(Box::new(Pending(process)));
        }
    }
}

struct Pending(#[expect(dead_code, reason = "it is dropped")] KeptProcess);

impl PendingDestroy for Pending {
    fn is_idle(&self) -> bool {
        true
    }

    fn forks(&self) -> u32 {
        // A forked child does not end the process, see `KeptProcess`.
        fork_count()
    }

    fn leaked_references(&self, _: &Backend) -> Option<(String, usize)> {
        None
    }
}
