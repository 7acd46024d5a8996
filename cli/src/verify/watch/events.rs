//! Events with unique handles, so that a handle of a destroyed event is recognised. Work on host
//! memory also has events, although it is complete when the call returns.

use std::collections::HashMap;

use crossdock::api::abi;

use super::super::leak::leak;

/// The events that the plugin holds.
#[derive(Default)]
pub(super) struct Events {
    /// Maps each handle to the host's event, which may be NULL.
    live: HashMap<usize, usize>,
    /// The number of events that the host returned as NULL, because all work had run.
    n_completed: u64,
}

impl Events {
    /// Returns a handle for an event of the host. If all work has run, the host's event is NULL.
    /// Every second handle for such an event is not NULL, because a host may return NULL or an
    /// event.
    pub fn add(&mut self, event: *mut abi::Event) -> *mut abi::Event {
        if event.is_null() {
            self.n_completed += 1;
            if !self.n_completed.is_multiple_of(2) {
                return event;
            }
        }
        let handle: *mut abi::Event = std::ptr::from_mut(leak(0u8)).cast();
        self.live.insert(handle as usize, event as usize);
        handle
    }

    /// Returns the host's event for a handle, or `None` if the plugin does not hold the handle. A
    /// NULL event is a completed event.
    pub fn find(&self, handle: *mut abi::Event) -> Option<*mut abi::Event> {
        if handle.is_null() {
            return Some(handle);
        }
        self.live.get(&(handle as usize)).map(|event| *event as *mut abi::Event)
    }

    /// Removes a handle that the plugin destroyed.
    pub fn remove(&mut self, handle: *mut abi::Event) {
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
    fn completed_event_is_null_or_a_known_handle() {
        let mut events = Events::default();
        let both = [events.add(null_mut()), events.add(null_mut())];
        assert!(both[0].is_null() && !both[1].is_null());
        assert_eq!(both.map(|event| events.find(event)), [Some(null_mut()); 2]);
        assert_eq!(events.len(), 1);
    }

    #[test]
    fn removed_handle_is_never_reused() {
        let (mut events, host_event) = (Events::default(), 0x10 as *mut abi::Event);
        let first = events.add(host_event);
        assert_eq!(events.find(first), Some(host_event));
        events.remove(first);
        assert_ne!(events.add(host_event), first);
        assert_eq!((events.find(first), events.find(host_event)), (None, None));
    }
}
