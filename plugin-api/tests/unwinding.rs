//! Tests the case that the first user of the FFI door in a process is a thread that unwinds. This
//! file has only one test, because each process has only one first use.
#![allow(clippy::panic, clippy::unwrap_used)]

use crossdock_plugin_api::door::Poison;

/// An object that uses the FFI door when it is dropped, like every object with a release function.
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
