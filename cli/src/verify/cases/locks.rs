//! Checks locks: releases objects on one thread while the plugin calls the host on another thread.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arrow_array::RecordBatch;

use super::super::case::{Case, Check, Stop, failed, not_offered};
use super::super::context::CaseContext;
use super::super::counted_objects::ReleaseCounts;
use super::super::encoded_trees::trees;
use super::super::host_calls::{HostCall, with_visitor, without_visitor};
use super::super::round_trip::{self, WriterOutput};
use super::super::subject::Subject;
use super::super::tables::FORMS;
use super::super::test_io::TestSink;
use super::exporter;

pub const CASES: &[Case] = &[Case {
    name: "concurrency.locks",
    rule: "The plugin holds no lock while it calls the host: batches, streams, capsules and writers can be released on another \
           thread in the meantime.",
    spec_ref: "crossdock.h, threads",
    depends_on: &["concurrency.threads", "lifetimes.batch", "lifetimes.capsule", "importer.abandoned"],
    on_devices: true,
    check: locks,
}];

/// One object of each kind that the plugin returns. The objects of a bundle are released together.
type Bundle = Vec<Box<dyn Send>>;

/// The number of bundles. It suffices to release one bundle in each of the calls 1, 2, 4, 8, ... of
/// each function of the host.
const N_BUNDLES: usize = 64;
/// A release may take the case's time limit divided by this number.
const TIMEOUT_DIVISOR: u32 = 6;

/// The bundles that are not released yet.
#[derive(Default)]
struct Spares {
    bundles: Vec<Bundle>,
    /// The number of calls that the plugin made to each function of the host.
    calls: HashMap<&'static str, u64>,
    /// The function during which a release did not return, and the channel that reports its return.
    stuck: Option<(&'static str, Receiver<()>)>,
}

fn lock(spares: &Mutex<Spares>) -> MutexGuard<'_, Spares> {
    spares.lock().unwrap_or_else(PoisonError::into_inner)
}

fn locks(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    let mut n_released = 0;
    for readable in round_trip::readable(context, &subject).unwrap_or_default() {
        let Some(table) = context.first_table(&subject, &readable, FORMS[1])? else { continue };
        let place = format!("'{}', read", readable.format.name);
        n_released += stage(context, &subject, &place, || {
            drop(round_trip::read_back(context, &subject, &readable, &table, &ReleaseCounts::default())?);
            Ok(())
        })?;
    }
    for format in round_trip::writable(context, &subject).unwrap_or_default() {
        let columns = exporter::accepted(context, &subject, &format, FORMS[0])?;
        let Some(table) = columns.first() else { continue };
        let batches = context.table_for(&format, table)?;
        let place = format!("'{}', written", format.name);
        n_released += stage(context, &subject, &place, || {
            let (call, counts) = (subject.call(), ReleaseCounts::default());
            drop(round_trip::write(&subject, &call, &format, &table.schema(), &batches, &counts));
            Ok(())
        })?;
    }
    for tree in trees(context, &subject)? {
        let place = format!("{}, decoded", tree.place);
        n_released += stage(context, &subject, &place, || {
            drop(tree.decode_once(context, &subject));
            Ok(())
        })?;
    }
    if n_released == 0 {
        return Err(not_offered("the plugin does not call the host while it reads, writes or decodes"));
    }
    Ok(())
}

/// Runs `work`. While `work` calls the host, releases bundles of objects that the plugin returned.
/// Returns the number of released bundles.
fn stage(
    context: &CaseContext,
    subject: &Subject,
    place: &str,
    work: impl FnOnce() -> Check,
) -> Check<usize> {
    let bundles = bundles(context, subject)?;
    let n_bundles = bundles.len();
    let spares = Arc::new(Mutex::new(Spares { bundles, ..Spares::default() }));
    let timeout = context.limit / TIMEOUT_DIVISOR;
    let visitor = {
        let spares = spares.clone();
        move |call: HostCall| release_one(&spares, call.function, timeout)
    };
    with_visitor(Arc::new(visitor), work)?;
    let (n_spare, stuck) = {
        let mut spares = lock(&spares);
        (spares.bundles.len(), spares.stuck.take())
    };
    match stuck {
        Some((function, returned)) => Err(blocked(place, function, &returned, timeout)),
        None => Ok(n_bundles - n_spare),
    }
}

/// Releases a bundle on another thread if the number of this call of `function` is a power of two.
fn release_one(spares: &Mutex<Spares>, function: &'static str, timeout: Duration) {
    let bundle = {
        let mut spares = lock(spares);
        let calls = spares.calls.entry(function).or_default();
        *calls += 1;
        if !calls.is_power_of_two() || spares.stuck.is_some() {
            return;
        }
        spares.bundles.pop()
    };
    let Some(bundle) = bundle else { return };
    let (sender, returned) = channel();
    std::thread::spawn(move || {
        without_visitor(|| drop(bundle));
        // If the receiver is dropped, the case has ended.
        let _ = sender.send(());
    });
    if returned.recv_timeout(timeout) == Err(RecvTimeoutError::Timeout) {
        lock(spares).stuck = Some((function, returned));
    }
}

/// Fails the case because a release did not return in time.
fn blocked(place: &str, function: &str, returned: &Receiver<()>, timeout: Duration) -> Stop {
    let got = match returned.recv_timeout(timeout) {
        Ok(()) => "it returned only after the call to the host had returned",
        Err(_) => "it did not return",
    };
    let place =
        format!("{place}: a release on another thread, while the plugin is in the host's '{function}'");
    failed(place, "the release to return, since the plugin holds no lock", got)
}

/// Makes bundles of objects: batches and streams for each format that the plugin reads, capsules
/// and writers for each format that it writes, and decoded batches.
fn bundles(context: &CaseContext, subject: &Subject) -> Check<Vec<Bundle>> {
    let readable: Vec<_> = round_trip::readable(context, subject).unwrap_or_default();
    let mut read = Vec::new();
    for readable in readable {
        let table = context.tables(subject, &readable, FORMS[0])?.into_iter().next();
        let first_columns =
            |table: RecordBatch| table.project(&(0..table.num_columns().min(3)).collect::<Vec<_>>()).ok();
        if let Some(table) = table.and_then(first_columns) {
            let batches = context.table_for(&readable.batch_format, &table)?;
            read.push((readable, table, batches));
        }
    }
    let mut written = Vec::new();
    for format in round_trip::writable(context, subject).unwrap_or_default() {
        if let Some(table) = exporter::accepted(context, subject, &format, FORMS[0])?.into_iter().next() {
            let batches = context.table_for(&format, &table)?;
            written.push((format, table, batches));
        }
    }
    let (call, trees) = (subject.call(), trees(context, subject)?);
    let new_bundle = || {
        let mut bundle = Bundle::new();
        for (readable, table, batches) in &read {
            let input =
                round_trip::input(subject, readable, &table.schema(), batches, &ReleaseCounts::default());
            let expected_schema = round_trip::expected_schema(readable, &table.schema());
            let open =
                |input| round_trip::open(subject, &call, &readable.format, input, expected_schema.as_ref());
            let Ok(mut stream) = input.and_then(open) else { continue };
            if let Ok(Some(batch)) = stream.next(&call) {
                bundle.push(Box::new(batch));
            }
            bundle.push(Box::new(stream));
        }
        for (format, table, batches) in &written {
            let (schema, counts) = (table.schema(), ReleaseCounts::default());
            if let Ok(WriterOutput::Capsules(capsules)) =
                round_trip::write(subject, &call, format, &schema, batches, &counts)
            {
                bundle.push(Box::new(capsules));
            }
            if let Ok(writer) =
                round_trip::begin(subject, &call, format, &schema, &Arc::new(TestSink::default()))
            {
                bundle.push(Box::new(writer));
            }
        }
        for tree in &trees {
            if let Ok(decoded) = tree.decode_once(context, subject) {
                bundle.push(Box::new(decoded.raw));
            }
        }
        bundle
    };
    Ok((0..N_BUNDLES).map(|_| new_bundle()).collect())
}
