//! `crossdock_host_*`: the host's handle.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crossdock::discovery::Search;
use crossdock::{Host, Policy};
use crossdock_memory_backend::{Backend, BackendBuilder};
use crossdock_plugin_api::{Owned, Result, abi as api};

use crate::abi::{self, HOST_LENIENT, HOST_ONLY_GIVEN, HOST_UNTOUCHABLE, HostSettings, Leak, Leaks, Ledger};
use crate::door::{self, Door, Handle};
use crate::lists::{self, Holder, Texts};
use crate::{arguments, error, log};

/// What a `crossdock_host_handle` is.
pub struct HostHandle {
    pub host: Host,
    pub door: Door,
}

impl Handle for HostHandle {
    const WHAT: &'static str = "the host";
    fn door(&self) -> &Door {
        &self.door
    }
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crossdock_host_create(
    settings: *const HostSettings,
    out: *mut *mut HostHandle,
    err: *mut api::Error,
) -> api::Code {
    let body = || {
        // SAFETY: the caller's settings.
        let settings = unsafe { arguments::settings(settings, "the host's settings") }?;
        // First of all, for it sees to the release of the log's data.
        let listener = log::listener(&settings)?;
        arguments::given(out, "out")?;
        // SAFETY: what the settings point at lives for the call.
        let builder = unsafe { builder(&settings) }?;
        let door = Door::new(listener);
        let host = door.hear(|| match settings.flags & HOST_LENIENT {
            0 => builder.build(),
            _ => Ok(builder.build_lenient()),
        });
        let host = host.map_err(error::of_host)?;
        // SAFETY: not null, the caller's out parameter.
        unsafe { door::give(out, HostHandle { host, door }) };
        Ok(())
    };
    // SAFETY: the caller's error struct.
    unsafe { door::without(err, body) }
}

/// # Safety
/// What the settings point at lives for the call.
unsafe fn builder(settings: &HostSettings) -> Result<crossdock::HostBuilder> {
    let known = HOST_ONLY_GIVEN | HOST_LENIENT | HOST_UNTOUCHABLE;
    let flags = arguments::flags(settings.flags, known, "the host's settings")?;
    let mut search = Search::nowhere();
    if flags & HOST_ONLY_GIVEN == 0 {
        search = Search::usual();
        if let Some(folder) = installed_plugins() {
            search = search.installed(folder);
        }
    }
    // SAFETY: passed on from the caller.
    for path in unsafe { arguments::list(settings.plugins, settings.n_plugins, "plugins") }? {
        // SAFETY: as above.
        search = search.given(unsafe { arguments::path(*path, "plugins") }?);
    }
    let mut backend = Backend::builder().untouchable(flags & HOST_UNTOUCHABLE != 0);
    if settings.memory_limit > 0 {
        backend = backend.limit_bytes(usize::try_from(settings.memory_limit).unwrap_or(usize::MAX));
    }
    let trace = crossdock::trace_from_environment().map_err(error::of_host)?;
    let backend = trace.into_iter().fold(backend, BackendBuilder::trace);
    let policy = Policy::usual().map_err(|failed| error::of_host(failed.into()))?;
    let mut builder = Host::builder().search(search).policy(policy).backend(backend.build());
    if settings.threads > 0 {
        builder = builder.threads(settings.threads as usize);
    }
    Ok(builder)
}

/// The folder of plugins that is installed with this library: `crossdock/plugins` beside its file.
fn installed_plugins() -> Option<PathBuf> {
    // SAFETY: zero bytes are a value of this struct of pointers.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    let here = (installed_plugins as fn() -> Option<PathBuf>) as *const libc::c_void;
    // SAFETY: an address in this library, and a struct to fill in.
    if unsafe { libc::dladdr(here, &mut info) } == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's own text, there as long as the library is.
    let file = unsafe { CStr::from_ptr(info.dli_fname) };
    let file = PathBuf::from(OsStr::from_bytes(file.to_bytes())).canonicalize().ok()?;
    Some(file.parent()?.join("crossdock/plugins"))
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crossdock_host_destroy(host: *mut HostHandle) {
    // SAFETY: the caller's handle, given back.
    unsafe { door::destroy(host) };
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crossdock_host_load(
    host: *mut HostHandle,
    name: api::Str,
    err: *mut api::Error,
) -> api::Code {
    let body = |handle: &HostHandle| {
        // SAFETY: the caller's text.
        let name = unsafe { arguments::name(name, "the plugin's name") }?;
        handle.host.load(&name).map(drop).map_err(error::of_host)
    };
    // SAFETY: the caller's handle and error struct.
    unsafe { door::with(host, err, body) }
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crossdock_host_ledger(
    host: *mut HostHandle,
    out: *mut Ledger,
    err: *mut api::Error,
) -> api::Code {
    let body = |handle: &HostHandle| {
        let ledger = handle.host.ledger();
        let copied = ledger.copied();
        let sums = Ledger {
            live_bytes: ledger.live_bytes(),
            live_blocks: ledger.leaks().iter().map(|leak| leak.blocks).sum(),
            cached_bytes: ledger.cached_bytes,
            copied_h2d: copied.host_to_device.bytes,
            copied_d2h: copied.device_to_host.bytes,
            copied_d2d: copied.device_to_device.bytes,
            copied_h2h: copied.host_to_host.bytes,
            ..Ledger::default()
        };
        // SAFETY: the caller's out parameter, which tells its size.
        unsafe { arguments::answer(out, sums) }
    };
    // SAFETY: the caller's handle and error struct.
    unsafe { door::with(host, err, body) }
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crossdock_host_settle(
    host: *mut HostHandle,
    out: *mut Leaks,
    err: *mut api::Error,
) -> api::Code {
    let body = |handle: &HostHandle| {
        // SAFETY: the caller's out parameter.
        unsafe { arguments::place(out) }?;
        let leaks = list(&handle.host.settle());
        // SAFETY: the caller's out parameter.
        unsafe { leaks.put(out, "crossdock_host_settle") }
    };
    // SAFETY: the caller's handle and error struct.
    unsafe { door::with(host, err, body) }
}

fn list(leaks: &[crossdock::memory::Leak]) -> Owned<Leaks> {
    let mut texts = Texts::default();
    let row = |leak: &crossdock::memory::Leak| Leak {
        struct_size: size_of::<Leak>(),
        account: texts.keep(&leak.account),
        device: leak.device,
        bytes: leak.bytes,
        blocks: leak.blocks,
        streams: leak.streams,
        events: leak.events,
        references: leak.references,
    };
    let holder = Holder::new(leaks.iter().map(row).collect(), Vec::new(), texts);
    let (leaks, n_leaks) = holder.rows();
    let raw = Leaks {
        struct_size: size_of::<Leaks>(),
        leaks,
        n_leaks,
        release: Some(lists::release::<abi::Leaks>),
        private_data: Box::into_raw(holder).cast(),
    };
    // SAFETY: made above; nobody else has it.
    unsafe { Owned::new(raw) }
}
