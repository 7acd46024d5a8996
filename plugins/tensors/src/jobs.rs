//! Runs jobs on the threads of the session.

use std::sync::{Arc, Mutex, PoisonError};

use crossdock_memory::{Error, Result};
use crossdock_plugin_api::{Call, CallSettings, Tasks};

/// Returns an error if the job must end because the call is cancelled.
pub type Check<'a> = dyn Fn() -> Result<()> + 'a;

/// A job with a result.
pub type Job<T> = Box<dyn FnOnce(&Check<'_>) -> Result<T> + Send>;

/// Jobs that convert fewer bytes together run on the calling thread. Starting tasks takes longer.
const MIN_BYTES: u64 = 64 << 10;

/// Runs jobs that process `bytes` bytes together, and returns their results in the order of the
/// jobs.
///
/// # Errors
/// The error of the first job that failed, in the order of the jobs; an error of the host; that of
/// a cancelled call. No job runs any more when this function returns.
pub fn run<T: Send + 'static>(
    tasks: &Tasks,
    call: &Call<'_>,
    jobs: Vec<Job<T>>,
    bytes: u64,
) -> Result<Vec<T>> {
    if jobs.len() < 2 || bytes < MIN_BYTES {
        return jobs.into_iter().map(|job| job(&|| call.check_cancelled())).collect();
    }
    // SAFETY: only the jobs use the flag. This function ends the group before it returns, and no
    // job outlives its group, so the flag is not used after the call has returned.
    let CallSettings { cancel, .. } = unsafe { CallSettings::from_call(call) };
    let slots: Vec<_> = jobs.iter().map(|_| Arc::new(Mutex::new(None))).collect();
    let runs = jobs.into_iter().zip(slots.clone()).map(|(job, slot)| {
        let cancel = cancel.clone();
        move || {
            let check = || match cancel.is_cancelled() {
                true => Err(Error::cancelled("cancelled")),
                false => Ok(()),
            };
            let result = job(&check);
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
            Ok(())
        }
    });
    let group = tasks.start(runs)?;
    group.wait(|| call.check_cancelled())?;
    let result = |slot: &Arc<Mutex<Option<Result<T>>>>| {
        let result = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
        result.unwrap_or_else(|| Err(Error::internal("a job has no result")))
    };
    slots.iter().map(result).collect()
}
