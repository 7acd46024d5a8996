//! Events as the plugin sees them: each is a handle of the suite's own that never comes again, so that one which was destroyed is
//! no later one's. Host memory, where everything has run at once, has them as well.

use std::collections::HashMap;

use crossdock::api::abi;

use super::super::kept::keep;

/// Those that the plugin holds.
#[derive(Default)]
pub(super) struct Events {
    /// The host's event of each handle, which may be NULL.
    live: HashMap<usize, usize>,
    /// How often the host said that all has run.
    n_passed: u64,
}

impl Events {
    /// What the plugin is given for an event of the host's. One that has passed is NULL or not, in turn: a host may give either.
    pub fn given(&mut self, event: *mut abi::Event) -> *mut abi::Event {
        if event.is_null() {
            self.n_passed += 1;
            if !self.n_passed.is_multiple_of(2) {
                return event;
            }
        }
        let handle: *mut abi::Event = std::ptr::from_mut(keep(0u8)).cast();
        self.live.insert(handle as usize, event as usize);
        handle
    }

    /// The host's event; `None` where the plugin holds no such one. NULL is one that has passed, whoever says so.
    pub fn find(&self, handle: *mut abi::Event) -> Option<*mut abi::Event> {
        if handle.is_null() {
            return Some(handle);
        }
        self.live.get(&(handle as usize)).map(|event| *event as *mut abi::Event)
    }

    /// The plugin holds it no more.
    pub fn forget(&mut self, handle: *mut abi::Event) {
        self.live.remove(&(handle as usize));
    }

    pub fn len(&self) -> usize {
        self.live.len()
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::null_mut;

    use super::*;

    #[test]
    fn an_event_that_has_passed_is_null_or_a_handle_and_both_are_known() {
        let mut events = Events::default();
        let both = [events.given(null_mut()), events.given(null_mut())];
        assert!(both[0].is_null() && !both[1].is_null());
        assert_eq!(both.map(|event| events.find(event)), [Some(null_mut()); 2]);
        assert_eq!(events.len(), 1);
    }

    #[test]
    fn a_handle_that_was_forgotten_never_comes_again() {
        let (mut events, theirs) = (Events::default(), 0x10 as *mut abi::Event);
        let first = events.given(theirs);
        assert_eq!(events.find(first), Some(theirs));
        events.forget(first);
        assert_ne!(events.given(theirs), first);
        assert_eq!((events.find(first), events.find(theirs)), (None, None));
    }
}
