//! What a plugin instance is given at its creation: a counted object that offers memory, a log and the session's
//! settings. Whatever the plugin lends out holds a reference to it.

use std::ffi::{CStr, c_char, c_void};
use std::sync::Arc;

use crossdock_isolation::{Decoder, heard};
use crossdock_memory_backend::Account;
use crossdock_plugin_api::door::Poison;
use crossdock_plugin_api::{Call, EncodedArray, Error, Owned, SessionSettings, abi};

use crate::janitor;
use crate::kernels::HostKernels;
use crate::traced;

/// The error of a [`Decoder`] whose session is closed.
pub(crate) fn session_is_closed() -> Error {
    Error::invalid_argument("the session that would decode the array is closed")
}

/// The host's own reference to one instance's host object.
pub(crate) struct HostObject(Arc<Shared>);

/// `abi` is the first field, so that the object's address is the `crossdock_host`'s.
#[repr(C)]
struct Shared {
    abi: abi::Host,
    log: abi::HostLog,
    session: abi::HostSession,
    decode: abi::HostDecode,
    kernels: HostKernels,
    /// `None` where nothing decodes.
    decoder: Option<Arc<Decoder>>,
    account: Arc<Account>,
    plugin: String,
    /// Who listened on the thread that made the object: what the plugin says on threads of its own is heard there too.
    listener: Option<tracing::Dispatch>,
}

// SAFETY: the raw pointers inside are to `Shared` itself and are never written after construction; the function
// pointers are this file's, which any thread may call; the rest is Sync by itself.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl HostObject {
    pub(crate) fn new(
        plugin: &str,
        account: Arc<Account>,
        settings: SessionSettings,
        decoder: Option<Arc<Decoder>>,
    ) -> Self {
        Self(Arc::new_cyclic(|shared: &std::sync::Weak<Shared>| Shared {
            abi: abi::Host {
                struct_size: size_of::<abi::Host>(),
                abi_major: abi::ABI_MAJOR,
                abi_minor: abi::ABI_MINOR,
                retain: Some(retain),
                release: Some(release),
                get_interface: Some(get_interface),
                private_data: std::ptr::null_mut(),
            },
            log: abi::HostLog {
                struct_size: size_of::<abi::HostLog>(),
                write: Some(write_log),
                private_data: shared.as_ptr().cast_mut().cast(),
            },
            session: abi::HostSession {
                struct_size: size_of::<abi::HostSession>(),
                device: settings.device,
                memory_limit: settings.memory_limit_bytes,
                threads: u32::try_from(settings.threads).unwrap_or(u32::MAX),
                reserved: 0,
            },
            decode: abi::HostDecode {
                struct_size: size_of::<abi::HostDecode>(),
                decode: Some(decode),
                private_data: shared.as_ptr().cast_mut().cast(),
            },
            kernels: HostKernels::new(plugin, account.clone()),
            decoder,
            account,
            plugin: plugin.to_string(),
            listener: tracing::dispatcher::get_default(|listener| {
                let nobody = listener.is::<tracing::subscriber::NoSubscriber>();
                (!nobody).then(|| listener.clone())
            }),
        }))
    }

    pub(crate) fn account(&self) -> &Account {
        &self.0.account
    }

    pub(crate) fn as_ptr(&self) -> *const abi::Host {
        Arc::as_ptr(&self.0).cast()
    }

    /// How many references there are, this one included.
    pub(crate) fn references(&self) -> usize {
        Arc::strong_count(&self.0)
    }
}

unsafe extern "C" fn retain(host: *const abi::Host) {
    // SAFETY: the plugin calls this on the object it was given, which is an Arc's content with at least one count.
    let account = unsafe { &(*host.cast::<Shared>()).account };
    // SAFETY: as above.
    traced::called(account, "retain", || unsafe { Arc::increment_strong_count(host.cast::<Shared>()) });
}

unsafe extern "C" fn release(host: *const abi::Host) {
    // SAFETY: the count that is taken keeps the object until then; its account is kept beyond, for those who record the call.
    let account = unsafe { &(*host.cast::<Shared>()).account };
    let account = account.is_traced().then(|| account.clone());
    let end = || {
        // SAFETY: takes one count that `retain` gave.
        unsafe { Arc::decrement_strong_count(host.cast::<Shared>()) };
        janitor::reference_gone();
    };
    match account {
        Some(account) => traced::called(&account, "release", end),
        None => end(),
    }
}

unsafe extern "C" fn get_interface(host: *const abi::Host, id: *const c_char) -> *const c_void {
    if host.is_null() || id.is_null() {
        return std::ptr::null();
    }
    // SAFETY: the plugin holds a reference, or is inside `create`, during which the host does; ids are NUL-terminated.
    let (shared, id) = unsafe { (&*host.cast::<Shared>(), CStr::from_ptr(id)) };
    traced::called(&shared.account, "get_interface", || shared.interface(id))
}

impl Shared {
    fn interface(&self, id: &CStr) -> *const c_void {
        if id == abi::HOST_MEMORY_ID {
            self.account.memory().cast()
        } else if id == abi::HOST_LOG_ID {
            std::ptr::from_ref(&self.log).cast()
        } else if id == abi::HOST_SESSION_ID {
            std::ptr::from_ref(&self.session).cast()
        } else if id == abi::HOST_DECODE_ID {
            std::ptr::from_ref(&self.decode).cast()
        } else if id == abi::HOST_KERNELS_ID {
            self.kernels.as_ptr()
        } else {
            std::ptr::null()
        }
    }
}

unsafe extern "C" fn write_log(log: *const abi::HostLog, level: i32, message: abi::Str) {
    if log.is_null() || message.data.is_null() {
        return;
    }
    // A subscriber is the application's code: its panic must not unwind into the plugin.
    Poison::new().leave(|| {
        // SAFETY: the log is a field of the `Shared` that `private_data` points at, and lives as long as it.
        let Shared { plugin, listener, account, .. } = unsafe { &*(*log).private_data.cast::<Shared>() };
        // SAFETY: the plugin's string, alive for the call.
        let bytes = unsafe { std::slice::from_raw_parts(message.data.cast::<u8>(), message.bytes) };
        let message = String::from_utf8_lossy(bytes);
        let tell = || heard(plugin, level, &message);
        traced::called(account, "log.write", || match listener {
            Some(listener) => tracing::dispatcher::with_default(listener, tell),
            None => tell(),
        });
    });
}

unsafe extern "C" fn decode(
    this: *const abi::HostDecode,
    call: *const abi::Call,
    array: *mut abi::EncodedArray,
    out: *mut abi::Batch,
    err: *mut abi::Error,
) -> abi::Code {
    // Taken before anything can fail, for the caller does not release it any more.
    // SAFETY: null, or the plugin's array, which it hands over.
    let array = unsafe { Owned::take(array) };
    let body = || {
        // SAFETY: null, or the field of the `Shared` that `private_data` points at, which the plugin keeps by a reference.
        let shared = unsafe { this.as_ref().and_then(|this| this.private_data.cast::<Shared>().as_ref()) };
        let shared = shared.ok_or_else(session_is_closed)?;
        let decoder = shared.decoder.as_ref().ok_or_else(session_is_closed)?;
        // SAFETY: the plugin's call, alive for this one, and its array, of which it vouches that the lists are as long as they
        // say.
        let (call, array) = unsafe { (Call::read(call)?, EncodedArray::from_raw(array)?) };
        let batch = shared.account.called("decode", || decoder(&call, array))?;
        // SAFETY: the plugin's out parameter.
        unsafe { batch.put(out, "decode") }
    };
    // SAFETY: the plugin's error struct.
    unsafe { Poison::of_host().enter(err, body) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Mutex;

    use crossdock_memory_backend::Backend;
    use crossdock_plugin_api::Device;
    use tracing::{Event, Metadata, Subscriber, span};

    use super::*;

    #[derive(Clone, Default)]
    struct Heard(Arc<Mutex<Vec<std::thread::ThreadId>>>);

    impl Subscriber for Heard {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }
        fn event(&self, _: &Event<'_>) {
            self.0.lock().unwrap().push(std::thread::current().id());
        }
        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }
        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
        fn enter(&self, _: &span::Id) {}
        fn exit(&self, _: &span::Id) {}
    }

    fn object() -> HostObject {
        let account = Backend::builder().build().account("a plugin");
        let settings = SessionSettings { device: Device::CPU, memory_limit_bytes: 0, threads: 1 };
        HostObject::new("a plugin", account, settings, None)
    }

    fn speak(object: &HostObject) {
        // SAFETY: the object's own log, as a plugin gets it, and a text that outlives the call.
        unsafe {
            let log = get_interface(object.as_ptr(), abi::HOST_LOG_ID.as_ptr()).cast::<abi::HostLog>();
            ((*log).write.unwrap())(log, abi::LOG_WARN, abi::Str::new("something"));
        }
    }

    #[test]
    fn what_a_plugin_says_on_a_thread_of_its_own_is_heard_where_its_instance_was_made() {
        let (heard, other) = (Heard::default(), Heard::default());
        let object = tracing::subscriber::with_default(heard.clone(), object);
        std::thread::scope(|scope| {
            scope.spawn(|| tracing::subscriber::with_default(other.clone(), || speak(&object)));
        });
        assert_eq!(heard.0.lock().unwrap().len(), 1);
        assert!(other.0.lock().unwrap().is_empty());
    }

    #[test]
    fn without_a_listener_of_its_own_it_is_heard_where_it_speaks() {
        let (heard, object) = (Heard::default(), object());
        tracing::subscriber::with_default(heard.clone(), || speak(&object));
        assert_eq!(*heard.0.lock().unwrap(), [std::thread::current().id()]);
    }
}
