//! The door's first use of all, while its thread unwinds: alone in its process, for there is one first use.
#![allow(clippy::panic, clippy::unwrap_used)]

use crossdock_plugin_api::door::Poison;

/// Goes through the door when dropped, as everything that has a release does.
struct Released(Poison);

impl Drop for Released {
    fn drop(&mut self) {
        self.0.leave(|| ());
    }
}

#[test]
fn what_is_released_while_its_holder_unwinds_does_not_end_the_process() {
    let poison = Poison::new();
    let held = Released(poison.clone());
    let ended = std::thread::spawn(move || {
        let _held = held;
        panic!("the holder's own");
    })
    .join();
    assert!(ended.is_err());
    poison.leave(|| panic!("the release's"));
    assert!(poison.message().unwrap().starts_with("the release's (at "), "the door works on");
}
