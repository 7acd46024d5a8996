//! The function of `crossdock.host.decode/1`: a session decodes encoded arrays, with the plugin
//! under test and the plugins next to the executable.

use std::sync::{Arc, PoisonError};

use crossdock::api::{Error, abi};

use super::shared::{Decoder, Shared};

impl Decoder {
    /// The decoder of `shared`, which is made at the first use.
    fn of(shared: &Shared) -> Option<Arc<Self>> {
        let mut decoder = shared.decoder.lock().unwrap_or_else(PoisonError::into_inner);
        if decoder.is_none() {
            *decoder = Self::new(shared).map(Arc::new);
        }
        decoder.clone()
    }

    fn new(shared: &Shared) -> Option<Self> {
        let backend = shared.backing()?.backend;
        let host = crate::options::host().backend(backend).plugins(&shared.plugin).build_lenient();
        let session = host.session().device(shared.session.device).open().ok()?;
        let handle = session.host_handle("decoder").ok()?;
        Some(Self { _session: session, handle })
    }
}

pub(super) unsafe extern "C" fn decode(
    this: *const abi::HostDecode,
    call: *const abi::Call,
    array: *mut abi::EncodedArray,
    rows: *const abi::RowRange,
    out: *mut abi::Batch,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: `this` is the interface of a `Shared`, whose `private_data` is the `Shared`, which is
    // never freed.
    let shared = unsafe { &*(*this).private_data.cast::<Shared>() };
    let failure = match shared.may_fail("decode") {
        Err(error) => error,
        Ok(()) => {
            let decoder = Decoder::of(shared);
            // SAFETY: the header defines `HostDecode` as the interface of this id.
            let interface = decoder.as_ref().and_then(|decoder| unsafe {
                decoder.handle.interface::<abi::HostDecode>(abi::HOST_DECODE_ID)
            });
            if let Some((session, abi::HostDecode { decode: Some(decode), .. })) = interface {
                // SAFETY: `decode` is called on its own interface, and the plugin passed valid
                // arguments.
                return unsafe { decode(session.as_ptr(), call, array, rows, out, err) };
            }
            Error::unsupported("crossdock verify cannot open a session to decode with")
        }
    };
    // SAFETY: `array` is NULL or an array whose ownership the plugin passes even if the call fails.
    // `err` is NULL or the plugin's error struct.
    unsafe {
        drop(crossdock::api::Owned::take(array));
        failure.write_to(err)
    }
}

pub(super) unsafe extern "C" fn children(
    this: *const abi::HostDecode,
    node: *const abi::EncodedNode,
    schemas: *mut abi::ArrowSchema,
    lengths: *mut u64,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: as in `decode`.
    let shared = unsafe { &*(*this).private_data.cast::<Shared>() };
    let decoder = Decoder::of(shared);
    // SAFETY: the header defines `HostDecode` as the interface of this id.
    let interface = decoder
        .as_ref()
        .and_then(|decoder| unsafe { decoder.handle.interface::<abi::HostDecode>(abi::HOST_DECODE_ID) });
    match interface {
        // SAFETY: `children` is called on its own interface, and the plugin passed valid arguments.
        Some((session, abi::HostDecode { children: Some(children), .. })) => unsafe {
            children(session.as_ptr(), node, schemas, lengths, err)
        },
        // SAFETY: `err` is NULL or the plugin's error struct.
        _ => unsafe {
            Error::unsupported("crossdock verify cannot open a session to decode with").write_to(err)
        },
    }
}
