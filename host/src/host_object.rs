//! Implements the host object that each plugin instance receives: a reference-counted object with
//! memory, a log and the session's settings. Each object that a plugin exports holds a reference to
//! the host object.

use std::ffi::{CStr, c_char, c_void};
use std::sync::Arc;

use crossdock_isolation::{Decoder, log_plugin_message};
use crossdock_memory_backend::{Account, Loader, TaskPool, Tasks};
use crossdock_plugin_api::door::Poison;
use crossdock_plugin_api::{
    Call, EncodedArray, EncodedNode, Error, Owned, SessionSettings, abi, write_children,
};

use crate::kernels::HostKernels;
use crate::reclaimer;
use crate::tracing_hooks;

/// The error of a [`Decoder`] whose session is closed.
pub(crate) fn session_is_closed() -> Error {
    Error::invalid_argument("the session that would decode the array is closed")
}

/// The ids of the interfaces that the host offers to plugins. Isolated plugins have the same ones.
pub(crate) const INTERFACES: [&CStr; 7] = [
    abi::HOST_MEMORY_ID,
    abi::HOST_LOG_ID,
    abi::HOST_SESSION_ID,
    abi::HOST_DECODE_ID,
    abi::HOST_KERNELS_ID,
    abi::HOST_LOADER_ID,
    abi::HOST_TASKS_ID,
];

/// The host's own reference to the host object of one instance.
pub(crate) struct HostObject(Arc<Shared>);

/// `abi` is the first field, so that a pointer to this struct is a pointer to a `crossdock_host`.
#[repr(C)]
struct Shared {
    abi: abi::Host,
    log: abi::HostLog,
    session: abi::HostSession,
    decode: abi::HostDecode,
    kernels: HostKernels,
    loader: Loader,
    tasks: Tasks,
    /// Decodes arrays for the plugin. `None` if the instance cannot request decoding.
    decoder: Option<Arc<dyn Decoder>>,
    account: Arc<Account>,
    plugin: String,
    /// The log subscriber of the thread that created the object. It also receives messages from the
    /// plugin's own threads.
    subscriber: Option<tracing::Dispatch>,
}

// SAFETY: the raw pointers point into `Shared` itself and are not written after construction. The
// function pointers are to functions of this file, which any thread may call. The other fields are
// Send and Sync.
unsafe impl Send for Shared {}
// SAFETY: the pointers are never written after construction, and every other field is Sync.
unsafe impl Sync for Shared {}

impl HostObject {
    pub(crate) fn new(
        plugin: &str,
        account: Arc<Account>,
        settings: SessionSettings,
        tasks: &Arc<TaskPool>,
        decoder: Option<Arc<dyn Decoder>>,
    ) -> Self {
        let tasks = tasks.for_instance();
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
                children: Some(children),
                private_data: shared.as_ptr().cast_mut().cast(),
            },
            kernels: HostKernels::new(plugin, account.clone()),
            loader: Loader::new(account.clone(), tasks.clone()),
            tasks: Tasks::new(tasks.clone(), account.clone()),
            decoder,
            account,
            plugin: plugin.to_string(),
            subscriber: tracing::dispatcher::get_default(|subscriber| {
                let is_none = subscriber.is::<tracing::subscriber::NoSubscriber>();
                (!is_none).then(|| subscriber.clone())
            }),
        }))
    }

    pub(crate) fn account(&self) -> &Account {
        &self.0.account
    }

    pub(crate) fn as_ptr(&self) -> *const abi::Host {
        Arc::as_ptr(&self.0).cast()
    }

    /// The number of references to the host object, including `self`.
    pub(crate) fn references(&self) -> usize {
        Arc::strong_count(&self.0)
    }
}

unsafe extern "C" fn retain(host: *const abi::Host) {
    // SAFETY: the contract of `retain`: the caller has a reference, and the object is the content
    // of an Arc.
    let account = unsafe { &(*host.cast::<Shared>()).account };
    // SAFETY: the pointer came from `Arc::as_ptr`, and the caller's reference keeps the count at 1
    // or more.
    tracing_hooks::plugin_call(account, "retain", || unsafe {
        Arc::increment_strong_count(host.cast::<Shared>())
    });
}

unsafe extern "C" fn release(host: *const abi::Host) {
    // SAFETY: the contract of `release`: the caller has a reference, which is released only below.
    // The account is cloned, because the recorded call may end after the object is freed.
    let account = unsafe { &(*host.cast::<Shared>()).account };
    let account = account.is_traced().then(|| account.clone());
    let end = || {
        // SAFETY: the caller passes one reference, which `retain` or the creation counted.
        unsafe { Arc::decrement_strong_count(host.cast::<Shared>()) };
        reclaimer::reference_gone();
    };
    match account {
        Some(account) => tracing_hooks::plugin_call(&account, "release", end),
        None => end(),
    }
}

unsafe extern "C" fn get_interface(host: *const abi::Host, id: *const c_char) -> *const c_void {
    if host.is_null() || id.is_null() {
        return std::ptr::null();
    }
    // SAFETY: the caller has a reference, or is inside `create`, while the host has one. The
    // contract says that ids are NUL-terminated.
    let (shared, id) = unsafe { (&*host.cast::<Shared>(), CStr::from_ptr(id)) };
    tracing_hooks::plugin_call(&shared.account, "get_interface", || shared.interface(id))
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
        } else if id == abi::HOST_LOADER_ID {
            self.loader.as_ptr().cast()
        } else if id == abi::HOST_TASKS_ID {
            self.tasks.as_ptr().cast()
        } else {
            std::ptr::null()
        }
    }
}

unsafe extern "C" fn write_log(log: *const abi::HostLog, level: i32, message: abi::Str) {
    if log.is_null() || message.data.is_null() {
        return;
    }
    // The subscriber is code of the application: its panic must not unwind into the plugin.
    Poison::new().run_release(|| {
        // SAFETY: `private_data` of the log points at the `Shared` that contains it.
        let Shared { plugin, subscriber, account, .. } = unsafe { &*(*log).private_data.cast::<Shared>() };
        // SAFETY: the contract of `write`: `message` is valid for its length during the call.
        let bytes = unsafe { std::slice::from_raw_parts(message.data.cast::<u8>(), message.bytes) };
        let message = String::from_utf8_lossy(bytes);
        let write = || log_plugin_message(plugin, level, &message);
        tracing_hooks::plugin_call(account, "log.write", || match subscriber {
            Some(subscriber) => tracing::dispatcher::with_default(subscriber, write),
            None => write(),
        });
    });
}

unsafe extern "C" fn decode(
    this: *const abi::HostDecode,
    call: *const abi::Call,
    array: *mut abi::EncodedArray,
    rows: *const abi::RowRange,
    out: *mut abi::Batch,
    err: *mut abi::Error,
) -> abi::Code {
    // This is the first statement, because the function takes ownership of the array even if it
    // fails. SAFETY: the contract of `decode`: null, or an array whose ownership passes to this
    // function.
    let array = unsafe { Owned::take(array) };
    let body = || {
        // SAFETY: `this` is null or a live interface, whose `private_data` is null or points at the
        // `Shared` that contains it. The plugin's reference keeps the `Shared` alive.
        let shared = unsafe { this.as_ref().and_then(|this| this.private_data.cast::<Shared>().as_ref()) };
        let shared = shared.ok_or_else(session_is_closed)?;
        let decoder = shared.decoder.as_ref().ok_or_else(session_is_closed)?;
        // SAFETY: the contract of `decode`: `call` is valid during the call, the array's lists have
        // their declared lengths, and `rows` is null or a range.
        let (call, array, rows) =
            unsafe { (Call::read(call)?, EncodedArray::from_raw(array)?, rows.as_ref()) };
        let rows = rows.map(|rows| rows.begin..rows.end);
        let batch = shared.account.trace_plugin_call("decode", || decoder.decode(&call, array, rows))?;
        // SAFETY: the contract of `decode`: `out` is null or writable.
        unsafe { batch.put(out, "decode") }
    };
    // SAFETY: the contract of `decode`: `err` is null or a valid error struct.
    unsafe { Poison::for_host().enter(err, body) }
}

unsafe extern "C" fn children(
    this: *const abi::HostDecode,
    node: *const abi::EncodedNode,
    schemas: *mut abi::ArrowSchema,
    lengths: *mut u64,
    err: *mut abi::Error,
) -> abi::Code {
    let body = || {
        // SAFETY: as in `decode`.
        let shared = unsafe { this.as_ref().and_then(|this| this.private_data.cast::<Shared>().as_ref()) };
        let shared = shared.ok_or_else(session_is_closed)?;
        let decoder = shared.decoder.as_ref().ok_or_else(session_is_closed)?;
        let derive =
            |node: EncodedNode<'_>| shared.account.trace_plugin_call("children", || decoder.children(node));
        // SAFETY: the contract of `children`: the node is valid during the call, and the lists have
        // an element for each of its children.
        unsafe { write_children(node, schemas, lengths, derive) }
    };
    // SAFETY: the contract of `children`: `err` is null or a valid error struct.
    unsafe { Poison::for_host().enter(err, body) }
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
    struct Recorder(Arc<Mutex<Vec<std::thread::ThreadId>>>);

    impl Subscriber for Recorder {
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
        HostObject::new("a plugin", account, settings, &TaskPool::new(1), None)
    }

    fn write_message(object: &HostObject) {
        // SAFETY: the log belongs to the live `object`, and the text outlives the call.
        unsafe {
            let log = get_interface(object.as_ptr(), abi::HOST_LOG_ID.as_ptr()).cast::<abi::HostLog>();
            ((*log).write.unwrap())(log, abi::LOG_WARN, abi::Str::new("something"));
        }
    }

    #[test]
    fn messages_from_other_threads_reach_the_creators_subscriber() {
        let (creator, other) = (Recorder::default(), Recorder::default());
        let object = tracing::subscriber::with_default(creator.clone(), object);
        std::thread::scope(|scope| {
            scope.spawn(|| tracing::subscriber::with_default(other.clone(), || write_message(&object)));
        });
        assert_eq!(creator.0.lock().unwrap().len(), 1);
        assert!(other.0.lock().unwrap().is_empty());
    }

    #[test]
    fn calling_threads_subscriber_receives_messages_if_the_creator_has_none() {
        let (caller, object) = (Recorder::default(), object());
        tracing::subscriber::with_default(caller.clone(), || write_message(&object));
        assert_eq!(*caller.0.lock().unwrap(), [std::thread::current().id()]);
    }
}
