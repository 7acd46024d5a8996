//! Tests the host and plugins with structs of other versions. The additional fields of longer
//! structs must not be written, and the memory after shorter structs must not be read.

mod encoded;
mod other_versions;
mod tree;

use std::ffi::{CStr, c_char, c_void};
use std::mem::offset_of;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossdock_plugin_api::sized_struct::{SizedStruct, read, read_list};
use crossdock_plugin_api::{
    BatchStream, BatchWriter, Call, Capsule, Code, ColumnPlan, Device, Error, Exporter, Format, Host,
    Importer, Input, Instance, Options, Owned, Plugin, ReadRequest, Result, Sink, Verdict, abi, entry, sizes,
};

use other_versions::{Longer, keep, shorter};

/// Reads the `n` structs of a list that `shorter` created.
fn read_all<T: SizedStruct, U>(memory: &[u64], n: usize, each: impl FnMut(T) -> Result<U>) -> Vec<U> {
    // SAFETY: `shorter` created a list of `n` structs.
    unsafe { read_list(memory.as_ptr().cast::<T>(), n, 100, "test's structs", each) }.unwrap()
}

#[test]
fn minimum_sizes_do_not_exceed_sizes() {
    for (name, min_bytes, bytes) in sizes::sized_structs() {
        assert!(min_bytes <= bytes && min_bytes >= 8 && min_bytes % 4 == 0, "{name}: {min_bytes} of {bytes}");
    }
}

#[test]
fn rejects_structs_that_are_too_short() {
    let call = shorter(vec![abi::Call::new()], 16);
    // SAFETY: `shorter` returns a struct of `struct_size` bytes.
    let error = unsafe { read(call.as_ptr().cast::<abi::Call>()) }.err().unwrap();
    assert_eq!(error.code(), Code::VERSION);
    assert_eq!(error.message(), "a crossdock_call has a struct_size of 16 bytes, expected at least 24");
    // SAFETY: `read` accepts null and must return an error for it.
    let error = unsafe { read(std::ptr::null::<abi::Call>()) }.err().unwrap();
    assert_eq!((error.code(), error.message()), (Code::INVALID_ARGUMENT, "a crossdock_call is NULL"));
}

#[test]
fn missing_fields_of_shorter_structs_are_zero() {
    let infos = shorter(
        vec![abi::DeviceInfo::new(), abi::DeviceInfo::new()],
        offset_of!(abi::DeviceInfo, memory_bytes),
    );
    let infos = read_all(&infos, 2, |info: abi::DeviceInfo| Ok((info.struct_size, info.memory_bytes)));
    assert_eq!(infos, [(offset_of!(abi::DeviceInfo, memory_bytes), 0); 2]);
}

/// A plugin whose importer, formats and plans have the sizes of an earlier version.
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
        let options = keep(options);
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
        // SAFETY: only one test uses this plugin, on one thread. Therefore no other thread accesses
        // the static variables.
        unsafe {
            FORMATS = keep(formats);
            COLUMNS = keep(shorter(columns, offset_of!(abi::ColumnPlan, reason)));
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
        // SAFETY: the caller passes valid out parameters.
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
        // SAFETY: the caller passes a valid out parameter.
        unsafe { ((*out).columns, (*out).n_columns) = (COLUMNS.cast(), 2) };
        abi::OK
    }

    unsafe extern "C" fn get_interface(_instance: *mut abi::Instance, id: *const c_char) -> *const c_void {
        // SAFETY: the caller passes a NUL-terminated id.
        let id = unsafe { CStr::from_ptr(id) };
        let exporter =
            abi::Exporter { struct_size: 0, formats: Some(formats), plan: Some(plan), begin: None };
        if id == abi::EXPORTER_ID {
            // The exporter has the size of a later version, unlike the plugin's other structs.
            return keep(Longer::new(exporter).into_words());
        }
        let importer = abi::Importer { struct_size: 0, formats: Some(formats), open: None, fragments: None };
        let cut = shorter(vec![importer], 8);
        keep(cut)
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
fn reads_formats_options_and_plans_of_an_earlier_version() {
    let host = abi::Host::new();
    for host in [std::ptr::null(), &raw const host] {
        // SAFETY: `create` only compares the host with null.
        let instance = unsafe { Instance::create(&earlier::ENTRY, host) }.unwrap();
        let exporter = instance.exporter().unwrap();
        let formats = exporter.formats().unwrap();
        let names: Vec<_> = formats.iter().map(|f| f.name.as_str()).collect();
        assert_eq!(names, ["first", "second"]);
        let keys: Vec<_> =
            formats[1].options.iter().map(|o| (o.key.as_str(), o.description.as_str())).collect();
        // If the host is null, the plugin returns whole formats, and options without descriptions.
        // Otherwise, the plugin returns shorter formats, which have no options.
        let expected: &[_] = if host.is_null() { &[("mood", ""), ("tempo", "")] } else { &[] };
        assert_eq!(keys, expected);

        // SAFETY: a released schema owns nothing.
        let schema = unsafe { Owned::new(abi::ArrowSchema::default()) };
        let call = crossdock_plugin_api::CallSettings::new(Device::CPU);
        let plan = exporter.plan(&call, "first", &schema, Device::CPU, &Options::new()).unwrap();
        let plan: Vec<_> = plan.iter().map(|c| (c.name.as_str(), c.to, c.reason.as_str())).collect();
        assert_eq!(plan, [("a", Device::CPU, ""), ("b", Device::cuda(1), "")]);
        assert!(instance.importer().is_none(), "the importer lacks all functions");
    }
}

/// A plugin of the current version.
struct Current {
    formats: Vec<Format>,
    host: Host,
}

impl Plugin for Current {
    fn create(host: Host) -> Result<Self> {
        host.log(abi::LOG_INFO, "hello");
        // SAFETY: the header defines that the interface with this id is an `abi::Memory`.
        let (at, memory) = unsafe { host.interface::<abi::Memory>(abi::HOST_MEMORY_ID) }.unwrap();
        // The struct_size of the copy is the size in this version. The struct_size of the original
        // is the size in the host's version.
        assert_eq!((memory.private_data, memory.struct_size), (MARK, size_of::<abi::Memory>()));
        // SAFETY: the interface is never freed, and begins with its `struct_size`.
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

impl Importer for Current {
    fn formats(&self) -> &[Format] {
        &self.formats
    }
    fn open(
        &self,
        call: &Call<'_>,
        input: Input,
        _request: &ReadRequest<'_>,
    ) -> Result<Box<dyn BatchStream>> {
        assert_eq!((call.device(), call.byte_budget()), (Device::CPU, 0));
        assert_eq!(self.host.session().map(|s| (s.device, s.memory_limit_bytes)), Some((Device::cuda(7), 0)));
        match input {
            Input::Capsules(capsules) if capsules.len() == 2 => Ok(Box::new(Batches(1))),
            Input::Capsules(capsules) => Err(Error::bad_data(format!("{} capsules", capsules.len()))),
            Input::Source(_) | Input::Sources(_) => Err(Error::bad_data("a source")),
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
            // SAFETY: the caller passes the array that is to be released.
            unsafe { (*array).release = None };
        }
        self.0 -= 1;
        let mut batch = abi::Batch { n_buffer_sizes: 17, ..abi::Batch::new() };
        batch.array.array.release = Some(release);
        // SAFETY: this function created the batch with its release function, and there is no other
        // copy of it.
        Ok(Some(unsafe { Owned::new(batch) }))
    }
}

impl Exporter for Current {
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
        // SAFETY: a released schema owns nothing, so it may have any owner.
        Ok(vec![Capsule::new(unsafe { Owned::new(abi::ArrowSchema::default()) })])
    }
    fn finish(&mut self, _call: &Call<'_>) -> Result<Vec<Capsule>> {
        Ok(Vec::new())
    }
}

static CURRENT: abi::PluginEntry = entry::<Current>();

unsafe extern "C" fn ignore(_host: *const abi::Host) {}

static LOGGED_BYTES: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn count_log_bytes(_log: *const abi::HostLog, _level: i32, message: abi::Str) {
    LOGGED_BYTES.fetch_add(message.bytes, Ordering::SeqCst);
}

const MARK: *mut c_void = std::ptr::dangling_mut::<u64>().cast();

unsafe extern "C" fn get_interface(_host: *const abi::Host, id: *const c_char) -> *const c_void {
    // SAFETY: the caller passes a NUL-terminated id.
    let id = unsafe { CStr::from_ptr(id) };
    if id == abi::HOST_MEMORY_ID {
        let memory = abi::Memory { private_data: MARK, ..abi::Memory::new() };
        return keep(Longer::new(memory).into_words());
    }
    if id == abi::HOST_LOG_ID {
        let log = abi::HostLog { write: Some(count_log_bytes), ..abi::HostLog::new() };
        return keep(shorter(vec![log], offset_of!(abi::HostLog, private_data)));
    }
    let session = abi::HostSession { device: Device::cuda(7), memory_limit: 99, ..abi::HostSession::new() };
    keep(shorter(vec![session], offset_of!(abi::HostSession, memory_limit)))
}

fn host() -> abi::Host {
    abi::Host {
        abi_major: abi::ABI_MAJOR,
        abi_minor: abi::ABI_MINOR,
        retain: Some(ignore),
        release: Some(ignore),
        get_interface: Some(get_interface),
        ..abi::Host::new()
    }
}

fn create(host: *const abi::Host) -> Result<*mut abi::Instance> {
    let mut instance = null_mut();
    // SAFETY: `host` points to a host object of `struct_size` bytes.
    Error::check(|err| unsafe { CURRENT.create.unwrap()(host, &mut instance, err) }).map(|()| instance)
}

fn interface<T>(entry: &abi::PluginEntry, instance: *mut abi::Instance, id: &CStr) -> &'static T {
    // SAFETY: the callers pass the type that the header defines for the id. They use the interface
    // only while the instance exists.
    unsafe { &*entry.get_interface.unwrap()(instance, id.as_ptr()).cast() }
}

fn released<T: Default>() -> T {
    T::default()
}

#[test]
fn current_plugin_accepts_longer_structs_of_host() {
    let mut host = Longer::new(host());
    let instance = create(host.at()).unwrap();
    let importer: &abi::Importer = interface(&CURRENT, instance, abi::IMPORTER_ID);
    let exporter: &abi::Exporter = interface(&CURRENT, instance, abi::EXPORTER_ID);
    let mut call = Longer::new(abi::Call { device: Device::CPU, ..abi::Call::new() });
    let (name, mut err) = (abi::Str::new("today"), Longer::new(abi::Error::new()));

    // The input, the list and the two capsules have the sizes of a later version.
    let mut capsules = [abi::Capsule::new(), abi::Capsule::new()].map(Longer::new);
    let mut input = Longer::new(abi::Input::new());
    let mut list = Longer::new(abi::Capsules::new());
    list.base.capsules = capsules[0].at();
    list.base.n_capsules = 2;
    unsafe extern "C" fn release_list(list: *mut abi::Capsules) {
        // SAFETY: the caller passes the list that is to be released.
        unsafe { (*list).release = None };
    }
    list.base.release = Some(release_list);
    input.base.capsules = list.at();
    let mut stream = Longer::new(abi::BatchStream::new());
    // SAFETY: the functions belong to the instance, and all structs have at least `struct_size`
    // bytes.
    unsafe {
        let open = importer.open.unwrap();
        let mut request =
            Longer::new(abi::ReadRequest { format: name, input: input.at(), ..abi::ReadRequest::new() });
        let code = open(instance, call.at(), request.at(), stream.at(), err.at());
        assert_eq!(code, abi::OK, "{:?}", CStr::from_ptr(err.base.message));
        assert!(list.base.release.is_none(), "the plugin took ownership");
        list.assert_tail_unchanged();
        input.assert_tail_unchanged();
        stream.assert_tail_unchanged();

        let mut batch = Longer::new(abi::Batch::new());
        assert_eq!(stream.base.get_next.unwrap()(stream.at(), call.at(), batch.at(), err.at()), abi::OK);
        batch.assert_tail_unchanged();
        assert_eq!(batch.base.n_buffer_sizes, 17);
        let code = stream.base.get_schema.unwrap()(stream.at(), &mut released(), err.at());
        err.assert_tail_unchanged();
        assert_eq!((code, CStr::from_ptr(err.base.details)), (abi::UNSUPPORTED, c"but words"));
        err.base.release.unwrap()(err.at());
        stream.base.release.unwrap()(stream.at());
        stream.assert_tail_unchanged();

        let mut plan = Longer::new(abi::Plan::new());
        let ask = exporter.plan.unwrap();
        let schema = released();
        let none = std::ptr::null();
        let code = ask(instance, call.at(), name, &schema, Device::CPU, none, 0, plan.at(), err.at());
        assert_eq!((code, plan.base.n_columns), (abi::OK, 1));
        plan.assert_tail_unchanged();
        plan.base.release.unwrap()(plan.at());

        unsafe extern "C" fn release_sink(sink: *mut abi::Sink) {
            // SAFETY: the caller passes the sink that is to be released.
            unsafe { (*sink).release = None };
        }
        let mut sink = Longer::new(abi::Sink { release: Some(release_sink), ..abi::Sink::new() });
        let mut writer = Longer::new(abi::Writer::new());
        let begin = exporter.begin.unwrap();
        let code = begin(instance, call.at(), name, &schema, none, 0, sink.at(), writer.at(), err.at());
        assert_eq!(code, abi::OK);
        assert!(sink.base.release.is_none());
        sink.assert_tail_unchanged();
        writer.assert_tail_unchanged();

        let mut out = Longer::new(abi::Capsules::new());
        let write = writer.base.write.unwrap();
        assert_eq!(write(writer.at(), call.at(), batch.at(), out.at(), err.at()), abi::OK);
        assert!(batch.base.array.array.release.is_none());
        batch.assert_tail_unchanged();
        out.assert_tail_unchanged();
        assert_eq!(out.base.n_capsules, 1);
        out.base.release.unwrap()(out.at());
        writer.base.release.unwrap()(writer.at());
        CURRENT.destroy.unwrap()(instance);
    }
    assert!(LOGGED_BYTES.load(Ordering::SeqCst) >= "hello".len());
    call.assert_tail_unchanged();
    host.assert_tail_unchanged();
    capsules.iter().for_each(Longer::assert_tail_unchanged);
}

#[test]
fn current_plugin_accepts_shorter_structs_of_host() {
    let host = shorter(vec![host()], offset_of!(abi::Host, private_data));
    let instance = create(host.as_ptr().cast()).unwrap();
    let importer: &abi::Importer = interface(&CURRENT, instance, abi::IMPORTER_ID);
    let call = abi::Call { device: Device::CPU, ..abi::Call::new() };
    let call = shorter(vec![call], offset_of!(abi::Call, stream));
    let mut stream = abi::BatchStream::new();
    let mut list = abi::Capsules::new();
    let input = abi::Input { capsules: &mut list, ..abi::Input::new() };
    // SAFETY: the functions belong to the instance, and all structs have `struct_size` bytes.
    let error = Error::check(|err| unsafe {
        let open = importer.open.unwrap();
        let format = abi::Str::new("today");
        let request = abi::ReadRequest { format, input: &raw const input, ..abi::ReadRequest::new() };
        open(instance, call.as_ptr().cast(), &request, &mut stream, err)
    });
    // The assertions in `open` passed. Therefore the budget and the session's memory limit were
    // read as 0, although there is garbage at their addresses.
    assert_eq!(error.unwrap_err().message(), "0 capsules");
    // SAFETY: `create` returned the instance, and it is destroyed only here.
    unsafe { CURRENT.destroy.unwrap()(instance) };
}

#[test]
fn current_plugin_rejects_a_host_of_another_minor_version() {
    let other = abi::Host { abi_minor: abi::ABI_MINOR + 1, ..host() };
    let error = create(&raw const other).unwrap_err();
    assert_eq!(error.code(), Code::VERSION);
    assert_eq!(
        error.message(),
        "the host has ABI version 1.1, expected 1.0: get the plugin's build for this host"
    );
}
