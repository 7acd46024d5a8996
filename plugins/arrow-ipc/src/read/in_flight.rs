//! Bodies that were handed out while they are still on their way to the device.

use std::collections::VecDeque;

use crossdock_memory::{Buffer, Event, Ready, Result};

/// The host does not wait for them, so it could run ahead of the link by a whole file: what they take, there and in pinned
/// memory here, is bounded by counting them.
pub struct InFlight<M = Event>(VecDeque<(M, u64)>);

/// When a body is there.
pub trait Moment {
    /// Whether it has passed.
    fn has_passed(&self) -> Result<bool>;
    /// Blocks until it has.
    fn wait(&self) -> Result<()>;
}

impl Moment for Event {
    fn has_passed(&self) -> Result<bool> {
        self.is_done()
    }

    fn wait(&self) -> Result<()> {
        self.synchronize()
    }
}

impl InFlight {
    /// One more, if it is not there yet.
    pub fn add(&mut self, body: &Buffer) {
        if let Ready::After(event) = body.ready() {
            self.push(event.clone(), body.len().unwrap_or(0) as u64);
        }
    }
}

impl<M: Moment> InFlight<M> {
    /// None.
    pub fn new() -> Self {
        Self(VecDeque::new())
    }

    fn push(&mut self, moment: M, bytes: u64) {
        self.0.push_back((moment, bytes));
    }

    /// How many bytes of them have not arrived, as far as is known.
    pub fn bytes(&mut self) -> Result<u64> {
        while let Some((oldest, _)) = self.0.front()
            && oldest.has_passed()?
        {
            self.0.pop_front();
        }
        Ok(self.0.iter().map(|(_, bytes)| *bytes).sum())
    }

    /// Blocks until they are fewer bytes than `budget`, or one body.
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

    /// Passes when it is waited for, or told to.
    #[derive(Clone, Default)]
    struct Told(Rc<Cell<bool>>);

    impl Moment for Told {
        fn has_passed(&self) -> Result<bool> {
            Ok(self.0.get())
        }
        fn wait(&self) -> Result<()> {
            self.0.set(true);
            Ok(())
        }
    }

    fn four() -> (InFlight<Told>, Vec<Told>) {
        let moments = [(); 4].map(|()| Told::default()).to_vec();
        let mut in_flight = InFlight::new();
        moments.iter().for_each(|moment| in_flight.push(moment.clone(), 10));
        (in_flight, moments)
    }

    #[test]
    fn the_oldest_are_waited_for_until_the_rest_is_within_the_budget() {
        let (mut in_flight, moments) = four();
        in_flight.wait(31).unwrap();
        assert_eq!(moments.iter().map(|m| m.0.get()).collect::<Vec<_>>(), [true, false, false, false]);
        assert_eq!(in_flight.bytes(), Ok(30));
        in_flight.wait(1).unwrap();
        assert_eq!(moments.iter().map(|m| m.0.get()).collect::<Vec<_>>(), [true, true, true, false]);
    }

    #[test]
    fn what_has_arrived_does_not_count_and_nobody_waits_for_it() {
        let (mut in_flight, moments) = four();
        moments[0].0.set(true);
        moments[1].0.set(true);
        assert_eq!(in_flight.bytes(), Ok(20));
        in_flight.wait(21).unwrap();
        assert!(!moments[2].0.get());
    }
}
