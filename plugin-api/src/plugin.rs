//! A plugin: on the author's side a trait and a macro, on the caller's side an instance behind an entry.

use std::ffi::{CStr, c_char, c_void};
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::OnceLock;

use crate::abi;
use crate::door::{Poison, put};
use crate::encoding::{self, Encoding, EncodingHandle};
use crate::error::{Error, Result};
use crate::exporter::{self, Exporter, ExporterHandle};
use crate::format::FormatTable;
use crate::host::Host;
use crate::importer::{self, Importer, ImporterHandle};
use crate::told::{self, Told};

/// What an author writes; [`crate::crossdock_plugin!`] exports it.
pub trait Plugin: Sized + Send + Sync + 'static {
    /// A new instance, which shares nothing with others.
    fn create(host: Host) -> Result<Self>;

    /// Its importer, if it has one.
    fn importer(&self) -> Option<&dyn Importer> {
        None
    }

    /// Its exporter, if it has one.
    fn exporter(&self) -> Option<&dyn Exporter> {
        None
    }

    /// Its encodings, if it has any.
    fn encoding(&self) -> Option<&dyn Encoding> {
        None
    }
}

/// What stands behind a `crossdock_instance` of a Rust plugin.
pub(crate) struct Shell<P> {
    plugin: P,
    poison: Poison,
    importer_formats: OnceLock<FormatTable>,
    exporter_formats: OnceLock<FormatTable>,
    encoding_ids: OnceLock<Vec<abi::Str>>,
}

impl<P: Plugin> Shell<P> {
    fn new(plugin: P, poison: Poison) -> Self {
        let (importer_formats, exporter_formats, encoding_ids) = Default::default();
        Self { plugin, poison, importer_formats, exporter_formats, encoding_ids }
    }

    pub(crate) fn poison(&self) -> &Poison {
        &self.poison
    }

    pub(crate) fn importer(&self) -> Result<&dyn Importer> {
        self.plugin.importer().ok_or_else(|| Error::unsupported("this plugin has no importer"))
    }

    pub(crate) fn exporter(&self) -> Result<&dyn Exporter> {
        self.plugin.exporter().ok_or_else(|| Error::unsupported("this plugin has no exporter"))
    }

    pub(crate) fn encoding(&self) -> Result<&dyn Encoding> {
        self.plugin.encoding().ok_or_else(|| Error::unsupported("this plugin has no encodings"))
    }

    pub(crate) fn encoding_ids(&self) -> Result<&[abi::Str]> {
        let encoding = self.encoding()?;
        let ids = || encoding.ids().iter().map(|id| abi::Str::new(id)).collect();
        Ok(self.encoding_ids.get_or_init(ids))
    }

    pub(crate) fn importer_formats(&self) -> Result<&FormatTable> {
        let importer = self.importer()?;
        Ok(self.importer_formats.get_or_init(|| FormatTable::new(importer.formats())))
    }

    pub(crate) fn exporter_formats(&self) -> Result<&FormatTable> {
        let exporter = self.exporter()?;
        Ok(self.exporter_formats.get_or_init(|| FormatTable::new(exporter.formats())))
    }
}

/// Enters an instance through the door.
///
/// # Safety
/// `instance` is null or was made by this plugin's `create` and not destroyed; `err` as for [`Poison::enter`].
pub(crate) unsafe fn with<P: Plugin>(
    instance: *mut abi::Instance,
    err: *mut abi::Error,
    body: impl FnOnce(&Shell<P>) -> Result<()>,
) -> abi::Code {
    // SAFETY: the caller's word; null becomes None.
    match unsafe { instance.cast::<Shell<P>>().as_ref() } {
        // SAFETY: the caller's error struct.
        Some(shell) => unsafe { shell.poison.enter(err, || body(shell)) },
        // SAFETY: as above.
        None => unsafe { Error::invalid_argument("the plugin instance is NULL").write_to(err) },
    }
}

/// The tables of one plugin type, as constants that live for ever.
struct Tables<P>(PhantomData<P>);

impl<P: Plugin> Tables<P> {
    const IMPORTER: &'static abi::Importer = &importer::table::<P>();
    const EXPORTER: &'static abi::Exporter = &exporter::table::<P>();
    const DECODING: &'static abi::Encoding = &encoding::table::<P>(true);
    const LOWERING: &'static abi::Encoding = &encoding::table::<P>(false);
    const ENTRY: &'static abi::PluginEntry = &entry::<P>();
}

/// The entry of a plugin type: what the macro exports, and what a host that links the plugin in takes directly.
pub const fn entry<P: Plugin>() -> abi::PluginEntry {
    abi::PluginEntry {
        magic: abi::PLUGIN_MAGIC,
        struct_size: size_of::<abi::PluginEntry>(),
        abi_major: abi::ABI_MAJOR,
        abi_minor: abi::ABI_MINOR,
        flags: 0,
        create: Some(create::<P>),
        destroy: Some(destroy::<P>),
        get_interface: Some(get_interface::<P>),
    }
}

unsafe extern "C" fn create<P: Plugin>(
    host: *const abi::Host,
    out: *mut *mut abi::Instance,
    err: *mut abi::Error,
) -> abi::Code {
    let poison = Poison::new();
    let body = || {
        // SAFETY: the host's own handle, alive for the call.
        let plugin = P::create(unsafe { Host::retain(host) }?)?;
        let shell = Shell::new(plugin, poison.clone());
        // SAFETY: the host's out parameter.
        unsafe { put(out, "create", || Box::into_raw(Box::new(shell)).cast()) }
    };
    // SAFETY: the host's error struct.
    unsafe { poison.enter(err, body) }
}

unsafe extern "C" fn destroy<P: Plugin>(instance: *mut abi::Instance) {
    if let Some(shell) = NonNull::new(instance.cast::<Shell<P>>()) {
        // SAFETY: made by `create`, destroyed once by contract.
        let shell = unsafe { Box::from_raw(shell.as_ptr()) };
        shell.poison.clone().leave(move || drop(shell));
    }
}

unsafe extern "C" fn get_interface<P: Plugin>(
    instance: *mut abi::Instance,
    id: *const c_char,
) -> *const c_void {
    // SAFETY: made by `create`; null becomes None.
    let Some(shell) = (unsafe { instance.cast::<Shell<P>>().as_ref() }) else { return std::ptr::null() };
    if id.is_null() {
        return std::ptr::null();
    }
    // SAFETY: ids are NUL-terminated.
    let id = unsafe { CStr::from_ptr(id) };
    let mut table: *const c_void = std::ptr::null();
    shell.poison.leave(|| {
        if id == abi::IMPORTER_ID && shell.plugin.importer().is_some() {
            table = std::ptr::from_ref(Tables::<P>::IMPORTER).cast();
        } else if id == abi::EXPORTER_ID && shell.plugin.exporter().is_some() {
            table = std::ptr::from_ref(Tables::<P>::EXPORTER).cast();
        } else if id == abi::ENCODING_ID
            && let Some(encoding) = shell.plugin.encoding()
        {
            let own = if encoding.decodes() { Tables::<P>::DECODING } else { Tables::<P>::LOWERING };
            table = std::ptr::from_ref(own).cast();
        }
    });
    table
}

/// A plugin's instance, on the calling side. Dropping it destroys it: see [`Instance::create`].
pub struct Instance {
    raw: NonNull<abi::Instance>,
    entry: &'static abi::PluginEntry,
}

// SAFETY: the functions of an instance are callable from any thread by contract.
unsafe impl Send for Instance {}
// SAFETY: as above.
unsafe impl Sync for Instance {}

impl Instance {
    /// Makes an instance.
    ///
    /// # Safety
    /// `entry` is a valid entry whose code stays mapped, and `host` is alive until the instance is dropped. The
    /// instance is dropped after every stream and writer that it opened, and never on a stack that is inside one of
    /// its functions.
    pub unsafe fn create(entry: &'static abi::PluginEntry, host: *const abi::Host) -> Result<Self> {
        let create = entry.create.ok_or_else(|| Error::internal("the plugin's entry has no 'create'"))?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the entry's own function; the caller vouches for the host.
        Error::check(|err| unsafe { create(host, &mut raw, err) })?;
        let raw =
            NonNull::new(raw).ok_or_else(|| Error::internal("create succeeded and gave no instance"))?;
        Ok(Self { raw, entry })
    }

    /// An instance of this module's own making, which no `create` made.
    pub fn of<P: Plugin>(plugin: P) -> Self {
        let shell = Box::new(Shell::new(plugin, Poison::new()));
        // Not null: a Box.
        Self { raw: NonNull::from(Box::leak(shell)).cast(), entry: Tables::<P>::ENTRY }
    }

    pub(crate) fn raw(&self) -> *mut abi::Instance {
        self.raw.as_ptr()
    }

    /// A copy of an interface, as far as both sides know it: its functions take the instance, and not its address.
    ///
    /// # Safety
    /// `T` is the struct that the header defines for `id`.
    unsafe fn interface<T: Told>(&self, id: &CStr) -> Option<T> {
        // SAFETY: the entry's own function on its own instance; the table is null, or begins with its true size and lives
        // as long as the instance.
        unsafe { told::read((self.entry.get_interface?)(self.raw(), id.as_ptr()).cast::<T>()) }.ok()
    }

    /// Its importer, if it has one.
    pub fn importer(&self) -> Option<ImporterHandle<'_>> {
        // SAFETY: `abi::Importer` is what the header defines for this id.
        unsafe { self.interface(abi::IMPORTER_ID) }.map(|table| ImporterHandle { instance: self, table })
    }

    /// Its exporter, if it has one.
    pub fn exporter(&self) -> Option<ExporterHandle<'_>> {
        // SAFETY: `abi::Exporter` is what the header defines for this id.
        unsafe { self.interface(abi::EXPORTER_ID) }.map(|table| ExporterHandle { instance: self, table })
    }

    /// Its encodings, if it has any.
    pub fn encoding(&self) -> Option<EncodingHandle<'_>> {
        // SAFETY: `abi::Encoding` is what the header defines for this id.
        unsafe { self.interface(abi::ENCODING_ID) }.map(|table| EncodingHandle { instance: self, table })
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if let Some(destroy) = self.entry.destroy {
            // SAFETY: made by this entry's `create`, destroyed once; the rest is `create`'s condition.
            unsafe { destroy(self.raw()) };
        }
    }
}
