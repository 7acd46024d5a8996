//! The interface `crossdock.exporter/1`, whose functions write formats.

use crate::abi;
use crate::call::{Call, CallSettings};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::format::Format;
use crate::options::Options;
use crate::owned::Owned;
use crate::plan::{ColumnPlan, export_plan, read_plan};
use crate::plugin::{Instance, Plugin, with};
use crate::sink::Sink;
use crate::writer::{BatchWriter, WriterHandle, export_writer};

/// Writes formats.
pub trait Exporter: Send + Sync {
    /// The formats that this plugin writes. The list must not change.
    fn formats(&self) -> &[Format];

    /// Plans an export without performing it. The batches are on `from`, and the call's device is
    /// the device to export to. Returns a plan for each column of `schema`, in order.
    ///
    /// # Errors
    /// May return any error, which is passed to the caller.
    fn plan(
        &self,
        call: &Call<'_>,
        format: &str,
        schema: &abi::ArrowSchema,
        from: Device,
        options: &Options,
    ) -> Result<Vec<ColumnPlan>>;

    /// Creates a writer for batches with `schema`. `format` is the name of one of the formats, and
    /// this format accepts all `options`. If the format is written as capsules, `sink` is `None`.
    ///
    /// # Errors
    /// May return any error, which is passed to the caller.
    fn begin(
        &self,
        call: &Call<'_>,
        format: &str,
        schema: &abi::ArrowSchema,
        options: &Options,
        sink: Option<Sink>,
    ) -> Result<Box<dyn BatchWriter>>;
}

pub(crate) const fn table<P: Plugin>() -> abi::Exporter {
    abi::Exporter {
        struct_size: size_of::<abi::Exporter>(),
        formats: Some(formats::<P>),
        plan: Some(plan::<P>),
        begin: Some(begin::<P>),
    }
}

/// The exporter of a plugin instance, for a caller such as the host.
#[derive(Clone, Copy)]
pub struct ExporterHandle<'a> {
    pub(crate) instance: &'a Instance,
    pub(crate) table: abi::Exporter,
}

impl ExporterHandle<'_> {
    /// The formats that the plugin writes.
    ///
    /// # Errors
    /// Returns the plugin's error, or an error if the list is invalid.
    pub fn formats(&self) -> Result<Vec<Format>> {
        // SAFETY: the table belongs to the instance, and the header requires that the lists are
        // valid and live as long as the instance.
        unsafe { Format::read_all(self.instance, self.table.formats) }
    }

    /// Plans an export. See [`Exporter::plan`].
    ///
    /// # Errors
    /// Returns the plugin's error, or an error if the plan is invalid.
    pub fn plan(
        &self,
        call: &CallSettings,
        format: &str,
        schema: &Owned<abi::ArrowSchema>,
        from: Device,
        options: &Options,
    ) -> Result<Vec<ColumnPlan>> {
        let f = self.table.plan.ok_or_else(|| missing("plan"))?;
        let pairs = options.pairs();
        let mut out = abi::Plan::new();
        // SAFETY: the table belongs to the instance, and all pointers are valid for the call.
        Error::check(|err| unsafe {
            f(
                self.instance.raw(),
                &call.raw(),
                abi::Str::new(format),
                &raw const **schema,
                from,
                pairs.as_ptr(),
                pairs.len(),
                &mut out,
                err,
            )
        })?;
        // SAFETY: on success, the callee passes the ownership of `out`, whose list and strings are
        // valid.
        unsafe { read_plan(Owned::from_out(out)) }
    }

    /// Creates a writer. See [`Exporter::begin`].
    ///
    /// # Errors
    /// Returns the plugin's error.
    pub fn begin(
        &self,
        call: &CallSettings,
        format: &str,
        schema: &Owned<abi::ArrowSchema>,
        options: &Options,
        sink: Option<Sink>,
    ) -> Result<WriterHandle> {
        let f = self.table.begin.ok_or_else(|| missing("begin"))?;
        let pairs = options.pairs();
        let has_sink = sink.is_some();
        let mut sink = sink.map_or_else(abi::Sink::new, |s| s.into_raw().into_raw());
        let mut out = abi::Writer::new();
        // SAFETY: the table belongs to the instance, and all pointers are valid for the call. The
        // plugin takes ownership of the sink by moving it out.
        let result = Error::check(|err| unsafe {
            f(
                self.instance.raw(),
                &call.raw(),
                abi::Str::new(format),
                &raw const **schema,
                pairs.as_ptr(),
                pairs.len(),
                if has_sink { &mut sink } else { std::ptr::null_mut() },
                &mut out,
                err,
            )
        });
        // SAFETY: if the plugin moved the sink out, `sink` is a released struct. Otherwise, this
        // function still owns it.
        drop(unsafe { Owned::new(sink) });
        result?;
        // SAFETY: on success, the callee passes the ownership of `out`.
        let writer = unsafe { Owned::from_out(out) };
        if writer.is_released() {
            return Err(Error::internal("begin succeeded, but returned a released writer"));
        }
        // SAFETY: the writer is not released, so the header guarantees that it is valid.
        Ok(unsafe { WriterHandle::from_raw(writer) })
    }
}

fn missing(function: &str) -> Error {
    Error::internal(format!("the plugin's exporter has no function '{function}'"))
}

/// # Safety
/// `schema` is null or a valid schema that lives for `'a`.
unsafe fn schema_ref<'a>(schema: *const abi::ArrowSchema) -> Result<&'a abi::ArrowSchema> {
    // SAFETY: the caller guarantees that `schema` is null or a schema that lives for `'a`.
    unsafe { schema.as_ref() }.ok_or_else(|| Error::invalid_argument("the schema is NULL"))
}

unsafe extern "C" fn formats<P: Plugin>(
    instance: *mut abi::Instance,
    out: *mut *const abi::Format,
    n_out: *mut usize,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: the header requires that `create` returned the instance, and that each pointer is
    // null or valid for writes.
    unsafe { with::<P>(instance, err, |shell| shell.exporter_formats()?.put(out, n_out)) }
}

unsafe extern "C" fn plan<P: Plugin>(
    instance: *mut abi::Instance,
    call: *const abi::Call,
    format: abi::Str,
    schema: *const abi::ArrowSchema,
    from: Device,
    options: *const abi::OptionPair,
    n_options: usize,
    out: *mut abi::Plan,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: the header requires that `create` returned the instance, and that the arguments are
    // valid for the call.
    unsafe {
        with::<P>(instance, err, |shell| {
            let exporter = shell.exporter()?;
            let options = Options::read(options, n_options)?;
            let format = &Format::find(exporter.formats(), format.get()?, &options)?.name;
            let columns = exporter.plan(&Call::read(call)?, format, schema_ref(schema)?, from, &options)?;
            export_plan(columns).put(out, "plan")
        })
    }
}

unsafe extern "C" fn begin<P: Plugin>(
    instance: *mut abi::Instance,
    call: *const abi::Call,
    format: abi::Str,
    schema: *const abi::ArrowSchema,
    options: *const abi::OptionPair,
    n_options: usize,
    sink: *mut abi::Sink,
    out: *mut abi::Writer,
    err: *mut abi::Error,
) -> abi::Code {
    // Takes the ownership first, because the function must take it even if it returns an error.
    // SAFETY: the header requires that `sink` is null or a valid sink, whose ownership the caller
    // passes.
    let sink = unsafe { Owned::take(sink) };
    // SAFETY: the header requires that `create` returned the instance, and that the arguments are
    // valid for the call.
    unsafe {
        with::<P>(instance, err, |shell| {
            let sink = (!sink.is_released()).then(|| Sink::from_raw(sink));
            let exporter = shell.exporter()?;
            let options = Options::read(options, n_options)?;
            let format = &Format::find(exporter.formats(), format.get()?, &options)?.name;
            let writer = exporter.begin(&Call::read(call)?, format, schema_ref(schema)?, &options, sink)?;
            export_writer(writer, shell.poison().clone()).put(out, "begin")
        })
    }
}
