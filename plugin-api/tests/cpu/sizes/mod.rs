//! Another release's structs, wherever one crosses between a host and importers, exporters and encodings: longer ones, whose ends stay as
//! they were, and shorter ones, behind whose ends lies what nobody may read.

mod encoded;
mod made;
mod tree;

use std::ffi::{CStr, c_char, c_void};
use std::mem::offset_of;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossdock_plugin_api::told::{Told, list, read};
use crossdock_plugin_api::{
    BatchStream, BatchWriter, Call, Capsule, Code, ColumnPlan, Device, Error, Exporter, Format, Host,
    Importer, Input, Instance, Options, Owned, Plugin, Result, Sink, Verdict, abi, entry, sizes,
};

use made::{Longer, kept, shorter};

/// Reads as many as `shorter` made.
fn read_all<T: Told, U>(memory: &[u64], n: usize, each: impl FnMut(T) -> Result<U>) -> Vec<U> {
    // SAFETY: as `shorter` made them.
    unsafe { list(memory.as_ptr().cast::<T>(), n, 100, "test's structs", each) }.unwrap()
}

#[test]
fn no_struct_of_the_contract_is_shorter_than_its_least() {
    for (name, least, bytes) in sizes::told() {
        assert!(least <= bytes && least >= 8 && least % 4 == 0, "{name}: least {least} of {bytes}");
    }
}

#[test]
fn a_struct_that_is_too_short_is_refused_with_both_sizes() {
    let call = shorter(vec![abi::Call::new()], 16);
    // SAFETY: as many bytes as it says.
    let error = unsafe { read(call.as_ptr().cast::<abi::Call>()) }.err().unwrap();
    assert_eq!(error.code(), Code::VERSION);
    assert_eq!(error.message(), "a crossdock_call of 16 bytes, expected at least 24");
    // SAFETY: null is what it must answer with an error.
    let error = unsafe { read(std::ptr::null::<abi::Call>()) }.err().unwrap();
    assert_eq!((error.code(), error.message()), (Code::INVALID_ARGUMENT, "a crossdock_call is NULL"));
}

#[test]
fn what_a_shorter_struct_lacks_is_zero() {
    let infos = shorter(
        vec![abi::DeviceInfo::new(), abi::DeviceInfo::new()],
        offset_of!(abi::DeviceInfo, memory_bytes),
    );
    let infos = read_all(&infos, 2, |info: abi::DeviceInfo| Ok((info.struct_size, info.memory_bytes)));
    assert_eq!(infos, [(offset_of!(abi::DeviceInfo, memory_bytes), 0); 2]);
}

/// A plugin in no language: an earlier release's tables, formats and plans, as they lie in memory.
mod earlier {
    use super::*;

    static mut FORMATS: *const c_void = std::ptr::null();
    static mut COLUMNS: *const c_void = std::ptr::null();

    unsafe extern "C" fn create(
        host: *const abi::Host,
        out: *mut *mut abi::Instance,
        _err: *mut abi::Error,
    ) -> abi::Code {
        let option = |key| abi::OptionInfo { key: abi::Str::new(key), ..abi::OptionInfo::new() };
        let options =
            shorter(vec![option("mood"), option("tempo")], offset_of!(abi::OptionInfo, description));
        let options = kept(options);
        let format = |name| abi::Format {
            name: abi::Str::new(name),
            flags: abi::FORMAT_BYTES,
            options: options.cast(),
            n_options: 2,
            ..abi::Format::new()
        };
        let whole = size_of::<abi::Format>();
        let cut = offset_of!(abi::Format, device_types);
        let column = |name, to| abi::ColumnPlan {
            name: abi::Str::new(name),
            to,
            reason: abi::Str::new("none is read"),
            ..abi::ColumnPlan::new()
        };
        let columns = vec![column("a", Device::CPU), column("b", Device::cuda(1))];
        let formats = match host.is_null() {
            true => shorter(vec![format("first"), format("second")], whole),
            false => shorter(vec![format("first"), format("second")], cut),
        };
        // SAFETY: written before anything else is asked, by the one test that makes instances.
        unsafe {
            FORMATS = kept(formats);
            COLUMNS = kept(shorter(columns, offset_of!(abi::ColumnPlan, reason)));
            *out = std::ptr::dangling_mut();
        }
        abi::OK
    }

    unsafe extern "C" fn formats(
        _instance: *mut abi::Instance,
        out: *mut *const abi::Format,
        n: *mut usize,
        _err: *mut abi::Error,
    ) -> abi::Code {
        // SAFETY: the caller's out parameters.
        unsafe { (*out, *n) = (FORMATS.cast(), 2) };
        abi::OK
    }

    unsafe extern "C" fn plan(
        _instance: *mut abi::Instance,
        _call: *const abi::Call,
        _format: abi::Str,
        _schema: *const abi::ArrowSchema,
        _from: Device,
        _options: *const abi::OptionPair,
        _n: usize,
        out: *mut abi::Plan,
        _err: *mut abi::Error,
    ) -> abi::Code {
        // SAFETY: the caller's out parameter.
        unsafe { ((*out).columns, (*out).n_columns) = (COLUMNS.cast(), 2) };
        abi::OK
    }

    unsafe extern "C" fn get_interface(_instance: *mut abi::Instance, id: *const c_char) -> *const c_void {
        // SAFETY: ids are NUL-terminated.
        let id = unsafe { CStr::from_ptr(id) };
        let exporter =
            abi::Exporter { struct_size: 0, formats: Some(formats), plan: Some(plan), begin: None };
        if id == abi::EXPORTER_ID {
            // A later release's table, whose functions further on are nobody's here.
            return kept(Longer::new(exporter).into_words());
        }
        let importer = abi::Importer { struct_size: 0, formats: Some(formats), open: None };
        let cut = shorter(vec![importer], 8);
        kept(cut)
    }

    unsafe extern "C" fn destroy(_instance: *mut abi::Instance) {}

    pub static ENTRY: abi::PluginEntry = abi::PluginEntry {
        create: Some(create),
        destroy: Some(destroy),
        get_interface: Some(get_interface),
        ..entry::<Nothing>()
    };
}

struct Nothing;
impl Plugin for Nothing {
    fn create(_host: Host) -> Result<Self> {
        Ok(Nothing)
    }
}

#[test]
fn formats_options_and_plans_of_an_earlier_release_are_read_as_far_as_they_go() {
    let host = abi::Host::new();
    for host in [std::ptr::null(), &raw const host] {
        // SAFETY: the plugin above looks at nothing of its host.
        let instance = unsafe { Instance::create(&earlier::ENTRY, host) }.unwrap();
        let exporter = instance.exporter().unwrap();
        let formats = exporter.formats().unwrap();
        let names: Vec<_> = formats.iter().map(|f| f.name.as_str()).collect();
        assert_eq!(names, ["first", "second"]);
        let keys: Vec<_> =
            formats[1].options.iter().map(|o| (o.key.as_str(), o.description.as_str())).collect();
        // The shorter description has no place for options; the longer one lists options that have no description.
        let expected: &[_] = if host.is_null() { &[("mood", ""), ("tempo", "")] } else { &[] };
        assert_eq!(keys, expected);

        // SAFETY: a released schema.
        let schema = unsafe { Owned::new(abi::ArrowSchema::default()) };
        let call = crossdock_plugin_api::CallSettings::new(Device::CPU);
        let plan = exporter.plan(&call, "first", &schema, Device::CPU, &Options::new()).unwrap();
        let plan: Vec<_> = plan.iter().map(|c| (c.name.as_str(), c.to, c.reason.as_str())).collect();
        assert_eq!(plan, [("a", Device::CPU, ""), ("b", Device::cuda(1), "")]);
        assert!(instance.importer().is_none(), "a table without a single function is none");
    }
}

/// A plugin of today: takes what it is given, gives what it can.
struct Today {
    formats: Vec<Format>,
    host: Host,
}

impl Plugin for Today {
    fn create(host: Host) -> Result<Self> {
        host.log(abi::LOG_INFO, "hello");
        // SAFETY: `abi::Memory` is what the header defines for this id.
        let (at, memory) = unsafe { host.interface::<abi::Memory>(abi::HOST_MEMORY_ID) }.unwrap();
        // The copy is as long as ours; the host's own, which its functions are given, is as long as the host's.
        assert_eq!((memory.private_data, memory.struct_size), (MARK, size_of::<abi::Memory>()));
        // SAFETY: the host's own object, which lives for ever.
        assert_eq!(unsafe { at.cast::<usize>().read() }, size_of::<Longer<abi::Memory>>());
        Ok(Self { formats: vec![Format::new("today", "anything")], host })
    }
    fn importer(&self) -> Option<&dyn Importer> {
        Some(self)
    }
    fn exporter(&self) -> Option<&dyn Exporter> {
        Some(self)
    }
}

impl Importer for Today {
    fn formats(&self) -> &[Format] {
        &self.formats
    }
    fn open(
        &self,
        call: &Call<'_>,
        _format: &str,
        input: Input,
        _schema: Option<&abi::ArrowSchema>,
        _options: &Options,
    ) -> Result<Box<dyn BatchStream>> {
        assert_eq!((call.device(), call.byte_budget()), (Device::CPU, 0));
        assert_eq!(self.host.session().map(|s| (s.device, s.memory_limit_bytes)), Some((Device::cuda(7), 0)));
        match input {
            Input::Capsules(capsules) if capsules.len() == 2 => Ok(Box::new(Batches(1))),
            Input::Capsules(capsules) => Err(Error::bad_data(format!("{} capsules", capsules.len()))),
            Input::Source(_) => Err(Error::bad_data("a source")),
        }
    }
}

struct Batches(u32);
impl BatchStream for Batches {
    fn schema(&mut self) -> Result<Owned<abi::ArrowSchema>> {
        Err(Error::unsupported("no schema today").with_details("but words"))
    }
    fn next(&mut self, _call: &Call<'_>) -> Result<Option<Owned<abi::Batch>>> {
        unsafe extern "C" fn release(array: *mut abi::ArrowArray) {
            // SAFETY: the array that is released.
            unsafe { (*array).release = None };
        }
        self.0 -= 1;
        let mut batch = abi::Batch { n_buffer_sizes: 17, ..abi::Batch::new() };
        batch.array.array.release = Some(release);
        // SAFETY: made above.
        Ok(Some(unsafe { Owned::new(batch) }))
    }
}

impl Exporter for Today {
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
        Ok(vec![ColumnPlan { name: "a".into(), verdict: Verdict::Copied, to: from, reason: "so".into() }])
    }
    fn begin(
        &self,
        _call: &Call<'_>,
        _format: &str,
        _schema: &abi::ArrowSchema,
        _options: &Options,
        sink: Option<Sink>,
    ) -> Result<Box<dyn BatchWriter>> {
        Ok(Box::new(Writes(sink)))
    }
}

struct Writes(Option<Sink>);
impl BatchWriter for Writes {
    fn write(&mut self, _call: &Call<'_>, batch: Owned<abi::Batch>) -> Result<Vec<Capsule>> {
        assert!(!batch.is_released() && self.0.is_some());
        // SAFETY: a released schema.
        Ok(vec![Capsule::new(unsafe { Owned::new(abi::ArrowSchema::default()) })])
    }
    fn finish(&mut self, _call: &Call<'_>) -> Result<Vec<Capsule>> {
        Ok(Vec::new())
    }
}

static TODAY: abi::PluginEntry = entry::<Today>();

unsafe extern "C" fn count(_host: *const abi::Host) {}

static HEARD: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn hear(_log: *const abi::HostLog, _level: i32, message: abi::Str) {
    HEARD.fetch_add(message.bytes, Ordering::SeqCst);
}

const MARK: *mut c_void = std::ptr::dangling_mut::<u64>().cast();

unsafe extern "C" fn offers(_host: *const abi::Host, id: *const c_char) -> *const c_void {
    // SAFETY: ids are NUL-terminated.
    let id = unsafe { CStr::from_ptr(id) };
    if id == abi::HOST_MEMORY_ID {
        let memory = abi::Memory { private_data: MARK, ..abi::Memory::new() };
        return kept(Longer::new(memory).into_words());
    }
    if id == abi::HOST_LOG_ID {
        let log = abi::HostLog { write: Some(hear), ..abi::HostLog::new() };
        return kept(shorter(vec![log], offset_of!(abi::HostLog, private_data)));
    }
    let session = abi::HostSession { device: Device::cuda(7), memory_limit: 99, ..abi::HostSession::new() };
    kept(shorter(vec![session], offset_of!(abi::HostSession, memory_limit)))
}

fn host() -> abi::Host {
    abi::Host {
        abi_major: abi::ABI_MAJOR,
        abi_minor: abi::ABI_MINOR,
        retain: Some(count),
        release: Some(count),
        get_interface: Some(offers),
        ..abi::Host::new()
    }
}

fn made(host: *const abi::Host) -> Result<*mut abi::Instance> {
    let mut instance = null_mut();
    // SAFETY: `host` says how long it is.
    Error::check(|err| unsafe { TODAY.create.unwrap()(host, &mut instance, err) }).map(|()| instance)
}

fn interface<T>(entry: &abi::PluginEntry, instance: *mut abi::Instance, id: &CStr) -> &'static T {
    // SAFETY: the plugin's tables are constants of this type.
    unsafe { &*entry.get_interface.unwrap()(instance, id.as_ptr()).cast() }
}

fn released<T: Default>() -> T {
    T::default()
}

#[test]
fn a_plugin_of_today_reads_and_writes_for_a_host_whose_every_struct_has_grown() {
    let mut host = Longer::new(host());
    let instance = made(host.at()).unwrap();
    let importer: &abi::Importer = interface(&TODAY, instance, abi::IMPORTER_ID);
    let exporter: &abi::Exporter = interface(&TODAY, instance, abi::EXPORTER_ID);
    let mut call = Longer::new(abi::Call { device: Device::CPU, ..abi::Call::new() });
    let (name, mut err) = (abi::Str::new("today"), Longer::new(abi::Error::new()));

    // Two capsules, further apart than the plugin knows, in a list and an input that have grown too.
    let mut capsules = [abi::Capsule::new(), abi::Capsule::new()].map(Longer::new);
    let mut input = Longer::new(abi::Input::new());
    let mut list = Longer::new(abi::Capsules::new());
    list.ours.capsules = capsules[0].at();
    list.ours.n_capsules = 2;
    unsafe extern "C" fn release_list(list: *mut abi::Capsules) {
        // SAFETY: the list that is released.
        unsafe { (*list).release = None };
    }
    list.ours.release = Some(release_list);
    input.ours.capsules = list.at();
    let mut stream = Longer::new(abi::BatchStream::new());
    // SAFETY: the plugin's own functions; every struct is as long as it says, here and below.
    unsafe {
        let open = importer.open.unwrap();
        let at = input.at();
        let code =
            open(instance, call.at(), name, at, std::ptr::null(), std::ptr::null(), 0, stream.at(), err.at());
        assert_eq!(code, abi::OK, "{:?}", CStr::from_ptr(err.ours.message));
        assert!(list.ours.release.is_none(), "what was given was taken");
        list.assert_its_end_is_untouched();
        input.assert_its_end_is_untouched();
        stream.assert_its_end_is_untouched();

        let mut batch = Longer::new(abi::Batch::new());
        assert_eq!(stream.ours.get_next.unwrap()(stream.at(), call.at(), batch.at(), err.at()), abi::OK);
        batch.assert_its_end_is_untouched();
        assert_eq!(batch.ours.n_buffer_sizes, 17);
        let code = stream.ours.get_schema.unwrap()(stream.at(), &mut released(), err.at());
        err.assert_its_end_is_untouched();
        assert_eq!((code, CStr::from_ptr(err.ours.details)), (abi::UNSUPPORTED, c"but words"));
        err.ours.release.unwrap()(err.at());
        stream.ours.release.unwrap()(stream.at());
        stream.assert_its_end_is_untouched();

        let mut plan = Longer::new(abi::Plan::new());
        let ask = exporter.plan.unwrap();
        let schema = released();
        let none = std::ptr::null();
        let code = ask(instance, call.at(), name, &schema, Device::CPU, none, 0, plan.at(), err.at());
        assert_eq!((code, plan.ours.n_columns), (abi::OK, 1));
        plan.assert_its_end_is_untouched();
        plan.ours.release.unwrap()(plan.at());

        unsafe extern "C" fn release_sink(sink: *mut abi::Sink) {
            // SAFETY: the sink that is released.
            unsafe { (*sink).release = None };
        }
        let mut sink = Longer::new(abi::Sink { release: Some(release_sink), ..abi::Sink::new() });
        let mut writer = Longer::new(abi::Writer::new());
        let begin = exporter.begin.unwrap();
        let code = begin(instance, call.at(), name, &schema, none, 0, sink.at(), writer.at(), err.at());
        assert_eq!(code, abi::OK);
        assert!(sink.ours.release.is_none());
        sink.assert_its_end_is_untouched();
        writer.assert_its_end_is_untouched();

        let mut out = Longer::new(abi::Capsules::new());
        let write = writer.ours.write.unwrap();
        assert_eq!(write(writer.at(), call.at(), batch.at(), out.at(), err.at()), abi::OK);
        assert!(batch.ours.array.array.release.is_none());
        batch.assert_its_end_is_untouched();
        out.assert_its_end_is_untouched();
        assert_eq!(out.ours.n_capsules, 1);
        out.ours.release.unwrap()(out.at());
        writer.ours.release.unwrap()(writer.at());
        TODAY.destroy.unwrap()(instance);
    }
    assert!(HEARD.load(Ordering::SeqCst) >= "hello".len());
    call.assert_its_end_is_untouched();
    host.assert_its_end_is_untouched();
    capsules.iter().for_each(Longer::assert_its_end_is_untouched);
}

#[test]
fn a_plugin_of_today_works_with_a_host_that_lacks_the_ends_of_its_structs() {
    let host = shorter(vec![host()], offset_of!(abi::Host, private_data));
    let instance = made(host.as_ptr().cast()).unwrap();
    let importer: &abi::Importer = interface(&TODAY, instance, abi::IMPORTER_ID);
    let call = abi::Call { device: Device::CPU, ..abi::Call::new() };
    let call = shorter(vec![call], offset_of!(abi::Call, stream));
    let mut stream = abi::BatchStream::new();
    let mut list = abi::Capsules::new();
    let input = abi::Input { capsules: &mut list, ..abi::Input::new() };
    // SAFETY: the plugin's own functions; every struct is as long as it says.
    let error = Error::check(|err| unsafe {
        let (open, none) = (importer.open.unwrap(), std::ptr::null());
        let name = abi::Str::new("today");
        open(instance, call.as_ptr().cast(), name, &input, none, std::ptr::null(), 0, &mut stream, err)
    });
    // It saw the device, no budget (garbage lies there), and a session without a limit.
    assert_eq!(error.unwrap_err().message(), "0 capsules");
    // SAFETY: made above, destroyed once.
    unsafe { TODAY.destroy.unwrap()(instance) };
}

#[test]
fn a_plugin_of_today_refuses_a_host_of_another_minor() {
    let other = abi::Host { abi_minor: abi::ABI_MINOR + 1, ..host() };
    let error = made(&raw const other).unwrap_err();
    assert_eq!(error.code(), Code::VERSION);
    assert_eq!(
        error.message(),
        "the host speaks ABI 1.1, expected 1.0: get the plugin's build for this host"
    );
}
