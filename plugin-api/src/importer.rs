//! The interface `crossdock.importer/1`, whose functions read formats.

use crate::abi;
use crate::call::{Call, CallSettings};
use crate::capsule::Capsules;
use crate::error::{Error, Result};
use crate::flags::reject_reserved;
use crate::format::Format;
use crate::options::Options;
use crate::owned::Owned;
use crate::plugin::{Instance, Plugin, with};
use crate::read_request::{self, RawSelection, ReadRequest, Selection};
use crate::sized_struct;
use crate::source::Source;
use crate::stream::{BatchStream, BatchStreamHandle, export_stream};

/// The input of an importer.
pub enum Input {
    /// The input consists of bytes.
    Source(Source),
    /// The input consists of foreign objects.
    Capsules(Capsules),
}

/// Reads formats.
pub trait Importer: Send + Sync {
    /// The formats that this plugin reads. The list must not change.
    fn formats(&self) -> &[Format];

    /// Opens an input.
    ///
    /// # Errors
    /// Any error, which is returned to the caller.
    fn open(&self, call: &Call<'_>, input: Input, request: &ReadRequest<'_>) -> Result<Box<dyn BatchStream>>;
}

impl Input {
    /// # Safety
    /// `input` is null or points to a valid `crossdock_input`. The caller passes the ownership of
    /// its source or capsules.
    unsafe fn take(input: *const abi::Input) -> Result<Self> {
        // SAFETY: the caller guarantees that `input` is null or points to `struct_size` bytes.
        let input = unsafe { sized_struct::borrow(input) }?;
        // SAFETY: each pointer is null or points to an object whose ownership the caller passes.
        let (source, capsules) = unsafe { (Owned::take(input.source), Owned::take(input.capsules)) };
        match (input.source.is_null(), input.capsules.is_null()) {
            // SAFETY: the header requires that this field points to a valid source.
            (false, true) if !source.is_released() => Ok(Input::Source(unsafe { Source::from_raw(source) })),
            // SAFETY: the header requires that this field points to a valid list of capsules.
            (true, false) => unsafe { Capsules::from_raw(capsules) }.map(Input::Capsules),
            (false, false) => {
                Err(Error::invalid_argument("open: got both a source and capsules, expected one of them"))
            }
            _ => {
                Err(Error::invalid_argument("open: got neither a source nor capsules, expected one of them"))
            }
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

/// The importer of a plugin instance, for a caller such as the host.
#[derive(Clone, Copy)]
pub struct ImporterHandle<'a> {
    pub(crate) instance: &'a Instance,
    pub(crate) table: abi::Importer,
}

impl ImporterHandle<'_> {
    /// The formats that the plugin reads.
    ///
    /// # Errors
    /// Returns the plugin's error, or an error if the list is invalid.
    pub fn formats(&self) -> Result<Vec<Format>> {
        // SAFETY: the table belongs to the instance, and the header requires that the lists are
        // valid and live as long as the instance.
        unsafe { Format::read_all(self.instance, self.table.formats) }
    }

    /// Opens an input. See [`Importer::open`].
    ///
    /// # Errors
    /// Returns the plugin's error.
    pub fn open(
        &self,
        call: &CallSettings,
        input: Input,
        request: &ReadRequest<'_>,
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
        let pairs = request.options.pairs();
        let selection = RawSelection::new(request.selection)?;
        let mut raw_request = abi::ReadRequest {
            format: abi::Str::new(request.format),
            input: &raw const input,
            schema: request.schema.map_or(std::ptr::null(), std::ptr::from_ref),
            options: pairs.as_ptr(),
            n_options: pairs.len(),
            ..abi::ReadRequest::new()
        };
        selection.fill(&mut raw_request, request.selection);
        let mut out = abi::BatchStream::new();
        // SAFETY: the table belongs to the instance, and all pointers are valid for the call. The
        // plugin takes ownership of the input by moving it out. An input that the plugin does not
        // move out still belongs to `source` or `capsules`.
        Error::check(|err| unsafe { f(self.instance.raw(), &call.raw(), &raw_request, &mut out, err) })?;
        // SAFETY: on success, the callee passes the ownership of `out`.
        let stream = unsafe { Owned::from_out(out) };
        if stream.is_released() {
            return Err(Error::internal("open succeeded, but returned a released stream"));
        }
        // SAFETY: the stream is not released, so the header guarantees that it is valid.
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
    // SAFETY: the header requires that `create` returned the instance, and that each pointer is
    // null or valid for writes.
    unsafe { with::<P>(instance, err, |shell| shell.importer_formats()?.put(out, n_out)) }
}

unsafe extern "C" fn open<P: Plugin>(
    instance: *mut abi::Instance,
    call: *const abi::Call,
    request: *const abi::ReadRequest,
    out: *mut abi::BatchStream,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: the header requires null or a request that is valid for the call.
    let raw = unsafe { read_request::borrow(request) };
    // The function takes ownership also if it fails, so this comes first.
    let input = match &raw {
        // SAFETY: the header requires null or a valid input, whose ownership the caller passes.
        Ok(raw) => unsafe { Input::take(raw.input) },
        Err(error) => Err(error.clone()),
    };
    // SAFETY: the header requires an instance of `create`, and arguments that are valid for the
    // call.
    unsafe {
        with::<P>(instance, err, |shell| {
            let (raw, input) = (raw?, input?);
            reject_reserved(raw.reserved, "the read request")?;
            let importer = shell.importer()?;
            let options = Options::read(raw.options, raw.n_options)?;
            let format = Format::find(importer.formats(), raw.format.get()?, &options)?;
            let (schema, selection) = (raw.schema.as_ref(), Selection::from_raw(&raw)?);
            let request = ReadRequest { format, schema, options: &options, selection: &selection };
            let stream = importer.open(&Call::read(call)?, input, &request)?;
            export_stream(stream, shell.poison().clone()).put(out, "open")
        })
    }
}
