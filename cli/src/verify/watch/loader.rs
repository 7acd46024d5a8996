//! The function of `crossdock.host.loader/1`. It records its arguments and calls the loader of the
//! host's own memory.

use crossdock::api::{Error, abi};

use super::shared::Shared;

pub(super) unsafe extern "C" fn load(
    this: *const abi::HostLoader,
    call: *const abi::Call,
    source: *mut abi::Source,
    loads: *const abi::Load,
    n_loads: usize,
    stream: *mut abi::Stream,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: `this` is the interface of a `Shared`, whose `private_data` is the `Shared`, which is
    // never freed.
    let shared = unsafe { &*(*this).private_data.cast::<Shared>() };
    let failure = match shared.may_fail("load") {
        Err(error) => error,
        Ok(()) => {
            // NULL is the stream of the call.
            if !stream.is_null() {
                shared.note_work("load", stream);
            }
            let Some(backing) = shared.backing() else { return abi::INTERNAL };
            let loader = backing.loader.as_ptr();
            // SAFETY: the loader is alive, and its table has a function `load`. It is called on its
            // own table, and the plugin passed valid arguments.
            match unsafe { (*loader).load } {
                // SAFETY: as above.
                Some(load) => return unsafe { load(loader, call, source, loads, n_loads, stream, err) },
                None => Error::internal("the host's loader has no function 'load'"),
            }
        }
    };
    // SAFETY: `err` is NULL or the plugin's error struct.
    unsafe { failure.write_to(err) }
}
