//! Implements the functions that operate on hosts.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crossdock::discovery::Search;
use crossdock::{Host, Policy};
use crossdock_memory_backend::{Backend, BackendBuilder};
use crossdock_plugin_api::{Owned, Result, abi as api};

use crate::abi::{self, HOST_LENIENT, HOST_ONLY_GIVEN, HOST_UNTOUCHABLE, HostSettings, Leak, Leaks, Ledger};
use crate::door::{self, Door, Handle};
use crate::lists::{self, ListStorage, Texts};
use crate::{arguments, log};

/// The object behind a `crossdock_host_handle`.
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

/// `crossdock_host_create` of crossdock-host.h.
///
/// # Safety
/// The arguments meet the requirements of crossdock-host.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crossdock_host_create(
    settings: *const HostSettings,
    out: *mut *mut HostHandle,
    err: *mut api::Error,
) -> api::Code {
    let body = || {
        // SAFETY: the header requires settings that are NULL or have `struct_size` bytes.
        let settings = unsafe { arguments::settings(settings, "the host's settings") }?;
        // The listener is created before all checks, because the log's data must be released even
        // if a check fails.
        let listener = log::listener(&settings)?;
        arguments::check_not_null(out, "out")?;
        // SAFETY: the header requires that lists and texts of the settings are valid for the call.
        let builder = unsafe { builder(&settings) }?;
        let door = Door::new(listener);
        let host = door.with_listener(|| match settings.flags & HOST_LENIENT {
            0 => builder.build(),
            _ => Ok(builder.build_lenient()),
        });
        let host = host?;
        // SAFETY: `out` is not null, as checked above, and the header requires it to be writable.
        unsafe { door::put_handle(out, HostHandle { host, door }) };
        Ok(())
    };
    // SAFETY: the header requires an `err` that is NULL or initialised.
    unsafe { door::without(err, body) }
}

/// # Safety
/// The lists and texts of the settings are valid for the call.
unsafe fn builder(settings: &HostSettings) -> Result<crossdock::HostBuilder> {
    let known = HOST_ONLY_GIVEN | HOST_LENIENT | HOST_UNTOUCHABLE;
    let flags = arguments::flags(settings.flags, known, "the host's settings")?;
    let mut search = Search::nowhere();
    if flags & HOST_ONLY_GIVEN == 0 {
        search = Search::standard();
        if let Some(folder) = installed_plugins() {
            search = search.installed(folder);
        }
    }
    // SAFETY: the list is valid by the requirement of this function.
    for path in unsafe { arguments::list(settings.plugins, settings.n_plugins, "plugins") }? {
        // SAFETY: the text is valid by the requirement of this function.
        search = search.with_path(unsafe { arguments::path(*path, "plugins") }?);
    }
    let mut backend = Backend::builder().untouchable(flags & HOST_UNTOUCHABLE != 0);
    if settings.memory_limit > 0 {
        backend = backend.limit_bytes(usize::try_from(settings.memory_limit).unwrap_or(usize::MAX));
    }
    let trace = crossdock::trace_from_environment()?;
    let backend = trace.into_iter().fold(backend, BackendBuilder::trace);
    let policy = Policy::from_standard_files().map_err(crossdock::Error::from)?;
    let mut builder = Host::builder().search(search).policy(policy).backend(backend.build());
    if settings.threads > 0 {
        builder = builder.threads(settings.threads as usize);
    }
    Ok(builder)
}

/// Returns the folder `crossdock/plugins` beside the library's file. It contains the plugins that
/// are installed with the library.
fn installed_plugins() -> Option<PathBuf> {
    // SAFETY: all zeros are valid for this struct of pointers.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    let address = (installed_plugins as fn() -> Option<PathBuf>) as *const libc::c_void;
    // SAFETY: `dladdr` accepts any address, and `info` is a local variable that it may write.
    if unsafe { libc::dladdr(address, &mut info) } == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: `dladdr` returned a NUL-terminated text, which is valid as long as this library is
    // loaded.
    let file = unsafe { CStr::from_ptr(info.dli_fname) };
    let file = PathBuf::from(OsStr::from_bytes(file.to_bytes())).canonicalize().ok()?;
    Some(file.parent()?.join("crossdock/plugins"))
}

/// `crossdock_host_destroy` of crossdock-host.h.
///
/// # Safety
/// The arguments meet the requirements of crossdock-host.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crossdock_host_destroy(host: *mut HostHandle) {
    // SAFETY: the header requires a handle that is NULL or was not destroyed before.
    unsafe { door::destroy(host) };
}

/// `crossdock_host_load` of crossdock-host.h.
///
/// # Safety
/// The arguments meet the requirements of crossdock-host.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crossdock_host_load(
    host: *mut HostHandle,
    name: api::Str,
    err: *mut api::Error,
) -> api::Code {
    let body = |handle: &HostHandle| {
        // SAFETY: the header requires a text that is valid for the call.
        let name = unsafe { arguments::name(name, "the plugin's name") }?;
        Ok(handle.host.load(&name).map(drop)?)
    };
    // SAFETY: the header requires a handle that is NULL or not destroyed, and an `err` that is NULL
    // or initialised.
    unsafe { door::with(host, err, body) }
}

/// `crossdock_host_ledger` of crossdock-host.h.
///
/// # Safety
/// The arguments meet the requirements of crossdock-host.h.
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
        // SAFETY: the header requires an `out` that is NULL or has `struct_size` writable bytes.
        unsafe { arguments::write_out(out, sums) }
    };
    // SAFETY: the header requires a handle that is NULL or not destroyed, and an `err` that is NULL
    // or initialised.
    unsafe { door::with(host, err, body) }
}

/// `crossdock_host_settle` of crossdock-host.h.
///
/// # Safety
/// The arguments meet the requirements of crossdock-host.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crossdock_host_settle(
    host: *mut HostHandle,
    out: *mut Leaks,
    err: *mut api::Error,
) -> api::Code {
    let body = |handle: &HostHandle| {
        // SAFETY: the header requires an `out` that is NULL or has its `struct_size`.
        unsafe { arguments::check_out(out) }?;
        let leaks = list(&handle.host.settle());
        // SAFETY: the header requires a writable `out` that begins with its `struct_size`.
        // `check_out` has checked that it is not null and large enough.
        unsafe { leaks.put(out, "crossdock_host_settle") }
    };
    // SAFETY: the header requires a handle that is NULL or not destroyed, and an `err` that is NULL
    // or initialised.
    unsafe { door::with(host, err, body) }
}

fn list(leaks: &[crossdock::memory::Leak]) -> Owned<Leaks> {
    let mut texts = Texts::default();
    let row = |leak: &crossdock::memory::Leak| Leak {
        struct_size: size_of::<Leak>(),
        account: texts.add(&leak.account),
        device: leak.device,
        bytes: leak.bytes,
        blocks: leak.blocks,
        streams: leak.streams,
        events: leak.events,
        references: leak.references,
    };
    let storage = ListStorage::new(leaks.iter().map(row).collect(), Vec::new(), texts);
    let (leaks, n_leaks) = storage.rows();
    let raw = Leaks {
        struct_size: size_of::<Leaks>(),
        leaks,
        n_leaks,
        release: Some(lists::release::<abi::Leaks>),
        private_data: Box::into_raw(storage).cast(),
    };
    // SAFETY: `raw` is a valid struct that was created above, and only the result owns it.
    unsafe { Owned::new(raw) }
}
