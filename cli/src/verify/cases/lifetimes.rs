//! Objects that outlive their instance, stream, writer or list.

use std::sync::Arc;

use crossdock::api::{Error, Owned, abi};
use crossdock_arrays::DeviceBatch;

use super::super::case::{Case, Check, failed, require_input};
use super::super::context::CaseContext;
use super::super::counted_objects::{self, ReleaseCounts};
use super::super::encoded_trees::{RawBatch, trees};
use super::super::round_trip::{self, WriterOutput};
use super::super::subject::{Subject, invalid_array};
use super::super::tables::{FORMS, together};
use super::super::watch::Violation;
use super::exporter;

pub const CASES: &[Case] = &[
    Case {
        name: "lifetimes.host",
        rule: "After destroy, the host is used only by objects that hold a reference to it.",
        spec_ref: "crossdock_host",
        depends_on: &["importer.values"],
        on_devices: true,
        check: host,
    },
    Case {
        name: "lifetimes.batch",
        rule: "A batch outlives its stream, and also its instance unless it holds a reference to the host. It can be read and \
               released later, on another thread.",
        spec_ref: "crossdock_batch_stream.get_next, crossdock_plugin_entry.destroy",
        depends_on: &["importer.values", "importer.releases", "lifetimes.host", "encoding.device_rows"],
        on_devices: true,
        check: batch,
    },
    Case {
        name: "lifetimes.capsule",
        rule: "A capsule outlives its list, its writer, and its instance.",
        spec_ref: "crossdock_capsules",
        depends_on: &["exporter.values", "exporter.releases", "lifetimes.host"],
        on_devices: true,
        check: capsule,
    },
    Case {
        name: "lifetimes.cleared",
        rule: "The `release` of an object is NULL after it was released or its ownership was taken.",
        spec_ref: "crossdock.h, objects",
        depends_on: &["importer.releases", "exporter.releases"],
        on_devices: true,
        check: cleared,
    },
];

fn batch(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    let (formats, n_trees) =
        (round_trip::readable(context, &subject).unwrap_or_default(), trees(context, &subject)?.len());
    drop(subject);
    require_input(!formats.is_empty() || n_trees > 0, "reads or decodes")?;
    for readable in &formats {
        let subject = context.subject()?;
        let Some(table) = context.first_table(&subject, readable, FORMS[0])? else { continue };
        let batches = context.table_for(&readable.batch_format, &table)?;
        let place = format!("'{}'", readable.format.name);
        let fail = |error| failed(&place, "the table", error);
        let call = subject.call();
        let input =
            round_trip::input(&subject, readable, &table.schema(), &batches, &ReleaseCounts::default())
                .map_err(fail)?;
        let expected_schema = round_trip::expected_schema(readable, &table.schema());
        let mut stream = round_trip::open(&subject, &call, &readable.format, input, expected_schema.as_ref())
            .map_err(fail)?;
        let schema = stream.schema().map_err(fail)?;
        let schema = Arc::new(crossdock_arrays::import_schema(&schema).map_err(invalid_array(&place))?);
        let first = stream.next(&call).map_err(fail)?;
        let Some(raw) = first else { return Err(failed(place, "a batch", "the end")) };
        drop(stream);
        outlives(context, subject, &place, RawBatch { raw, schema }, &batches)?;
    }
    for i in 0..n_trees {
        let subject = context.subject()?;
        let Some(tree) = trees(context, &subject)?.into_iter().nth(i) else { continue };
        let fail = |error| failed(&tree.place, "values", error);
        let expected = tree.expected(context).map_err(fail)?;
        let decoded = tree.decode_once(context, &subject).map_err(fail)?;
        outlives(context, subject, &tree.place, decoded, &[expected])?;
    }
    Ok(())
}

/// Destroys the instance before the batch is read. If the plugin's objects hold references to the
/// host, the instance is destroyed after the batch is read.
fn outlives(
    context: &CaseContext,
    subject: Subject,
    place: &str,
    batch: RawBatch,
    expected: &[DeviceBatch],
) -> Check {
    // The work on the stream must be complete first, because the stream is destroyed with the
    // subject.
    subject.stream().synchronize().map_err(invalid_array(place))?;
    let other = context.subject()?;
    let subject = subject.end_early(&other);
    on_another_thread(|| {
        let read = batch.read(context).map_err(invalid_array(place))?;
        let difference = round_trip::difference(&other, &read, expected).map_err(invalid_array(place))?;
        difference.map_or(Ok(()), |details| Err(failed(place, "the same values", details)))
    })?;
    drop(subject);
    Ok(())
}

fn on_another_thread(f: impl FnOnce() -> Check + Send) -> Check {
    let result = std::thread::scope(|scope| scope.spawn(f).join());
    result.unwrap_or_else(|_| Err(failed("a thread of the suite", "a result", "a panic")))
}

fn capsule(context: &CaseContext) -> Check {
    let formats = round_trip::writable(context, &context.subject()?)?;
    for format in &formats {
        let subject = context.subject()?;
        let Some(table) = together(&exporter::accepted(context, &subject, format, FORMS[0])?) else {
            continue;
        };
        let batches = context.table_for(format, &table)?;
        let counts = ReleaseCounts::default();
        let place = format!("'{}'", format.name);
        let written =
            round_trip::write(&subject, &subject.call(), format, &table.schema(), &batches, &counts);
        // Some formats store only one column.
        let Ok(WriterOutput::Capsules(capsules)) = written else { continue };
        subject.stream().synchronize().map_err(invalid_array(&place))?;
        let other = context.subject()?;
        let subject = subject.end_early(&other);
        on_another_thread(|| {
            drop(capsules);
            Ok(())
        })?;
        context.backend.settle();
        if let Some(details) = counts.violation() {
            return Err(failed(place, "each array released once", details));
        }
        drop(subject);
    }
    Ok(())
}

fn host(context: &CaseContext) -> Check {
    // A plugin that stores the first instance's host in a global variable also uses this host for
    // the second instance.
    let [first, second] = [context.subject()?, context.subject()?];
    let formats = round_trip::readable(context, &first).unwrap_or_default();
    require_input(!formats.is_empty() || !trees(context, &first)?.is_empty(), "reads or decodes")?;
    let run = |subject: &Subject| -> Check {
        for readable in &formats {
            let Some(table) = context.first_table(subject, readable, FORMS[0])? else { continue };
            drop(round_trip::read_back(context, subject, readable, &table, &ReleaseCounts::default())?);
        }
        trees(context, subject)?.iter().for_each(|tree| drop(tree.decode_once(context, subject)));
        Ok(())
    };
    run(&first)?;
    let watch = first.end();
    run(&second)?;
    match watch.violations(Violation::UseAfterDestroy).first() {
        Some(details) => Err(failed("the host of a destroyed instance", "no use", details)),
        None => Ok(()),
    }
}

/// Releases an object. Fails the case if the `release` of the object is not NULL afterwards.
macro_rules! release {
    ($place:expr, $what:literal, $object:expr) => {{
        let object: *mut _ = $object;
        // SAFETY: this function owns the valid object, which is released once, because `take`
        // clears `release`.
        let is_set = unsafe {
            if let Some(release) = (*object).release {
                release(object);
            }
            (*object).release.take().is_some()
        };
        if is_set {
            return Err(failed(
                &$place,
                concat!($what, " whose release is NULL after its release"),
                "another value",
            ));
        }
    }};
}

fn cleared(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    let mut has_input = cleared_on_read(context, &subject)? | cleared_on_write(context, &subject)?;
    for tree in trees(context, &subject)? {
        let decoded = tree.decode_once(context, &subject);
        let mut batch = decoded.map_err(|error| failed(&tree.place, "values", error))?.raw.into_raw();
        release!(tree.place, "a batch that was decoded", &mut batch.array.array);
        release!(tree.place, "its schema", &mut batch.schema);
        has_input = true;
    }
    require_input(has_input, "reads, writes or decodes")
}

/// Releases the objects that streams return. Returns whether any object was released.
fn cleared_on_read(context: &CaseContext, subject: &Subject) -> Check<bool> {
    let mut has_input = false;
    for readable in round_trip::readable(context, subject).unwrap_or_default() {
        let place = format!("'{}'", readable.format.name);
        let fail = |error| failed(&place, "the table", error);
        let Some(table) = context.first_table(subject, &readable, FORMS[0])? else { continue };
        let batches = context.table_for(&readable.batch_format, &table)?;
        let input =
            round_trip::input(subject, &readable, &table.schema(), &batches, &ReleaseCounts::default())
                .map_err(fail)?;
        let (call, expected_schema) =
            (subject.call(), round_trip::expected_schema(&readable, &table.schema()));
        let mut stream = round_trip::open(subject, &call, &readable.format, input, expected_schema.as_ref())
            .map_err(fail)?;
        let mut schema = stream.schema().map_err(fail)?.into_raw();
        release!(place, "a schema", &mut schema);
        if let Some(batch) = stream.next(&call).map_err(fail)? {
            let mut batch = batch.into_raw();
            release!(place, "a batch", &mut batch.array.array);
            release!(place, "a batch's schema", &mut batch.schema);
        }
        let mut stream = stream.into_raw().into_raw();
        release!(place, "a stream", &mut stream);
        has_input = true;
    }
    Ok(has_input)
}

/// Writes batches, and releases the objects that writers return. Returns whether any object was
/// released.
fn cleared_on_write(context: &CaseContext, subject: &Subject) -> Check<bool> {
    let mut has_input = false;
    for format in round_trip::writable(context, subject).unwrap_or_default() {
        let place = format!("'{}'", format.name);
        let fail = |error| failed(&place, "a batch written", error);
        let accepted = exporter::accepted(context, subject, &format, FORMS[0])?;
        let Some(table) = accepted.into_iter().next() else { continue };
        let (counts, sink, call) = (ReleaseCounts::default(), Arc::default(), subject.call());
        let mut writer = round_trip::begin(subject, &call, &format, &table.schema(), &sink).map_err(fail)?;
        let raw = writer.as_mut_ptr();
        for batch in &context.table_for(&format, &table)? {
            let mut batch =
                counted_objects::batch(batch, subject.stream(), &counts).map_err(fail)?.into_raw();
            let mut out = abi::Capsules::new();
            // SAFETY: `write` is called on its own writer. This function owns `batch` and passes
            // its ownership. The other arguments are valid for the call.
            let written = Error::check(|err| unsafe {
                let write = (*raw).write.ok_or(abi::INTERNAL);
                write.map_or_else(|code| code, |write| write(raw, &call.raw(), &mut batch, &mut out, err))
            });
            // SAFETY: this function still owns `batch`, unless `write` took it and cleared its
            // release. `out` is empty, or `write` initialised it.
            let (batch, capsules) = unsafe { (Owned::new(batch), Owned::from_out(out)) };
            written.map_err(fail)?;
            drop(capsules);
            if !batch.is_released() {
                let expected = "the release of a batch that was written to be NULL";
                return Err(failed(place, expected, "another value"));
            }
        }
        release!(place, "a writer", raw);
        has_input = true;
    }
    Ok(has_input)
}
