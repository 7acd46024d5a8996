//! The plugin's use of the host's memory.

use arrow_array::RecordBatch;
use crossdock::api::{CallSettings, Capsules, Device, Format, Input, Result, Validate};

use super::super::case::{Case, Check, Stop, failed, require_input, skipped};
use super::super::context::CaseContext;
use super::super::counted_objects::ReleaseCounts;
use super::super::encoded_trees::trees;
use super::super::guard;
use super::super::round_trip;
use super::super::subject::Subject;
use super::super::tables::{FORMS, Form};
use super::super::test_io::TestSource;
use super::super::watch::{HostOptions, INJECTED_FAILURE, Violation, Watch};
use super::entry::no_leaks;
use super::{exporter, hostile_bytes};

pub const CASES: &[Case] = &[
    Case {
        name: "memory.blocks",
        rule: "Every allocated block is freed once the objects in it are released.",
        spec_ref: "crossdock_memory.alloc, free",
        depends_on: &["importer.values", "exporter.follows_plan"],
        on_devices: true,
        check: |context| check_after_all(context, |watch| watch.blocks_held()),
    },
    Case {
        name: "memory.streams_and_events",
        rule: "Every created stream and every recorded event is destroyed.",
        spec_ref: "crossdock_memory.stream_create, event_record",
        depends_on: &["importer.values", "exporter.follows_plan"],
        on_devices: true,
        check: |context| check_after_all(context, |watch| watch.streams_and_events_held()),
    },
    Case {
        name: "memory.tasks",
        rule: "Every task has returned before destroy returns, and every group of tasks is released.",
        spec_ref: "crossdock_host_tasks.run, group_create",
        depends_on: &["importer.values", "exporter.follows_plan"],
        on_devices: false,
        check: |context| check_after_all(context, |watch| watch.tasks_held()),
    },
    Case {
        name: "memory.references",
        rule: "Every reference to the host is released.",
        spec_ref: "crossdock_host.retain, release",
        depends_on: &["importer.values", "exporter.follows_plan"],
        on_devices: true,
        check: |context| {
            check_after_all(context, |watch| {
                (watch.references() != 0).then(|| format!("{} references", watch.references()))
            })
        },
    },
    Case {
        name: "memory.handles",
        rule: "Handles of blocks, streams and events are valid, and are freed or destroyed once.",
        spec_ref: "crossdock_memory",
        depends_on: &["importer.values", "exporter.follows_plan"],
        on_devices: true,
        check: |context| {
            check_after_all(context, |watch| watch.violations(Violation::Handle).into_iter().next())
        },
    },
    Case {
        name: "memory.bounds",
        rule: "Nothing is written outside a block.",
        spec_ref: "crossdock_allocation",
        depends_on: &["importer.values", "exporter.follows_plan"],
        on_devices: true,
        check: |context| {
            check_after_all(context, |watch| watch.violations(Violation::Bounds).into_iter().next())
        },
    },
    Case {
        name: "memory.reads",
        rule: "Nothing is read outside the buffers of an array.",
        spec_ref: "crossdock_batch, ArrowArray.buffers",
        depends_on: &["importer.values", "exporter.follows_plan"],
        on_devices: false,
        check: reads,
    },
    Case {
        name: "memory.stream",
        rule: "Work uses the call's stream, or a stream that the plugin created.",
        spec_ref: "crossdock_call.stream",
        depends_on: &["importer.values", "exporter.follows_plan"],
        on_devices: true,
        check: stream,
    },
    Case {
        name: "memory.failing",
        rule: "If a function of the host's memory fails, the plugin's call succeeds or fails, without leaks.",
        spec_ref: "crossdock.h, status",
        depends_on: &[
            "memory.blocks",
            "memory.streams_and_events",
            "memory.tasks",
            "memory.references",
            "memory.handles",
            "importer.releases",
            "exporter.releases",
        ],
        on_devices: true,
        check: failing,
    },
    Case {
        name: "memory.error_message",
        rule: "If a call fails because a function of the host's memory failed, its error contains that function's message.",
        spec_ref: "crossdock_error",
        depends_on: &["importer.values", "errors.message", "memory.failing"],
        on_devices: true,
        check: error_message,
    },
];

/// Reads, writes and decodes everything that the suite has inputs for.
pub fn run_all(context: &CaseContext, subject: &Subject, forms: &[Form]) -> Check {
    let has_tables = run_tables(context, subject, forms)?;
    require_input(run_trees(context, subject)? || has_tables, "reads, writes or decodes")
}

/// Reads and writes tables. Returns whether the suite has a table for the plugin.
fn run_tables(context: &CaseContext, subject: &Subject, forms: &[Form]) -> Check<bool> {
    let mut has_input = false;
    let samples = if subject.importer().is_ok() {
        hostile_bytes::recognised_samples(context, subject)?
    } else {
        Vec::new()
    };
    for (format, _, bytes) in samples {
        let input = Input::Source(TestSource::of(&bytes).source());
        drop(round_trip::read(context, subject, &format, input, None));
        has_input = true;
    }
    for form in forms {
        if let Ok(formats) = round_trip::readable(context, subject) {
            for readable in formats {
                for table in context.tables(subject, &readable, *form)?.iter().take(8) {
                    drop(round_trip::read_back(
                        context,
                        subject,
                        &readable,
                        table,
                        &ReleaseCounts::default(),
                    )?);
                    has_input = true;
                }
            }
        }
        if let Ok(formats) = round_trip::writable(context, subject) {
            for format in formats {
                for column in exporter::accepted(context, subject, &format, *form)?.iter().take(8) {
                    let batches = context.table_for(&format, column)?;
                    let (call, counts) = (subject.call(), ReleaseCounts::default());
                    drop(round_trip::write(subject, &call, &format, &column.schema(), &batches, &counts));
                    has_input = true;
                }
            }
        }
    }
    Ok(has_input)
}

/// Decodes the encoded arrays of the samples. Returns whether a sample has nodes that the plugin
/// decodes.
fn run_trees(context: &CaseContext, subject: &Subject) -> Check<bool> {
    let trees = trees(context, subject)?;
    trees.iter().for_each(|tree| drop(tree.decode_once(context, subject)));
    Ok(!trees.is_empty())
}

/// Runs everything, destroys the instance, and fails if `violation` returns a description.
fn check_after_all(context: &CaseContext, violation: fn(Watch) -> Option<String>) -> Check {
    let subject = context.subject()?;
    run_all(context, &subject, &FORMS)?;
    let watch = subject.end();
    match violation(watch) {
        Some(details) => Err(failed("tables read and written, trees decoded, then destroy", "none", details)),
        None => Ok(()),
    }
}

/// Passes buffers that end at guard pages: a read after the end crashes this process.
fn reads(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    let mut has_input = false;
    for form in &FORMS[..2] {
        let guard = |table: &RecordBatch| -> Check<RecordBatch> {
            guard::columns(table).ok_or_else(|| skipped("cannot map pages"))
        };
        let on_cpu = |format: &Format| format.accepts_device(Device::CPU.r#type);
        for format in round_trip::writable(context, &subject).unwrap_or_default().into_iter().filter(on_cpu) {
            for column in exporter::accepted(context, &subject, &format, *form)? {
                let batches = context.table(&guard(&column)?, Device::CPU)?;
                let (call, counts) = (subject.call(), ReleaseCounts::default());
                // Columns with nulls may be rejected.
                drop(round_trip::write(&subject, &call, &format, &column.schema(), &batches, &counts));
                has_input = true;
            }
        }
        for readable in round_trip::readable(context, &subject).unwrap_or_default() {
            let Some(kind) = readable.kind.filter(|_| on_cpu(&readable.batch_format)) else { continue };
            let Some(table) = context.first_table(&subject, &readable, *form)? else { continue };
            let batches = context.table(&guard(&table)?, Device::CPU)?;
            let call = CallSettings { validate: Validate::Full, ..subject.call() };
            let fail = |error| failed(&readable.format.name, "the table", error);
            let capsules =
                kind.capsules(&table.schema(), &batches, subject.stream(), &ReleaseCounts::default());
            let input = Input::Capsules(Capsules::from(capsules.map_err(fail)?));
            let mut stream =
                round_trip::open(&subject, &call, &readable.format, input, None).map_err(fail)?;
            while stream.next(&call).map_err(fail)?.is_some() {}
            has_input = true;
        }
    }
    for tree in trees(context, &subject)? {
        let guarded =
            tree.guarded().map_err(|error| failed(&tree.place, "a tree in guarded pages", error))?;
        drop(guarded.decode_once(context, &subject));
        has_input = true;
    }
    require_input(has_input, "reads, writes or decodes")
}

fn stream(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    let raw = CallSettings::raw(&subject.call()).stream;
    subject.watch.expect_stream(raw);
    let result = run_all(context, &subject, &FORMS[..2]);
    subject.watch.expect_stream(std::ptr::null_mut());
    result?;
    match subject.watch.violations(Violation::Stream).first() {
        Some(details) => Err(failed("a call with its own stream", "work on that stream", details)),
        None => Ok(()),
    }
}

fn error_message(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    let mut has_input = false;
    for readable in round_trip::readable(context, &subject).unwrap_or_default() {
        let Some(table) = context.first_table(&subject, &readable, FORMS[0])? else { continue };
        let batches = context.table_for(&readable.batch_format, &table)?;
        let (name, schema) = (&readable.format.name, table.schema());
        let expected_schema = round_trip::expected_schema(&readable, &schema);
        let input = || round_trip::input(&subject, &readable, &schema, &batches, &ReleaseCounts::default());
        check_messages(&subject, &format!("'{name}'"), input, |input| {
            round_trip::read(context, &subject, &readable.format, input, expected_schema.as_ref()).map(drop)
        })?;
        has_input = true;
    }
    for tree in trees(context, &subject)? {
        let decode = |()| tree.decode_once(context, &subject).map(drop);
        check_messages(&subject, &tree.place, || Ok(()), decode)?;
        has_input = true;
    }
    require_input(has_input, "reads or decodes")
}

/// Calls `run` repeatedly. In the `n`th run, the `n`th call to the host's memory fails. If `run`
/// returns an error, the error must contain the message of this failure.
fn check_messages<T>(
    subject: &Subject,
    place: &str,
    mut make: impl FnMut() -> Result<T>,
    mut run: impl FnMut(T) -> Result<()>,
) -> Check {
    for nth in 1..=MAX_FAILURES {
        let input = make().map_err(|error| failed(place, "something to read", error))?;
        subject.watch.fail(nth);
        let result = run(input);
        let was_reached = subject.watch.has_failed();
        subject.watch.fail(0);
        match result {
            Err(error) if !error.message().contains(INJECTED_FAILURE) => {
                let place = format!("{place}, call {nth} to the host's memory failed");
                return Err(failed(place, format!("a message with '{INJECTED_FAILURE}'"), error));
            }
            _ if !was_reached => break,
            _ => {}
        }
    }
    Ok(())
}

/// The maximum number of runs. In the `n`th run, the `n`th call to the host's memory fails.
const MAX_FAILURES: u64 = 60;

fn failing(context: &CaseContext) -> Check {
    // `MAX_FAILURES` applies to tables and trees separately, so that many calls for tables do not
    // prevent runs for trees.
    let has_tables = fail_each_call(context, "tables", |subject| run_tables(context, subject, &FORMS[..1]))?;
    let has_trees = fail_each_call(context, "trees", |subject| run_trees(context, subject))?;
    require_input(has_tables || has_trees, "reads, writes or decodes")
}

/// Calls `run` repeatedly. In the `n`th run, the `n`th call to the host's memory fails. Both `run`
/// and this function return whether there was any input.
fn fail_each_call(context: &CaseContext, what: &str, run: impl Fn(&Subject) -> Check<bool>) -> Check<bool> {
    for nth in 1..=MAX_FAILURES {
        let watch = context.watch(HostOptions::default());
        let Ok(subject) = context.create(watch)? else { continue };
        watch.fail(nth);
        // Whether the plugin's results are correct after a failure is not checked here.
        let result = run(&subject);
        let was_reached = watch.has_failed();
        watch.fail(0);
        let watch = subject.end();
        no_leaks(watch, &format!("{what}, call {nth} to the host's memory failed"))?;
        if !was_reached {
            return Ok(!matches!(result, Ok(false) | Err(Stop::Skipped(_))));
        }
    }
    Ok(true)
}
