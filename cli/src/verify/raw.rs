//! The boundary as C has it, for rules that callers' handles already keep: error structs, out parameters, what is handed over.

use std::ffi::{CStr, c_void};
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use crossdock::api::{
    CallSettings, CallStream, Capsule, Code, Device, EncodedArray, Error, Format, Owned, Result, abi, told,
    told::Told,
};
use crossdock_arrays::export_schema;

use super::case::Check;
use super::lent::{Bytes, Counts, Written, counted_schema};
use super::subject::Ground;
use super::watch::Watch;

/// An instance without a handle, destroyed when dropped.
pub struct Raw {
    entry: &'static abi::PluginEntry,
    instance: *mut abi::Instance,
    watch: Watch,
    call: CallSettings,
}

/// A struct as a later release would have it: longer, with bytes at its end that no plugin of today may touch.
#[repr(C)]
pub struct Longer<T> {
    pub own: T,
    tail: [u64; 8],
}

const UNTOUCHED: u64 = 0x5a5a_5a5a_5a5a_5a5a;

impl<T: Told + Default> Longer<T> {
    pub fn new() -> Self {
        let mut longer = Self { own: T::default(), tail: [UNTOUCHED; 8] };
        // SAFETY: the first field of every such struct is its size (`Told`).
        unsafe { (&raw mut longer.own).cast::<usize>().write(size_of::<Self>()) };
        longer
    }

    /// What is wrong with its size and its end, in words.
    pub fn damage(&self) -> Option<String> {
        (self.tail != [UNTOUCHED; 8])
            .then(|| format!("bytes behind the {} bytes of {}", size_of::<T>(), T::NAME))
    }
}

/// How a call that must fail was answered.
pub struct Attempt {
    pub place: String,
    pub code: abi::Code,
    /// What is wrong with the error struct, with the out parameter, and with what was handed over.
    pub error: Option<String>,
    pub out: Option<String>,
    pub handed: Option<String>,
}

/// What a call is wrong in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    Format,
    Option,
}

const NO_FORMAT: &str = "crossdock-verify-no-such-format";
pub const NO_OPTION: &str = "crossdock-verify-no-such-option";

impl Raw {
    pub fn create(ground: &Ground, watch: Watch) -> Check<Result<Self>> {
        let entry = ground.entry()?;
        let mut instance = std::ptr::null_mut();
        let made = Error::check(|err| match entry.create {
            // SAFETY: the entry's own function, and a host that lives for ever.
            Some(create) => unsafe { create(watch.as_ptr(), &mut instance, err) },
            None => abi::INTERNAL,
        });
        // SAFETY: a default stream of the backend, which the ground keeps.
        let stream = unsafe { CallStream::new(ground.session(ground.device)?.stream().raw()) };
        let call = CallSettings { stream, ..CallSettings::new(ground.device) };
        Ok(made.map(|()| Self { entry, instance, watch, call }))
    }

    /// Whether the plugin answers this id.
    pub fn has(&self, id: &CStr) -> bool {
        !self.interface(id).is_null()
    }

    fn interface(&self, id: &CStr) -> *const c_void {
        match self.entry.get_interface {
            // SAFETY: the instance's own function on itself, and a NUL-terminated id.
            Some(get) => unsafe { get(self.instance, id.as_ptr()) },
            None => std::ptr::null(),
        }
    }

    /// An interface as far as the plugin has it.
    fn table<T: Told>(&self, id: &CStr) -> Option<T> {
        let at = self.interface(id).cast::<T>();
        // SAFETY: an interface begins with its true size, and lives as long as the instance.
        (!at.is_null()).then(|| unsafe { told::read(at) }.ok()).flatten()
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

    /// Calls that are wrong in one thing, of each function and each format. `told` is whether there is an error struct.
    pub fn attempts(
        &self,
        imported: &[Format],
        exported: &[Format],
        wrong: Wrong,
        told: bool,
    ) -> Result<Vec<Attempt>> {
        let mut attempts = Vec::new();
        for format in imported {
            attempts.extend(self.open(format, wrong, told)?);
        }
        for format in exported {
            attempts.extend(self.plan(format, wrong, told)?);
            attempts.extend(self.begin(format, wrong, told)?);
        }
        Ok(attempts)
    }

    fn open(&self, format: &Format, wrong: Wrong, told: bool) -> Result<Option<Attempt>> {
        let Some(open) = self.importer().and_then(|importer| importer.open) else { return Ok(None) };
        let (name, options) = asked(format, wrong);
        let counts = Counts::default();
        let bytes = Arc::new(Bytes::of(b"nothing that a format begins with"));
        let mut source = crossdock::api::Source::new(bytes.clone()).into_raw();
        let schema = counted_schema(export_schema(&sample_schema())?, counts.add("a schema in a capsule"));
        let mut capsules = list(Capsule::new(schema));
        let input = if format.bytes {
            abi::Input { source: source.as_mut_ptr(), ..abi::Input::new() }
        } else {
            abi::Input { capsules: capsules.as_mut_ptr(), ..abi::Input::new() }
        };
        let schema = export_schema(&sample_schema())?;
        let mut out = abi::BatchStream::new();
        let (code, error) = call(told, |err| {
            // SAFETY: the instance's own function on itself; all else is borrowed for the call or handed over.
            unsafe {
                let (raw, n) = (options.as_ptr(), options.len());
                open(self.instance, &self.call.raw(), name, &input, &raw const *schema, raw, n, &mut out, err)
            }
        });
        let handed = if format.bytes {
            let rest = !source.is_released();
            drop(source);
            let kept = Arc::strong_count(&bytes) > 1;
            left(rest, kept.then(|| "the source was never released".into()), "the source")
        } else {
            let rest = !capsules.is_released();
            drop(capsules);
            left(rest, counts.wrong(), "the list of capsules")
        };
        let touched = is_touched(&out).then(|| "bytes in the stream's place".to_string());
        drop_stream(code, out);
        Ok(Some(Attempt { place: place("open", format, wrong), code, error, out: touched, handed }))
    }

    fn plan(&self, format: &Format, wrong: Wrong, told: bool) -> Result<Option<Attempt>> {
        let Some(plan) = self.exporter().and_then(|exporter| exporter.plan) else { return Ok(None) };
        let (name, options) = asked(format, wrong);
        let schema = export_schema(&sample_schema())?;
        let mut out = abi::Plan::new();
        let (code, error) = call(told, |err| {
            // SAFETY: as in `open`.
            unsafe {
                let (raw, n) = (options.as_ptr(), options.len());
                plan(
                    self.instance,
                    &self.call.raw(),
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
        let touched = is_touched(&out).then(|| "bytes in the plan's place".to_string());
        // SAFETY: on success the plan is ours.
        drop((code == abi::OK).then(|| unsafe { Owned::new(out) }));
        Ok(Some(Attempt { place: place("plan", format, wrong), code, error, out: touched, handed: None }))
    }

    fn begin(&self, format: &Format, wrong: Wrong, told: bool) -> Result<Option<Attempt>> {
        let Some(begin) = self.exporter().and_then(|exporter| exporter.begin) else { return Ok(None) };
        let (name, options) = asked(format, wrong);
        let schema = export_schema(&sample_schema())?;
        let to = Arc::new(Written::default());
        let mut sink = to.sink().into_raw();
        let at = if format.bytes { sink.as_mut_ptr() } else { std::ptr::null_mut() };
        let mut out = abi::Writer::new();
        let (code, error) = call(told, |err| {
            // SAFETY: as in `open`.
            unsafe {
                let (raw, n) = (options.as_ptr(), options.len());
                begin(self.instance, &self.call.raw(), name, &raw const *schema, raw, n, at, &mut out, err)
            }
        });
        let rest = format.bytes && !sink.is_released();
        drop(sink);
        let touched = is_touched(&out).then(|| "bytes in the writer's place".to_string());
        if code == abi::OK {
            // SAFETY: on success the writer is ours.
            drop(unsafe { Owned::new(out) });
        }
        let kept = Arc::strong_count(&to) > 1;
        let handed = left(rest, kept.then(|| "the sink was never released".into()), "the sink");
        Ok(Some(Attempt { place: place("begin", format, wrong), code, error, out: touched, handed }))
    }

    /// Asks about a node of an encoding that is not the plugin's.
    pub fn check(&self, array: EncodedArray, told: bool) -> Option<Attempt> {
        let check = self.encoding()?.check?;
        let array = array.into_raw();
        // SAFETY: the instance's own function on itself; the array is borrowed for the call, and has a node.
        let (code, error) = call(told, |err| unsafe { check(self.instance, &raw const *array, 0, err) });
        let place = "check of an encoding that there is none of".to_string();
        Some(Attempt { place, code, error, out: None, handed: None })
    }

    /// Opens capsules and takes a batch, with every struct longer than today's. What is wrong, in words.
    pub fn open_longer(&self, format: &Format, capsules: Vec<Capsule>) -> Result<Option<String>> {
        let none = || Error::unsupported("the plugin has no 'open'");
        let open = self.importer().and_then(|importer| importer.open).ok_or_else(none)?;
        let mut capsules = lists(capsules);
        let mut input = Longer::<abi::Input>::new();
        input.own.capsules = capsules.as_mut_ptr();
        let mut call_struct = Longer::<abi::Call>::new();
        let size = call_struct.own.struct_size;
        call_struct.own = abi::Call { struct_size: size, ..self.call.raw() };
        let mut out = Longer::<abi::BatchStream>::new();
        let name = abi::Str::new(&format.name);
        Error::check(|err| {
            let none = std::ptr::null();
            // SAFETY: as in `open`; each struct is as long as it says.
            unsafe {
                open(
                    self.instance,
                    &call_struct.own,
                    name,
                    &input.own,
                    std::ptr::null(),
                    none,
                    0,
                    &mut out.own,
                    err,
                )
            }
        })?;
        let mut batch = Longer::<abi::Batch>::new();
        let given = Error::check(|err| match out.own.get_next {
            // SAFETY: the stream's own function on itself.
            Some(next) => unsafe { next(&mut out.own, &call_struct.own, &mut batch.own, err) },
            None => abi::INTERNAL,
        });
        let damage = out.damage().or(batch.damage());
        let whole = size_of_val(&batch);
        let told = batch.own.struct_size;
        let size = (told != whole).then(|| format!("a batch whose struct_size was {whole} and is {told}"));
        // SAFETY: both are ours, or empty.
        unsafe {
            drop(Owned::new(std::mem::take(&mut batch.own)));
            if let Some(release) = out.own.release {
                release(&mut out.own);
            }
        }
        given?;
        Ok(damage.or(size))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        if let Some(destroy) = self.entry.destroy {
            // SAFETY: made by this entry's `create`, destroyed once, after all that was opened.
            unsafe { destroy(self.instance) };
        }
        self.watch.end();
    }
}

fn place(function: &str, format: &Format, wrong: Wrong) -> String {
    match wrong {
        Wrong::Format => format!("{function} of a format that there is none of"),
        Wrong::Option => format!("{function} of '{}' with an option that it does not list", format.name),
    }
}

fn asked(format: &Format, wrong: Wrong) -> (abi::Str, Vec<abi::OptionPair>) {
    match wrong {
        Wrong::Format => (abi::Str::new(NO_FORMAT), Vec::new()),
        Wrong::Option => {
            let pair = abi::OptionPair { key: abi::Str::new(NO_OPTION), value: abi::Str::new("1") };
            (abi::Str::new(&format.name), vec![pair])
        }
    }
}

/// One column of numbers, which most formats have a place for.
fn sample_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("number", DataType::Int64, false)]))
}

/// What became of something that the callee was to take.
fn left(rest: bool, wrong: Option<String>, what: &str) -> Option<String> {
    if rest { Some(format!("{what} was left with the caller")) } else { wrong }
}

/// Whether an out parameter is other than the caller made it: zero, but for its size.
fn is_touched<T: Told>(out: &T) -> bool {
    // SAFETY: such a struct has no padding: all its fields are words, or pairs of halves.
    let bytes = unsafe { std::slice::from_raw_parts(std::ptr::from_ref(out).cast::<u8>(), size_of::<T>()) };
    bytes.iter().skip(size_of::<usize>()).any(|byte| *byte != 0)
}

fn drop_stream(code: abi::Code, out: abi::BatchStream) {
    // SAFETY: on success the stream is ours; else it was not given.
    drop((code == abi::OK).then(|| unsafe { Owned::new(out) }));
}

/// Makes a call and judges what it says of its failure.
fn call(told: bool, f: impl FnOnce(*mut abi::Error) -> abi::Code) -> (abi::Code, Option<String>) {
    if !told {
        return (f(std::ptr::null_mut()), None);
    }
    let mut error = Longer::<abi::Error>::new();
    let code = f(&mut error.own);
    if code == abi::OK {
        return (code, None);
    }
    let complaint = judge(&error, code);
    if let Some(release) = error.own.release {
        // SAFETY: set by the callee for this struct, and called once.
        unsafe { release(&mut error.own) };
    }
    (code, complaint)
}

fn judge(error: &Longer<abi::Error>, code: abi::Code) -> Option<String> {
    if let Some(damage) = error.damage() {
        return Some(format!("{damage} were written"));
    }
    if error.own.code != code {
        return Some(format!("the struct says code {}, the function returned {code}", error.own.code));
    }
    let line = |at: *const std::ffi::c_char, what: &str| {
        // SAFETY: a callee's strings are NUL-terminated and live until `release`.
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
    if error.own.message.is_null() {
        return Some(format!("there is no message ({})", Code(code).text()));
    }
    line(error.own.message, "the message").or_else(|| {
        (!error.own.details.is_null()).then(|| line(error.own.details, "the text of details")).flatten()
    })
}

/// A list of one capsule, as C has it.
fn list(capsule: Capsule) -> Owned<abi::Capsules> {
    lists(vec![capsule])
}

fn lists(capsules: Vec<Capsule>) -> Owned<abi::Capsules> {
    let raws: Box<Vec<Owned<abi::Capsule>>> =
        Box::new(capsules.into_iter().map(|capsule| capsule.into_raw()).collect());
    let mut raw = abi::Capsules::new();
    raw.n_capsules = raws.len();
    let at = Box::into_raw(raws);
    // SAFETY: made above; `Owned` is laid out as what it owns.
    raw.capsules = unsafe { (*at).as_mut_ptr().cast() };
    raw.private_data = at.cast();
    raw.release = Some(release_list);
    // SAFETY: made above; nobody else has it.
    unsafe { Owned::new(raw) }
}

unsafe extern "C" fn release_list(list: *mut abi::Capsules) {
    // SAFETY: set by `lists` only; a second release finds nothing.
    unsafe {
        (*list).release = None;
        let at = std::mem::replace(&mut (*list).private_data, std::ptr::null_mut());
        if !at.is_null() {
            drop(Box::from_raw(at.cast::<Vec<Owned<abi::Capsule>>>()));
        }
    }
}
