//! `crossdock.exporter/1`: batches to formats.

use crate::abi;
use crate::call::{Call, CallSettings};
use crate::error::{Error, Result};
use crate::format::Format;
use crate::owned::Owned;
use crate::plan::{ColumnPlan, export_plan, read_plan};
use crate::plugin::{Instance, Plugin, with};
use crate::sink::Sink;
use crate::words::{Device, Options};
use crate::writer::{BatchWriter, WriterHandle, export_writer};

/// Writes formats.
pub trait Exporter: Send + Sync {
    /// What it writes; the same answer every time.
    fn formats(&self) -> &[Format];

    /// What would happen to batches of `schema` that live on `from`: a verdict for each column, in order.
    fn plan(
        &self,
        call: &Call<'_>,
        format: &str,
        schema: &abi::ArrowSchema,
        from: Device,
        options: &Options,
    ) -> Result<Vec<ColumnPlan>>;

    /// Begins to write batches of `schema` as `format`, into `sink` where the format is one of bytes.
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

/// A loaded plugin's exporter, on the calling side.
#[derive(Clone, Copy)]
pub struct ExporterHandle<'a> {
    pub(crate) instance: &'a Instance,
    pub(crate) table: abi::Exporter,
}

impl ExporterHandle<'_> {
    /// What it writes.
    pub fn formats(&self) -> Result<Vec<Format>> {
        // SAFETY: the instance's own function, of a table that it gave.
        unsafe { Format::of(self.instance, self.table.formats) }
    }

    /// What would happen to batches of `schema` that live on `from`.
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
        // SAFETY: the instance's own function on itself; everything else is borrowed for the call.
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
        // SAFETY: on success the plan is ours, and valid.
        unsafe { read_plan(Owned::given(out)) }
    }

    /// Begins to write.
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
        // SAFETY: the instance's own function on itself; everything else is borrowed for the call or handed over.
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
        // SAFETY: what the plugin did not take (it should have) is still ours.
        drop(unsafe { Owned::new(sink) });
        result?;
        // SAFETY: on success the writer is ours.
        let writer = unsafe { Owned::given(out) };
        if writer.is_released() {
            return Err(Error::internal("begin succeeded and gave a released writer"));
        }
        // SAFETY: as above.
        Ok(unsafe { WriterHandle::from_raw(writer) })
    }
}

fn missing(function: &str) -> Error {
    Error::internal(format!("the plugin's exporter has no function '{function}'"))
}

/// # Safety
/// `schema` is null or a valid schema that lives for `'a`.
unsafe fn given<'a>(schema: *const abi::ArrowSchema) -> Result<&'a abi::ArrowSchema> {
    // SAFETY: the caller's word.
    unsafe { schema.as_ref() }.ok_or_else(|| Error::invalid_argument("the schema is NULL"))
}

unsafe extern "C" fn formats<P: Plugin>(
    instance: *mut abi::Instance,
    out: *mut *const abi::Format,
    n_out: *mut usize,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: the host's instance, out parameters and error struct; the list lives in the instance.
    unsafe { with::<P>(instance, err, |shell| shell.exporter_formats()?.answer(out, n_out)) }
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
    // SAFETY: the host's instance, call, strings and structs, all alive for the call.
    unsafe {
        with::<P>(instance, err, |shell| {
            let exporter = shell.exporter()?;
            let options = Options::read(options, n_options)?;
            let format = Format::asked(exporter.formats(), format.get()?, &options)?;
            let columns = exporter.plan(&Call::read(call)?, format, given(schema)?, from, &options)?;
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
    // Taken before anything can fail, for the caller does not release it any more.
    // SAFETY: the caller hands the sink over.
    let sink = unsafe { Owned::take(sink) };
    // SAFETY: the host's instance, call, strings and structs, all alive for the call.
    unsafe {
        with::<P>(instance, err, |shell| {
            let sink = (!sink.is_released()).then(|| Sink::from_raw(sink));
            let exporter = shell.exporter()?;
            let options = Options::read(options, n_options)?;
            let format = Format::asked(exporter.formats(), format.get()?, &options)?;
            let writer = exporter.begin(&Call::read(call)?, format, given(schema)?, &options, sink)?;
            export_writer(writer, shell.poison().clone()).put(out, "begin")
        })
    }
}
