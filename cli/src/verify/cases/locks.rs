//! Locks: what was lent goes on one thread while the plugin is inside of the host on another.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arrow_array::RecordBatch;

use super::super::case::{Case, Check, Stop, failed, not_offered};
use super::super::inside::{Called, unvisited, visited};
use super::super::lent::{Counts, Written};
use super::super::subject::{Ground, Subject};
use super::super::tables::FORMS;
use super::super::tour::{self, Given};
use super::super::trees::trees;
use super::exporter;

pub const CASES: &[Case] = &[Case {
    name: "concurrency.locks",
    rule: "No lock is held where the host is called: batches, streams, capsules and writers are released meanwhile, on another \
           thread.",
    stands: "crossdock.h, threads",
    ground: &["concurrency.threads", "lifetimes.batch", "lifetimes.capsule", "importer.abandoned"],
    on_devices: true,
    check: locks,
}];

/// One of each that the plugin lends, all of which go at once.
type Bundle = Vec<Box<dyn Send>>;

/// As many calls of the host are enough to release something in the first, second, fourth, eighth... of each function.
const BUNDLES: usize = 64;
/// Which part of the case's time a release may take.
const PATIENCE: u32 = 6;

/// What is left to be released, and what came of it.
#[derive(Default)]
struct Spares {
    bundles: Vec<Bundle>,
    calls: HashMap<&'static str, u64>,
    /// The function in which a release did not end, and who tells of its end.
    stuck: Option<(&'static str, Receiver<()>)>,
}

fn lock(spares: &Mutex<Spares>) -> MutexGuard<'_, Spares> {
    spares.lock().unwrap_or_else(PoisonError::into_inner)
}

fn locks(ground: &Ground) -> Check {
    let subject = ground.subject()?;
    let mut n_released = 0;
    for readable in tour::readable(ground, &subject).unwrap_or_default() {
        let Some(table) = ground.first_table(&subject, &readable, FORMS[1])? else { continue };
        let place = format!("'{}', read", readable.format.name);
        n_released += stage(ground, &subject, &place, || {
            drop(tour::round(ground, &subject, &readable, &table, &Counts::default())?);
            Ok(())
        })?;
    }
    for format in tour::writable(ground, &subject).unwrap_or_default() {
        let columns = exporter::accepted(ground, &subject, &format, FORMS[0])?;
        let Some(table) = columns.first() else { continue };
        let batches = ground.table_for(&format, table)?;
        let place = format!("'{}', written", format.name);
        n_released += stage(ground, &subject, &place, || {
            let (call, counts) = (subject.call(), Counts::default());
            drop(tour::write(&subject, &call, &format, &table.schema(), &batches, &counts));
            Ok(())
        })?;
    }
    for tree in trees(ground, &subject)? {
        let place = format!("{}, decoded", tree.place);
        n_released += stage(ground, &subject, &place, || {
            drop(tree.decode_once(ground, &subject));
            Ok(())
        })?;
    }
    if n_released == 0 {
        return Err(not_offered("the plugin calls nothing of the host's while it reads, writes or decodes"));
    }
    Ok(())
}

/// Runs `work`, and releases something in its calls of the host; how often.
fn stage(ground: &Ground, subject: &Subject, place: &str, work: impl FnOnce() -> Check) -> Check<usize> {
    let bundles = bundles(ground, subject)?;
    let n = bundles.len();
    let spares = Arc::new(Mutex::new(Spares { bundles, ..Spares::default() }));
    let patience = ground.limit / PATIENCE;
    let visit = {
        let spares = spares.clone();
        move |call: Called| release_one(&spares, call.function, patience)
    };
    visited(Arc::new(visit), work)?;
    let (left, stuck) = {
        let mut spares = lock(&spares);
        (spares.bundles.len(), spares.stuck.take())
    };
    match stuck {
        Some((function, ended)) => Err(waits(place, function, &ended, patience)),
        None => Ok(n - left),
    }
}

fn release_one(spares: &Mutex<Spares>, function: &'static str, patience: Duration) {
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
    let (end, ended) = channel();
    std::thread::spawn(move || {
        unvisited(|| drop(bundle));
        // Where nobody listens any more the case is over.
        let _ = end.send(());
    });
    if ended.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
        lock(spares).stuck = Some((function, ended));
    }
}

/// A release that did not end, told with whether it has since.
fn waits(place: &str, function: &str, ended: &Receiver<()>, patience: Duration) -> Stop {
    let got = match ended.recv_timeout(patience) {
        Ok(()) => "it ended only when the call had returned",
        Err(_) => "it has not ended since either",
    };
    let place =
        format!("{place}: a release on another thread, while the plugin is in the host's '{function}'");
    failed(place, "an end of it, for no lock is held there", got)
}

/// Batches and streams of each format that is read, capsules and writers of each that is written, and what is decoded.
fn bundles(ground: &Ground, subject: &Subject) -> Check<Vec<Bundle>> {
    let readable: Vec<_> = tour::readable(ground, subject).unwrap_or_default();
    let mut read = Vec::new();
    for readable in readable {
        let table = ground.tables(subject, &readable, FORMS[0])?.into_iter().next();
        // A few columns are as good as all.
        let few =
            |table: RecordBatch| table.project(&(0..table.num_columns().min(3)).collect::<Vec<_>>()).ok();
        if let Some(table) = table.and_then(few) {
            let given = ground.table_for(&readable.taker, &table)?;
            read.push((readable, table, given));
        }
    }
    let mut written = Vec::new();
    for format in tour::writable(ground, subject).unwrap_or_default() {
        if let Some(table) = exporter::accepted(ground, subject, &format, FORMS[0])?.into_iter().next() {
            let given = ground.table_for(&format, &table)?;
            written.push((format, table, given));
        }
    }
    let (call, trees) = (subject.call(), trees(ground, subject)?);
    let one = || {
        let mut bundle = Bundle::new();
        for (readable, table, given) in &read {
            let input = tour::input(subject, readable, &table.schema(), given, &Counts::default());
            let asked = tour::expected(readable, &table.schema());
            let open = |input| tour::open(subject, &call, &readable.format, input, asked.as_ref());
            let Ok(mut stream) = input.and_then(open) else { continue };
            if let Ok(Some(batch)) = stream.next(&call) {
                bundle.push(Box::new(batch));
            }
            bundle.push(Box::new(stream));
        }
        for (format, table, given) in &written {
            let (schema, counts) = (table.schema(), Counts::default());
            if let Ok(Given::Capsules(capsules)) =
                tour::write(subject, &call, format, &schema, given, &counts)
            {
                bundle.push(Box::new(capsules));
            }
            if let Ok(writer) = tour::begin(subject, &call, format, &schema, &Arc::new(Written::default())) {
                bundle.push(Box::new(writer));
            }
        }
        for tree in &trees {
            if let Ok(decoded) = tree.decode_once(ground, subject) {
                bundle.push(Box::new(decoded.raw));
            }
        }
        bundle
    };
    Ok((0..BUNDLES).map(|_| one()).collect())
}
