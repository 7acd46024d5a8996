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
    /// The input consists of the bytes of one or several sources, which form one table. Only a
    /// format with [`Format::several`] gets this variant, and it gets no other variant with bytes.
    Sources(Vec<Source>),
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

/// The objects of a `crossdock_input`. At most one of both is present.
struct Taken {
    sources: Vec<Source>,
    capsules: Option<Capsules>,
}

/// The greatest number of sources of an input.
const MAX_SOURCES: usize = 1 << 20;

impl Taken {
    /// Takes the ownership of all objects of an input.
    ///
    /// # Safety
    /// `input` is null or points to a valid `crossdock_input`. The caller passes the ownership of
    /// its sources or capsules.
    unsafe fn new(input: *const abi::Input) -> Result<Self> {
        // SAFETY: the caller guarantees that `input` is null or points to `struct_size` bytes.
        let input = unsafe { sized_struct::borrow(input) }?;
        // SAFETY: each pointer is null or points to objects whose ownership the caller passes.
        let (sources, capsules) =
            unsafe { (take_sources(input.sources, input.n_sources), Owned::take(input.capsules)) };
        let sources = sources?;
        match (sources.is_empty(), input.capsules.is_null()) {
            (false, true) => Ok(Self { sources, capsules: None }),
            (true, false) => {
                // SAFETY: the header requires that this field points to a valid list of capsules.
                let capsules = unsafe { Capsules::from_raw(capsules) }?;
                Ok(Self { sources, capsules: Some(capsules) })
            }
            (false, false) => {
                Err(Error::invalid_argument("open: got both a source and capsules, expected one of them"))
            }
            (true, true) => {
                Err(Error::invalid_argument("open: got neither a source nor capsules, expected one of them"))
            }
        }
    }

    /// The input in the form that the importer of `format` expects.
    fn into_input(self, format: &Format) -> Result<Input> {
        let Self { mut sources, capsules } = self;
        match capsules {
            Some(capsules) => Ok(Input::Capsules(capsules)),
            None if format.several => Ok(Input::Sources(sources)),
            None => match (sources.pop(), sources.len()) {
                (Some(source), 0) => Ok(Input::Source(source)),
                (_, n) => Err(Error::invalid_argument(format!(
                    "open: the format '{}' is read from one source, got {}",
                    format.name,
                    n + 1
                ))),
            },
        }
    }
}

/// Takes all sources of a list. Released sources are left out.
///
/// # Safety
/// `list` is null or points to `n` valid or released sources, whose ownership the caller passes.
unsafe fn take_sources(list: *mut abi::Source, n: usize) -> Result<Vec<Source>> {
    if list.is_null() || n == 0 {
        return Ok(Vec::new());
    }
    // SAFETY: the list is not null, and its first element begins with `struct_size`.
    let stride = unsafe { sized_struct::stride(list.cast_const()) }?;
    if n > MAX_SOURCES {
        return Err(Error::invalid_argument(format!(
            "open: got {n} sources, expected at most {MAX_SOURCES}"
        )));
    }
    // SAFETY: `i` is less than `n`, and the distance between two sources is `stride`.
    let take = |i: usize| unsafe { Owned::take(list.byte_add(i * stride)) };
    let all = (0..n).map(take).filter(|source| !source.is_released());
    // SAFETY: the header requires that a source that is not released is valid.
    Ok(all.map(|source| unsafe { Source::from_raw(source) }).collect())
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
    let (mut sources, mut capsules) = match input {
        Input::Source(source) => (vec![source.into_raw()], None),
        Input::Sources(sources) => (sources.into_iter().map(Source::into_raw).collect(), None),
        Input::Capsules(capsules) => (Vec::new(), Some(capsules.into_raw())),
    };
    let input = abi::Input {
        // `Owned` has the layout of the struct that it owns.
        sources: if sources.is_empty() { std::ptr::null_mut() } else { sources.as_mut_ptr().cast() },
        n_sources: sources.len(),
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
        Ok(raw) => unsafe { Taken::new(raw.input) },
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
            let (input, format) = (input.into_input(format)?, format.name.as_str());
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
