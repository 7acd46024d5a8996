//! Runs the requests of a writer on a thread, while the caller prepares the next one.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crossdock_plugin_api::{Call, CallSettings, CancelFlag, Error, Progress, Result};

use crate::locks::lock;

/// How long a wait lasts before the caller's cancel flag is checked again.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// A request. The argument has the settings of its call; `None` if the request is not made, because
/// one before has failed.
pub type Job = Box<dyn FnOnce(Option<&CallSettings>) -> Result<()> + Send>;

/// Runs requests, one after the other. Dropping it waits for the requests that were added.
pub struct WriteQueue {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// Cancels the requests.
    cancel: CancelFlag,
    /// The last progress that was not reported yet: the amount done and the total.
    progress: Mutex<Option<(u64, u64)>>,
}

#[derive(Default)]
struct State {
    /// The request that runs next, and the settings of its call.
    waiting: Option<(Job, CallSettings)>,
    is_running: bool,
    /// The first error.
    failed: Option<Error>,
    is_closed: bool,
}

impl WriteQueue {
    /// Starts the thread.
    pub fn start() -> io::Result<Self> {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            changed: Condvar::new(),
            cancel: CancelFlag::new(),
            progress: Mutex::default(),
        });
        let of_thread = shared.clone();
        let thread =
            std::thread::Builder::new().name("crossdock-write".into()).spawn(move || of_thread.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Adds a request to those of `call`. Waits while another one has not begun.
    ///
    /// # Errors
    /// An earlier request has failed, or the call was cancelled. The request is not made.
    pub fn push(&self, job: Job, call: &Call<'_>) -> Result<()> {
        let result = self.wait_while(call, |state| state.waiting.is_some());
        if let Err(error) = result {
            // The error of the wait is more important.
            let _ = job(None);
            return Err(error);
        }
        let shared = self.shared.clone();
        let progress: Arc<Progress> =
            Arc::new(move |done, total| *lock(&shared.progress) = Some((done, total)));
        let settings = CallSettings {
            cancel: self.shared.cancel.clone(),
            progress: Some(progress),
            byte_budget: call.byte_budget(),
            validate: call.validate(),
            ..CallSettings::new(call.device())
        };
        lock(&self.shared.state).waiting = Some((job, settings));
        self.shared.changed.notify_all();
        Ok(())
    }

    /// Waits until all requests have ended.
    ///
    /// # Errors
    /// A request has failed, or the call was cancelled.
    pub fn wait(&self, call: &Call<'_>) -> Result<()> {
        self.wait_while(call, |state| state.waiting.is_some() || state.is_running)
    }

    fn wait_while(&self, call: &Call<'_>, is_busy: impl Fn(&State) -> bool) -> Result<()> {
        let Shared { state, changed, cancel, progress } = &*self.shared;
        let mut state = lock(state);
        while is_busy(&state) {
            if call.is_cancelled() {
                // The process ends the request, or is killed.
                cancel.cancel();
            }
            let waited = changed.wait_timeout(state, CHECK_INTERVAL);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let failed = state.failed.clone();
        drop(state);
        let reported = lock(progress).take();
        if let Some((done, total)) = reported {
            call.progress(done, total);
        }
        failed.map_or_else(|| call.check_cancelled(), Err)
    }
}

impl Drop for WriteQueue {
    fn drop(&mut self) {
        lock(&self.shared.state).is_closed = true;
        self.shared.changed.notify_all();
        // A panic of a request was reported as its error.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Shared {
    fn run(&self) {
        let mut state = lock(&self.state);
        loop {
            let Some((job, settings)) = state.waiting.take() else {
                if state.is_closed {
                    return;
                }
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let settings = Some(settings).filter(|_| state.failed.is_none());
            state.is_running = true;
            drop(state);
            // The caller may add the next request.
            self.changed.notify_all();
            let result = catch_unwind(AssertUnwindSafe(|| job(settings.as_ref())));
            let result = result.unwrap_or_else(|_| Err(Error::internal("a request of a writer panicked")));
            state = lock(&self.state);
            state.is_running = false;
            state.failed = state.failed.take().or(result.err());
            self.changed.notify_all();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crossdock_plugin_api::{Code, Device};

    use super::*;

    fn call<T>(cancel: &CancelFlag, f: impl FnOnce(&Call<'_>) -> T) -> T {
        CallSettings { cancel: cancel.clone(), ..CallSettings::new(Device::CPU) }.enter(f)
    }

    #[test]
    fn requests_run_in_order_and_none_after_an_error() {
        let queue = WriteQueue::start().unwrap();
        let log = Arc::new(Mutex::new(Vec::new()));
        let job = |number: i32, result: Result<()>| -> Job {
            let log = log.clone();
            Box::new(move |settings| {
                std::thread::sleep(Duration::from_millis(5));
                log.lock().unwrap().push((number, settings.is_some()));
                if settings.is_some() { result } else { Ok(()) }
            })
        };
        call(&CancelFlag::new(), |call| {
            (0..4).for_each(|number| queue.push(job(number, Ok(())), call).unwrap());
            queue.wait(call).unwrap();
            assert_eq!(*log.lock().unwrap(), [(0, true), (1, true), (2, true), (3, true)]);
            let full = || Err(Error::io("no space left"));
            let errors = (4..8).map(|number| queue.push(job(number, full()), call).err()).collect::<Vec<_>>();
            assert_eq!(queue.wait(call).unwrap_err().message(), "no space left");
            assert!(errors[0].is_none() && errors[3].as_ref().unwrap().message() == "no space left");
        });
        let log = log.lock().unwrap();
        let expected = (0..8).map(|number| (number, number < 5));
        let mut all = log.clone();
        all.sort_unstable();
        assert!(all.into_iter().eq(expected), "each request is made or discarded: {log:?}");
    }

    #[test]
    fn cancelling_the_call_cancels_the_request() {
        let queue = WriteQueue::start().unwrap();
        let cancel = CancelFlag::new();
        let (from, of_request) = (cancel.clone(), cancel.clone());
        call(&cancel, |call| {
            let until_cancelled: Job = Box::new(move |settings| {
                // The caller waits by now, or will wait soon.
                of_request.cancel();
                while !settings.unwrap().cancel.is_cancelled() {
                    std::thread::yield_now();
                }
                Err(Error::cancelled("cancelled"))
            });
            queue.push(until_cancelled, call).unwrap();
            assert_eq!(queue.wait(call).unwrap_err().code(), Code::CANCELLED);
        });
        assert!(from.is_cancelled());
    }

    #[test]
    fn progress_and_panics_reach_the_caller() {
        let queue = WriteQueue::start().unwrap();
        let reported = Arc::new(Mutex::new(Vec::new()));
        let to = reported.clone();
        let progress: Arc<Progress> = Arc::new(move |done, total| to.lock().unwrap().push((done, total)));
        let settings = CallSettings { progress: Some(progress), ..CallSettings::new(Device::CPU) };
        settings.enter(|call| {
            let report: Job = Box::new(|settings| {
                settings.unwrap().enter(|call| call.progress(3, 9));
                Ok(())
            });
            queue.push(report, call).unwrap();
            queue.wait(call).unwrap();
            queue.push(Box::new(|_| panic!("on purpose")), call).unwrap();
            assert!(queue.wait(call).unwrap_err().message().contains("panicked"));
        });
        assert_eq!(*reported.lock().unwrap(), [(3, 9)]);
    }
}
