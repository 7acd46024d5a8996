//! The same in decoders, with trees of each encoding that the plugin `encodings` has, as Vortex made them, and in its exporter.

use crossdock::sink::{Output, VecSink};
use crossdock::source::Input;
use crossdock::{ReadOptions, Session, WriteOptions};
use crossdock_arrays::DeviceBatch;
use crossdock_memory_backend::Faults;
use crossdock_plugin_api::{CancelFlag, Options};
use crossdock_test_support::{devices, replay};
use crossdock_tests::failing::{OPERATIONS, each_failure, host, session, settled};
use crossdock_tests::faults;
use crossdock_tests::golden::{Golden, one_of_each, trees};

fn decoded(session: &Session, tree: &[u8]) -> crossdock::Result<DeviceBatch> {
    let options = ReadOptions { from: Some("encodings".into()), ..ReadOptions::default() };
    let mut reader = session.read(Input::bytes(tree.to_vec()), &options)?;
    Ok(reader.next()?.unwrap())
}

/// As bytes that nobody holds.
fn written(session: &Session, batch: DeviceBatch) -> Vec<u8> {
    let sink = VecSink::new();
    let options = WriteOptions { to: Some("arrow-ipc-stream".into()), ..WriteOptions::default() };
    let schema = batch.schema().clone();
    let mut writer = session.write(Output::Memory(sink.clone()), &schema, &options).unwrap();
    writer.write(batch).unwrap();
    writer.finish().unwrap();
    sink.take()
}

/// Twice the batch as the chunks of one tree, in a capsule, and out of it again.
fn through_a_capsule(session: &Session, batch: &DeviceBatch) -> crossdock::Result<DeviceBatch> {
    let (format, options) = ("encoded-array", Options::new());
    let mut writer = session.write_capsules(format, batch.schema(), &options)?;
    writer.write_borrowed(batch)?;
    writer.write_borrowed(batch)?;
    let capsules = writer.finish()?.capsules;
    Ok(session.read_capsules(format, capsules, None, &options)?.next()?.unwrap())
}

/// What `run` makes of what each tree was before, on every device.
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
            let mut all = (0, 0);
            let part = faults::part(&format!("{test}, {device}, {operation:?}"), trees.len(), 4);
            for tree in part.into_iter().map(|i| &trees[i]) {
                let what = format!("{} on {device}, {operation:?}", tree.name);
                let chosen = |occurrences| faults::chosen(occurrences, 4, 2);
                let given = before(&session, tree);
                let run = || run(&session, &given);
                let bytes = |batch| written(&session, batch);
                let (failed, of) = each_failure((&host, &faults, operation), &what, chosen, run, bytes);
                all = (all.0 + failed, all.1 + of);
            }
            // The pool may save every allocation of a few trees.
            let is_shown = all.0 > 0 || all.1 == 0 || !faults::has_every_case();
            assert!(is_shown, "{device}, {operation:?}: no failure of {} came up", all.1);
            drop(session);
            settled(&host, &format!("{device}, {operation:?}"));
        }
    }
}

#[test]
fn memory_copies_and_kernels_that_fail_in_each_decoder() {
    let _replay = replay::on_failure();
    let trees = if faults::all() { trees() } else { one_of_each() };
    let made: Vec<_> = trees.iter().map(Golden::encoding).collect();
    let known = session(&host(Faults::new()), devices()[0], &CancelFlag::new()).encodings();
    let known = known.iter().filter(|(_, by)| by.iter().any(|plugin| plugin.name() == "encodings"));
    let missing: Vec<_> = known.map(|(id, _)| id).filter(|id| !made.contains(&id.as_str())).collect();
    assert!(missing.is_empty(), "encodings without a tree: {missing:?}");
    let bytes = |_: &Session, tree: &Golden| tree.tree.clone();
    each_failure_with_each_tree("decoders", &trees, bytes, |session, tree| decoded(session, tree));
}

#[test]
fn memory_copies_and_kernels_that_fail_in_the_exporter_of_trees() {
    let _replay = replay::on_failure();
    let trees = if faults::all() { trees() } else { one_of_each() };
    let batch = |session: &Session, tree: &Golden| decoded(session, &tree.tree).unwrap();
    each_failure_with_each_tree("exporter", &trees, batch, through_a_capsule);
}
