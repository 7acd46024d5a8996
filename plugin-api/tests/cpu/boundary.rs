//! Calls a statically linked plugin through the C structs.

use std::ffi::CStr;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crossdock_plugin_api::{
    BatchStream, BatchWriter, ByteSink, ByteSource, Call, CallSettings, Capsule, Code, ColumnPlan, Device,
    Error, Exporter, Format, Host, Importer, Input, Instance, Options, Owned, Plugin, ReadRequest, Result,
    Sink, Source, Verdict, abi, entry,
};

use crate::common::batch;

/// A host that counts its references and has no interfaces.
#[repr(C)]
pub struct CountingHost {
    table: abi::Host,
    references: AtomicUsize,
}

impl CountingHost {
    pub fn raw(&self) -> *const abi::Host {
        &raw const self.table
    }
}

pub fn counting_host() -> Box<CountingHost> {
    unsafe extern "C" fn retain(host: *const abi::Host) {
        // SAFETY: the table is the first field of a `CountingHost`, which outlives the plugin.
        unsafe { &*host.cast::<CountingHost>() }.references.fetch_add(1, Ordering::SeqCst);
    }
    unsafe extern "C" fn release(host: *const abi::Host) {
        // SAFETY: the table is the first field of a `CountingHost`, which outlives the plugin.
        unsafe { &*host.cast::<CountingHost>() }.references.fetch_sub(1, Ordering::SeqCst);
    }
    unsafe extern "C" fn none(_: *const abi::Host, _: *const std::ffi::c_char) -> *const std::ffi::c_void {
        std::ptr::null()
    }
    let table = abi::Host {
        abi_major: abi::ABI_MAJOR,
        abi_minor: abi::ABI_MINOR,
        retain: Some(retain),
        release: Some(release),
        get_interface: Some(none),
        ..abi::Host::new()
    };
    Box::new(CountingHost { table, references: AtomicUsize::new(1) })
}

/// A plugin that returns an error or panics, depending on its option 'mood'.
struct Moody {
    formats: Vec<Format>,
    _host: Host,
}

impl Plugin for Moody {
    fn create(host: Host) -> Result<Self> {
        let format = Format::new("moody", "panics, fails or works");
        let mut format = format.with_option("mood", "good or bad").with_option("tempo", "allegro");
        format.magics.push((4, b"MOOD".to_vec()));
        format.extensions.push(".moody".into());
        format.capsules.push("arrow_schema".into());
        format.bytes = true;
        format.device_types.push(abi::DEVICE_CPU);
        Ok(Moody { formats: vec![format], _host: host })
    }
    fn importer(&self) -> Option<&dyn Importer> {
        Some(self)
    }
    fn exporter(&self) -> Option<&dyn Exporter> {
        Some(self)
    }
}

impl Importer for Moody {
    fn formats(&self) -> &[Format] {
        &self.formats
    }
    fn open(
        &self,
        _call: &Call<'_>,
        _input: Input,
        request: &ReadRequest<'_>,
    ) -> Result<Box<dyn BatchStream>> {
        let options = request.options;
        match options.get("mood").unwrap_or_default() {
            "panic" => panic!("the mood is bad"),
            "payload" => std::panic::panic_any(PanicsOnDrop),
            "fail" => {
                let error = Error::bad_data("expected a good mood, got a bad one");
                Err(error.with_details("since breakfast").with_retry().with_offset(1 << 40).with_row(0))
            }
            "option" => Err(Error::unsupported(options.get("tempo").unwrap_or("none").to_string())),
            _ => Ok(Box::new(Bad)),
        }
    }
}

struct PanicsOnDrop;
impl Drop for PanicsOnDrop {
    fn drop(&mut self) {
        panic!("and again while dropped");
    }
}

/// A stream that panics when it is read and when it is dropped. `DROPPED` counts the drops.
struct Bad;
static DROPPED: AtomicUsize = AtomicUsize::new(0);
impl BatchStream for Bad {
    fn schema(&mut self) -> Result<Owned<abi::ArrowSchema>> {
        panic!("no schema today")
    }
    fn next(&mut self, _call: &Call<'_>) -> Result<Option<Owned<abi::Batch>>> {
        Ok(None)
    }
}
impl Drop for Bad {
    fn drop(&mut self) {
        DROPPED.fetch_add(1, Ordering::SeqCst);
        panic!("not even going quietly");
    }
}

/// A writer that ignores the batches that it receives.
struct Discard(Option<Sink>);
impl BatchWriter for Discard {
    fn write(&mut self, _call: &Call<'_>, batch: Owned<abi::Batch>) -> Result<Vec<Capsule>> {
        assert!(!batch.is_released());
        Ok(Vec::new())
    }
    fn finish(&mut self, _call: &Call<'_>) -> Result<Vec<Capsule>> {
        if let Some(sink) = &mut self.0 {
            sink.write(b"the end")?;
        }
        Ok(Vec::new())
    }
}

impl Exporter for Moody {
    fn formats(&self) -> &[Format] {
        &self.formats
    }
    fn plan(
        &self,
        _call: &Call<'_>,
        _format: &str,
        _schema: &abi::ArrowSchema,
        from: Device,
        _options: &Options,
    ) -> Result<Vec<ColumnPlan>> {
        let plan = |verdict| ColumnPlan { name: "a".into(), verdict, to: from, reason: "as it is".into() };
        Ok(vec![
            plan(Verdict::ZeroCopy),
            plan(Verdict::Converted),
            plan(Verdict::Copied),
            plan(Verdict::Unsupported),
        ])
    }
    fn begin(
        &self,
        _call: &Call<'_>,
        _format: &str,
        _schema: &abi::ArrowSchema,
        _options: &Options,
        sink: Option<Sink>,
    ) -> Result<Box<dyn BatchWriter>> {
        Ok(Box::new(Discard(sink)))
    }
}

static ENTRY: abi::PluginEntry = entry::<Moody>();

fn instance(host: &CountingHost) -> Instance {
    // SAFETY: the entry is statically linked, and every test drops its instance before its host.
    unsafe { Instance::create(&ENTRY, &raw const host.table) }.unwrap()
}

fn open(instance: &Instance, mood: &str) -> Result<crossdock_plugin_api::BatchStreamHandle> {
    open_as(instance, "moody", &Options::new().with("mood", mood).with("tempo", "sunny"))
}

fn open_as(
    instance: &Instance,
    format: &str,
    options: &Options,
) -> Result<crossdock_plugin_api::BatchStreamHandle> {
    let call = CallSettings::new(Device::CPU);
    instance.importer().unwrap().open(
        &call,
        Input::Capsules(vec![].into()),
        &ReadRequest::new(format).with_options(options),
    )
}

#[test]
fn errors_keep_code_message_details_and_position() {
    let host = counting_host();
    let instance = instance(&host);
    let error = open(&instance, "fail").err().unwrap();
    assert_eq!(error.code(), Code::BAD_DATA);
    assert_eq!(error.message(), "expected a good mood, got a bad one");
    assert_eq!(error.details(), Some("since breakfast"));
    assert_eq!((error.may_retry(), error.offset(), error.row()), (true, Some(1 << 40), Some(0)));
    let error = open(&instance, "option").err().unwrap();
    assert_eq!(error.message(), "sunny");
    assert_eq!((error.may_retry(), error.offset(), error.row()), (false, None, None));
}

#[test]
fn errors_of_callees_that_set_no_flags_have_no_position() {
    let error = Error::check(|err| {
        // SAFETY: `check` passes a valid error struct.
        unsafe { ((*err).flags, (*err).offset, (*err).row) = (1 << 31, 5, 6) };
        abi::IO
    });
    let error = error.unwrap_err();
    assert_eq!((error.may_retry(), error.offset(), error.row()), (false, None, None));
    assert_eq!(error, Error::io("input/output error, without a message"), "unknown flags are ignored");
}

#[test]
fn outer_errors_take_over_what_they_do_not_state() {
    let cause = Error::io("a").with_offset(5).with_row(6).with_retry();
    let outer = Error::bad_data("b").with_position_of(&cause);
    assert_eq!((outer.may_retry(), outer.offset(), outer.row()), (true, Some(5), Some(6)));
    let outer = Error::bad_data("b").with_offset(1).with_row(2).with_position_of(&cause);
    assert_eq!((outer.offset(), outer.row()), (Some(1), Some(2)));
    let inner = Error::bad_data("c").at_byte(7).at_byte(3);
    assert_eq!((inner.message(), inner.offset()), ("at byte 3: at byte 7: c", Some(7)));
}

#[test]
fn calls_with_unknown_settings_are_rejected() {
    let read = |call: abi::Call| {
        // SAFETY: the call is complete, and the result does not outlive it.
        unsafe { crossdock_plugin_api::Call::read(&call) }.map(drop)
    };
    let call = CallSettings::new(Device::CPU).raw();
    assert_eq!(read(call), Ok(()));
    assert_eq!(read(abi::Call { validate: abi::VALIDATE_FULL, ..call }), Ok(()));
    let error = read(abi::Call { reserved: 3, ..call }).unwrap_err();
    assert_eq!(error, Error::invalid_argument("the call: a reserved field is 0x3, expected 0"));
    let error = read(abi::Call { validate: 2, ..call }).unwrap_err();
    assert_eq!(error, Error::unsupported("the call's 'validate' is 2, expected 0 or 1"));
}

#[test]
fn rejects_unknown_formats_and_options_without_calling_the_plugin() {
    let host = counting_host();
    let instance = instance(&host);
    let message = |format: &str, options: &Options| {
        let error = open_as(&instance, format, options).err().unwrap();
        assert_eq!(error.code(), Code::INVALID_ARGUMENT);
        error.message().to_string()
    };
    let panics = Options::new().with("mood", "panic");
    assert_eq!(message("mood", &panics), "unknown format 'mood', expected moody");
    let misspelt = message("moody", &panics.with("temp", "allegro"));
    assert!(misspelt.contains("no option 'temp'") && misspelt.contains("mood, tempo"), "{misspelt}");
    let (call, schema) = (CallSettings::new(Device::CPU), Owned::<abi::ArrowSchema>::from_default());
    let exporter = instance.exporter().unwrap();
    let wrong = Options::new().with("temp", "allegro");
    assert!(exporter.plan(&call, "moody", &schema, Device::CPU, &wrong).is_err());
    assert!(exporter.begin(&call, "moody", &schema, &wrong, None).is_err());
}

#[test]
fn panic_stops_only_its_own_instance() {
    let host = counting_host();
    let (one, other) = (instance(&host), instance(&host));
    let first = open(&one, "panic").err().unwrap();
    assert_eq!(first.code(), Code::PANICKED);
    assert!(first.message().contains("the mood is bad"), "{first}");
    let later = open(&one, "fail").err().unwrap();
    assert_eq!(later.code(), Code::PANICKED);
    assert!(later.message().contains("panicked earlier: the mood is bad"), "{later}");
    assert_eq!(open(&other, "fail").err().unwrap().code(), Code::BAD_DATA);
}

#[test]
fn payload_that_panics_when_dropped_does_not_unwind() {
    let host = counting_host();
    let one = instance(&host);
    assert_eq!(open(&one, "payload").err().unwrap().code(), Code::PANICKED);
}

#[test]
fn release_functions_run_after_a_panic_and_do_not_unwind() {
    let host = counting_host();
    let one = instance(&host);
    let before = DROPPED.load(Ordering::SeqCst);
    let mut stream = open(&one, "works").unwrap();
    assert_eq!(stream.schema().err().unwrap().code(), Code::PANICKED);
    let call = CallSettings::new(Device::CPU);
    assert_eq!(stream.next(&call).err().unwrap().code(), Code::PANICKED);
    drop(stream);
    assert_eq!(DROPPED.load(Ordering::SeqCst), before + 1);
}

#[test]
fn destroy_releases_the_host() {
    let host = counting_host();
    let one = instance(&host);
    assert_eq!(host.references.load(Ordering::SeqCst), 2);
    drop(one);
    assert_eq!(host.references.load(Ordering::SeqCst), 1);
}

#[test]
fn host_receives_all_fields_of_the_plugins_formats() {
    let host = counting_host();
    let instance = instance(&host);
    let formats = instance.importer().unwrap().formats().unwrap();
    assert_eq!(formats.len(), 1);
    assert_eq!(formats[0].magics, vec![(4, b"MOOD".to_vec())]);
    assert!(formats[0].matches(b"....MOOD") && !formats[0].matches(b"...MOOD") && !formats[0].matches(b""));
    assert_eq!((formats[0].extensions.as_slice(), formats[0].bytes), (&[".moody".to_string()][..], true));
    let keys: Vec<_> = formats[0].options.iter().map(|o| (o.key.as_str(), o.description.as_str())).collect();
    assert_eq!(keys, [("mood", "good or bad"), ("tempo", "allegro")]);
    assert!(formats[0].accepts_device(abi::DEVICE_CPU) && !formats[0].accepts_device(abi::DEVICE_CUDA));
}

#[test]
fn host_receives_all_verdicts_of_the_plugins_plan() {
    let host = counting_host();
    let instance = instance(&host);
    let call = CallSettings::new(Device::CPU);
    let plan = instance
        .exporter()
        .unwrap()
        .plan(&call, "moody", &Owned::<abi::ArrowSchema>::from_default(), Device::cuda(3), &Options::new())
        .unwrap();
    let verdicts: Vec<_> = plan.iter().map(|c| c.verdict).collect();
    assert_eq!(verdicts, [Verdict::ZeroCopy, Verdict::Converted, Verdict::Copied, Verdict::Unsupported]);
    assert_eq!(
        (plan[0].name.as_str(), plan[0].to, plan[0].reason.as_str()),
        ("a", Device::cuda(3), "as it is")
    );
}

#[test]
fn rejects_null_arguments() {
    let host = counting_host();
    let instance = instance(&host);
    let create = ENTRY.create.unwrap();
    // SAFETY: the calls pass null or valid pointers, and the functions must reject null pointers.
    unsafe {
        let mut out = std::ptr::null_mut();
        assert_eq!(create(std::ptr::null(), &mut out, std::ptr::null_mut()), abi::INVALID_ARGUMENT);
        assert_eq!(
            create(&raw const host.table, std::ptr::null_mut(), std::ptr::null_mut()),
            abi::INVALID_ARGUMENT
        );
        let get = ENTRY.get_interface.unwrap();
        assert!(get(std::ptr::null_mut(), abi::IMPORTER_ID.as_ptr()).is_null());
    }
    drop(instance);
    assert_eq!(host.references.load(Ordering::SeqCst), 1, "a failed create keeps no reference");
}

#[test]
fn unknown_interfaces_are_null() {
    let host = counting_host();
    let mut raw = std::ptr::null_mut();
    // SAFETY: the host outlives the instance, which is destroyed at the end of this block and not
    // used afterwards.
    unsafe {
        assert_eq!(ENTRY.create.unwrap()(&raw const host.table, &mut raw, std::ptr::null_mut()), abi::OK);
        let get = ENTRY.get_interface.unwrap();
        assert!(get(raw, c"crossdock.importer/2".as_ptr()).is_null());
        assert!(!get(raw, abi::IMPORTER_ID.as_ptr()).is_null());
        ENTRY.destroy.unwrap()(raw);
    }
}

struct Bytes(Vec<u8>, Arc<AtomicUsize>);
impl ByteSource for Bytes {
    fn name(&self) -> &str {
        "some bytes"
    }
    fn len(&self) -> Option<u64> {
        Some(self.0.len() as u64)
    }
    fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<usize> {
        let rest = self.0.get(offset as usize..).unwrap_or_default();
        let n = rest.len().min(to.len());
        to[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }
    fn map(&self) -> Option<&[u8]> {
        Some(&self.0)
    }
}
impl Drop for Bytes {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn source_rejects_reads_beyond_its_end_and_its_mapping_outlives_it() {
    let dropped = Arc::new(AtomicUsize::new(0));
    let source = Source::new(Arc::new(Bytes(b"cross the dock".to_vec(), dropped.clone())));
    assert_eq!((source.name(), source.len()), ("some bytes", Some(14)));
    let mut four = [0; 4];
    source.read_exact_at(10, &mut four).unwrap();
    assert_eq!(&four, b"dock");
    let error = source.read_exact_at(12, &mut four).unwrap_err();
    assert_eq!(error.message(), "'some bytes' is truncated: expected 4 bytes at offset 12, got 2");
    let map = source.map().unwrap();
    let other = map.clone();
    drop(source);
    drop(map);
    assert_eq!(other.bytes(), b"cross the dock");
    assert_eq!(dropped.load(Ordering::SeqCst), 0);
    drop(other);
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
}

struct Shared(Arc<Mutex<Vec<u8>>>);
impl ByteSink for Shared {
    fn name(&self) -> &str {
        "a shared vector"
    }
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        if bytes == b"too much" { Err(Error::io("no space left")) } else { Ok(()) }
    }
}

#[test]
fn writer_takes_ownership_of_sink_and_batches() {
    let host = counting_host();
    let instance = instance(&host);
    let written = Arc::new(Mutex::new(Vec::new()));
    let call = CallSettings::new(Device::CPU);
    let sink = Sink::new(Box::new(Shared(written.clone())));
    let mut writer = instance
        .exporter()
        .unwrap()
        .begin(&call, "moody", &Owned::<abi::ArrowSchema>::from_default(), &Options::new(), Some(sink))
        .unwrap();
    let released = Arc::new(AtomicUsize::new(0));
    writer.write(&call, batch(&released)).unwrap();
    assert_eq!(released.load(Ordering::SeqCst), 1);
    writer.finish(&call).unwrap();
    assert_eq!(*written.lock().unwrap(), b"the end");
    assert_eq!(Arc::strong_count(&written), 1, "the sink was released with its writer");
}

#[test]
fn caller_receives_the_error_of_a_sink() {
    let mut sink = Sink::new(Box::new(Shared(Arc::default())));
    let error = sink.write(b"too much").unwrap_err();
    assert_eq!((error.code(), error.message()), (Code::IO, "no space left"));
}

#[test]
fn capsule_releases_object_that_was_not_taken() {
    let released = Arc::new(AtomicUsize::new(0));
    let array = || {
        let mut raw = batch(&released).into_raw();
        // SAFETY: this function owns the batch and moves the array out.
        unsafe { Owned::<abi::ArrowDeviceArray>::take(&mut raw.array) }
    };
    drop(Capsule::new(array()));
    assert_eq!(released.load(Ordering::SeqCst), 1);
    let capsule = Capsule::new(array());
    assert_eq!(capsule.name(), c"arrow_device_array");
    let taken = capsule.take::<abi::ArrowDeviceArray>().unwrap();
    assert_eq!(released.load(Ordering::SeqCst), 1);
    drop(taken);
    assert_eq!(released.load(Ordering::SeqCst), 2);
    let error = Capsule::new(array()).take::<abi::ArrowSchema>().err().unwrap();
    assert_eq!(error.message(), "a capsule named 'arrow_device_array', expected 'arrow_schema'");
    assert_eq!(released.load(Ordering::SeqCst), 3);
    let empty = Capsule::new(Owned::<abi::ArrowSchema>::from_default());
    assert!(empty.take::<abi::ArrowSchema>().err().unwrap().message().contains("consumed already"));
}

trait FromDefault {
    fn from_default() -> Self;
}
impl FromDefault for Owned<abi::ArrowSchema> {
    fn from_default() -> Self {
        // SAFETY: a released schema owns nothing, so it may have any owner.
        unsafe { Owned::new(abi::ArrowSchema::default()) }
    }
}

#[test]
fn capsule_calls_deleter_of_object_that_was_not_taken() {
    static FREED: AtomicUsize = AtomicUsize::new(0);
    unsafe fn free(object: NonNull<u64>) {
        // SAFETY: the closure `capsule` leaked this box, and either the capsule or the test frees
        // it once.
        FREED.fetch_add(unsafe { *Box::from_raw(object.as_ptr()) } as usize, Ordering::SeqCst);
    }
    // SAFETY: the capsule takes ownership of the box, which `free` drops.
    let capsule = || unsafe {
        Capsule::from_self_freeing(c"dltensor", NonNull::new(Box::into_raw(Box::new(1u64))).unwrap(), free)
    };
    drop(capsule());
    assert_eq!(FREED.load(Ordering::SeqCst), 1);
    let error = capsule().take_self_freeing(c"dltensor_versioned").unwrap_err();
    assert_eq!(error.message(), "a capsule named 'dltensor', expected 'dltensor_versioned'");
    assert_eq!(FREED.load(Ordering::SeqCst), 2, "a capsule with another name frees its object");
    let object = capsule().take_self_freeing(c"dltensor").unwrap();
    assert_eq!(FREED.load(Ordering::SeqCst), 2, "taking the object does not free it");
    // SAFETY: `take_self_freeing` passed the ownership of the box, and this is the only call that
    // frees it.
    unsafe { free(object.cast()) };
    // A consumer in C takes the object out of the capsule, and passes the empty capsule on.
    let mut raw = capsule().into_raw();
    // SAFETY: this function owns the capsule, whose field `pointer` points to a leaked `Box<u64>`.
    unsafe { free(NonNull::new((*raw.as_mut_ptr()).pointer.cast()).unwrap()) };
    // SAFETY: this function owns the capsule.
    unsafe { (*raw.as_mut_ptr()).pointer = std::ptr::null_mut() };
    // SAFETY: `raw` is a valid capsule, and no `CapsuleObject` has its name.
    let error = unsafe { Capsule::from_raw(raw) }.take_self_freeing(c"dltensor").unwrap_err();
    assert_eq!(error.message(), "the capsule 'dltensor' has been consumed already");
    assert_eq!(FREED.load(Ordering::SeqCst), 4);
}

#[test]
fn write_to_returns_code_if_pointer_is_null() {
    // SAFETY: `write_to` accepts null.
    assert_eq!(unsafe { Error::io("x").write_to(std::ptr::null_mut()) }, abi::IO);
    let mut small = abi::Error { struct_size: 8, ..abi::Error::default() };
    // SAFETY: the struct has at least `struct_size` bytes.
    assert_eq!(unsafe { Error::io("x").write_to(&mut small) }, abi::IO);
    assert!(small.message.is_null());
    assert_eq!(Error::check(|_| 4711).unwrap_err().code().text(), "error code 4711");
}

#[test]
fn nuls_are_removed_from_messages() {
    let error = Error::check(|err| {
        // SAFETY: `check` passes a valid error struct.
        unsafe { Error::io("a\0b").write_to(err) }
    })
    .unwrap_err();
    assert_eq!(error.message(), "ab");
}

#[test]
fn metadata_texts_end_at_first_nul() {
    let meta = crossdock_plugin_api::PluginDescription {
        name: "n",
        version: "1.2.3",
        description: "d",
        licence: "CC0-1.0",
        interfaces: "crossdock.importer/1",
        formats: "",
        encodings: "",
        requires: "crossdock.host.log/1",
        api_range: "^0.3.7",
    }
    .meta();
    let read = |field: &[u8]| CStr::from_bytes_until_nul(field).unwrap().to_str().unwrap().to_string();
    assert_eq!((read(&meta.name), read(&meta.version)), ("n".to_string(), "1.2.3".to_string()));
    assert!(read(&meta.toolchain).starts_with("rustc "));
    assert_eq!(read(&meta.required), "crossdock.host.log/1");
    assert_eq!(read(&meta.api_range), "^0.3.7");
    assert!(
        crossdock_plugin_api::read_text(&[b'x'; 4], "name")
            .unwrap_err()
            .message()
            .contains("not NUL-terminated")
    );
}

#[test]
fn check_releases_the_error_struct_even_if_the_callee_succeeds() {
    static RELEASED: AtomicUsize = AtomicUsize::new(0);
    unsafe extern "C" fn release(error: *mut abi::Error) {
        // SAFETY: the caller passes the struct that is to be released.
        unsafe { (*error).release = None };
        RELEASED.fetch_add(1, Ordering::SeqCst);
    }
    let result = Error::check(|err| {
        // SAFETY: `check` passes a valid error struct.
        unsafe { (*err).release = Some(release) };
        abi::OK
    });
    assert!(result.is_ok());
    assert_eq!(RELEASED.load(Ordering::SeqCst), 1);
}
