//! Streams, instances and hosts that are used at the same time.

use std::sync::{Barrier, Mutex, PoisonError};

use arrow_array::RecordBatch;
use crossdock_arrays::DeviceBatch;

use super::super::case::{Case, Check, Stop, failed, require_input};
use super::super::context::CaseContext;
use super::super::counted_objects::ReleaseCounts;
use super::super::encoded_trees::{Tree, trees};
use super::super::round_trip::{self, ReadTable, Readable};
use super::super::subject::{Subject, invalid_array};
use super::super::tables::FORMS;

pub const CASES: &[Case] = &[
    Case {
        name: "concurrency.interleaved",
        rule: "Two streams, of one instance or of two, are independent.",
        spec_ref: "crossdock_plugin_entry.create, crossdock.h, threads",
        depends_on: &["importer.batches"],
        on_devices: false,
        check: interleaved,
    },
    Case {
        name: "concurrency.threads",
        rule: "An instance can be used from several threads at the same time.",
        spec_ref: "crossdock.h, threads",
        depends_on: &[
            "concurrency.interleaved",
            "memory.handles",
            "memory.blocks",
            "memory.streams_and_events",
            "memory.references",
            "lifetimes.batch",
        ],
        on_devices: true,
        check: threads,
    },
    Case {
        name: "concurrency.hosts",
        rule: "Two hosts in one process can use the plugin at the same time, each with its own instances.",
        spec_ref: "crossdock_plugin_entry.create, crossdock.h, threads",
        depends_on: &["concurrency.threads"],
        on_devices: true,
        check: hosts,
    },
];

/// Two different tables.
fn tables(context: &CaseContext, subject: &Subject, readable: &Readable) -> Check<Vec<RecordBatch>> {
    let mut tables = context.tables(subject, readable, FORMS[0])?;
    if readable.kind.is_some() {
        tables.extend(context.first_table(subject, readable, FORMS[1])?);
    }
    let last = tables.pop();
    tables.truncate(1);
    tables.extend(last);
    Ok(tables)
}

fn interleaved(context: &CaseContext) -> Check {
    let [one, other] = [context.subject()?, context.subject()?];
    for readable in round_trip::readable(context, &one)? {
        for second in [&one, &other] {
            let tables = tables(context, &one, &readable)?;
            let [left, right] = tables.as_slice() else { continue };
            read_in_turn(context, &readable, [(&one, left), (second, right)])?;
        }
    }
    Ok(())
}

/// Reads batches from two streams in turn.
fn read_in_turn(context: &CaseContext, readable: &Readable, pair: [(&Subject, &RecordBatch); 2]) -> Check {
    let place = format!("'{}', two streams in turn", readable.format.name);
    let fail = |error| failed(&place, "both tables", error);
    // Each stream has its subject, the expected batches, the batches that were read, and whether it
    // has ended.
    let mut streams = Vec::new();
    for (subject, table) in pair {
        let batches = context.table_for(&readable.batch_format, table)?;
        let expected = [batches.clone(), batches].concat();
        let counts = ReleaseCounts::default();
        let Ok(input) = round_trip::input(subject, readable, &table.schema(), &expected, &counts) else {
            return Ok(());
        };
        let expected_schema = round_trip::expected_schema(readable, &table.schema());
        let stream =
            round_trip::open(subject, &subject.call(), &readable.format, input, expected_schema.as_ref());
        streams.push((subject, expected, stream.map_err(fail)?, Vec::new(), false));
    }
    while streams.iter().any(|(.., ended)| !ended) {
        for (subject, _, stream, got, ended) in streams.iter_mut().filter(|(.., ended)| !*ended) {
            match stream.next(&subject.call()).map_err(fail)? {
                Some(batch) => got.push(batch),
                None => *ended = true,
            }
        }
    }
    for (subject, expected, mut stream, got, _) in streams {
        let schema = crossdock_arrays::import_schema(&stream.schema().map_err(fail)?);
        let schema = std::sync::Arc::new(schema.map_err(invalid_array(&place))?);
        let memory = context.session(crossdock::api::Device::CPU)?.memory().clone();
        let import = |batch| crossdock_arrays::import_batch(batch, &schema, &memory);
        let batches = got.into_iter().map(import).collect::<Result<_, _>>().map_err(invalid_array(&place))?;
        let read = ReadTable { schema: schema.clone(), batches };
        let difference = round_trip::difference(subject, &read, &expected).map_err(invalid_array(&place))?;
        difference.map_or(Ok(()), |details| Err(failed(&place, "each table's own values", details)))?;
    }
    Ok(())
}

const THREADS: usize = 4;
const ROUNDS: usize = 4;

fn threads(context: &CaseContext) -> Check {
    in_parallel(context, vec![context.subject()?], "in four threads")
}

fn hosts(context: &CaseContext) -> Check {
    in_parallel(context, vec![context.subject()?, context.subject()?], "of two hosts in four threads")
}

/// The formats and trees that a subject reads and decodes.
struct Work<'a> {
    subject: &'a Subject,
    formats: Vec<Readable>,
    /// The expected values, each with its tree. The tree is dropped last, because it owns the
    /// plugin instance that the values need.
    trees: Vec<(DeviceBatch, Tree)>,
}

impl<'a> Work<'a> {
    fn of(context: &CaseContext, subject: &'a Subject) -> Check<Self> {
        let formats = round_trip::readable(context, subject).unwrap_or_default();
        let expected = |tree: Tree| {
            let expected = tree.expected(context).map_err(|error| failed(&tree.place, "values", error))?;
            Ok((expected, tree))
        };
        let trees = trees(context, subject)?.into_iter().map(expected).collect::<Check<Vec<_>>>()?;
        require_input(!formats.is_empty() || !trees.is_empty(), "reads or decodes")?;
        Ok(Self { subject, formats, trees })
    }
}

/// Reads and decodes in `THREADS` threads, over which the subjects are distributed evenly.
fn in_parallel(context: &CaseContext, subjects: Vec<Subject>, how: &str) -> Check {
    let works = subjects.iter().map(|subject| Work::of(context, subject)).collect::<Check<Vec<_>>>()?;
    let (first, start) = (Mutex::new(None), Barrier::new(THREADS));
    std::thread::scope(|scope| {
        for work in works.iter().cycle().take(THREADS) {
            let (first, start) = (&first, &start);
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    // A thread also waits at the barrier after a failure, because each round begins
                    // only when all threads wait.
                    start.wait();
                    let stopped = || first.lock().unwrap_or_else(PoisonError::into_inner);
                    if stopped().is_some() {
                        continue;
                    }
                    if let Err(stop) = run_once(context, work, how) {
                        stopped().get_or_insert(stop);
                    }
                }
            });
        }
    });
    let first: Option<Stop> = first.into_inner().unwrap_or_else(PoisonError::into_inner);
    first.map_or(Ok(()), Err)?;
    drop(works);
    let watches: Vec<_> = subjects.into_iter().map(Subject::end).collect();
    watches.into_iter().try_for_each(|watch| super::entry::no_leaks(watch, "four threads, then destroy"))
}

fn run_once(context: &CaseContext, Work { subject, formats, trees }: &Work<'_>, how: &str) -> Check {
    for (expected, tree) in trees {
        let place = format!("{} {how}", tree.place);
        let read = tree.decode_once(context, subject).and_then(|decoded| decoded.read(context));
        let read = read.map_err(|error| failed(&place, "values", error))?;
        let expected = std::slice::from_ref(expected);
        let difference = round_trip::difference(subject, &read, expected).map_err(invalid_array(&place))?;
        difference.map_or(Ok(()), |details| Err(failed(&place, "the same values", details)))?;
    }
    for readable in formats {
        for table in tables(context, subject, readable)? {
            let place = format!("'{}' {how}", readable.format.name);
            let read = round_trip::read_back(context, subject, readable, &table, &ReleaseCounts::default())?;
            let read = read.map_err(|error| failed(&place, "the table", error))?;
            super::importer::same_values(context, subject, &place, readable, &table, &read)?;
        }
    }
    Ok(())
}
