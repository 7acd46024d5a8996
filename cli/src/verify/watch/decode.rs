//! The function of `crossdock.host.decode/1`: encoded arrays are decoded as a session would, by the plugin under test and by those
//! beside the program.

use std::sync::{Arc, PoisonError};

use crossdock::api::{Error, abi};

use super::shared::{Decoder, Shared};

impl Decoder {
    /// The one of `shared`, made when it is first asked for.
    fn of(shared: &Shared) -> Option<Arc<Self>> {
        let mut decoder = shared.decoder.lock().unwrap_or_else(PoisonError::into_inner);
        if decoder.is_none() {
            *decoder = Self::new(shared).map(Arc::new);
        }
        decoder.clone()
    }

    fn new(shared: &Shared) -> Option<Self> {
        let host =
            crate::options::host().backend(shared.own()?.backend).plugins(&shared.plugin).build_lenient();
        let session = host.session().device(shared.session.device).open().ok()?;
        let handle = session.host_handle("decoder").ok()?;
        Some(Self { _session: session, handle })
    }
}

pub(super) unsafe extern "C" fn decode(
    this: *const abi::HostDecode,
    call: *const abi::Call,
    array: *mut abi::EncodedArray,
    out: *mut abi::Batch,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: the plugin calls this on what it was given, whose `private_data` is its object; that lives for ever.
    let shared = unsafe { &*(*this).private_data.cast::<Shared>() };
    let failure = match shared.may_fail("decode") {
        Err(error) => error,
        Ok(()) => {
            let decoder = Decoder::of(shared);
            // SAFETY: `HostDecode` is what the header defines for this id.
            let found = decoder
                .as_ref()
                .and_then(|own| unsafe { own.handle.interface::<abi::HostDecode>(abi::HOST_DECODE_ID) });
            if let Some((own, abi::HostDecode { decode: Some(decode), .. })) = found {
                // SAFETY: the session's own function on itself; the arguments are the plugin's, handed on.
                return unsafe { decode(own.as_ptr(), call, array, out, err) };
            }
            Error::unsupported("crossdock verify has no session to decode with")
        }
    };
    // SAFETY: null, or the plugin's array, which it hands over whatever comes of it, and its error struct.
    unsafe {
        drop(crossdock::api::Owned::take(array));
        failure.write_to(err)
    }
}
