//! Several at once.

use std::sync::{Barrier, Mutex, PoisonError};

use arrow_array::RecordBatch;
use crossdock_arrays::DeviceBatch;

use super::super::case::{Case, Check, Stop, failed, ran};
use super::super::lent::Counts;
use super::super::subject::{Ground, Subject, looked};
use super::super::tables::FORMS;
use super::super::tour::{self, Read, Readable};
use super::super::trees::{Tree, trees};

pub const CASES: &[Case] = &[
    Case {
        name: "concurrency.interleaved",
        rule: "Two streams of one instance, and of two, know nothing of each other.",
        stands: "crossdock_plugin_entry.create, crossdock.h, threads",
        ground: &["importer.batches"],
        on_devices: false,
        check: interleaved,
    },
    Case {
        name: "concurrency.threads",
        rule: "An instance is used from several threads at once.",
        stands: "crossdock.h, threads",
        ground: &[
            "concurrency.interleaved",
            "memory.handles",
            "memory.blocks",
            "memory.work",
            "memory.references",
            "lifetimes.batch",
        ],
        on_devices: true,
        check: threads,
    },
    Case {
        name: "concurrency.hosts",
        rule: "Two hosts of one process use the plugin at once, and each has its own of it alone.",
        stands: "crossdock_plugin_entry.create, crossdock.h, threads",
        ground: &["concurrency.threads"],
        on_devices: true,
        check: hosts,
    },
];

/// Two tables that differ.
fn tables(ground: &Ground, subject: &Subject, readable: &Readable) -> Check<Vec<RecordBatch>> {
    let mut tables = ground.tables(subject, readable, FORMS[0])?;
    if readable.kind.is_some() {
        tables.extend(ground.first_table(subject, readable, FORMS[1])?);
    }
    let last = tables.pop();
    tables.truncate(1);
    tables.extend(last);
    Ok(tables)
}

fn interleaved(ground: &Ground) -> Check {
    let [one, other] = [ground.subject()?, ground.subject()?];
    for readable in tour::readable(ground, &one)? {
        for second in [&one, &other] {
            let tables = tables(ground, &one, &readable)?;
            let [left, right] = tables.as_slice() else { continue };
            interleave(ground, &readable, [(&one, left), (second, right)])?;
        }
    }
    Ok(())
}

/// Takes a batch from each in turn.
fn interleave(ground: &Ground, readable: &Readable, pair: [(&Subject, &RecordBatch); 2]) -> Check {
    let place = format!("'{}', two streams in turn", readable.format.name);
    let wrong = |error| failed(&place, "both tables", error);
    let mut streams = Vec::new();
    for (subject, table) in pair {
        let batches = ground.table_for(&readable.taker, table)?;
        let given = [batches.clone(), batches].concat();
        let Ok(input) = tour::input(subject, readable, &table.schema(), &given, &Counts::default()) else {
            return Ok(());
        };
        let asked = tour::expected(readable, &table.schema());
        let stream = tour::open(subject, &subject.call(), &readable.format, input, asked.as_ref());
        streams.push((subject, given, stream.map_err(wrong)?, Vec::new(), false));
    }
    while streams.iter().any(|(.., ended)| !ended) {
        for (subject, _, stream, got, ended) in streams.iter_mut().filter(|(.., ended)| !*ended) {
            match stream.next(&subject.call()).map_err(wrong)? {
                Some(batch) => got.push(batch),
                None => *ended = true,
            }
        }
    }
    for (subject, given, mut stream, got, _) in streams {
        let schema = crossdock_arrays::import_schema(&stream.schema().map_err(wrong)?);
        let schema = std::sync::Arc::new(schema.map_err(looked(&place))?);
        let memory = ground.session(crossdock::api::Device::CPU)?.memory().clone();
        let import = |batch| crossdock_arrays::import_batch(batch, &schema, &memory);
        let batches = got.into_iter().map(import).collect::<Result<_, _>>().map_err(looked(&place))?;
        let read = Read { schema: schema.clone(), batches };
        let difference = tour::difference(subject, &read, &given).map_err(looked(&place))?;
        difference.map_or(Ok(()), |words| Err(failed(&place, "each table's own values", words)))?;
    }
    Ok(())
}

const THREADS: usize = 4;
const ROUNDS: usize = 4;

fn threads(ground: &Ground) -> Check {
    at_once(ground, vec![ground.subject()?], "in four threads")
}

fn hosts(ground: &Ground) -> Check {
    at_once(ground, vec![ground.subject()?, ground.subject()?], "of two hosts in four threads")
}

/// What a subject reads and decodes.
struct Work<'a> {
    subject: &'a Subject,
    formats: Vec<Readable>,
    /// Each after what is expected of it, which goes first: the tree keeps its instance.
    trees: Vec<(DeviceBatch, Tree)>,
}

impl<'a> Work<'a> {
    fn of(ground: &Ground, subject: &'a Subject) -> Check<Self> {
        let formats = tour::readable(ground, subject).unwrap_or_default();
        let expected = |tree: Tree| {
            let expected = tree.expected(ground).map_err(|error| failed(&tree.place, "values", error))?;
            Ok((expected, tree))
        };
        let trees = trees(ground, subject)?.into_iter().map(expected).collect::<Check<Vec<_>>>()?;
        ran(!formats.is_empty() || !trees.is_empty(), "reads or decodes")?;
        Ok(Self { subject, formats, trees })
    }
}

/// All that the plugin reads and decodes, in threads that take the subjects in turn.
fn at_once(ground: &Ground, subjects: Vec<Subject>, how: &str) -> Check {
    let works = subjects.iter().map(|subject| Work::of(ground, subject)).collect::<Check<Vec<_>>>()?;
    let (first, start) = (Mutex::new(None), Barrier::new(THREADS));
    std::thread::scope(|scope| {
        for work in works.iter().cycle().take(THREADS) {
            let (first, start) = (&first, &start);
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    // Those that have failed wait as well: all begin each round together, and do the same at the same time.
                    start.wait();
                    let stopped = || first.lock().unwrap_or_else(PoisonError::into_inner);
                    if stopped().is_some() {
                        continue;
                    }
                    if let Err(stop) = once(ground, work, how) {
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
    watches.into_iter().try_for_each(|watch| super::entry::nothing_left(watch, "four threads, then destroy"))
}

fn once(ground: &Ground, Work { subject, formats, trees }: &Work<'_>, how: &str) -> Check {
    for (expected, tree) in trees {
        let place = format!("{} {how}", tree.place);
        let read = tree.decode_once(ground, subject).and_then(|decoded| decoded.read(ground));
        let read = read.map_err(|error| failed(&place, "values", error))?;
        let given = std::slice::from_ref(expected);
        let difference = tour::difference(subject, &read, given).map_err(looked(&place))?;
        difference.map_or(Ok(()), |words| Err(failed(&place, "the same values", words)))?;
    }
    for readable in formats {
        for table in tables(ground, subject, readable)? {
            let place = format!("'{}' {how}", readable.format.name);
            let read = tour::round(ground, subject, readable, &table, &Counts::default())?;
            let read = read.map_err(|error| failed(&place, "the table", error))?;
            super::importer::same_values(ground, subject, &place, readable, &table, &read)?;
        }
    }
    Ok(())
}
