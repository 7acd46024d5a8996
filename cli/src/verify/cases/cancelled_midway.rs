//! Cancels the plugin's calls while they run. Counts the calls that the plugin makes to the host
//! between the cancellation and the return of its function. The result does not depend on time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::RecordBatch;
use crossdock::api::{CallSettings, CancelFlag, Code, Format, Result};
use crossdock_arrays::DeviceBatch;

use super::super::case::{Case, Check, Stop, failed, not_offered};
use super::super::context::CaseContext;
use super::super::counted_objects::{ReleaseCounts, batch};
use super::super::host_calls::{HostCall, with_visitor};
use super::super::round_trip::{self, Readable};
use super::super::subject::Subject;
use super::super::tables::FORMS;
use super::super::test_io::TestSink;
use super::exporter;

pub const CASES: &[Case] = &[Case {
    name: "calls.cancelled_midway",
    rule: "A call that is cancelled while it runs ends after at most as many calls to the host as two tables of one batch \
           take.",
    spec_ref: "crossdock_call.cancel",
    depends_on: &["calls.cancelled_read", "calls.cancelled_write", "importer.batches", "exporter.releases"],
    on_devices: true,
    check: cancelled_midway,
}];

/// The maximum number of calls to the host after the cancellation, as a multiple of the number of
/// calls for a table of one batch.
const MAX_TABLES: u64 = 2;
/// The maximum number of batches in a table. The table should be so long that a call that ignores a
/// cancellation in the first half exceeds the limit of calls to the host.
const MAX_BATCHES: u64 = 400;

/// Counts the plugin's calls to the host, and cancels the plugin's call during one of them.
#[derive(Default)]
struct Counter {
    calls: AtomicU64,
    /// The number of the call to the host during which to cancel, or 0 to cancel nothing.
    at: u64,
    cancel: CancelFlag,
}

impl Counter {
    fn count(&self, call: HostCall) {
        // Releases are not counted, because a call that stops has to release what it holds.
        if call.may_fail && self.calls.fetch_add(1, Ordering::SeqCst) + 1 == self.at {
            self.cancel.cancel();
        }
    }

    fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }
}

/// The first function of the plugin that ran during or after the cancellation.
struct Step {
    function: &'static str,
    /// The number of calls that this function made to the host after the cancellation.
    calls: u64,
    /// The error that this function returned; `None` for success and for the error `CANCELLED`.
    error: Option<String>,
}

/// Why a table was not processed to its end.
enum End {
    Step(Step),
    Rejected,
}

/// Runs one of the plugin's functions. Returns `End::Step` if the call is cancelled.
fn step<T>(counter: &Counter, function: &'static str, f: impl FnOnce() -> Result<T>) -> Result<T, End> {
    let before = counter.calls();
    let result = f();
    if counter.cancel.is_cancelled() {
        let calls = counter.calls() - before.max(counter.at);
        let error = result.err().filter(|error| error.code() != Code::CANCELLED);
        let error = error.map(|error| format!("{:?}: {error}", error.code()));
        return Err(End::Step(Step { function, calls, error }));
    }
    result.map_err(|_| End::Rejected)
}

/// Reads or writes a table with the given number of batches.
type Transfer<'a> = dyn Fn(u64, &Arc<Counter>) -> Result<(), End> + 'a;

/// Transfers `n_batches` batches, and cancels the transfer during call number `at` to the host.
/// Returns the number of calls to the host, and the result.
fn run(transfer: &Transfer<'_>, n_batches: u64, at: u64) -> (u64, Result<(), End>) {
    let counter = Arc::new(Counter { at, ..Counter::default() });
    let result = transfer(n_batches, &counter);
    (counter.calls(), result)
}

/// Cancels transfers at several points. Returns whether the number of calls depends on the number
/// of batches.
fn check_transfer(place: &str, transfer: &Transfer<'_>) -> Check<bool> {
    let whole = |n_batches| match run(transfer, n_batches, 0) {
        (calls, Ok(())) => Some(calls),
        // Some formats store only one batch.
        _ => None,
    };
    let (Some(one), Some(three)) = (whole(1), whole(3)) else { return Ok(false) };
    let per_batch = three.saturating_sub(one) / 2;
    if per_batch == 0 {
        return Ok(false);
    }
    let limit = MAX_TABLES * one;
    let n_batches = (4 * limit / per_batch + 1).min(MAX_BATCHES);
    let Some(all) = whole(n_batches) else { return Ok(false) };
    for at in [1, all / 4, all / 2] {
        let (_, result) = run(transfer, n_batches, at);
        if let Err(End::Step(step)) = result {
            step_is_short(place, &step, at, limit)?;
        }
    }
    Ok(true)
}

fn step_is_short(place: &str, step: &Step, at: u64, limit: u64) -> Check {
    let place = format!("{place}, {}, cancelled in call {at} to the host", step.function);
    let fail = |got: String| -> Stop {
        failed(&place, format!("success or CROSSDOCK_CANCELLED after at most {limit} more calls"), got)
    };
    match &step.error {
        _ if step.calls > limit => Err(fail(format!("{} more", step.calls))),
        Some(error) => Err(fail(error.clone())),
        None => Ok(()),
    }
}

fn cancelled_midway(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    let mut has_counted_calls = false;
    for readable in round_trip::readable(context, &subject).unwrap_or_default() {
        let Some(table) = context.first_table(&subject, &readable, FORMS[0])? else { continue };
        let batches = context.table_for(&readable.batch_format, &table)?;
        let transfer = |n_batches, counter: &Arc<Counter>| {
            read(&subject, &readable, &table, &batches, n_batches, counter)
        };
        has_counted_calls |= check_transfer(&format!("'{}'", readable.format.name), &transfer)?;
    }
    for format in round_trip::writable(context, &subject).unwrap_or_default() {
        let columns = exporter::accepted(context, &subject, &format, FORMS[0])?;
        let Some(table) = columns.first() else { continue };
        let batches = context.table_for(&format, table)?;
        let transfer =
            |n_batches, counter: &Arc<Counter>| write(&subject, &format, table, &batches, n_batches, counter);
        has_counted_calls |= check_transfer(&format!("'{}'", format.name), &transfer)?;
    }
    if has_counted_calls {
        Ok(())
    } else {
        Err(not_offered("the plugin makes no calls to the host per batch"))
    }
}

fn counted(counter: &Arc<Counter>, f: impl FnOnce() -> Result<(), End>) -> Result<(), End> {
    let counter = counter.clone();
    with_visitor(Arc::new(move |call| counter.count(call)), f)
}

fn call(subject: &Subject, counter: &Counter) -> CallSettings {
    CallSettings { cancel: counter.cancel.clone(), ..subject.call() }
}

fn repeated(batches: &[DeviceBatch], n_batches: u64) -> Vec<DeviceBatch> {
    (0..n_batches).flat_map(|_| batches.iter().cloned()).collect()
}

fn read(
    subject: &Subject,
    readable: &Readable,
    table: &RecordBatch,
    batches: &[DeviceBatch],
    n_batches: u64,
    counter: &Arc<Counter>,
) -> Result<(), End> {
    let (schema, expected_schema) = (table.schema(), round_trip::expected_schema(readable, &table.schema()));
    let batches = repeated(batches, n_batches);
    let input = round_trip::input(subject, readable, &schema, &batches, &ReleaseCounts::default());
    let input = input.map_err(|_| End::Rejected)?;
    let call = call(subject, counter);
    counted(counter, || {
        let open = || round_trip::open(subject, &call, &readable.format, input, expected_schema.as_ref());
        let mut stream = step(counter, "open", open)?;
        while step(counter, "get_next", || stream.next(&call))?.is_some() {}
        Ok(())
    })
}

fn write(
    subject: &Subject,
    format: &Format,
    table: &RecordBatch,
    batches: &[DeviceBatch],
    n_batches: u64,
    counter: &Arc<Counter>,
) -> Result<(), End> {
    let (call, sink, counts) =
        (call(subject, counter), Arc::new(TestSink::default()), ReleaseCounts::default());
    counted(counter, || {
        let begin = || round_trip::begin(subject, &call, format, &table.schema(), &sink);
        let mut writer = step(counter, "begin", begin)?;
        for device_batch in repeated(batches, n_batches) {
            let exported = batch(&device_batch, subject.stream(), &counts).map_err(|_| End::Rejected)?;
            drop(step(counter, "write", || writer.write(&call, exported))?);
        }
        step(counter, "finish", || writer.finish(&call)).map(drop)
    })
}
