//! What a plugin does with the host's memory.

use arrow_array::RecordBatch;
use crossdock::api::{CallSettings, Capsules, Device, Format, Input, Result, Validate};

use super::super::case::{Case, Check, Stop, failed, ran, skipped};
use super::super::guard;
use super::super::lent::{Bytes, Counts};
use super::super::subject::{Ground, Subject};
use super::super::tables::{FORMS, Form};
use super::super::tour;
use super::super::trees::trees;
use super::super::watch::{AS_ASKED, Breach, Watch, Wishes};
use super::entry::nothing_left;
use super::{exporter, hostile};

pub const CASES: &[Case] = &[
    Case {
        name: "memory.blocks",
        rule: "Every block that was allocated is given back, when what lies in it is released.",
        stands: "crossdock_memory.alloc, free",
        ground: &["importer.values", "exporter.plan_kept"],
        on_devices: true,
        check: |ground| left(ground, |watch| watch.blocks_held()),
    },
    Case {
        name: "memory.work",
        rule: "Every stream and every event that was made is destroyed.",
        stands: "crossdock_memory.stream_create, event_record",
        ground: &["importer.values", "exporter.plan_kept"],
        on_devices: true,
        check: |ground| left(ground, |watch| watch.work_held()),
    },
    Case {
        name: "memory.references",
        rule: "Every reference to the host is given back.",
        stands: "crossdock_host.retain, release",
        ground: &["importer.values", "exporter.plan_kept"],
        on_devices: true,
        check: |ground| {
            left(ground, |watch| {
                (watch.references() != 0).then(|| format!("{} references", watch.references()))
            })
        },
    },
    Case {
        name: "memory.handles",
        rule: "Blocks, streams and events are those that the host gave, and are given back once.",
        stands: "crossdock_memory",
        ground: &["importer.values", "exporter.plan_kept"],
        on_devices: true,
        check: |ground| left(ground, |watch| watch.breaches(Breach::Handle).into_iter().next()),
    },
    Case {
        name: "memory.bounds",
        rule: "Nothing is written beside a block.",
        stands: "crossdock_allocation",
        ground: &["importer.values", "exporter.plan_kept"],
        on_devices: true,
        check: |ground| left(ground, |watch| watch.breaches(Breach::Bounds).into_iter().next()),
    },
    Case {
        name: "memory.reads",
        rule: "Nothing is read beside the buffers of an array that was lent.",
        stands: "crossdock_batch, ArrowArray.buffers",
        ground: &["importer.values", "exporter.plan_kept"],
        on_devices: false,
        check: reads,
    },
    Case {
        name: "memory.stream",
        rule: "Work goes onto the call's stream, or onto one that the plugin made itself.",
        stands: "crossdock_call.stream",
        ground: &["importer.values", "exporter.plan_kept"],
        on_devices: true,
        check: stream,
    },
    Case {
        name: "memory.failing",
        rule: "Whichever of the memory's functions fails, the plugin's call succeeds or fails, and nothing is left behind.",
        stands: "crossdock.h, status",
        ground: &[
            "memory.blocks",
            "memory.work",
            "memory.references",
            "memory.handles",
            "importer.releases",
            "exporter.releases",
        ],
        on_devices: true,
        check: failing,
    },
    Case {
        name: "memory.told",
        rule: "Where one of the memory's functions fails and the call with it, the error has what that function said.",
        stands: "crossdock_error",
        ground: &["importer.values", "errors.message", "memory.failing"],
        on_devices: true,
        check: told,
    },
];

/// Everything that the suite has for the plugin, in, out and to decode, once.
pub fn tour(ground: &Ground, subject: &Subject, forms: &[Form]) -> Check {
    let has_tables = tables(ground, subject, forms)?;
    ran(decoded(ground, subject)? || has_tables, "reads, writes or decodes")
}

/// Tables in and out; whether there are any.
fn tables(ground: &Ground, subject: &Subject, forms: &[Form]) -> Check<bool> {
    let mut has_any = false;
    let samples = if subject.importer().is_ok() { hostile::known(ground, subject)? } else { Vec::new() };
    for (format, _, bytes) in samples {
        let input = Input::Source(Bytes::of(&bytes).source());
        drop(tour::read(ground, subject, &format, input, None));
        has_any = true;
    }
    for form in forms {
        if let Ok(formats) = tour::readable(ground, subject) {
            for readable in formats {
                for table in ground.tables(subject, &readable, *form)?.iter().take(8) {
                    drop(tour::round(ground, subject, &readable, table, &Counts::default())?);
                    has_any = true;
                }
            }
        }
        if let Ok(formats) = tour::writable(ground, subject) {
            for format in formats {
                for column in exporter::accepted(ground, subject, &format, *form)?.iter().take(8) {
                    let batches = ground.table_for(&format, column)?;
                    let (call, counts) = (subject.call(), Counts::default());
                    drop(tour::write(subject, &call, &format, &column.schema(), &batches, &counts));
                    has_any = true;
                }
            }
        }
    }
    Ok(has_any)
}

/// Trees decoded; whether there are any.
fn decoded(ground: &Ground, subject: &Subject) -> Check<bool> {
    let trees = trees(ground, subject)?;
    trees.iter().for_each(|tree| drop(tree.decode_once(ground, subject)));
    Ok(!trees.is_empty())
}

/// What is wrong after the tour and the instance's end.
fn left(ground: &Ground, look: fn(Watch) -> Option<String>) -> Check {
    let subject = ground.subject()?;
    tour(ground, &subject, &FORMS)?;
    let watch = subject.end();
    match look(watch) {
        Some(words) => Err(failed("tables in and out, trees decoded, then destroy", "none", words)),
        None => Ok(()),
    }
}

/// Buffers end where the next page may not be read: who goes on ends this process.
fn reads(ground: &Ground) -> Check {
    let subject = ground.subject()?;
    let mut has_any = false;
    for form in &FORMS[..2] {
        let guard = |table: &RecordBatch| -> Check<RecordBatch> {
            guard::columns(table).ok_or_else(|| skipped("no pages could be had"))
        };
        let on_cpu = |format: &Format| format.takes(Device::CPU.r#type);
        for format in tour::writable(ground, &subject).unwrap_or_default().into_iter().filter(on_cpu) {
            for column in exporter::accepted(ground, &subject, &format, *form)? {
                let batches = ground.table(&guard(&column)?, Device::CPU)?;
                let (call, counts) = (subject.call(), Counts::default());
                // Columns with nulls may be refused.
                drop(tour::write(&subject, &call, &format, &column.schema(), &batches, &counts));
                has_any = true;
            }
        }
        for readable in tour::readable(ground, &subject).unwrap_or_default() {
            let Some(kind) = readable.kind.filter(|_| on_cpu(&readable.taker)) else { continue };
            let Some(table) = ground.first_table(&subject, &readable, *form)? else { continue };
            let batches = ground.table(&guard(&table)?, Device::CPU)?;
            let call = CallSettings { validate: Validate::Full, ..subject.call() };
            let wrong = |error| failed(&readable.format.name, "the table", error);
            let capsules = kind.capsules(&table.schema(), &batches, subject.stream(), &Counts::default());
            let input = Input::Capsules(Capsules::from(capsules.map_err(wrong)?));
            let mut stream = tour::open(&subject, &call, &readable.format, input, None).map_err(wrong)?;
            while stream.next(&call).map_err(wrong)?.is_some() {}
            has_any = true;
        }
    }
    for tree in trees(ground, &subject)? {
        let guarded =
            tree.guarded().map_err(|error| failed(&tree.place, "a tree in guarded pages", error))?;
        drop(guarded.decode_once(ground, &subject));
        has_any = true;
    }
    ran(has_any, "reads, writes or decodes")
}

fn stream(ground: &Ground) -> Check {
    let subject = ground.subject()?;
    let raw = CallSettings::raw(&subject.call()).stream;
    subject.watch.expect_stream(raw);
    let done = tour(ground, &subject, &FORMS[..2]);
    subject.watch.expect_stream(std::ptr::null_mut());
    done?;
    match subject.watch.breaches(Breach::Stream).first() {
        Some(words) => Err(failed("a call with a stream of its own", "work on that", words)),
        None => Ok(()),
    }
}

fn told(ground: &Ground) -> Check {
    let subject = ground.subject()?;
    let mut has_any = false;
    for readable in tour::readable(ground, &subject).unwrap_or_default() {
        let Some(table) = ground.first_table(&subject, &readable, FORMS[0])? else { continue };
        let batches = ground.table_for(&readable.taker, &table)?;
        let (name, schema) = (&readable.format.name, table.schema());
        let asked = tour::expected(&readable, &schema);
        let input = || tour::input(&subject, &readable, &schema, &batches, &Counts::default());
        told_of_each(&subject, &format!("'{name}'"), input, |input| {
            tour::read(ground, &subject, &readable.format, input, asked.as_ref()).map(drop)
        })?;
        has_any = true;
    }
    for tree in trees(ground, &subject)? {
        let decode = |()| tree.decode_once(ground, &subject).map(drop);
        told_of_each(&subject, &tree.place, || Ok(()), decode)?;
        has_any = true;
    }
    ran(has_any, "reads or decodes")
}

/// Has each of the memory's functions fail in `run`, which is to say so.
fn told_of_each<T>(
    subject: &Subject,
    place: &str,
    mut make: impl FnMut() -> Result<T>,
    mut run: impl FnMut(T) -> Result<()>,
) -> Check {
    for nth in 1..=MOST {
        let input = make().map_err(|error| failed(place, "something to read", error))?;
        subject.watch.fail(nth);
        let ended = run(input);
        let was_reached = subject.watch.has_failed();
        subject.watch.fail(0);
        match ended {
            Err(error) if !error.message().contains(AS_ASKED) => {
                let place = format!("{place}, the memory's call {nth} failed");
                return Err(failed(place, format!("a message with '{AS_ASKED}'"), error));
            }
            _ if !was_reached => break,
            _ => {}
        }
    }
    Ok(())
}

/// More calls than these are not made to fail one by one.
const MOST: u64 = 60;

fn failing(ground: &Ground) -> Check {
    // Each for itself, so that many calls of the one hide no call of the other.
    let has_tables = each_failing(ground, "tables", |subject| tables(ground, subject, &FORMS[..1]))?;
    let has_trees = each_failing(ground, "trees", |subject| decoded(ground, subject))?;
    ran(has_tables || has_trees, "reads, writes or decodes")
}

/// Has each of the memory's functions fail in `run`, which says whether there is anything that it runs.
fn each_failing(ground: &Ground, what: &str, run: impl Fn(&Subject) -> Check<bool>) -> Check<bool> {
    for nth in 1..=MOST {
        let watch = ground.watch(Wishes::default());
        let Ok(subject) = ground.create(watch)? else { continue };
        watch.fail(nth);
        // What a plugin says of itself after a failure is not what this is about.
        let ended = run(&subject);
        let was_reached = watch.has_failed();
        watch.fail(0);
        let watch = subject.end();
        nothing_left(watch, &format!("{what}, the memory's call {nth} failed"))?;
        if !was_reached {
            return Ok(!matches!(ended, Ok(false) | Err(Stop::Skipped(_))));
        }
    }
    Ok(true)
}
