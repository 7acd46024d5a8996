//! Makes memory operations fail in the decoders and in the exporter of the plugin `encodings`. The
//! inputs are trees that Vortex wrote, at least one for each encoding.

use crossdock::sink::{Output, VecSink};
use crossdock::source::Input;
use crossdock::{ReadOptions, Session, WriteOptions};
use crossdock_arrays::DeviceBatch;
use crossdock_memory_backend::Faults;
use crossdock_plugin_api::{CancelFlag, Options};
use crossdock_test_support::{devices, replay};
use crossdock_tests::failing::{OPERATIONS, assert_settled, each_failure, host, session};
use crossdock_tests::faults;
use crossdock_tests::golden::{Golden, one_of_each, trees};

/// Encodings that vortex-data writes only into files, so there are no trees of them.
const ONLY_IN_FILES: [&str; 2] = ["vortex.pco", "vortex.zstd"];

fn decode(session: &Session, tree: &[u8]) -> crossdock::Result<DeviceBatch> {
    let options = ReadOptions { from: Some("encodings".into()), ..ReadOptions::default() };
    let mut reader = session.read(Input::bytes(tree.to_vec()), &options)?;
    Ok(reader.next()?.unwrap())
}

/// The batch as bytes of an IPC stream.
fn to_bytes(session: &Session, batch: DeviceBatch) -> Vec<u8> {
    let sink = VecSink::new();
    let options = WriteOptions { to: Some("arrow-ipc-stream".into()), ..WriteOptions::default() };
    let schema = batch.schema().clone();
    let mut writer = session.write(Output::Memory(sink.clone()), &schema, &options).unwrap();
    writer.write(batch).unwrap();
    writer.finish().unwrap();
    sink.take()
}

/// Exports two copies of the batch as the chunks of one tree in a capsule, and decodes the tree.
fn through_a_capsule(session: &Session, batch: &DeviceBatch) -> crossdock::Result<DeviceBatch> {
    let (format, options) = ("encoded-array", Options::new());
    let mut writer = session.write_capsules(format, batch.schema(), &options)?;
    writer.write_borrowed(batch)?;
    writer.write_borrowed(batch)?;
    let capsules = writer.finish()?.capsules;
    Ok(session.read_capsules(format, capsules, None, &options)?.next()?.unwrap())
}

/// Calls `before` with each tree, and then `run` with the result of `before`, on every device.
/// Injects failures only into `run`.
fn each_failure_with_each_tree<T>(
    test: &str,
    trees: &[Golden],
    before: impl Fn(&Session, &Golden) -> T,
    run: impl Fn(&Session, &T) -> crossdock::Result<DeviceBatch>,
) {
    for &device in devices() {
        for operation in OPERATIONS {
            let faults = Faults::new();
            let host = host(faults.clone());
            let session = session(&host, device, &CancelFlag::new());
            let mut total = (0, 0);
            let part = faults::part(&format!("{test}, {device}, {operation:?}"), trees.len(), 4);
            for tree in part.into_iter().map(|i| &trees[i]) {
                let what = format!("{} on {device}, {operation:?}", tree.name);
                let chosen = |occurrences| faults::chosen(occurrences, 4, 2);
                let prepared = before(&session, tree);
                let run = || run(&session, &prepared);
                let bytes = |batch| to_bytes(&session, batch);
                let (failed, occurrences) =
                    each_failure((&host, &faults, operation), &what, chosen, run, bytes);
                total = (total.0 + failed, total.1 + occurrences);
            }
            // With few trees, it is possible that no injected failure causes an error, because the
            // pool repeats each failed allocation once.
            let is_tested = total.0 > 0 || total.1 == 0 || !faults::has_every_case();
            assert!(is_tested, "{device}, {operation:?}: none of {} failures was an error", total.1);
            drop(session);
            assert_settled(&host, &format!("{device}, {operation:?}"));
        }
    }
}

#[test]
fn failed_memory_operations_in_decoders_are_errors_without_leaks() {
    let _replay = replay::on_failure();
    let trees = if faults::all() { trees() } else { one_of_each() };
    let encodings: Vec<_> = trees.iter().map(Golden::encoding).collect();
    let known = session(&host(Faults::new()), devices()[0], &CancelFlag::new()).encodings();
    let known = known.iter().filter(|(_, by)| by.iter().any(|plugin| plugin.name() == "encodings"));
    let known = known.map(|(id, _)| id).filter(|id| !ONLY_IN_FILES.contains(&id.as_str()));
    let missing: Vec<_> = known.filter(|id| !encodings.contains(&id.as_str())).collect();
    assert!(missing.is_empty(), "encodings without a tree: {missing:?}");
    let bytes = |_: &Session, tree: &Golden| tree.tree.clone();
    each_failure_with_each_tree("decoders", &trees, bytes, |session, tree| decode(session, tree));
}

#[test]
fn failed_memory_operations_in_the_tree_exporter_are_errors_without_leaks() {
    let _replay = replay::on_failure();
    let trees = if faults::all() { trees() } else { one_of_each() };
    let batch = |session: &Session, tree: &Golden| decode(session, &tree.tree).unwrap();
    each_failure_with_each_tree("exporter", &trees, batch, through_a_capsule);
}
