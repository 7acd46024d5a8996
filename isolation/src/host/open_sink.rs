//! A sink that a process writes to.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crossdock_plugin_api::{Error, Result, Sink};

use crate::locks::lock;

/// How long a callback waits for the response with the write before, which was sent before it.
/// While the host makes that write, the callback waits for the lock, however long the write takes.
const MAX_WAIT: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 5 });

/// A sink. Some writes arrive in callbacks and others in responses, which different threads handle,
/// so writes have numbers.
pub struct OpenSink {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    sink: Sink,
    /// The number of the next write.
    next: u64,
    /// Whether a write has failed. Later writes would produce an incomplete file.
    has_failed: bool,
}

/// How the bytes of a write have arrived.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// A callback may arrive while the response with the write before is being handled.
    Callback,
    /// The process sends a response after all of its writes before were made.
    Response,
}

impl OpenSink {
    pub fn new(sink: Sink) -> Self {
        let state = State { sink, next: 0, has_failed: false };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Makes the write with a number, after the write with the number before.
    ///
    /// # Errors
    /// The number is unexpected, this write or one before has failed, or the process has ended.
    pub fn write(
        &self,
        number: u64,
        arrival: Arrival,
        write: impl FnOnce(&mut Sink) -> Result<()>,
    ) -> Result<()> {
        let mut state = lock(&self.state);
        let is_early = |state: &State| {
            arrival == Arrival::Callback && state.next.checked_add(1) == Some(number) && !state.has_failed
        };
        let waited = self.changed.wait_timeout_while(state, MAX_WAIT, |state| is_early(state));
        state = waited.unwrap_or_else(PoisonError::into_inner).0;
        let State { sink, next, has_failed } = &mut *state;
        if *has_failed {
            return Err(Error::io(format!("'{}': a write before has failed", sink.name())));
        }
        if *next != number {
            *has_failed = true;
            return Err(Error::bad_data(format!("write {number} of a sink, expected write {next}")));
        }
        // The plugin cannot add the name, because it receives no error of a write that it made
        // before.
        let result = write(sink).map_err(|error| match error.message().contains(sink.name()) {
            true => error,
            false => error.context(format_args!("'{}'", sink.name())),
        });
        *next += 1;
        *has_failed = result.is_err();
        drop(state);
        self.changed.notify_all();
        result
    }

    /// Fails all later writes, because a write before is missing.
    pub fn fail(&self) {
        lock(&self.state).has_failed = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use crossdock_plugin_api::ByteSink;

    use super::*;

    struct Memory(Arc<Mutex<Vec<u8>>>);

    impl ByteSink for Memory {
        fn name(&self) -> &str {
            "memory"
        }

        fn write(&mut self, bytes: &[u8]) -> Result<()> {
            if bytes == b"full" {
                return Err(Error::io("no space left"));
            }
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(())
        }
    }

    fn sink() -> (OpenSink, Arc<Mutex<Vec<u8>>>) {
        let written = Arc::new(Mutex::default());
        (OpenSink::new(Sink::new(Box::new(Memory(written.clone())))), written)
    }

    #[test]
    fn callback_waits_for_the_response_before_it() {
        let (sink, written) = sink();
        sink.write(0, Arrival::Callback, |to| to.write(b"a")).unwrap();
        std::thread::scope(|scope| {
            let callback = scope.spawn(|| sink.write(2, Arrival::Callback, |to| to.write(b"c")));
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(!callback.is_finished());
            sink.write(1, Arrival::Response, |to| to.write(b"b")).unwrap();
            callback.join().unwrap().unwrap();
        });
        assert_eq!(*written.lock().unwrap(), b"abc");
    }

    #[test]
    fn rejects_unexpected_numbers_and_writes_after_an_error() {
        // The last callback waits for a response that does not arrive.
        for (number, arrival) in [
            (2, Arrival::Callback),
            (u64::MAX, Arrival::Callback),
            (1, Arrival::Response),
            (1, Arrival::Callback),
        ] {
            let (sink, written) = sink();
            let error = sink.write(number, arrival, |to| to.write(b"x")).unwrap_err();
            assert!(error.message().contains("expected write 0"), "{error}");
            let error = sink.write(0, arrival, |to| to.write(b"x")).unwrap_err();
            assert!(error.message().contains("a write before has failed"), "{error}");
            assert!(written.lock().unwrap().is_empty());
        }
        let (sink, written) = sink();
        let error = sink.write(0, Arrival::Response, |to| to.write(b"full")).unwrap_err();
        assert_eq!(error.message(), "'memory': no space left");
        let error = sink.write(1, Arrival::Response, |to| to.write(b"y")).unwrap_err();
        assert!(error.message().contains("'memory': a write before has failed"), "{error}");
        assert!(written.lock().unwrap().is_empty());
    }

    #[test]
    fn failure_ends_the_wait_of_a_callback() {
        let (sink, _) = sink();
        std::thread::scope(|scope| {
            let callback = scope.spawn(|| sink.write(1, Arrival::Callback, |to| to.write(b"b")));
            sink.fail();
            assert!(callback.join().unwrap().is_err());
        });
    }
}
