//! Settings of loads that a waiting thread runs.
//!
//! A load runs as a task, and may take longer than the call that started it. Its settings therefore
//! belong to the reader. But a thread that waits for a load may run the load itself. The call of
//! this thread must then be able to end the load.

use std::cell::Cell;

use crossdock_plugin_api::{Call, CallSettings, CancelFlag, Device};

thread_local! {
    /// The call in which this thread waits for loads.
    static CALL: Cell<Option<*const Call<'static>>> = const { Cell::new(None) };
}

/// Runs `wait`, in which this thread may run loads on behalf of `call`.
pub fn in_call<T>(call: &Call<'_>, wait: impl FnOnce() -> T) -> T {
    /// Restores the previous value, also if `wait` panics.
    struct Reset(Option<*const Call<'static>>);
    impl Drop for Reset {
        fn drop(&mut self) {
            CALL.set(self.0);
        }
    }
    let _reset = Reset(CALL.replace(Some(std::ptr::from_ref(call).cast())));
    wait()
}

/// Runs `load` with its settings: those of this thread's waiting call, or otherwise the cancel flag
/// of the reader.
pub fn with_settings<T>(device: Device, reader: &CancelFlag, load: impl FnOnce(&Call<'_>) -> T) -> T {
    match CALL.get() {
        // SAFETY: `in_call` stores a call that is borrowed while it runs, and resets the value
        // afterwards. This function runs within `in_call` of the same thread.
        Some(call) => load(unsafe { &*call }),
        None => {
            let settings = CallSettings { cancel: reader.clone(), ..CallSettings::new(device) };
            settings.enter(load)
        }
    }
}
