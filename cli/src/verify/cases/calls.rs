//! What a call tells the plugin.

use std::sync::{Arc, Mutex, PoisonError};

use crossdock::api::{CallSettings, CancelFlag, Code, Error};

use super::super::case::{Case, Check, failed, ran};
use super::super::lent::{Counts, Written, batch};
use super::super::subject::Ground;
use super::super::tables::FORMS;
use super::super::tour;
use super::super::trees::trees;
use super::exporter;

pub const CASES: &[Case] = &[
    Case {
        name: "calls.cancelled_read",
        rule: "A stream whose call is cancelled gives CROSSDOCK_CANCELLED instead of a batch.",
        stands: "crossdock_call.cancel",
        ground: &["importer.abandoned"],
        on_devices: false,
        check: cancelled_read,
    },
    Case {
        name: "calls.cancelled_write",
        rule: "A writer whose call is cancelled answers CROSSDOCK_CANCELLED, and takes the batch.",
        stands: "crossdock_call.cancel, crossdock_writer.write",
        ground: &["exporter.releases"],
        on_devices: false,
        check: cancelled_write,
    },
    Case {
        name: "calls.cancelled_decode",
        rule: "Decoding whose call is cancelled gives CROSSDOCK_CANCELLED instead of a batch.",
        stands: "crossdock_call.cancel, crossdock_encoding.decode",
        ground: &["errors.message"],
        on_devices: false,
        check: cancelled_decode,
    },
    Case {
        name: "calls.wishes",
        rule: "Progress, a byte budget and full validation change no value.",
        stands: "crossdock_call",
        ground: &["importer.values"],
        on_devices: false,
        check: wishes,
    },
    Case {
        name: "calls.progress",
        rule: "No more is done than there is, where a call tells how much that is.",
        stands: "crossdock_call.progress",
        ground: &["calls.wishes"],
        on_devices: false,
        check: progress,
    },
];

fn cancelled(call: &CallSettings) -> CallSettings {
    let cancel = CancelFlag::new();
    cancel.cancel();
    CallSettings { cancel, ..call.clone() }
}

fn judge(place: String, answer: Result<&str, Error>) -> Check {
    match answer {
        Err(error) if error.code() == Code::CANCELLED => Ok(()),
        Err(error) => Err(failed(place, "CROSSDOCK_CANCELLED", format!("{:?}: {error}", error.code()))),
        Ok(what) => Err(failed(place, "CROSSDOCK_CANCELLED", what)),
    }
}

fn cancelled_read(ground: &Ground) -> Check {
    let subject = ground.subject()?;
    for readable in tour::readable(ground, &subject)? {
        let Some(table) = ground.first_table(&subject, &readable, FORMS[0])? else { continue };
        let given = ground.table_for(&readable.taker, &table)?;
        let (call, asked) = (subject.call(), tour::expected(&readable, &table.schema()));
        let wrong = |error| failed(&readable.format.name, "a stream", error);
        let input =
            tour::input(&subject, &readable, &table.schema(), &given, &Counts::default()).map_err(wrong)?;
        let mut stream =
            tour::open(&subject, &call, &readable.format, input, asked.as_ref()).map_err(wrong)?;
        let answer = stream.next(&cancelled(&call));
        let answer = answer.map(|batch| if batch.is_some() { "a batch" } else { "the end" });
        judge(format!("'{}', get_next", readable.format.name), answer)?;
    }
    Ok(())
}

fn cancelled_write(ground: &Ground) -> Check {
    let subject = ground.subject()?;
    exporter::each(ground, &subject, FORMS[0], |format, table, batches| {
        let Some(first) = batches.first() else { return Ok(()) };
        let (call, to, counts) = (subject.call(), Arc::new(Written::default()), Counts::default());
        let wrong = |error| failed(&format.name, "a writer", error);
        let mut writer = tour::begin(&subject, &call, format, &table.schema(), &to).map_err(wrong)?;
        let first = batch(first, subject.stream(), &counts).map_err(wrong)?;
        let answer = writer.write(&cancelled(&call), first).map(|_| "success");
        drop(writer);
        judge(format!("'{}', write", format.name), answer)?;
        ground.backend.settle();
        counts.wrong().map_or(Ok(()), |words| Err(failed(&format.name, "the batch released once", words)))
    })
}

fn cancelled_decode(ground: &Ground) -> Check {
    let subject = ground.subject()?;
    let trees = trees(ground, &subject)?;
    ran(!trees.is_empty(), "decodes")?;
    for tree in &trees {
        let answer = tree.decode(ground, &subject, &cancelled(&subject.call()), &Counts::default());
        judge(format!("{}, decode", tree.place), answer.map(|_| "a batch"))?;
    }
    Ok(())
}

fn wishes(ground: &Ground) -> Check {
    let subject = ground.subject()?;
    for readable in tour::readable(ground, &subject)? {
        let Some(table) = ground.first_table(&subject, &readable, FORMS[0])? else { continue };
        let given = ground.table_for(&readable.taker, &table)?;
        let call = CallSettings {
            progress: Some(Arc::new(|_, _| {})),
            byte_budget: 1,
            validate: crossdock::api::Validate::Full,
            ..subject.call()
        };
        let wrong = |error| failed(&readable.format.name, "the table", error);
        let asked = tour::expected(&readable, &table.schema());
        let input =
            tour::input(&subject, &readable, &table.schema(), &given, &Counts::default()).map_err(wrong)?;
        let mut stream =
            tour::open(&subject, &call, &readable.format, input, asked.as_ref()).map_err(wrong)?;
        let memory = ground.session(crossdock::api::Device::CPU)?.memory().clone();
        let read = tour::drain(&mut stream, &call, &memory).map_err(wrong)?;
        super::importer::same_values(ground, &subject, &readable.format.name, &readable, &table, &read)?;
    }
    Ok(())
}

/// What was told beyond its total: done, and that.
type Beyond = Arc<Mutex<Option<(u64, u64)>>>;

fn told(call: CallSettings, beyond: &Beyond) -> CallSettings {
    let beyond = beyond.clone();
    let hear = move |done, total| {
        if total > 0 && done > total {
            *beyond.lock().unwrap_or_else(PoisonError::into_inner) = Some((done, total));
        }
    };
    CallSettings { progress: Some(Arc::new(hear)), ..call }
}

fn within(place: &str, beyond: &Beyond) -> Check {
    match beyond.lock().unwrap_or_else(PoisonError::into_inner).take() {
        Some((done, total)) => Err(failed(place, format!("at most {total} bytes done"), format!("{done}"))),
        None => Ok(()),
    }
}

fn progress(ground: &Ground) -> Check {
    let subject = ground.subject()?;
    let mut has_any = false;
    let beyond = Beyond::default();
    let call = told(subject.call(), &beyond);
    for readable in tour::readable(ground, &subject).unwrap_or_default() {
        let name = &readable.format.name;
        let Some(table) = ground.first_table(&subject, &readable, FORMS[0])? else { continue };
        let given = ground.table_for(&readable.taker, &table)?;
        let wrong = |error| failed(name, "the table", error);
        let asked = tour::expected(&readable, &table.schema());
        let input =
            tour::input(&subject, &readable, &table.schema(), &given, &Counts::default()).map_err(wrong)?;
        let mut stream =
            tour::open(&subject, &call, &readable.format, input, asked.as_ref()).map_err(wrong)?;
        while stream.next(&call).map_err(wrong)?.is_some() {}
        within(&format!("'{name}'"), &beyond)?;
        has_any = true;
    }
    for format in tour::writable(ground, &subject).unwrap_or_default() {
        for table in exporter::accepted(ground, &subject, &format, FORMS[0])?.iter().take(1) {
            let given = ground.table_for(&format, table)?;
            drop(tour::write(&subject, &call, &format, &table.schema(), &given, &Counts::default()));
            within(&format!("'{}'", format.name), &beyond)?;
            has_any = true;
        }
    }
    for tree in trees(ground, &subject)? {
        drop(tree.decode(ground, &subject, &call, &Counts::default()));
        within(&tree.place, &beyond)?;
        has_any = true;
    }
    ran(has_any, "reads, writes or decodes")
}
