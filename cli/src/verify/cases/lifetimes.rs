//! What outlives what.

use std::sync::Arc;

use crossdock::api::{Error, Owned, abi};
use crossdock_arrays::DeviceBatch;

use super::super::case::{Case, Check, failed, ran};
use super::super::lent::{self, Counts};
use super::super::subject::{Ground, Subject, looked};
use super::super::tables::{FORMS, together};
use super::super::tour::{self, Given};
use super::super::trees::{RawBatch, trees};
use super::super::watch::Breach;
use super::exporter;

pub const CASES: &[Case] = &[
    Case {
        name: "lifetimes.host",
        rule: "The host is not used after destroy but by what holds a reference to it.",
        stands: "crossdock_host",
        ground: &["importer.values"],
        on_devices: true,
        check: host,
    },
    Case {
        name: "lifetimes.batch",
        rule: "A batch outlives its stream, and where it holds no reference to the host, its instance: it is read and \
               released afterwards, on another thread.",
        stands: "crossdock_batch_stream.get_next, crossdock_plugin_entry.destroy",
        ground: &["importer.values", "importer.releases", "lifetimes.host"],
        on_devices: true,
        check: batch,
    },
    Case {
        name: "lifetimes.capsule",
        rule: "A capsule outlives the list that it came in, its writer, and its instance.",
        stands: "crossdock_capsules",
        ground: &["exporter.values", "exporter.releases", "lifetimes.host"],
        on_devices: true,
        check: capsule,
    },
    Case {
        name: "lifetimes.cleared",
        rule: "Whoever takes an object, and whoever releases one, leaves its `release` NULL.",
        stands: "crossdock.h, objects",
        ground: &["importer.releases", "exporter.releases"],
        on_devices: true,
        check: cleared,
    },
];

fn batch(ground: &Ground) -> Check {
    let subject = ground.subject()?;
    let (formats, n_trees) =
        (tour::readable(ground, &subject).unwrap_or_default(), trees(ground, &subject)?.len());
    drop(subject);
    ran(!formats.is_empty() || n_trees > 0, "reads or decodes")?;
    for readable in &formats {
        let subject = ground.subject()?;
        let Some(table) = ground.first_table(&subject, readable, FORMS[0])? else { continue };
        let given = ground.table_for(&readable.taker, &table)?;
        let place = format!("'{}'", readable.format.name);
        let wrong = |error| failed(&place, "the table", error);
        let call = subject.call();
        let input =
            tour::input(&subject, readable, &table.schema(), &given, &Counts::default()).map_err(wrong)?;
        let asked = tour::expected(readable, &table.schema());
        let mut stream =
            tour::open(&subject, &call, &readable.format, input, asked.as_ref()).map_err(wrong)?;
        let schema = stream.schema().map_err(wrong)?;
        let schema = Arc::new(crossdock_arrays::import_schema(&schema).map_err(looked(&place))?);
        let first = stream.next(&call).map_err(wrong)?;
        let Some(raw) = first else { return Err(failed(place, "a batch", "the end")) };
        drop(stream);
        outlives(ground, subject, &place, RawBatch { raw, schema }, &given)?;
    }
    for i in 0..n_trees {
        let subject = ground.subject()?;
        let Some(tree) = trees(ground, &subject)?.into_iter().nth(i) else { continue };
        let wrong = |error| failed(&tree.place, "values", error);
        let expected = tree.expected(ground).map_err(wrong)?;
        let decoded = tree.decode_once(ground, &subject).map_err(wrong)?;
        outlives(ground, subject, &tree.place, decoded, &[expected])?;
    }
    Ok(())
}

/// The instance is destroyed with a batch still there, as a host may that nobody holds a reference to.
fn outlives(ground: &Ground, subject: Subject, place: &str, batch: RawBatch, given: &[DeviceBatch]) -> Check {
    // Its stream has run: nobody waits for it once it is gone.
    subject.stream().synchronize().map_err(looked(place))?;
    let own = ground.subject()?;
    let subject = subject.end_early(&own);
    on_a_thread(|| {
        let read = batch.read(ground).map_err(looked(place))?;
        let difference = tour::difference(&own, &read, given).map_err(looked(place))?;
        difference.map_or(Ok(()), |words| Err(failed(place, "the same values", words)))
    })?;
    drop(subject);
    Ok(())
}

/// Runs it elsewhere: what is released there was made here.
fn on_a_thread(f: impl FnOnce() -> Check + Send) -> Check {
    let ended = std::thread::scope(|scope| scope.spawn(f).join());
    ended.unwrap_or_else(|_| Err(failed("a thread of the suite", "an end", "a panic")))
}

fn capsule(ground: &Ground) -> Check {
    let formats = tour::writable(ground, &ground.subject()?)?;
    for format in &formats {
        let subject = ground.subject()?;
        let Some(table) = together(&exporter::accepted(ground, &subject, format, FORMS[0])?) else {
            continue;
        };
        let given = ground.table_for(format, &table)?;
        let counts = Counts::default();
        let place = format!("'{}'", format.name);
        let written = tour::write(&subject, &subject.call(), format, &table.schema(), &given, &counts);
        // A format may hold fewer columns than all.
        let Ok(Given::Capsules(capsules)) = written else { continue };
        subject.stream().synchronize().map_err(looked(&place))?;
        let own = ground.subject()?;
        let subject = subject.end_early(&own);
        on_a_thread(|| {
            drop(capsules);
            Ok(())
        })?;
        ground.backend.settle();
        if let Some(words) = counts.wrong() {
            return Err(failed(place, "each array released once", words));
        }
        drop(subject);
    }
    Ok(())
}

fn host(ground: &Ground) -> Check {
    // What is kept of the first one's host would be used by the second.
    let [first, second] = [ground.subject()?, ground.subject()?];
    let formats = tour::readable(ground, &first).unwrap_or_default();
    ran(!formats.is_empty() || !trees(ground, &first)?.is_empty(), "reads or decodes")?;
    let run = |subject: &Subject| -> Check {
        for readable in &formats {
            let Some(table) = ground.first_table(subject, readable, FORMS[0])? else { continue };
            drop(tour::round(ground, subject, readable, &table, &Counts::default())?);
        }
        trees(ground, subject)?.iter().for_each(|tree| drop(tree.decode_once(ground, subject)));
        Ok(())
    };
    run(&first)?;
    let watch = first.end();
    run(&second)?;
    match watch.breaches(Breach::Late).first() {
        Some(words) => Err(failed("an instance's host after its end", "no use of it", words)),
        None => Ok(()),
    }
}

/// Releases an object by its own function, which leaves it empty.
macro_rules! end {
    ($place:expr, $what:literal, $object:expr) => {{
        let object: *mut _ = $object;
        // SAFETY: an object of ours that nobody else has; its own function on itself.
        let is_left = unsafe {
            if let Some(release) = (*object).release {
                release(object);
            }
            // Not released again, whatever it says.
            (*object).release.take().is_some()
        };
        if is_left {
            return Err(failed(&$place, concat!($what, " whose release is NULL after it"), "it is there"));
        }
    }};
}

fn cleared(ground: &Ground) -> Check {
    let subject = ground.subject()?;
    let mut has_any = false;
    for readable in tour::readable(ground, &subject).unwrap_or_default() {
        let place = format!("'{}'", readable.format.name);
        let wrong = |error| failed(&place, "the table", error);
        let Some(table) = ground.first_table(&subject, &readable, FORMS[0])? else { continue };
        let given = ground.table_for(&readable.taker, &table)?;
        let input =
            tour::input(&subject, &readable, &table.schema(), &given, &Counts::default()).map_err(wrong)?;
        let (call, asked) = (subject.call(), tour::expected(&readable, &table.schema()));
        let mut stream =
            tour::open(&subject, &call, &readable.format, input, asked.as_ref()).map_err(wrong)?;
        let mut schema = stream.schema().map_err(wrong)?.into_raw();
        end!(place, "a schema", &mut schema);
        if let Some(batch) = stream.next(&call).map_err(wrong)? {
            let mut batch = batch.into_raw();
            end!(place, "a batch", &mut batch.array.array);
            end!(place, "a batch's schema", &mut batch.schema);
        }
        let mut stream = stream.into_raw().into_raw();
        end!(place, "a stream", &mut stream);
        has_any = true;
    }
    for format in tour::writable(ground, &subject).unwrap_or_default() {
        let place = format!("'{}'", format.name);
        let wrong = |error| failed(&place, "a batch written", error);
        let accepted = exporter::accepted(ground, &subject, &format, FORMS[0])?;
        let Some(table) = accepted.into_iter().next() else { continue };
        let (counts, to, call) = (Counts::default(), Arc::default(), subject.call());
        let mut writer = tour::begin(&subject, &call, &format, &table.schema(), &to).map_err(wrong)?;
        let raw = writer.as_mut_ptr();
        for batch in &ground.table_for(&format, &table)? {
            let mut batch = lent::batch(batch, subject.stream(), &counts).map_err(wrong)?.into_raw();
            let mut out = abi::Capsules::new();
            // SAFETY: the writer's own function on itself; the batch is handed over, the rest is borrowed for the call.
            let written = Error::check(|err| unsafe {
                let write = (*raw).write.ok_or(abi::INTERNAL);
                write.map_or_else(|code| code, |write| write(raw, &call.raw(), &mut batch, &mut out, err))
            });
            // SAFETY: what was not taken is ours, and what came on success.
            let (left, came) = unsafe { (Owned::new(batch), Owned::given(out)) };
            written.map_err(wrong)?;
            drop(came);
            if !left.is_released() {
                return Err(failed(
                    place,
                    "a batch that was written to be taken, its release NULL",
                    "it is there",
                ));
            }
        }
        end!(place, "a writer", raw);
        has_any = true;
    }
    for tree in trees(ground, &subject)? {
        let decoded = tree.decode_once(ground, &subject);
        let mut batch = decoded.map_err(|error| failed(&tree.place, "values", error))?.raw.into_raw();
        end!(tree.place, "a batch that was decoded", &mut batch.array.array);
        end!(tree.place, "its schema", &mut batch.schema);
        has_any = true;
    }
    ran(has_any, "reads, writes or decodes")
}
