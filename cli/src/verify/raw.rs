//! Calls the plugin's C functions directly, to check what the safe handles hide: error structs, out
//! parameters, and the ownership of inputs.

use std::ffi::{CStr, c_void};
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use crossdock::api::{
    CallSettings, CallStream, Capsule, Code, Device, EncodedArray, Error, Format, Owned, Result, abi,
    sized_struct, sized_struct::SizedStruct,
};
use crossdock_arrays::export_schema;

use super::case::Check;
use super::context::CaseContext;
use super::counted_objects::{ReleaseCounts, counted_schema};
use super::test_io::{TestSink, TestSource};
use super::watch::Watch;

/// An instance without a safe handle, destroyed when dropped.
pub struct Raw {
    entry: &'static abi::PluginEntry,
    instance: *mut abi::Instance,
    watch: Watch,
    call: CallSettings,
}

/// A struct as a later release could define it: with additional fields at its end, which the plugin
/// must not write.
#[repr(C)]
pub struct Extended<T> {
    pub base: T,
    tail: [u64; 8],
}

const TAIL_PATTERN: u64 = 0x5a5a_5a5a_5a5a_5a5a;

impl<T: SizedStruct + Default> Extended<T> {
    pub fn new() -> Self {
        let mut extended = Self { base: T::default(), tail: [TAIL_PATTERN; 8] };
        // SAFETY: `SizedStruct` requires that the first field is the size, a `usize`.
        unsafe { (&raw mut extended.base).cast::<usize>().write(size_of::<Self>()) };
        extended
    }

    /// Describes writes to the additional fields.
    pub fn damage(&self) -> Option<String> {
        (self.tail != [TAIL_PATTERN; 8])
            .then(|| format!("bytes after the {} bytes of {}", size_of::<T>(), T::NAME))
    }
}

/// The result of a call that must fail. The `Option`s describe violations.
pub struct Attempt {
    pub place: String,
    pub code: abi::Code,
    /// A violation in the error struct.
    pub error: Option<String>,
    /// A write to the out parameter.
    pub out: Option<String>,
    /// An input that was not released exactly once.
    pub input: Option<String>,
}

/// The argument that is invalid in a call that the plugin must reject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    Format,
    Option,
    /// A reserved field of the call is not 0.
    ReservedInCall,
    /// A reserved field of the read request is not 0.
    ReservedInRequest,
    /// The call's `validate` has an unknown value.
    Validation,
}

impl Defect {
    /// Adds the defect to the call.
    fn apply(self, call: abi::Call) -> abi::Call {
        match self {
            Self::ReservedInCall => abi::Call { reserved: 1, ..call },
            Self::Validation => abi::Call { validate: 0x7fff_ffff, ..call },
            _ => call,
        }
    }
}

const NO_FORMAT: &str = "crossdock-verify-no-such-format";
pub const NO_OPTION: &str = "crossdock-verify-no-such-option";

impl Raw {
    pub fn create(context: &CaseContext, watch: Watch) -> Check<Result<Self>> {
        let entry = context.entry()?;
        let mut instance = std::ptr::null_mut();
        let created = Error::check(|err| match entry.create {
            // SAFETY: `create` belongs to a loaded plugin, the host of a `Watch` is never freed,
            // and `instance` and `err` are valid for writes.
            Some(create) => unsafe { create(watch.as_ptr(), &mut instance, err) },
            None => abi::INTERNAL,
        });
        // SAFETY: the stream belongs to a session of the context, which outlives this instance.
        let stream = unsafe { CallStream::new(context.session(context.device)?.stream().raw()) };
        let call = CallSettings { stream, ..CallSettings::new(context.device) };
        Ok(created.map(|()| Self { entry, instance, watch, call }))
    }

    /// Whether the plugin has an interface with this id.
    pub fn has(&self, id: &CStr) -> bool {
        !self.interface(id).is_null()
    }

    fn interface(&self, id: &CStr) -> *const c_void {
        match self.entry.get_interface {
            // SAFETY: `self.instance` was created by this entry and is not destroyed yet, and a
            // `CStr` ends with NUL.
            Some(get) => unsafe { get(self.instance, id.as_ptr()) },
            None => std::ptr::null(),
        }
    }

    /// Copies an interface. Only the fields that the plugin's struct contains are copied.
    fn table<T: SizedStruct>(&self, id: &CStr) -> Option<T> {
        let at = self.interface(id).cast::<T>();
        // SAFETY: a non-NULL interface begins with its size, and lives as long as the instance,
        // which `self` owns.
        (!at.is_null()).then(|| unsafe { sized_struct::read(at) }.ok()).flatten()
    }

    pub fn importer(&self) -> Option<abi::Importer> {
        self.table(abi::IMPORTER_ID)
    }

    pub fn exporter(&self) -> Option<abi::Exporter> {
        self.table(abi::EXPORTER_ID)
    }

    pub fn encoding(&self) -> Option<abi::Encoding> {
        self.table(abi::ENCODING_ID)
    }

    pub fn encoder(&self) -> Option<abi::Encoder> {
        self.table(abi::ENCODER_ID)
    }

    pub fn opener(&self) -> Option<abi::Opener> {
        self.table(abi::OPENER_ID)
    }

    /// Calls each function for each format with this defect. If `has_error_struct` is false, the
    /// error struct is NULL.
    pub fn attempts(
        &self,
        imported: &[Format],
        exported: &[Format],
        defect: Defect,
        has_error_struct: bool,
    ) -> Result<Vec<Attempt>> {
        let mut attempts = Vec::new();
        for format in imported {
            attempts.extend(self.open(format, defect, has_error_struct)?);
        }
        let exported = if defect == Defect::ReservedInRequest { &[] } else { exported };
        for format in exported {
            attempts.extend(self.plan(format, defect, has_error_struct)?);
            attempts.extend(self.begin(format, defect, has_error_struct)?);
        }
        Ok(attempts)
    }

    fn open(&self, format: &Format, defect: Defect, has_error_struct: bool) -> Result<Option<Attempt>> {
        let Some(open) = self.importer().and_then(|importer| importer.open) else { return Ok(None) };
        let (name, options) = arguments(format, defect);
        let counts = ReleaseCounts::default();
        let bytes = Arc::new(TestSource::of(b"bytes that begin no format"));
        // A format of several sources gets two of them.
        let n_sources = if format.several { 2 } else { 1 };
        let mut sources: Vec<_> =
            (0..n_sources).map(|_| crossdock::api::Source::new(bytes.clone()).into_raw()).collect();
        let schema = counted_schema(export_schema(&sample_schema())?, counts.add("a schema in a capsule"));
        let mut capsules = list(Capsule::new(schema));
        let input = if format.bytes {
            // `Owned` has the layout of the struct that it owns.
            abi::Input { sources: sources.as_mut_ptr().cast(), n_sources, ..abi::Input::new() }
        } else {
            abi::Input { capsules: capsules.as_mut_ptr(), ..abi::Input::new() }
        };
        let schema = export_schema(&sample_schema())?;
        let request = abi::ReadRequest {
            format: name,
            input: &raw const input,
            schema: &raw const *schema,
            options: options.as_ptr(),
            n_options: options.len(),
            reserved: u32::from(defect == Defect::ReservedInRequest),
            ..abi::ReadRequest::new()
        };
        let mut out = abi::BatchStream::new();
        let (code, error) = call(has_error_struct, |err| {
            // SAFETY: `open` is called on its own instance. The arguments are valid for the call.
            // This function owns the objects in `input`, and passes their ownership.
            unsafe { open(self.instance, &defect.apply(self.call.raw()), &request, &mut out, err) }
        });
        let input = if format.bytes {
            let was_taken = sources.iter().all(Owned::is_released);
            drop(sources);
            let is_leaked = Arc::strong_count(&bytes) > 1;
            input_violation(
                was_taken,
                is_leaked.then(|| "the source was never released".into()),
                "the source",
            )
        } else {
            let was_taken = capsules.is_released();
            drop(capsules);
            input_violation(was_taken, counts.violation(), "the list of capsules")
        };
        let written = is_written(&out).then(|| "bytes written to the stream".to_string());
        drop_stream(code, out);
        Ok(Some(Attempt { place: place("open", format, defect), code, error, out: written, input }))
    }

    fn plan(&self, format: &Format, defect: Defect, has_error_struct: bool) -> Result<Option<Attempt>> {
        let Some(plan) = self.exporter().and_then(|exporter| exporter.plan) else { return Ok(None) };
        let (name, options) = arguments(format, defect);
        let schema = export_schema(&sample_schema())?;
        let mut out = abi::Plan::new();
        let (code, error) = call(has_error_struct, |err| {
            // SAFETY: `plan` is called on its own instance, and all arguments are valid for the
            // call.
            unsafe {
                let (raw, n) = (options.as_ptr(), options.len());
                plan(
                    self.instance,
                    &defect.apply(self.call.raw()),
                    name,
                    &raw const *schema,
                    Device::CPU,
                    raw,
                    n,
                    &mut out,
                    err,
                )
            }
        });
        let written = is_written(&out).then(|| "bytes written to the plan".to_string());
        // SAFETY: on success the callee initialised `out` and passed its ownership.
        drop((code == abi::OK).then(|| unsafe { Owned::new(out) }));
        Ok(Some(Attempt { place: place("plan", format, defect), code, error, out: written, input: None }))
    }

    fn begin(&self, format: &Format, defect: Defect, has_error_struct: bool) -> Result<Option<Attempt>> {
        let Some(begin) = self.exporter().and_then(|exporter| exporter.begin) else { return Ok(None) };
        let (name, options) = arguments(format, defect);
        let schema = export_schema(&sample_schema())?;
        let to = Arc::new(TestSink::default());
        let mut sink = to.sink().into_raw();
        let at = if format.bytes { sink.as_mut_ptr() } else { std::ptr::null_mut() };
        let mut out = abi::Writer::new();
        let (code, error) = call(has_error_struct, |err| {
            // SAFETY: `begin` is called on its own instance. The arguments are valid for the call.
            // This function owns the sink, and passes its ownership.
            unsafe {
                let (raw, n) = (options.as_ptr(), options.len());
                let call = defect.apply(self.call.raw());
                begin(self.instance, &call, name, &raw const *schema, raw, n, at, &mut out, err)
            }
        });
        let was_taken = !format.bytes || sink.is_released();
        drop(sink);
        let written = is_written(&out).then(|| "bytes written to the writer".to_string());
        if code == abi::OK {
            // SAFETY: on success the callee initialised `out` and passed its ownership.
            drop(unsafe { Owned::new(out) });
        }
        let is_leaked = Arc::strong_count(&to) > 1;
        let input =
            input_violation(was_taken, is_leaked.then(|| "the sink was never released".into()), "the sink");
        Ok(Some(Attempt { place: place("begin", format, defect), code, error, out: written, input }))
    }

    /// Calls `check` for a node of an encoding that the plugin does not have.
    pub fn check(&self, array: EncodedArray, has_error_struct: bool) -> Option<Attempt> {
        let check = self.encoding()?.check?;
        let array = array.into_raw();
        let (code, error) = call(has_error_struct, |err| {
            // SAFETY: `check` is called on its own instance. The array is valid for the call, and
            // has a node 0.
            unsafe { check(self.instance, &raw const *array, 0, err) }
        });
        let place = "check of an unknown encoding".to_string();
        Some(Attempt { place, code, error, out: None, input: None })
    }

    /// Opens capsules and reads a batch, with additional fields in every struct. `Some` describes a
    /// violation.
    pub fn open_extended(&self, format: &Format, capsules: Vec<Capsule>) -> Result<Option<String>> {
        let none = || Error::unsupported("the plugin has no 'open'");
        let open = self.importer().and_then(|importer| importer.open).ok_or_else(none)?;
        let mut capsules = lists(capsules);
        let mut input = Extended::<abi::Input>::new();
        input.base.capsules = capsules.as_mut_ptr();
        let mut call_struct = Extended::<abi::Call>::new();
        let size = call_struct.base.struct_size;
        call_struct.base = abi::Call { struct_size: size, ..self.call.raw() };
        let mut out = Extended::<abi::BatchStream>::new();
        let mut request = Extended::<abi::ReadRequest>::new();
        request.base.format = abi::Str::new(&format.name);
        request.base.input = &raw const input.base;
        Error::check(|err| {
            // SAFETY: `open` is called on its own instance. All structs are valid for the call, and
            // at least as long as their `struct_size`. This function owns the list of capsules, and
            // passes its ownership.
            unsafe { open(self.instance, &call_struct.base, &request.base, &mut out.base, err) }
        })?;
        let mut batch = Extended::<abi::Batch>::new();
        let next = Error::check(|err| match out.base.get_next {
            // SAFETY: `open` succeeded, so `out` is a valid stream, and `get_next` is its own
            // function.
            Some(next) => unsafe { next(&mut out.base, &call_struct.base, &mut batch.base, err) },
            None => abi::INTERNAL,
        });
        let damage = out.damage().or(batch.damage());
        let (expected, actual) = (size_of_val(&batch), batch.base.struct_size);
        let size = (actual != expected)
            .then(|| format!("a batch whose struct_size was changed from {expected} to {actual}"));
        // SAFETY: `get_next` initialised the batch or left it empty, and `open` initialised the
        // stream. Both are released only here.
        unsafe {
            drop(Owned::new(std::mem::take(&mut batch.base)));
            if let Some(release) = out.base.release {
                release(&mut out.base);
            }
        }
        next?;
        Ok(damage.or(size))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        if let Some(destroy) = self.entry.destroy {
            // SAFETY: this entry's `create` made the instance, everything that the functions above
            // opened is released, and `drop` runs once.
            unsafe { destroy(self.instance) };
        }
        self.watch.end();
    }
}

fn place(function: &str, format: &Format, defect: Defect) -> String {
    match defect {
        Defect::Format => format!("{function} with an unknown format"),
        Defect::Option => format!("{function} of '{}' with an unknown option", format.name),
        Defect::ReservedInCall => {
            format!("{function} of '{}' with a call whose reserved field is 1", format.name)
        }
        Defect::ReservedInRequest => {
            format!("{function} of '{}' with a request whose reserved field is 1", format.name)
        }
        Defect::Validation => format!("{function} of '{}' with an unknown validation", format.name),
    }
}

/// The format and the options of a call with this defect.
fn arguments(format: &Format, defect: Defect) -> (abi::Str, Vec<abi::OptionPair>) {
    match defect {
        Defect::Format => (abi::Str::new(NO_FORMAT), Vec::new()),
        Defect::Option => {
            let pair = abi::OptionPair { key: abi::Str::new(NO_OPTION), value: abi::Str::new("1") };
            (abi::Str::new(&format.name), vec![pair])
        }
        _ => (abi::Str::new(&format.name), Vec::new()),
    }
}

/// One column of integers, which most formats can store.
fn sample_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("number", DataType::Int64, false)]))
}

/// Describes the violation if the callee did not take ownership of an input, or did not release the
/// input exactly once.
fn input_violation(was_taken: bool, release: Option<String>, what: &str) -> Option<String> {
    if was_taken { release } else { Some(format!("the ownership of {what} was not taken")) }
}

/// Whether the callee wrote to an out parameter in which the caller had set all bytes except the
/// size to zero.
fn is_written<T: SizedStruct>(out: &T) -> bool {
    // SAFETY: a `SizedStruct` has no padding, because its fields are words or pairs of half words,
    // so all its bytes are initialised.
    let bytes = unsafe { std::slice::from_raw_parts(std::ptr::from_ref(out).cast::<u8>(), size_of::<T>()) };
    bytes.iter().skip(size_of::<usize>()).any(|byte| *byte != 0)
}

fn drop_stream(code: abi::Code, out: abi::BatchStream) {
    // SAFETY: on success the callee initialised `out` and passed its ownership.
    drop((code == abi::OK).then(|| unsafe { Owned::new(out) }));
}

/// Calls a function. Returns its code, and describes the violation if the error struct breaks a
/// rule.
fn call(has_error_struct: bool, f: impl FnOnce(*mut abi::Error) -> abi::Code) -> (abi::Code, Option<String>) {
    if !has_error_struct {
        return (f(std::ptr::null_mut()), None);
    }
    let mut error = Extended::<abi::Error>::new();
    let code = f(&mut error.base);
    if code == abi::OK {
        return (code, None);
    }
    let violation = error_violation(&error, code);
    if let Some(release) = error.base.release {
        // SAFETY: the callee set `release` for this struct, and it is called once.
        unsafe { release(&mut error.base) };
    }
    (code, violation)
}

fn error_violation(error: &Extended<abi::Error>, code: abi::Code) -> Option<String> {
    if let Some(damage) = error.damage() {
        return Some(format!("{damage} were written"));
    }
    if error.base.code != code {
        return Some(format!(
            "the error struct has code {}, but the function returned {code}",
            error.base.code
        ));
    }
    let line = |at: *const std::ffi::c_char, what: &str| {
        // SAFETY: the strings of an error struct are NUL-terminated and valid until its `release`,
        // which runs later.
        let text = unsafe { CStr::from_ptr(at) };
        match text.to_str() {
            Err(_) => Some(format!("{what} is not UTF-8: {}", text.to_string_lossy())),
            Ok("") => Some(format!("{what} is empty")),
            Ok(text) if what == "the message" && text.chars().any(char::is_control) => {
                Some(format!("{what} is not one line of text: {text:?}"))
            }
            Ok(_) => None,
        }
    };
    if error.base.message.is_null() {
        return Some(format!("the message is NULL ({})", Code(code).text()));
    }
    line(error.base.message, "the message").or_else(|| {
        (!error.base.details.is_null()).then(|| line(error.base.details, "the details text")).flatten()
    })
}

/// A C list of one capsule.
fn list(capsule: Capsule) -> Owned<abi::Capsules> {
    lists(vec![capsule])
}

fn lists(capsules: Vec<Capsule>) -> Owned<abi::Capsules> {
    let raws: Box<Vec<Owned<abi::Capsule>>> =
        Box::new(capsules.into_iter().map(|capsule| capsule.into_raw()).collect());
    let mut raw = abi::Capsules::new();
    raw.n_capsules = raws.len();
    let at = Box::into_raw(raws);
    // SAFETY: `at` comes from `Box::into_raw`, and `Owned<T>` has the layout of `T`.
    raw.capsules = unsafe { (*at).as_mut_ptr().cast() };
    raw.private_data = at.cast();
    raw.release = Some(release_list);
    // SAFETY: `raw` was initialised above with its release function, and this is its only copy.
    unsafe { Owned::new(raw) }
}

unsafe extern "C" fn release_list(list: *mut abi::Capsules) {
    // SAFETY: only `lists` sets this function, with the boxed `Vec` as private data. The data is
    // replaced by NULL, so that a second release frees nothing.
    unsafe {
        (*list).release = None;
        let at = std::mem::replace(&mut (*list).private_data, std::ptr::null_mut());
        if !at.is_null() {
            drop(Box::from_raw(at.cast::<Vec<Owned<abi::Capsule>>>()));
        }
    }
}
