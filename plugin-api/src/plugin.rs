//! Plugins: a trait for authors of plugins, and instances for hosts.

use std::ffi::{CStr, c_char, c_void};
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::OnceLock;

use crate::abi;
use crate::door::{Poison, put};
use crate::encoder::{self, Encoder, EncoderHandle};
use crate::encoding::{self, Encoding, EncodingHandle};
use crate::error::{Error, Result};
use crate::exporter::{self, Exporter, ExporterHandle};
use crate::format::FormatTable;
use crate::host::Host;
use crate::importer::{self, Importer, ImporterHandle};
use crate::opener::{self, Opener, OpenerHandle};
use crate::sized_struct::{self, SizedStruct};

/// An instance of a plugin, as its author implements it. [`crate::crossdock_plugin!`] exports the
/// plugin.
pub trait Plugin: Sized + Send + Sync + 'static {
    /// Creates an instance. It must not share state with other instances.
    ///
    /// # Errors
    /// May return any error, which is passed to the caller.
    fn create(host: Host) -> Result<Self>;

    /// The importer, if the plugin has one.
    fn importer(&self) -> Option<&dyn Importer> {
        None
    }

    /// The exporter, if the plugin has one.
    fn exporter(&self) -> Option<&dyn Exporter> {
        None
    }

    /// The encodings, if the plugin has any.
    fn encoding(&self) -> Option<&dyn Encoding> {
        None
    }

    /// The encoder, if the plugin has one.
    fn encoder(&self) -> Option<&dyn Encoder> {
        None
    }

    /// The opener of URIs, if the plugin has one.
    fn opener(&self) -> Option<&dyn Opener> {
        None
    }
}

/// The object that a `crossdock_instance` points to.
pub(crate) struct Shell<P> {
    plugin: P,
    poison: Poison,
    importer_formats: OnceLock<FormatTable>,
    exporter_formats: OnceLock<FormatTable>,
    encoding_ids: OnceLock<Vec<abi::Str>>,
    encoder_ids: OnceLock<Vec<abi::Str>>,
    opener_schemes: OnceLock<Vec<abi::Str>>,
}

impl<P: Plugin> Shell<P> {
    fn new(plugin: P, poison: Poison) -> Self {
        Self {
            plugin,
            poison,
            importer_formats: OnceLock::new(),
            exporter_formats: OnceLock::new(),
            encoding_ids: OnceLock::new(),
            encoder_ids: OnceLock::new(),
            opener_schemes: OnceLock::new(),
        }
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

    pub(crate) fn encoder(&self) -> Result<&dyn Encoder> {
        self.plugin.encoder().ok_or_else(|| Error::unsupported("this plugin has no encoder"))
    }

    pub(crate) fn encoder_ids(&self) -> Result<&[abi::Str]> {
        let encoder = self.encoder()?;
        let ids = || encoder.ids().iter().map(|id| abi::Str::new(id)).collect();
        Ok(self.encoder_ids.get_or_init(ids))
    }

    pub(crate) fn opener(&self) -> Result<&dyn Opener> {
        self.plugin.opener().ok_or_else(|| Error::unsupported("this plugin has no opener"))
    }

    pub(crate) fn opener_schemes(&self) -> Result<&[abi::Str]> {
        let opener = self.opener()?;
        let schemes = || opener.schemes().iter().map(|scheme| abi::Str::new(scheme)).collect();
        Ok(self.opener_schemes.get_or_init(schemes))
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

/// Runs `body` for an instance in the FFI door.
///
/// # Safety
/// `instance` is null, or `create::<P>` created it and it is not destroyed. `err` meets the
/// requirement of [`Poison::enter`].
pub(crate) unsafe fn with<P: Plugin>(
    instance: *mut abi::Instance,
    err: *mut abi::Error,
    body: impl FnOnce(&Shell<P>) -> Result<()>,
) -> abi::Code {
    // SAFETY: the pointer is null, or points to a `Shell<P>` that `create::<P>` leaked and that
    // only `destroy` frees.
    match unsafe { instance.cast::<Shell<P>>().as_ref() } {
        // SAFETY: the caller guarantees the requirement of `enter` on `err`.
        Some(shell) => unsafe { shell.poison.enter(err, || body(shell)) },
        // SAFETY: the caller guarantees the requirement of `write_to` on `err`.
        None => unsafe { Error::invalid_argument("the plugin instance is NULL").write_to(err) },
    }
}

/// Contains the entry and the interfaces of the plugin type `P` as constants.
struct Tables<P>(PhantomData<P>);

impl<P: Plugin> Tables<P> {
    const IMPORTER: &'static abi::Importer = &importer::table::<P>(false);
    const FRAGMENTING: &'static abi::Importer = &importer::table::<P>(true);
    const EXPORTER: &'static abi::Exporter = &exporter::table::<P>();
    const OPENER: &'static abi::Opener = &opener::table::<P>();
    const ENCODER: &'static abi::Encoder = &encoder::table::<P>();
    const DECODING: &'static abi::Encoding = &encoding::table::<P>(true);
    const LOWERING: &'static abi::Encoding = &encoding::table::<P>(false);
    const ENTRY: &'static abi::PluginEntry = &entry::<P>();
}

/// Returns the entry of a type of plugin. [`crate::crossdock_plugin!`] exports this entry. A host
/// that is linked with the plugin calls this function directly.
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
        // SAFETY: the header requires that the host object is alive during the call.
        let plugin = P::create(unsafe { Host::retain(host) }?)?;
        let shell = Shell::new(plugin, poison.clone());
        // SAFETY: the header requires that the out parameter is valid for writes.
        unsafe { put(out, "create", || Box::into_raw(Box::new(shell)).cast()) }
    };
    // SAFETY: the header requires that `err` is null or points to `struct_size` bytes.
    unsafe { poison.enter(err, body) }
}

unsafe extern "C" fn destroy<P: Plugin>(instance: *mut abi::Instance) {
    if let Some(shell) = NonNull::new(instance.cast::<Shell<P>>()) {
        // SAFETY: `create` leaked this box, and the header requires that each instance is destroyed
        // only once.
        let shell = unsafe { Box::from_raw(shell.as_ptr()) };
        shell.poison.clone().run_release(move || drop(shell));
    }
}

unsafe extern "C" fn get_interface<P: Plugin>(
    instance: *mut abi::Instance,
    id: *const c_char,
) -> *const c_void {
    // SAFETY: the pointer is null, or points to a `Shell<P>` that `create` leaked and that is not
    // destroyed.
    let Some(shell) = (unsafe { instance.cast::<Shell<P>>().as_ref() }) else { return std::ptr::null() };
    if id.is_null() {
        return std::ptr::null();
    }
    // SAFETY: `id` is not null, and the header requires that it is NUL-terminated.
    let id = unsafe { CStr::from_ptr(id) };
    let mut table: *const c_void = std::ptr::null();
    shell.poison.run_release(|| {
        if id == abi::IMPORTER_ID
            && let Some(importer) = shell.plugin.importer()
        {
            let importer =
                if importer.has_fragments() { Tables::<P>::FRAGMENTING } else { Tables::<P>::IMPORTER };
            table = std::ptr::from_ref(importer).cast();
        } else if id == abi::EXPORTER_ID && shell.plugin.exporter().is_some() {
            table = std::ptr::from_ref(Tables::<P>::EXPORTER).cast();
        } else if id == abi::OPENER_ID && shell.plugin.opener().is_some() {
            table = std::ptr::from_ref(Tables::<P>::OPENER).cast();
        } else if id == abi::ENCODER_ID && shell.plugin.encoder().is_some() {
            table = std::ptr::from_ref(Tables::<P>::ENCODER).cast();
        } else if id == abi::ENCODING_ID
            && let Some(encoding) = shell.plugin.encoding()
        {
            let encoding = if encoding.decodes() { Tables::<P>::DECODING } else { Tables::<P>::LOWERING };
            table = std::ptr::from_ref(encoding).cast();
        }
    });
    table
}

/// An instance of a plugin, for a host. Dropping it destroys the instance.
pub struct Instance {
    raw: NonNull<abi::Instance>,
    entry: &'static abi::PluginEntry,
}

// SAFETY: the header allows calls of an instance's functions on any thread.
unsafe impl Send for Instance {}
// SAFETY: the header allows calls of an instance's functions on any thread.
unsafe impl Sync for Instance {}

impl Instance {
    /// Creates an instance.
    ///
    /// # Errors
    /// Returns the plugin's error.
    ///
    /// # Safety
    /// `entry` is valid, and its code stays mapped. `host` is alive until the instance is dropped.
    /// The instance is dropped after all streams and writers that it created. No function of the
    /// instance runs while the instance is dropped.
    pub unsafe fn create(entry: &'static abi::PluginEntry, host: *const abi::Host) -> Result<Self> {
        let create = entry.create.ok_or_else(|| Error::internal("the plugin's entry has no 'create'"))?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the caller guarantees that the entry is valid and the host is alive, and the out
        // parameter is valid for writes.
        Error::check(|err| unsafe { create(host, &mut raw, err) })?;
        let raw =
            NonNull::new(raw).ok_or_else(|| Error::internal("create succeeded, but returned no instance"))?;
        Ok(Self { raw, entry })
    }

    /// Creates an instance of a plugin in this module. The plugin needs no host.
    pub fn from_plugin<P: Plugin>(plugin: P) -> Self {
        let shell = Box::new(Shell::new(plugin, Poison::new()));
        Self { raw: NonNull::from(Box::leak(shell)).cast(), entry: Tables::<P>::ENTRY }
    }

    pub(crate) fn raw(&self) -> *mut abi::Instance {
        self.raw.as_ptr()
    }

    /// Returns a copy of an interface. Fields that the plugin's version lacks are zero in the copy.
    ///
    /// # Safety
    /// `T` is the struct that the header defines for `id`.
    unsafe fn interface<T: SizedStruct>(&self, id: &CStr) -> Option<T> {
        // SAFETY: the entry created the instance. The header requires that the result is null, or
        // an interface that begins with its `struct_size` and lives as long as the instance.
        unsafe { sized_struct::read((self.entry.get_interface?)(self.raw(), id.as_ptr()).cast::<T>()) }.ok()
    }

    /// The importer, if the plugin has one.
    pub fn importer(&self) -> Option<ImporterHandle<'_>> {
        // SAFETY: the header defines `abi::Importer` for this id.
        unsafe { self.interface(abi::IMPORTER_ID) }.map(|table| ImporterHandle { instance: self, table })
    }

    /// The exporter, if the plugin has one.
    pub fn exporter(&self) -> Option<ExporterHandle<'_>> {
        // SAFETY: the header defines `abi::Exporter` for this id.
        unsafe { self.interface(abi::EXPORTER_ID) }.map(|table| ExporterHandle { instance: self, table })
    }

    /// The opener of URIs, if the plugin has one.
    pub fn opener(&self) -> Option<OpenerHandle<'_>> {
        // SAFETY: the header defines `abi::Opener` for this id.
        unsafe { self.interface(abi::OPENER_ID) }.map(|table| OpenerHandle { instance: self, table })
    }

    /// The encoder, if the plugin has one.
    pub fn encoder(&self) -> Option<EncoderHandle<'_>> {
        // SAFETY: the header defines `abi::Encoder` for this id.
        unsafe { self.interface(abi::ENCODER_ID) }.map(|table| EncoderHandle { instance: self, table })
    }

    /// The encodings, if the plugin has any.
    pub fn encoding(&self) -> Option<EncodingHandle<'_>> {
        // SAFETY: the header defines `abi::Encoding` for this id.
        unsafe { self.interface(abi::ENCODING_ID) }.map(|table| EncodingHandle { instance: self, table })
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if let Some(destroy) = self.entry.destroy {
            // SAFETY: this entry created the instance, and only this line destroys the instance.
            // The caller of `Instance::create` guarantees that no code uses the instance any more.
            unsafe { destroy(self.raw()) };
        }
    }
}
