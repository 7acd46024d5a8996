//! Tests of inputs with several sources, of magic numbers at the end, and of openers.

use std::sync::Arc;

use crate::boundary::counting_host;
use crossdock_plugin_api::{
    BatchStream, ByteSource, Call, CallSettings, Code, Device, Error, Format, Host, Importer, Input,
    Instance, Opener, Options, Owned, Plugin, ReadRequest, Result, Source, abi,
};

/// A plugin whose streams fail with the names of the sources that it got.
struct Names(Vec<Format>);

impl Plugin for Names {
    fn create(_host: Host) -> Result<Self> {
        Ok(Self::new())
    }
    fn importer(&self) -> Option<&dyn Importer> {
        Some(self)
    }
    fn opener(&self) -> Option<&dyn Opener> {
        Some(self)
    }
}

impl Importer for Names {
    fn formats(&self) -> &[Format] {
        &self.0
    }
    fn open(&self, _: &Call<'_>, input: Input, _: &ReadRequest<'_>) -> Result<Box<dyn BatchStream>> {
        Err(Error::unsupported(match input {
            Input::Source(source) => format!("one: {}", source.name()),
            Input::Sources(sources) => {
                let names: Vec<_> = sources.iter().map(Source::name).collect();
                format!("several: {}", names.join(", "))
            }
            Input::Capsules(_) => "capsules".into(),
        }))
    }
}

impl Opener for Names {
    fn schemes(&self) -> &[&'static str] {
        &["names", "n+1"]
    }
    fn open(&self, call: &Call<'_>, uri: &str, options: &Options) -> Result<Arc<dyn ByteSource>> {
        call.check_cancelled()?;
        options.only("names", &["length", "panic"])?;
        let (length, panics) = (options.get("length").is_none(), options.get("panic").is_some());
        Ok(Arc::new(Named { name: uri.into(), has_length: length, panics, token: Arc::default() }))
    }
}

struct Named {
    name: String,
    has_length: bool,
    panics: bool,
    token: Arc<()>,
}

impl ByteSource for Named {
    fn name(&self) -> &str {
        &self.name
    }
    fn len(&self) -> Option<u64> {
        self.has_length.then_some(3)
    }
    fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<usize> {
        assert!(!self.panics, "no bytes");
        let rest = b"abc".get(offset as usize..).unwrap_or_default();
        let n = rest.len().min(to.len());
        to[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }
    fn version(&self) -> &str {
        if self.name.ends_with("none") { "" } else { "\"tag\"" }
    }
}

impl Names {
    fn new() -> Self {
        let format = |name| Format { bytes: true, ..Format::new(name, "") };
        let several = Format { several: true, ..format("several") };
        Self(vec![format("one"), several])
    }
}

fn instance() -> Instance {
    Instance::from_plugin(Names::new())
}

fn named(name: &str) -> (Source, Arc<()>) {
    let token = Arc::new(());
    let named = Named { name: name.into(), has_length: true, panics: false, token: token.clone() };
    (Source::new(Arc::new(named)), token)
}

fn open(format: &str, input: Input) -> String {
    let instance = instance();
    let (call, request) = (CallSettings::new(Device::CPU), ReadRequest::new(format));
    let result = instance.importer().unwrap().open(&call, input, &request);
    result.map(drop).unwrap_err().message().to_owned()
}

#[test]
fn only_formats_of_several_sources_get_several() {
    let source = |name| named(name).0;
    assert_eq!(open("one", Input::Source(source("a"))), "one: a");
    assert_eq!(open("one", Input::Sources(vec![source("a")])), "one: a");
    assert_eq!(open("several", Input::Source(source("a"))), "several: a");
    assert_eq!(open("several", Input::Sources(vec![source("a"), source("b")])), "several: a, b");
    assert_eq!(
        open("one", Input::Sources(vec![source("a"), source("b"), source("c")])),
        "open: the format 'one' is read from one source, got 3"
    );
    assert!(open("one", Input::Sources(Vec::new())).contains("neither a source nor capsules"));
}

#[test]
fn all_sources_are_released_also_if_the_request_is_rejected() {
    for format in ["one", "several", "unknown"] {
        let ((first, a), (second, b)) = (named("a"), named("b"));
        open(format, Input::Sources(vec![first, second]));
        assert_eq!((Arc::strong_count(&a), Arc::strong_count(&b)), (1, 1), "{format}");
    }
}

/// A longer source, as a later release could define it.
#[repr(C)]
struct Longer {
    base: abi::Source,
    more: [u64; 3],
}

#[test]
fn distance_between_sources_is_the_size_of_the_first() {
    let longer = |name: &str| {
        let (source, token) = named(name);
        let mut base = source.into_raw().into_raw();
        base.struct_size = size_of::<Longer>();
        (Longer { base, more: [u64::MAX; 3] }, token)
    };
    let ((first, a), (second, b)) = (longer("first"), longer("second"));
    let mut list = [first, second];
    let input = abi::Input { sources: (&raw mut list).cast(), n_sources: 2, ..abi::Input::new() };
    let request = abi::ReadRequest {
        format: abi::Str::new("several"),
        input: &raw const input,
        ..abi::ReadRequest::new()
    };
    static ENTRY: abi::PluginEntry = crossdock_plugin_api::entry::<Names>();
    let host = counting_host();
    let mut instance = std::ptr::null_mut();
    // SAFETY: the host outlives the instance, and the table belongs to it.
    let importer = unsafe {
        Error::check(|err| ENTRY.create.unwrap()(host.raw(), &mut instance, err)).unwrap();
        &*ENTRY.get_interface.unwrap()(instance, abi::IMPORTER_ID.as_ptr()).cast::<abi::Importer>()
    };
    let call = CallSettings::new(Device::CPU).raw();
    let mut out = abi::BatchStream::new();
    let error = Error::check(|err| {
        // SAFETY: all arguments are valid for the call.
        unsafe { importer.open.unwrap()(instance, &call, &request, &mut out, err) }
    });
    assert_eq!(error.unwrap_err().message(), "several: first, second");
    assert_eq!((Arc::strong_count(&a), Arc::strong_count(&b)), (1, 1));
    assert!(list.iter().all(|source| source.base.release.is_none()), "the sources are moved out");
    assert!(list.iter().all(|source| source.more == [u64::MAX; 3]), "later fields are not written");
    // SAFETY: the instance is destroyed once.
    unsafe { ENTRY.destroy.unwrap()(instance) };
}

#[test]
fn negative_offsets_of_magic_numbers_count_from_the_end() {
    let format = |offset| Format { magics: vec![(offset, b"END".to_vec())], ..Format::new("f", "") };
    assert!(format(-3).matches(b"", b"...END"));
    assert!(format(-5).matches(b"", b"ENDxx"));
    assert!(format(2).matches(b"..END", b""));
    for (offset, head, tail) in [
        (-3, &b"END"[..], &b""[..]),
        (-3, b"", b"ENDx"),
        (-2, b"", b"END"),
        (-4, b"", b"END"),
        (i64::MIN, b"END", b"END"),
        (i64::MAX, b"END", b"END"),
        (0, b"", b"END"),
    ] {
        assert!(!format(offset).matches(head, tail), "{offset} {head:?} {tail:?}");
    }
    let mut both = format(-3);
    both.magics.push((0, b"BEGIN".to_vec()));
    assert_eq!(both.longest_match(b"BEGIN..END", b"BEGIN..END"), 5);
    assert_eq!(both.longest_match(b"BEGAN..END", b"BEGAN..END"), 3);
    assert_eq!(both.longest_match(b"BEGAN", b"ENDED"), 0);
}

#[test]
fn formats_keep_flags_and_signed_offsets_across_the_boundary() {
    struct Listed(Vec<Format>);
    impl Plugin for Listed {
        fn create(_host: Host) -> Result<Self> {
            Err(Error::internal("created by the test"))
        }
        fn importer(&self) -> Option<&dyn Importer> {
            Some(self)
        }
    }
    impl Importer for Listed {
        fn formats(&self) -> &[Format] {
            &self.0
        }
        fn open(&self, _: &Call<'_>, _: Input, _: &ReadRequest<'_>) -> Result<Box<dyn BatchStream>> {
            Err(Error::internal("unused"))
        }
    }
    let listed = |several| Format {
        several,
        bytes: true,
        magics: vec![(-8, b"TAIL".to_vec()), (i64::MIN, b"x".to_vec()), (7, b"y".to_vec())],
        ..Format::new("f", "")
    };
    let formats = vec![listed(true), listed(false)];
    let instance = Instance::from_plugin(Listed(formats.clone()));
    assert_eq!(instance.importer().unwrap().formats().unwrap(), formats);
    assert!(instance.opener().is_none());
}

#[test]
fn opener_returns_schemes_and_sources() {
    let instance = instance();
    let opener = instance.opener().unwrap();
    assert_eq!(opener.schemes().unwrap(), ["names", "n+1"]);
    let call = CallSettings::new(Device::CPU);
    let open = |uri: &str, options: Options| opener.open(&call, uri, &options);
    let source = open("names://a", Options::new()).unwrap();
    assert_eq!((source.name(), source.len(), source.version()), ("names://a", Some(3), "\"tag\""));
    assert_eq!(open("names://none", Options::new()).unwrap().version(), "");
    let mut bytes = [0; 2];
    source.read_exact_at(1, &mut bytes).unwrap();
    assert_eq!(&bytes, b"bc");
    let error = |options| open("names://a", options).map(drop).unwrap_err();
    assert!(error(Options::new().with("x", "1")).message().contains("has no option 'x'"));
    let unknown = error(Options::new().with("length", "none"));
    assert_eq!(unknown.code(), Code::INTERNAL);
    assert!(unknown.message().contains("expected a known length"), "{unknown}");
    let call = CallSettings::new(Device::CPU);
    call.cancel.cancel();
    assert_eq!(
        opener.open(&call, "names://a", &Options::new()).map(drop).unwrap_err().code(),
        Code::CANCELLED
    );
}

#[test]
fn panic_of_a_source_stops_its_instance() {
    let instance = instance();
    let opener = instance.opener().unwrap();
    let call = CallSettings::new(Device::CPU);
    let source = opener.open(&call, "names://a", &Options::new().with("panic", "1")).unwrap();
    assert_eq!(source.read_at(0, &mut [0]).unwrap_err().code(), Code::PANICKED);
    assert_eq!(
        opener.open(&call, "names://a", &Options::new()).map(drop).unwrap_err().code(),
        Code::PANICKED
    );
    drop(source);
}

#[test]
fn source_without_a_version_is_accepted() {
    let raw = abi::Source { bytes: 0, ..abi::Source::new() };
    // SAFETY: the source owns nothing.
    let source = unsafe { Source::from_raw(Owned::new(raw)) };
    assert_eq!(source.version(), "");
    let named = Named { name: "a".into(), has_length: true, panics: false, token: Arc::default() };
    let token = named.token.clone();
    drop(Source::new(Arc::new(named)));
    assert_eq!(Arc::strong_count(&token), 1);
}
