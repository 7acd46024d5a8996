//! The settings of a call: cancellation, progress, byte budget and validation.

use std::sync::{Arc, Mutex, PoisonError};

use crossdock::api::{CallSettings, CancelFlag, Code, Error};

use super::super::case::{Case, Check, failed, require_input};
use super::super::context::CaseContext;
use super::super::counted_objects::{ReleaseCounts, batch};
use super::super::encoded_trees::trees;
use super::super::round_trip;
use super::super::tables::FORMS;
use super::super::test_io::TestSink;
use super::exporter;

pub const CASES: &[Case] = &[
    Case {
        name: "calls.cancelled_read",
        rule: "A stream whose call is cancelled returns CROSSDOCK_CANCELLED instead of a batch.",
        spec_ref: "crossdock_call.cancel",
        depends_on: &["importer.abandoned"],
        on_devices: false,
        check: cancelled_read,
    },
    Case {
        name: "calls.cancelled_write",
        rule: "A writer whose call is cancelled returns CROSSDOCK_CANCELLED, and takes ownership of the batch.",
        spec_ref: "crossdock_call.cancel, crossdock_writer.write",
        depends_on: &["exporter.releases"],
        on_devices: false,
        check: cancelled_write,
    },
    Case {
        name: "calls.cancelled_decode",
        rule: "A decode call that is cancelled returns CROSSDOCK_CANCELLED instead of a batch.",
        spec_ref: "crossdock_call.cancel, crossdock_encoding.decode",
        depends_on: &["errors.message"],
        on_devices: false,
        check: cancelled_decode,
    },
    Case {
        name: "calls.settings",
        rule: "A progress callback, a byte budget and full validation do not change any value.",
        spec_ref: "crossdock_call",
        depends_on: &["importer.values"],
        on_devices: false,
        check: settings,
    },
    Case {
        name: "calls.progress",
        rule: "Progress never exceeds the total, if the total is known.",
        spec_ref: "crossdock_call.progress",
        depends_on: &["calls.settings"],
        on_devices: false,
        check: progress,
    },
];

/// Returns a copy of the call's settings in which the call is cancelled.
fn cancelled(call: &CallSettings) -> CallSettings {
    let cancel = CancelFlag::new();
    cancel.cancel();
    CallSettings { cancel, ..call.clone() }
}

fn require_cancelled(place: String, result: Result<&str, Error>) -> Check {
    match result {
        Err(error) if error.code() == Code::CANCELLED => Ok(()),
        Err(error) => Err(failed(place, "CROSSDOCK_CANCELLED", format!("{:?}: {error}", error.code()))),
        Ok(what) => Err(failed(place, "CROSSDOCK_CANCELLED", what)),
    }
}

fn cancelled_read(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    for readable in round_trip::readable(context, &subject)? {
        let Some(table) = context.first_table(&subject, &readable, FORMS[0])? else { continue };
        let batches = context.table_for(&readable.batch_format, &table)?;
        let (call, expected_schema) =
            (subject.call(), round_trip::expected_schema(&readable, &table.schema()));
        let fail = |error| failed(&readable.format.name, "a stream", error);
        let input =
            round_trip::input(&subject, &readable, &table.schema(), &batches, &ReleaseCounts::default())
                .map_err(fail)?;
        let mut stream = round_trip::open(&subject, &call, &readable.format, input, expected_schema.as_ref())
            .map_err(fail)?;
        let result = stream.next(&cancelled(&call));
        let result = result.map(|batch| if batch.is_some() { "a batch" } else { "the end" });
        require_cancelled(format!("'{}', get_next", readable.format.name), result)?;
    }
    Ok(())
}

fn cancelled_write(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    exporter::each(context, &subject, FORMS[0], |format, table, batches| {
        let Some(first) = batches.first() else { return Ok(()) };
        let (call, to, counts) = (subject.call(), Arc::new(TestSink::default()), ReleaseCounts::default());
        let fail = |error| failed(&format.name, "a writer", error);
        let mut writer = round_trip::begin(&subject, &call, format, &table.schema(), &to).map_err(fail)?;
        let first = batch(first, subject.stream(), &counts).map_err(fail)?;
        let result = writer.write(&cancelled(&call), first).map(|_| "success");
        drop(writer);
        require_cancelled(format!("'{}', write", format.name), result)?;
        context.backend.settle();
        counts
            .violation()
            .map_or(Ok(()), |details| Err(failed(&format.name, "the batch released once", details)))
    })
}

fn cancelled_decode(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    let trees = trees(context, &subject)?;
    require_input(!trees.is_empty(), "decodes")?;
    for tree in &trees {
        let result = tree.decode(context, &subject, &cancelled(&subject.call()), &ReleaseCounts::default());
        require_cancelled(format!("{}, decode", tree.place), result.map(|_| "a batch"))?;
    }
    Ok(())
}

fn settings(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    for readable in round_trip::readable(context, &subject)? {
        let Some(table) = context.first_table(&subject, &readable, FORMS[0])? else { continue };
        let batches = context.table_for(&readable.batch_format, &table)?;
        let call = CallSettings {
            progress: Some(Arc::new(|_, _| {})),
            byte_budget: 1,
            validate: crossdock::api::Validate::Full,
            ..subject.call()
        };
        let fail = |error| failed(&readable.format.name, "the table", error);
        let expected_schema = round_trip::expected_schema(&readable, &table.schema());
        let input =
            round_trip::input(&subject, &readable, &table.schema(), &batches, &ReleaseCounts::default())
                .map_err(fail)?;
        let mut stream = round_trip::open(&subject, &call, &readable.format, input, expected_schema.as_ref())
            .map_err(fail)?;
        let memory = context.session(crossdock::api::Device::CPU)?.memory().clone();
        let read = round_trip::drain(&mut stream, &call, &memory).map_err(fail)?;
        super::importer::same_values(context, &subject, &readable.format.name, &readable, &table, &read)?;
    }
    Ok(())
}

/// A reported progress that exceeds its total: the bytes done, and the total.
type Excess = Arc<Mutex<Option<(u64, u64)>>>;

/// Adds a progress callback, which stores a reported progress that exceeds its total.
fn with_progress(call: CallSettings, excess: &Excess) -> CallSettings {
    let excess = excess.clone();
    let listener = move |done, total| {
        if total > 0 && done > total {
            *excess.lock().unwrap_or_else(PoisonError::into_inner) = Some((done, total));
        }
    };
    CallSettings { progress: Some(Arc::new(listener)), ..call }
}

fn require_no_excess(place: &str, excess: &Excess) -> Check {
    match excess.lock().unwrap_or_else(PoisonError::into_inner).take() {
        Some((done, total)) => Err(failed(place, format!("at most {total} bytes done"), format!("{done}"))),
        None => Ok(()),
    }
}

fn progress(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    let mut has_input = false;
    let excess = Excess::default();
    let call = with_progress(subject.call(), &excess);
    for readable in round_trip::readable(context, &subject).unwrap_or_default() {
        let name = &readable.format.name;
        let Some(table) = context.first_table(&subject, &readable, FORMS[0])? else { continue };
        let batches = context.table_for(&readable.batch_format, &table)?;
        let fail = |error| failed(name, "the table", error);
        let expected_schema = round_trip::expected_schema(&readable, &table.schema());
        let input =
            round_trip::input(&subject, &readable, &table.schema(), &batches, &ReleaseCounts::default())
                .map_err(fail)?;
        let mut stream = round_trip::open(&subject, &call, &readable.format, input, expected_schema.as_ref())
            .map_err(fail)?;
        while stream.next(&call).map_err(fail)?.is_some() {}
        require_no_excess(&format!("'{name}'"), &excess)?;
        has_input = true;
    }
    for format in round_trip::writable(context, &subject).unwrap_or_default() {
        for table in exporter::accepted(context, &subject, &format, FORMS[0])?.iter().take(1) {
            let batches = context.table_for(&format, table)?;
            drop(round_trip::write(
                &subject,
                &call,
                &format,
                &table.schema(),
                &batches,
                &ReleaseCounts::default(),
            ));
            require_no_excess(&format!("'{}'", format.name), &excess)?;
            has_input = true;
        }
    }
    for tree in trees(context, &subject)? {
        drop(tree.decode(context, &subject, &call, &ReleaseCounts::default()));
        require_no_excess(&tree.place, &excess)?;
        has_input = true;
    }
    require_input(has_input, "reads, writes or decodes")
}
