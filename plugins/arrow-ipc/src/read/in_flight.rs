//! Limits the total size of returned bodies whose copy to the device is still in flight.

use std::collections::VecDeque;

use crossdock_memory::{Buffer, Event, Ready, Result};

/// Bodies whose copies are in flight, in order. The host does not wait for these copies. Without a
/// limit, it could enqueue the copies of a whole file, which would need device memory and pinned
/// memory for the whole file.
pub struct InFlight<M = Event>(VecDeque<(M, u64)>);

/// A copy whose completion can be queried.
pub trait Completion {
    /// Whether the copy is complete.
    fn is_complete(&self) -> Result<bool>;
    /// Blocks until the copy is complete.
    fn wait(&self) -> Result<()>;
}

impl Completion for Event {
    fn is_complete(&self) -> Result<bool> {
        self.is_done()
    }

    fn wait(&self) -> Result<()> {
        self.synchronize()
    }
}

impl InFlight {
    /// Adds a body if its copy may be in flight.
    pub fn add(&mut self, body: &Buffer) {
        if let Ready::After(event) = body.ready() {
            self.push(event.clone(), body.len().unwrap_or(0) as u64);
        }
    }
}

impl<M: Completion> InFlight<M> {
    /// Creates an empty list.
    pub fn new() -> Self {
        Self(VecDeque::new())
    }

    fn push(&mut self, completion: M, bytes: u64) {
        self.0.push_back((completion, bytes));
    }

    /// Total size of the bodies in flight, in bytes. A body whose copy is complete still counts if
    /// an earlier copy is incomplete.
    pub fn bytes(&mut self) -> Result<u64> {
        while let Some((oldest, _)) = self.0.front()
            && oldest.is_complete()?
        {
            self.0.pop_front();
        }
        Ok(self.0.iter().map(|(_, bytes)| *bytes).sum())
    }

    /// Blocks until the bodies in flight have fewer bytes than `budget`, or until only one body is
    /// left.
    pub fn wait(&mut self, budget: u64) -> Result<()> {
        while self.bytes()? >= budget && self.0.len() > 1 {
            if let Some((oldest, _)) = self.0.pop_front() {
                oldest.wait()?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    /// An event that is complete after a wait or after its flag was set.
    #[derive(Clone, Default)]
    struct FakeEvent(Rc<Cell<bool>>);

    impl Completion for FakeEvent {
        fn is_complete(&self) -> Result<bool> {
            Ok(self.0.get())
        }
        fn wait(&self) -> Result<()> {
            self.0.set(true);
            Ok(())
        }
    }

    fn four() -> (InFlight<FakeEvent>, Vec<FakeEvent>) {
        let events = [(); 4].map(|()| FakeEvent::default()).to_vec();
        let mut in_flight = InFlight::new();
        events.iter().for_each(|completion| in_flight.push(completion.clone(), 10));
        (in_flight, events)
    }

    #[test]
    fn wait_completes_oldest_copies_until_the_rest_fits_into_the_budget() {
        let (mut in_flight, events) = four();
        in_flight.wait(31).unwrap();
        assert_eq!(events.iter().map(|m| m.0.get()).collect::<Vec<_>>(), [true, false, false, false]);
        assert_eq!(in_flight.bytes(), Ok(30));
        in_flight.wait(1).unwrap();
        assert_eq!(events.iter().map(|m| m.0.get()).collect::<Vec<_>>(), [true, true, true, false]);
    }

    #[test]
    fn completed_copies_do_not_count_against_the_budget() {
        let (mut in_flight, events) = four();
        events[0].0.set(true);
        events[1].0.set(true);
        assert_eq!(in_flight.bytes(), Ok(20));
        in_flight.wait(21).unwrap();
        assert!(!events[2].0.get());
    }
}
