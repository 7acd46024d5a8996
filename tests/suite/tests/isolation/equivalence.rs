//! Tests that isolated plugins have the same results as plugins in the host's process.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{DataType, Field, Schema};
use crossdock::api::{
    Call, CancelFlag, Device, EncodedArray, EncodedNode, Encoding, LogicalType, NodeParts, Owned, Plugin,
    PluginDescription, Result, Validate, abi, entry,
};
use crossdock::discovery::Search;
use crossdock::isolation::Isolation;
use crossdock::load::LinkedPlugin;
use crossdock::sink::{Output, VecSink};
use crossdock::source::Input;
use crossdock::{Error, Fragment, Host, Policy, ReadOptions, ScanOptions, ScanSource, Session, WriteOptions};
use crossdock_arrays::{
    DeviceArray, DeviceBatch, IntType, PendingBatch, export_batch, export_field, first_difference,
    format_batch,
};
use crossdock_memory::{Buffer, Memory};
use crossdock_tests::{built, built_file, crossdock, csv_plugin, sample, sample_tree, scaled_tree};

pub fn sessions() -> (Host, Session, Session) {
    let host = crate::host(&built(), crate::marked("same")).build().unwrap();
    let direct = Host::builder().plugins(built()).build().unwrap().session().open().unwrap();
    let isolated = host.session().open().unwrap();
    (host, direct, isolated)
}

pub fn read(session: &Session, input: Input) -> Vec<DeviceBatch> {
    session.read(input, &ReadOptions::default()).unwrap().map(Result::unwrap).collect()
}

pub fn assert_same(left: &[DeviceBatch], right: &[DeviceBatch], session: &Session) {
    assert_eq!(left.len(), right.len());
    for (left, right) in left.iter().zip(right) {
        assert_eq!((left.schema(), left.metadata()), (right.schema(), right.metadata()));
        assert_eq!(first_difference(left, right, session.stream()).unwrap(), None);
    }
}

#[test]
fn isolated_encoding_without_a_decoder_is_decoded_by_programs() {
    if crate::skips("isolated_encoding_without_a_decoder_is_decoded_by_programs") {
        return;
    }
    let decoded = |isolation: Isolation| {
        let search = Search::nowhere()
            .with_path(csv_plugin())
            .with_path(built_file("libcrossdock_encodings_plugin.so"));
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
fn isolated_plugin_reads_the_same_tables_from_files_and_bytes() {
    if crate::skips("isolated_plugin_reads_the_same_tables_from_files_and_bytes") {
        return;
    }
    let (host, direct, isolated) = sessions();
    let expected = read(&direct, Input::open(sample(), direct.cancel_flag()).unwrap());
    assert!(expected.iter().map(DeviceBatch::len).sum::<usize>() > 1000);
    let bytes = std::fs::read(sample()).unwrap();
    assert_same(&expected, &read(&isolated, Input::open(sample(), isolated.cancel_flag()).unwrap()), &direct);
    let batches = read(&isolated, Input::bytes(bytes));
    drop(isolated);
    host.settle();
    assert_same(&expected, &batches, &direct);
}

#[test]
fn isolated_plugin_lists_and_reads_the_same_fragments() {
    if crate::skips("isolated_plugin_lists_and_reads_the_same_fragments") {
        return;
    }
    let (host, direct, isolated) = sessions();
    let fragments = |session: &Session, rows: Option<Vec<std::ops::Range<u64>>>| {
        let read = ReadOptions { rows, ..ReadOptions::default() };
        let options = ScanOptions { read, ..ScanOptions::default() };
        let scan = session.scan(ScanSource::Files(vec![sample()]), options).unwrap();
        (scan.n_rows(), scan.fragments().unwrap())
    };
    for rows in [None, Some(vec![5..7, 900..1100])] {
        let (n_rows, expected) = fragments(&direct, rows.clone());
        let (same_n_rows, listed) = fragments(&isolated, rows);
        assert_eq!((n_rows, expected.len()), (same_n_rows, listed.len()));
        assert!(n_rows.is_some());
        for (expected, listed) in expected.iter().zip(&listed) {
            let of = |fragment: &Fragment| (fragment.token().to_vec(), fragment.n_rows(), fragment.bytes());
            assert_eq!(of(expected), of(listed));
            let batches = |session: &Session| -> Vec<DeviceBatch> {
                listed.scan_in(session).unwrap().batches().unwrap().map(Result::unwrap).collect()
            };
            assert_same(&batches(&direct), &batches(&isolated), &direct);
        }
    }
    drop(isolated);
    host.settle();
}

#[test]
fn mapped_file_is_read_without_copies() {
    if crate::skips("mapped_file_is_read_without_copies") {
        return;
    }
    let (_host, _, isolated) = sessions();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("plain.arrow");
    let (from, to) = (sample().display().to_string(), file.display().to_string());
    assert!(crossdock(&["convert", "--quiet", "--compression", "none", &from, &to]).status.success());
    let input = Input::open(file, isolated.cancel_flag()).unwrap();
    let whole = input.shared();
    let map = whole.map().unwrap().as_ptr_range();
    let (begin, end) = (map.start.addr() as u64, map.end.addr() as u64);
    for batch in read(&isolated, input) {
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

const INT64: IntType = IntType { width_bytes: 8, signed: true };

/// The number 2 on the session's device.
fn counter(session: &Session) -> Buffer {
    let write = |to: &mut [u8]| {
        to.copy_from_slice(&2i64.to_ne_bytes());
        Ok(())
    };
    session.memory().alloc_with(session.stream(), 8, write).unwrap().freeze(session.stream()).unwrap()
}

/// The plugin's process reads the number of rows, and its formats do not accept such a number.
#[test]
fn number_of_rows_on_the_device_stays_in_the_process() {
    if crate::skips("number_of_rows_on_the_device_stays_in_the_process") {
        return;
    }
    let plugin = || Search::nowhere().with_path(built_file("libbad_citizen.so"));
    for (isolation, is_known) in [(crate::isolation(), true), (Isolation::default(), false)] {
        let policy = Policy { isolation, ..Policy::default() };
        let host = Host::builder().search(plugin()).policy(policy).build().unwrap();
        let session = host.session().validate(Validate::Layout).open().unwrap();
        let read = |format: &str| {
            let options = ReadOptions { from: Some(format.into()), ..ReadOptions::default() };
            session.read(Input::bytes(Vec::new()), &options).unwrap()
        };
        let batch = read("three-of-five").next_pending().unwrap().unwrap();
        assert_eq!(batch.known_rows(), is_known.then_some(3), "isolated: {is_known}");
        let rows = batch.settle(session.stream()).unwrap();
        assert_eq!(rows.len(), 3);
        let error = read("six-of-five").next().err().unwrap().one_line();
        assert!(error.contains("is 6, expected 0 to 5"), "{error}");
        let pending = PendingBatch::try_new(rows.clone(), &counter(&session), INT64, session.stream());
        let pending = pending.unwrap();
        let options = WriteOptions { to: Some("three-of-five".into()), ..WriteOptions::default() };
        let output = Output::Memory(VecSink::new());
        let mut writer = session.write(output, rows.schema(), &options).unwrap();
        writer.write_pending(&pending).unwrap();
        assert_eq!(pending.known_rows(), is_known.then_some(2), "isolated: {is_known}");
    }
}

#[test]
fn isolated_plugin_returns_all_batches_before_an_error() {
    if crate::skips("isolated_plugin_returns_all_batches_before_an_error") {
        return;
    }
    let (_host, direct, isolated) = sessions();
    let column: ArrayRef = Arc::new((0..1000).collect::<Int64Array>());
    let batch = RecordBatch::try_from_iter([("a", column)]).unwrap();
    let mut bytes = Vec::new();
    let mut file = StreamWriter::try_new(&mut bytes, &batch.schema()).unwrap();
    (0..40).for_each(|_| file.write(&batch).unwrap());
    file.finish().unwrap();
    drop(file);
    for len in [bytes.len(), bytes.len() - 8, bytes.len() - 100, bytes.len() / 2, 9_000, 1_000] {
        let outcome = |session: &Session| {
            let input = Input::bytes(bytes[..len].to_vec());
            let mut reader = session.read(input, &ReadOptions::default()).unwrap();
            let mut rows = Vec::new();
            let end = loop {
                match reader.next() {
                    Ok(Some(batch)) => rows.push(batch.len()),
                    Ok(None) => break None,
                    Err(error) => break Some(error.one_line()),
                }
            };
            (rows, end)
        };
        let (expected, actual) = (outcome(&direct), outcome(&isolated));
        assert_eq!(expected, actual, "{len} bytes");
        assert!(len == bytes.len() || expected.1.is_some() || len == bytes.len() - 8, "{len} bytes");
    }
}

#[test]
fn isolated_plugin_decodes_after_its_previous_process_ended() {
    if crate::skips("isolated_plugin_decodes_after_its_previous_process_ended") {
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
fn isolated_plugin_decodes_the_same_arrays() {
    if crate::skips("isolated_plugin_decodes_the_same_arrays") {
        return;
    }
    let (_host, direct, isolated) = sessions();
    let input = Input::bytes(sample_tree());
    let decode = |session: &Session| session.decode(session.read_encoded(&input).unwrap()).unwrap();
    assert_same(&[decode(&direct)], &[decode(&isolated)], &direct);
    // Tests a second path to the decoder: the importer asks the session to decode.
    assert_same(&read(&direct, input.clone()), &read(&isolated, input), &direct);
}

/// A plugin that is linked into the test. Its only encoding decodes each value to 10.
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

    fn size(&self, _: EncodedNode<'_>, _: Range<u64>) -> Result<Option<u64>> {
        Ok(None)
    }

    fn decode(
        &self,
        call: &Call<'_>,
        node: EncodedNode<'_>,
        _: Range<u64>,
        _: Vec<Option<Owned<abi::Batch>>>,
    ) -> Result<Owned<abi::Batch>> {
        RECORDED_CALLS.lock().unwrap().push((call.byte_budget(), call.validate(), call.stream().is_null()));
        if let Some(cancel) = CANCEL.lock().unwrap().take() {
            cancel.cancel();
            let begun = Instant::now();
            while !call.is_cancelled() {
                assert!(begun.elapsed() < Duration::from_secs(60), "the call does not see the cancellation");
                std::thread::sleep(Duration::from_millis(1));
            }
            SAW_CANCELLATION.store(true, Ordering::SeqCst);
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

/// The byte budget, the validation and whether the stream is null, for each call.
static RECORDED_CALLS: Mutex<Vec<(u64, Validate, bool)>> = Mutex::new(Vec::new());
/// The flag to set during the next call.
static CANCEL: Mutex<Option<CancelFlag>> = Mutex::new(None);
/// Whether the call was cancelled.
static SAW_CANCELLATION: AtomicBool = AtomicBool::new(false);

fn tens() -> LinkedPlugin {
    static ENTRY: abi::PluginEntry = entry::<Tens>();
    let about = PluginDescription {
        name: "tens",
        version: "0.1.0",
        description: "tens",
        licence: "Apache-2.0",
        interfaces: "crossdock.encoding/1",
        formats: "",
        encodings: "test.tens",
        requires: "",
        api_range: abi::API_RANGE,
    };
    LinkedPlugin::new(&ENTRY, about.meta())
}

/// Serialises tests that use this plugin.
fn lock_tens() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

fn tens_field() -> Field {
    Field::new("tens", DataType::Int32, false)
}

#[test]
fn host_decode_callback_uses_the_plugins_of_the_session() {
    if crate::skips("host_decode_callback_uses_the_plugins_of_the_session") {
        return;
    }
    let _lock = lock_tens();
    let search =
        || Search::nowhere().linked(tens()).with_path(built_file("libcrossdock_encodings_plugin.so"));
    let isolated = crate::host(&built(), crate::isolation()).search(search()).build().unwrap();
    let direct = Host::builder().search(search()).build().unwrap();
    for host in [direct, isolated] {
        assert_tens_decode(&host);
    }
}

#[test]
fn process_cannot_reduce_validation() {
    if crate::actions::skips("process_cannot_reduce_validation") {
        return;
    }
    let _lock = lock_tens();
    let folder = tempfile::tempdir().unwrap();
    let plugin = crate::actions::hostile(folder.path());
    let search = Search::nowhere().linked(tens()).with_path(plugin);
    let host = crate::host(folder.path(), crate::isolation()).search(search).build().unwrap();
    let session = host.session().open().unwrap();
    let error = crate::actions::error_line(crate::actions::run_action(&session, "decode-unvalidated"));
    assert!(error.ends_with(": decoded"), "{error}");
    assert_eq!(std::mem::take(&mut *RECORDED_CALLS.lock().unwrap()), [(0, Validate::Full, false)]);
}

fn assert_tens_decode(host: &Host) {
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
    // The importer runs in another process, which does not have this encoding.
    let input = Input::bytes(bytes);
    let [batch] = &read(&session, input.clone())[..] else { panic!("expected one batch") };
    assert_eq!(format_batch(batch, 100, session.stream()).unwrap().matches("10").count(), 7);
    assert_eq!(std::mem::take(&mut *RECORDED_CALLS.lock().unwrap()), [(BUDGET, Validate::Layout, false)]);

    let cancel = CancelFlag::new();
    *CANCEL.lock().unwrap() = Some(cancel.clone());
    let read = session.with_cancel_flag(cancel).read(input, &ReadOptions::default());
    let cancelled = read.and_then(|reader| reader.collect::<std::result::Result<Vec<_>, _>>());
    assert!(matches!(cancelled, Err(Error::Cancelled)), "{cancelled:?}");
    // Checks the cancellation before the host ends the plugin's process.
    assert!(
        SAW_CANCELLATION.swap(false, Ordering::SeqCst),
        "a plugin that decodes for an isolated one does not see the cancellation"
    );
    RECORDED_CALLS.lock().unwrap().clear();
}

#[test]
fn plugins_command_shows_which_plugins_are_isolated() {
    if crate::skips("plugins_command_shows_which_plugins_are_isolated") {
        return;
    }
    let list = |more: &[&str]| {
        let out = crossdock(&[&["plugins", "--isolate=arrow-ipc", "--explain"], more].concat());
        String::from_utf8(out.stdout).unwrap()
    };
    let text = list(&[]);
    let (_, after) = text.split_once("\narrow-ipc ").unwrap();
    let (ipc, others) = after.split_once("\ndlpack ").unwrap();
    assert!(ipc.contains("runs: in a separate process") && !others.contains("a separate process"), "{text}");
    let plugins: serde_json::Value = serde_json::from_str(&list(&["--json"])).unwrap();
    let chosen = plugins["plugins"].as_array().unwrap().iter().filter(|plugin| plugin["status"] == "chosen");
    let isolated = chosen.filter(|plugin| plugin["isolated"] == true);
    assert_eq!(
        isolated.map(|plugin| plugin["metadata"]["name"].as_str().unwrap()).collect::<Vec<_>>(),
        ["arrow-ipc"]
    );
}

#[test]
fn isolated_plugin_cannot_export_capsules() {
    if crate::skips("isolated_plugin_cannot_export_capsules") {
        return;
    }
    let (_host, direct, isolated) = sessions();
    let batches = read(&direct, Input::open(sample(), direct.cancel_flag()).unwrap());
    let schema = batches[0].schema().clone();
    let format = isolated.capsule_format("arrow-c-device", crossdock::registry::Way::Out).unwrap();
    let error = match format.write(&schema, &Default::default()) {
        Ok(_) => panic!("an isolated plugin exported capsules"),
        Err(error) => error.one_line(),
    };
    assert!(error.contains("process of its own") && error.contains("exclude it"), "{error}");
}

#[test]
fn policy_selects_isolated_plugins() {
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
