//! Calls that are cancelled while they run, measured in what they ask of the host until they end: no clock decides.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::RecordBatch;
use crossdock::api::{CallSettings, CancelFlag, Code, Format, Result};
use crossdock_arrays::DeviceBatch;

use super::super::case::{Case, Check, Stop, failed, not_offered};
use super::super::inside::{Called, visited};
use super::super::lent::{Counts, Written, batch};
use super::super::subject::{Ground, Subject};
use super::super::tables::FORMS;
use super::super::tour::{self, Readable};
use super::exporter;

pub const CASES: &[Case] = &[Case {
    name: "calls.cancelled_midway",
    rule: "A call that is cancelled while it runs ends within as many calls of the host as two batches take.",
    stands: "crossdock_call.cancel",
    ground: &["calls.cancelled_read", "calls.cancelled_write", "importer.batches", "exporter.releases"],
    on_devices: true,
    check: cancelled_midway,
}];

/// How often the calls that a table of one batch takes, from beginning to end.
const TIMES: u64 = 2;
/// So many batches are enough for whoever goes through all of them to be found in the first half.
const MOST_BATCHES: u64 = 400;

/// Counts the plugin's calls of the host, and cancels its own in one of them.
#[derive(Default)]
struct Counter {
    calls: AtomicU64,
    /// The call in which to cancel; 0 for none.
    at: u64,
    cancel: CancelFlag,
}

impl Counter {
    fn called(&self, call: Called) {
        // Who stops gives back what it has.
        if call.may_fail && self.calls.fetch_add(1, Ordering::SeqCst) + 1 == self.at {
            self.cancel.cancel();
        }
    }

    fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }
}

/// The first of the plugin's functions that ran when it was cancelled, or after that.
struct Step {
    function: &'static str,
    /// How many calls of the host it made afterwards.
    calls: u64,
    /// Its error, if it is another than that it was cancelled.
    error: Option<String>,
}

/// Why a table was not gone through to its end.
enum End {
    Step(Step),
    Refused,
}

/// Runs one of the plugin's functions.
fn step<T>(counter: &Counter, function: &'static str, f: impl FnOnce() -> Result<T>) -> Result<T, End> {
    let before = counter.calls();
    let answer = f();
    if counter.cancel.is_cancelled() {
        let calls = counter.calls() - before.max(counter.at);
        let error = answer.err().filter(|error| error.code() != Code::CANCELLED);
        let error = error.map(|error| format!("{:?}: {error}", error.code()));
        return Err(End::Step(Step { function, calls, error }));
    }
    answer.map_err(|_| End::Refused)
}

/// A table that goes in or out, as often as it is asked for.
type Run<'a> = dyn Fn(u64, &Arc<Counter>) -> Result<(), End> + 'a;

/// So many batches, cancelled in that call: how many calls there were, and how it ended.
fn run(of: &Run<'_>, batches: u64, at: u64) -> (u64, Result<(), End>) {
    let counter = Arc::new(Counter { at, ..Counter::default() });
    let ended = of(batches, &counter);
    (counter.calls(), ended)
}

/// Whether there was anything to count.
fn judge(place: &str, of: &Run<'_>) -> Check<bool> {
    let whole = |batches| match run(of, batches, 0) {
        (calls, Ok(())) => Some(calls),
        // A format may hold one batch.
        _ => None,
    };
    let (Some(one), Some(three)) = (whole(1), whole(3)) else { return Ok(false) };
    let each = three.saturating_sub(one) / 2;
    if each == 0 {
        return Ok(false);
    }
    let limit = TIMES * one;
    let batches = (4 * limit / each + 1).min(MOST_BATCHES);
    let Some(all) = whole(batches) else { return Ok(false) };
    for at in [1, all / 4, all / 2] {
        let (_, ended) = run(of, batches, at);
        if let Err(End::Step(step)) = ended {
            step_is_short(place, &step, at, limit)?;
        }
    }
    Ok(true)
}

fn step_is_short(place: &str, step: &Step, at: u64, limit: u64) -> Check {
    let place = format!("{place}, {}, cancelled in call {at} of the host", step.function);
    let wrong = |got: String| -> Stop {
        failed(&place, format!("an end, or CROSSDOCK_CANCELLED, within {limit} more calls"), got)
    };
    match &step.error {
        _ if step.calls > limit => Err(wrong(format!("{} more", step.calls))),
        Some(error) => Err(wrong(error.clone())),
        None => Ok(()),
    }
}

fn cancelled_midway(ground: &Ground) -> Check {
    let subject = ground.subject()?;
    let mut is_counted = false;
    for readable in tour::readable(ground, &subject).unwrap_or_default() {
        let Some(table) = ground.first_table(&subject, &readable, FORMS[0])? else { continue };
        let given = ground.table_for(&readable.taker, &table)?;
        let of =
            |batches, counter: &Arc<Counter>| read(&subject, &readable, &table, &given, batches, counter);
        is_counted |= judge(&format!("'{}'", readable.format.name), &of)?;
    }
    for format in tour::writable(ground, &subject).unwrap_or_default() {
        let columns = exporter::accepted(ground, &subject, &format, FORMS[0])?;
        let Some(table) = columns.first() else { continue };
        let given = ground.table_for(&format, table)?;
        let of = |batches, counter: &Arc<Counter>| write(&subject, &format, table, &given, batches, counter);
        is_counted |= judge(&format!("'{}'", format.name), &of)?;
    }
    if is_counted { Ok(()) } else { Err(not_offered("the plugin asks nothing of the host for a batch")) }
}

fn counted(counter: &Arc<Counter>, f: impl FnOnce() -> Result<(), End>) -> Result<(), End> {
    let own = counter.clone();
    visited(Arc::new(move |call| own.called(call)), f)
}

fn call(subject: &Subject, counter: &Counter) -> CallSettings {
    CallSettings { cancel: counter.cancel.clone(), ..subject.call() }
}

fn repeated(given: &[DeviceBatch], batches: u64) -> Vec<DeviceBatch> {
    (0..batches).flat_map(|_| given.iter().cloned()).collect()
}

fn read(
    subject: &Subject,
    readable: &Readable,
    table: &RecordBatch,
    given: &[DeviceBatch],
    batches: u64,
    counter: &Arc<Counter>,
) -> Result<(), End> {
    let (schema, asked) = (table.schema(), tour::expected(readable, &table.schema()));
    let given = repeated(given, batches);
    let input = tour::input(subject, readable, &schema, &given, &Counts::default());
    let input = input.map_err(|_| End::Refused)?;
    let call = call(subject, counter);
    counted(counter, || {
        let open = || tour::open(subject, &call, &readable.format, input, asked.as_ref());
        let mut stream = step(counter, "open", open)?;
        while step(counter, "get_next", || stream.next(&call))?.is_some() {}
        Ok(())
    })
}

fn write(
    subject: &Subject,
    format: &Format,
    table: &RecordBatch,
    given: &[DeviceBatch],
    batches: u64,
    counter: &Arc<Counter>,
) -> Result<(), End> {
    let (call, to, counts) = (call(subject, counter), Arc::new(Written::default()), Counts::default());
    counted(counter, || {
        let begin = || tour::begin(subject, &call, format, &table.schema(), &to);
        let mut writer = step(counter, "begin", begin)?;
        for own in repeated(given, batches) {
            let own = batch(&own, subject.stream(), &counts).map_err(|_| End::Refused)?;
            drop(step(counter, "write", || writer.write(&call, own))?);
        }
        step(counter, "finish", || writer.finish(&call)).map(drop)
    })
}
