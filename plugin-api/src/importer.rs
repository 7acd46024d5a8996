//! The interface `crossdock.importer/1`, whose functions read formats.

use crate::abi;
use crate::call::{Call, CallSettings};
use crate::capsule::Capsules;
use crate::error::{Error, Result};
use crate::flags::reject_reserved;
use crate::format::Format;
use crate::fragment::{self, Fragment};
use crate::options::Options;
use crate::owned::Owned;
use crate::plugin::{Instance, Plugin, Shell, with};
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

    /// Whether [`fragments`](Importer::fragments) is implemented. The result must not change. If it
    /// is false, `fragments` is NULL in the C struct, and an input is one piece.
    fn has_fragments(&self) -> bool {
        false
    }

    /// Lists pieces of an input that can be read independently. In the order of the list, they
    /// contain each row of the input exactly once. The request has no token, and its selection is
    /// ignored.
    ///
    /// # Errors
    /// Any error, which is returned to the caller.
    fn fragments(&self, call: &Call<'_>, input: Input, request: &ReadRequest<'_>) -> Result<Vec<Fragment>> {
        let (_, _) = (call, input);
        Err(Error::unsupported(format!("the plugin lists no fragments of {}", request.format)))
    }
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

pub(crate) const fn table<P: Plugin>(has_fragments: bool) -> abi::Importer {
    abi::Importer {
        struct_size: size_of::<abi::Importer>(),
        formats: Some(formats::<P>),
        open: Some(open::<P>),
        fragments: if has_fragments { Some(fragments::<P>) } else { None },
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
        let mut out = abi::BatchStream::new();
        with_raw(input, request, |raw| {
            // SAFETY: the table belongs to the instance, and all pointers are valid for the call.
            Error::check(|err| unsafe { f(self.instance.raw(), &call.raw(), raw, &mut out, err) })
        })?;
        // SAFETY: on success, the callee passes the ownership of `out`.
        let stream = unsafe { Owned::from_out(out) };
        if stream.is_released() {
            return Err(Error::internal("open succeeded, but returned a released stream"));
        }
        // SAFETY: the stream is not released, so the header guarantees that it is valid.
        Ok(unsafe { BatchStreamHandle::from_raw(stream) })
    }

    /// Whether the plugin lists fragments.
    pub fn has_fragments(&self) -> bool {
        self.table.fragments.is_some()
    }

    /// Lists pieces of an input. See [`Importer::fragments`].
    ///
    /// # Errors
    /// Returns the plugin's error, or an error if the list is invalid.
    pub fn fragments(
        &self,
        call: &CallSettings,
        input: Input,
        request: &ReadRequest<'_>,
    ) -> Result<Vec<Fragment>> {
        let f = self.table.fragments.ok_or_else(|| missing("fragments"))?;
        let mut out = abi::Fragments::new();
        with_raw(input, request, |raw| {
            // SAFETY: the table belongs to the instance, and all pointers are valid for the call.
            Error::check(|err| unsafe { f(self.instance.raw(), &call.raw(), raw, &mut out, err) })
        })?;
        // SAFETY: on success, the callee passes the ownership of `out`, whose list the header
        // requires to be valid.
        unsafe { fragment::read_fragments(Owned::from_out(out)) }
    }
}

/// Calls `f` with the C struct of the request, which is valid for the call. The callee takes
/// ownership of the input by moving it out. An input that the callee does not move out is released
/// here.
fn with_raw<T>(
    input: Input,
    request: &ReadRequest<'_>,
    f: impl FnOnce(&abi::ReadRequest) -> Result<T>,
) -> Result<T> {
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
    let mut raw = abi::ReadRequest {
        format: abi::Str::new(request.format),
        input: &raw const input,
        schema: request.schema.map_or(std::ptr::null(), std::ptr::from_ref),
        options: pairs.as_ptr(),
        n_options: pairs.len(),
        fragment: request.fragment.map_or(std::ptr::null(), |token| token.as_ptr().cast()),
        fragment_bytes: request.fragment.map_or(0, <[u8]>::len),
        ..abi::ReadRequest::new()
    };
    selection.fill(&mut raw, request.selection);
    f(&raw)
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
    // SAFETY: the header requires an instance of `create`, and arguments that are valid for the
    // call.
    unsafe {
        with_request::<P>(instance, request, err, |shell, input, request| {
            let importer = shell.importer()?;
            if request.fragment.is_some() && !importer.has_fragments() {
                return Err(Error::unsupported(format!(
                    "the plugin has no fragments of {}, expected a request without a token",
                    request.format
                )));
            }
            let stream = importer.open(&Call::read(call)?, input, request)?;
            export_stream(stream, shell.poison().clone()).put(out, "open")
        })
    }
}

unsafe extern "C" fn fragments<P: Plugin>(
    instance: *mut abi::Instance,
    call: *const abi::Call,
    request: *const abi::ReadRequest,
    out: *mut abi::Fragments,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: the header requires an instance of `create`, and arguments that are valid for the
    // call.
    unsafe {
        with_request::<P>(instance, request, err, |shell, input, request| {
            if request.fragment.is_some() {
                return Err(Error::invalid_argument("fragments: got a token, expected a whole input"));
            }
            let list = shell.importer()?.fragments(&Call::read(call)?, input, request)?;
            fragment::export_fragments(list)?.put(out, "fragments")
        })
    }
}

/// Runs `body` with the input and the request in the FFI door. Takes ownership of the input also if
/// it fails.
///
/// # Safety
/// `instance` and `err` meet the requirements of [`with`]. `request` is null or valid for the call,
/// and the caller passes the ownership of its input.
unsafe fn with_request<P: Plugin>(
    instance: *mut abi::Instance,
    request: *const abi::ReadRequest,
    err: *mut abi::Error,
    body: impl FnOnce(&Shell<P>, Input, &ReadRequest<'_>) -> Result<()>,
) -> abi::Code {
    // SAFETY: the caller guarantees null or a request that is valid for the call.
    let raw = unsafe { read_request::borrow(request) };
    // The function takes ownership also if it fails, so this comes first.
    let input = match &raw {
        // SAFETY: the header requires null or a valid input, whose ownership the caller passes.
        Ok(raw) => unsafe { Input::take(raw.input) },
        Err(error) => Err(error.clone()),
    };
    // SAFETY: the caller guarantees a valid instance and error. The request and its lists are valid
    // for the call.
    unsafe {
        with::<P>(instance, err, |shell| {
            let (raw, input) = (raw?, input?);
            reject_reserved(raw.reserved, "the read request")?;
            let options = Options::read(raw.options, raw.n_options)?;
            let format = Format::find(shell.importer()?.formats(), raw.format.get()?, &options)?;
            let (schema, selection) = (raw.schema.as_ref(), Selection::from_raw(&raw)?);
            let fragment = read_request::read_token(&raw)?;
            body(
                shell,
                input,
                &ReadRequest { format, schema, options: &options, selection: &selection, fragment },
            )
        })
    }
}
