//! Plugins that mean well give the same from there as from here.

use std::io::Write;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arrow_schema::{DataType, Field, Schema};
use crossdock::api::{
    About, Call, CancelFlag, Device, EncodedArray, EncodedNode, Encoding, LogicalType, NodeParts, Options,
    Owned, Plugin, Result, Validate, abi, entry,
};
use crossdock::discovery::Search;
use crossdock::isolation::Isolation;
use crossdock::load::LinkedPlugin;
use crossdock::sink::{Output, VecSink};
use crossdock::source::Input;
use crossdock::{Error, Host, Policy, ReadOptions, Session, WriteOptions};
use crossdock_arrays::{
    DeviceArray, DeviceBatch, export_batch, export_field, first_difference, format_batch,
};
use crossdock_memory::Memory;
use crossdock_tests::{built, built_file, command, crossdock, csv_plugin, sample, sample_tree, scaled_tree};

fn sessions() -> (Host, Session, Session) {
    let isolated = crate::host(&built(), crate::marked("same")).build().unwrap();
    let here = Host::builder().plugins(built()).build().unwrap().session().open().unwrap();
    let there = isolated.session().open().unwrap();
    (isolated, here, there)
}

fn read(session: &Session, input: Input) -> Vec<DeviceBatch> {
    session.read(input, &ReadOptions::default()).unwrap().map(Result::unwrap).collect()
}

fn assert_same(left: &[DeviceBatch], right: &[DeviceBatch], session: &Session) {
    assert_eq!(left.len(), right.len());
    for (left, right) in left.iter().zip(right) {
        assert_eq!((left.schema(), left.metadata()), (right.schema(), right.metadata()));
        assert_eq!(first_difference(left, right, session.stream()).unwrap(), None);
    }
}

#[test]
fn an_encoding_that_has_programs_and_no_decode_is_one_there_too() {
    if crate::skips("an_encoding_that_has_programs_and_no_decode_is_one_there_too") {
        return;
    }
    let decoded = |isolation: Isolation| {
        let search =
            Search::nowhere().given(csv_plugin()).given(built_file("libcrossdock_encodings_plugin.so"));
        let policy = Policy { isolation, ..Policy::default() };
        let host = Host::builder().search(search).policy(policy).build().unwrap();
        let session = host.session().open().unwrap();
        let tree = session.read_encoded(&Input::bytes(scaled_tree())).unwrap();
        let plan = session.plan_decoding(&session.with_arrow_types(tree).unwrap(), Device::CPU).unwrap();
        let tree = session.read_encoded(&Input::bytes(scaled_tree())).unwrap();
        (plan, format_batch(&session.decode(tree).unwrap(), 10, session.stream()).unwrap())
    };
    assert_eq!(decoded(crate::isolation()), decoded(Isolation::default()));
}

#[test]
fn tables_are_read_the_same_from_files_bytes_and_pipes() {
    if crate::skips("tables_are_read_the_same_from_files_bytes_and_pipes") {
        return;
    }
    let (host, here, there) = sessions();
    let expected = read(&here, Input::open(sample(), here.cancel_flag()).unwrap());
    assert!(expected.iter().map(DeviceBatch::len).sum::<usize>() > 1000);
    let bytes = std::fs::read(sample()).unwrap();
    assert_same(&expected, &read(&there, Input::open(sample(), there.cancel_flag()).unwrap()), &here);
    let batches = read(&there, Input::bytes(bytes));
    drop(there);
    host.settle();
    assert_same(&expected, &batches, &here);
}

#[test]
fn a_mapped_file_that_a_process_reads_is_not_copied() {
    if crate::skips("a_mapped_file_that_a_process_reads_is_not_copied") {
        return;
    }
    let (_host, _, there) = sessions();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("plain.arrow");
    let (from, to) = (sample().display().to_string(), file.display().to_string());
    assert!(crossdock(&["convert", "--quiet", "--compression", "none", &from, &to]).status.success());
    let input = Input::open(file, there.cancel_flag()).unwrap();
    let whole = input.shared();
    let map = whole.map().unwrap().as_ptr_range();
    let (begin, end) = (map.start.addr() as u64, map.end.addr() as u64);
    for batch in read(&there, input) {
        for (column, field) in batch.columns().iter().zip(batch.schema().fields()) {
            for buffer in column.buffers().iter().flatten().filter(|buffer| !buffer.is_empty()) {
                assert!(
                    (begin..end).contains(&buffer.address()),
                    "{field}: {buffer:?} is not in {begin:#x}..{end:#x}"
                );
            }
        }
    }
}

#[test]
fn files_are_written_the_same() {
    if crate::skips("files_are_written_the_same") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    for compression in ["none", "lz4", "zstd"] {
        let (here, there) = (path("here.arrows"), path("there.arrows"));
        let sample = sample().to_str().unwrap().to_string();
        let convert = |isolate: &[&str], to: &str| {
            let arguments = ["convert", "--quiet", "--compression", compression, &sample, to];
            let out = crossdock(&[&arguments[..], isolate].concat());
            assert!(out.status.success(), "{out:?}");
        };
        convert(&[], &here);
        convert(&["--isolate"], &there);
        assert!(std::fs::read(&here).unwrap() == std::fs::read(&there).unwrap(), "{compression}");
    }
}

#[test]
fn the_batches_of_a_long_table_do_not_use_up_what_a_process_may_have_open() {
    if crate::skips("the_batches_of_a_long_table_do_not_use_up_what_a_process_may_have_open") {
        return;
    }
    const BATCHES: usize = 800;
    let (_host, here, there) = sessions();
    let batch = read(&here, Input::open(sample(), here.cancel_flag()).unwrap()).remove(0);
    let batch = batch.slice(0, batch.len().min(100)).unwrap();
    // Each is decompressed there, so that it comes in memory of its own.
    let options = WriteOptions {
        to: Some("arrow-ipc-stream".into()),
        options: Options::new().with("compression", "lz4"),
    };
    let sink = VecSink::new();
    let mut writer = here.write(Output::Memory(sink.clone()), batch.schema(), &options).unwrap();
    for _ in 0..BATCHES {
        writer.write(batch.clone()).unwrap();
    }
    writer.finish().unwrap();
    let batches = read(&there, Input::bytes(sink.take()));
    // Other tests of this process have files of other kinds open meanwhile.
    let open = crate::open_files("/memfd:crossdock-arrays");
    assert_eq!(batches.len(), BATCHES);
    assert!((1..BATCHES).contains(&open), "{open} open files of {BATCHES} batches");
    // Those that are not open any more go to other processes all the same.
    let sink = VecSink::new();
    let mut writer = there.write(Output::Memory(sink.clone()), batch.schema(), &options).unwrap();
    for batch in &batches {
        writer.write(batch.clone()).unwrap();
    }
    writer.finish().unwrap();
    assert_same(&read(&here, Input::bytes(sink.take())), &batches, &here);
}

#[test]
fn an_array_is_decoded_though_the_process_that_decoded_one_before_is_gone() {
    if crate::skips("an_array_is_decoded_though_the_process_that_decoded_one_before_is_gone") {
        return;
    }
    let host = crate::host(&built(), crate::marked("decodes")).build().unwrap();
    let session = host.session().open().unwrap();
    let decode = || session.decode(session.read_encoded(&Input::bytes(sample_tree())).unwrap()).unwrap();
    let before = decode();
    crate::end_processes("decodes");
    assert_same(&[before], &[decode()], &session);
}

#[test]
fn pipes_go_through_it() {
    if crate::skips("pipes_go_through_it") {
        return;
    }
    let bytes = std::fs::read(sample()).unwrap();
    let mut child = command(&["convert", "--quiet", "--isolate", "-", "-", "--to", "arrow-ipc-file"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut pipe = child.stdin.take().unwrap();
    let sent = bytes.clone();
    let writer = std::thread::spawn(move || pipe.write_all(&sent));
    let out = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(out.status.success());
    let (_, here, _) = sessions();
    assert_same(&read(&here, Input::bytes(bytes)), &read(&here, Input::bytes(out.stdout)), &here);
}

#[test]
fn encoded_arrays_are_decoded_the_same() {
    if crate::skips("encoded_arrays_are_decoded_the_same") {
        return;
    }
    let (_host, here, there) = sessions();
    let input = Input::bytes(sample_tree());
    let decode = |session: &Session| session.decode(session.read_encoded(&input).unwrap()).unwrap();
    assert_same(&[decode(&here)], &[decode(&there)], &here);
    // Through its importer too, whose own session decodes.
    assert_same(&read(&here, input.clone()), &read(&there, input), &here);
}

/// A plugin that is linked in, whose one encoding has as many tens as its nodes have values.
struct Tens(Memory);

impl Plugin for Tens {
    fn create(host: crossdock::api::Host) -> Result<Self> {
        Memory::from_host(&host).map(Self)
    }

    fn encoding(&self) -> Option<&dyn Encoding> {
        Some(self)
    }
}

impl Encoding for Tens {
    fn ids(&self) -> &[&'static str] {
        &["test.tens"]
    }

    fn check(&self, _: EncodedNode<'_>) -> Result<()> {
        Ok(())
    }

    fn size(&self, _: EncodedNode<'_>) -> Result<Option<u64>> {
        Ok(None)
    }

    fn decode(
        &self,
        call: &Call<'_>,
        node: EncodedNode<'_>,
        _: Vec<Option<Owned<abi::Batch>>>,
    ) -> Result<Owned<abi::Batch>> {
        TOLD.lock().unwrap().push((call.byte_budget(), call.validate(), call.stream().is_null()));
        if let Some(cancel) = CANCEL.lock().unwrap().take() {
            cancel.cancel();
            let begun = Instant::now();
            while !call.is_cancelled() {
                assert!(begun.elapsed() < Duration::from_secs(60), "the call does not hear of it");
                std::thread::sleep(Duration::from_millis(1));
            }
            HEARD.store(true, Ordering::SeqCst);
            call.check_cancelled()?;
        }
        let stream = self.0.default_stream(Device::CPU)?;
        let rows = node.length() as usize;
        let tens = self.0.alloc_with(&stream, 4 * rows, |to| {
            to.chunks_mut(4).for_each(|value| value.copy_from_slice(&10i32.to_le_bytes()));
            Ok(())
        })?;
        let buffers = vec![None, Some(tens.freeze_now())];
        let column = DeviceArray::try_new(DataType::Int32, rows, 0, Some(0), buffers, Vec::new(), None)?;
        let batch = DeviceBatch::try_new(Arc::new(Schema::new(vec![tens_field()])), rows, vec![column])?;
        export_batch(&batch, false, &stream)
    }
}

/// What its calls said: a byte budget, what is validated, and whether the stream was left out.
static TOLD: Mutex<Vec<(u64, Validate, bool)>> = Mutex::new(Vec::new());
/// Set while it decodes the next one.
static CANCEL: Mutex<Option<CancelFlag>> = Mutex::new(None);
/// Whether it heard of that.
static HEARD: AtomicBool = AtomicBool::new(false);

fn tens() -> LinkedPlugin {
    static ENTRY: abi::PluginEntry = entry::<Tens>();
    let about = About {
        name: "tens",
        version: "0.1.0",
        description: "tens",
        licence: "Apache-2.0",
        interfaces: "crossdock.encoding/1",
        formats: "",
        encodings: "test.tens",
    };
    LinkedPlugin::new(&ENTRY, about.meta())
}

/// One test at a time has it decode.
fn tens_turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn tens_field() -> Field {
    Field::new("tens", DataType::Int32, false)
}

#[test]
fn what_an_isolated_plugin_has_decoded_the_plugins_of_its_session_decode() {
    if crate::skips("what_an_isolated_plugin_has_decoded_the_plugins_of_its_session_decode") {
        return;
    }
    let _turn = tens_turn();
    let search = || Search::nowhere().linked(tens()).given(built_file("libcrossdock_encodings_plugin.so"));
    let isolated = crate::host(&built(), crate::isolation()).search(search()).build().unwrap();
    let here = Host::builder().search(search()).build().unwrap();
    for host in [here, isolated] {
        has_tens_decoded(&host);
    }
}

#[test]
fn how_closely_its_arrays_are_looked_at_no_process_says() {
    if crate::deeds::skips("how_closely_its_arrays_are_looked_at_no_process_says") {
        return;
    }
    let _turn = tens_turn();
    let folder = tempfile::tempdir().unwrap();
    let plugin = crate::deeds::hostile(folder.path());
    let search = Search::nowhere().linked(tens()).given(plugin);
    let host = crate::host(folder.path(), crate::isolation()).search(search).build().unwrap();
    let session = host.session().open().unwrap();
    let said = crate::deeds::words(crate::deeds::have_done(&session, "decode-unvalidated"));
    assert!(said.ends_with(": decoded"), "{said}");
    assert_eq!(std::mem::take(&mut *TOLD.lock().unwrap()), [(0, Validate::Full, false)]);
}

fn has_tens_decoded(host: &Host) {
    const BUDGET: u64 = 12_345_678;
    let session = host.session().byte_budget(BUDGET).validate(Validate::Layout).open().unwrap();
    let node = NodeParts {
        encoding: "test.tens".into(),
        logical_type: LogicalType::Schema(export_field(&tens_field()).unwrap()),
        length: 7,
        metadata: Vec::new(),
        n_buffers: 0,
        n_children: 0,
    };
    let tree = EncodedArray::new(vec![node], Vec::new()).unwrap();
    let bytes = session.encoded_to_bytes(tree).unwrap();
    // The importer is in another process, where nobody knows this encoding.
    let input = Input::bytes(bytes);
    let [batch] = &read(&session, input.clone())[..] else { panic!("one batch was expected") };
    assert_eq!(format_batch(batch, 100, session.stream()).unwrap().matches("10").count(), 7);
    assert_eq!(std::mem::take(&mut *TOLD.lock().unwrap()), [(BUDGET, Validate::Layout, false)]);

    let cancel = CancelFlag::new();
    *CANCEL.lock().unwrap() = Some(cancel.clone());
    let read = session.with_cancel_flag(cancel).read(input, &ReadOptions::default());
    let cancelled = read.and_then(|reader| reader.collect::<std::result::Result<Vec<_>, _>>());
    assert!(matches!(cancelled, Err(Error::Cancelled)), "{cancelled:?}");
    // Before the plugin's process was ended for it.
    assert!(HEARD.swap(false, Ordering::SeqCst), "who decodes for a plugin does not hear of its call's end");
    TOLD.lock().unwrap().clear();
}

#[test]
fn the_list_of_plugins_says_which_are_isolated() {
    if crate::skips("the_list_of_plugins_says_which_are_isolated") {
        return;
    }
    let list = |more: &[&str]| {
        let out = crossdock(&[&["plugins", "--isolate=arrow-ipc", "--explain"], more].concat());
        String::from_utf8(out.stdout).unwrap()
    };
    let text = list(&[]);
    let (_, after) = text.split_once("\narrow-ipc ").unwrap();
    let (own, others) = after.split_once("\ndlpack ").unwrap();
    assert!(
        own.contains("runs: in a process of its own") && !others.contains("a process of its own"),
        "{text}"
    );
    let plugins: serde_json::Value = serde_json::from_str(&list(&["--json"])).unwrap();
    let chosen = plugins["plugins"].as_array().unwrap().iter().filter(|plugin| plugin["status"] == "chosen");
    let isolated = chosen.filter(|plugin| plugin["isolated"] == true);
    assert_eq!(
        isolated.map(|plugin| plugin["metadata"]["name"].as_str().unwrap()).collect::<Vec<_>>(),
        ["arrow-ipc"]
    );
}

#[test]
fn what_cannot_be_isolated_says_so() {
    if crate::skips("what_cannot_be_isolated_says_so") {
        return;
    }
    let (_host, here, there) = sessions();
    let batches = read(&here, Input::open(sample(), here.cancel_flag()).unwrap());
    let schema = batches[0].schema().clone();
    let format = there.capsule_format("arrow-c-device", crossdock::registry::Way::Out).unwrap();
    let said = match format.write(&schema, &Default::default()) {
        Ok(_) => panic!("capsules came out of another process"),
        Err(error) => error.one_line(),
    };
    assert!(said.contains("process of its own") && said.contains("leave it out"), "{said}");
}

#[test]
fn a_policy_says_which_plugins_are_isolated() {
    let folder = tempfile::tempdir().unwrap();
    let policy = folder.path().join("crossdock.toml");
    let is_isolated = |text: &str| {
        std::fs::write(&policy, text).unwrap();
        let policy = crossdock::Policy::from_file(&policy).unwrap();
        let which = policy.isolation.which;
        (which.includes("arrow-ipc", None), which.includes("dlpack", None))
    };
    assert_eq!(is_isolated(""), (false, false));
    assert_eq!(is_isolated("isolate = [\"arrow-ipc\"]"), (true, false));
    assert_eq!(is_isolated("isolate = [\"*\"]"), (true, true));
}
