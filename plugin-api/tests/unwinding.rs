//! Tests the first use of the FFI door in a process, while its thread unwinds. It is the only test
//! of this file, because a process has one first use.
#![allow(clippy::panic, clippy::unwrap_used)]

use crossdock_plugin_api::door::Poison;

/// Uses the door when dropped, as every object with a release does.
struct ReleasedOnDrop(Poison);

impl Drop for ReleasedOnDrop {
    fn drop(&mut self) {
        self.0.run_release(|| ());
    }
}

#[test]
fn release_during_unwinding_does_not_abort() {
    let poison = Poison::new();
    let object = ReleasedOnDrop(poison.clone());
    let result = std::thread::spawn(move || {
        let _object = object;
        panic!("the owner's panic");
    })
    .join();
    assert!(result.is_err());
    poison.run_release(|| panic!("the release's panic"));
    assert!(poison.message().unwrap().starts_with("the release's panic (at "));
}
