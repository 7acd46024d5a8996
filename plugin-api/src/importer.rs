//! `crossdock.importer/1`: formats to batches.

use crate::abi;
use crate::call::{Call, CallSettings};
use crate::capsule::Capsules;
use crate::error::{Error, Result};
use crate::format::Format;
use crate::owned::Owned;
use crate::plugin::{Instance, Plugin, with};
use crate::source::Source;
use crate::stream::{BatchStream, BatchStreamHandle, export_stream};
use crate::told;
use crate::words::Options;

/// Where to read from.
pub enum Input {
    /// Bytes.
    Source(Source),
    /// Foreign objects.
    Capsules(Capsules),
}

/// Reads formats.
pub trait Importer: Send + Sync {
    /// What it reads; the same answer every time.
    fn formats(&self) -> &[Format];

    /// Opens `input` as `format`, one of its names, with options that this one understands. `schema` is what the caller
    /// expects, where the format has none.
    fn open(
        &self,
        call: &Call<'_>,
        format: &str,
        input: Input,
        schema: Option<&abi::ArrowSchema>,
        options: &Options,
    ) -> Result<Box<dyn BatchStream>>;
}

impl Input {
    /// # Safety
    /// `input` is null or a valid `crossdock_input`, and the caller hands over what it has.
    unsafe fn take(input: *const abi::Input) -> Result<Self> {
        // SAFETY: the caller's word.
        let input = unsafe { told::lent(input) }?;
        // SAFETY: as above; NULL gives what is released already.
        let (source, capsules) = unsafe { (Owned::take(input.source), Owned::take(input.capsules)) };
        match (input.source.is_null(), input.capsules.is_null()) {
            // SAFETY: the object crossed the boundary as a source.
            (false, true) if !source.is_released() => Ok(Input::Source(unsafe { Source::from_raw(source) })),
            // SAFETY: the list crossed the boundary as such.
            (true, false) => unsafe { Capsules::from_raw(capsules) }.map(Input::Capsules),
            (false, false) => {
                Err(Error::invalid_argument("open: both a source and capsules were given, expected one"))
            }
            _ => Err(Error::invalid_argument("open: neither a source nor capsules were given, expected one")),
        }
    }
}

pub(crate) const fn table<P: Plugin>() -> abi::Importer {
    abi::Importer {
        struct_size: size_of::<abi::Importer>(),
        formats: Some(formats::<P>),
        open: Some(open::<P>),
    }
}

/// A loaded plugin's importer, on the calling side.
#[derive(Clone, Copy)]
pub struct ImporterHandle<'a> {
    pub(crate) instance: &'a Instance,
    pub(crate) table: abi::Importer,
}

impl ImporterHandle<'_> {
    /// What it reads.
    pub fn formats(&self) -> Result<Vec<Format>> {
        // SAFETY: the instance's own function, of a table that it gave.
        unsafe { Format::of(self.instance, self.table.formats) }
    }

    /// Opens `input` as `format`.
    pub fn open(
        &self,
        call: &CallSettings,
        format: &str,
        input: Input,
        schema: Option<&Owned<abi::ArrowSchema>>,
        options: &Options,
    ) -> Result<BatchStreamHandle> {
        let f = self.table.open.ok_or_else(|| missing("open"))?;
        let (mut source, mut capsules) = match input {
            Input::Source(source) => (Some(source.into_raw()), None),
            Input::Capsules(capsules) => (None, Some(capsules.into_raw())),
        };
        let input = abi::Input {
            source: source.as_mut().map_or(std::ptr::null_mut(), Owned::as_mut_ptr),
            capsules: capsules.as_mut().map_or(std::ptr::null_mut(), Owned::as_mut_ptr),
            ..abi::Input::new()
        };
        let schema = schema.map_or(std::ptr::null(), |schema| &raw const **schema);
        let pairs = options.pairs();
        let mut out = abi::BatchStream::new();
        // SAFETY: the instance's own function on itself; everything else is borrowed for the call or handed over. What
        // it did not take (it should have) is still ours to release, and is when this function ends.
        let result = Error::check(|err| unsafe {
            f(
                self.instance.raw(),
                &call.raw(),
                abi::Str::new(format),
                &input,
                schema,
                pairs.as_ptr(),
                pairs.len(),
                &mut out,
                err,
            )
        });
        result?;
        // SAFETY: on success the stream is ours.
        let stream = unsafe { Owned::given(out) };
        if stream.is_released() {
            return Err(Error::internal("open succeeded and gave a released stream"));
        }
        // SAFETY: as above.
        Ok(unsafe { BatchStreamHandle::from_raw(stream) })
    }
}

fn missing(function: &str) -> Error {
    Error::internal(format!("the plugin's importer has no function '{function}'"))
}

unsafe extern "C" fn formats<P: Plugin>(
    instance: *mut abi::Instance,
    out: *mut *const abi::Format,
    n_out: *mut usize,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: the host's instance, out parameters and error struct; the list lives in the instance.
    unsafe { with::<P>(instance, err, |shell| shell.importer_formats()?.answer(out, n_out)) }
}

unsafe extern "C" fn open<P: Plugin>(
    instance: *mut abi::Instance,
    call: *const abi::Call,
    format: abi::Str,
    input: *const abi::Input,
    schema: *const abi::ArrowSchema,
    options: *const abi::OptionPair,
    n_options: usize,
    out: *mut abi::BatchStream,
    err: *mut abi::Error,
) -> abi::Code {
    // Taken before anything can fail, for the caller does not release it any more.
    // SAFETY: the caller hands the input over.
    let input = unsafe { Input::take(input) };
    // SAFETY: the host's instance, call, strings and structs, all alive for the call.
    unsafe {
        with::<P>(instance, err, |shell| {
            let importer = shell.importer()?;
            let options = Options::read(options, n_options)?;
            let format = Format::asked(importer.formats(), format.get()?, &options)?;
            let stream = importer.open(&Call::read(call)?, format, input?, schema.as_ref(), &options)?;
            export_stream(stream, shell.poison().clone()).put(out, "open")
        })
    }
}
