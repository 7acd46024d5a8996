//! Tables on their way out.

use std::sync::Arc;

use crossdock::api::{Code, Device, Error, Format, Verdict};
use crossdock_arrays::DeviceBatch;

use super::super::case::{Case, Check, failed, not_offered, skipped};
use super::super::lent::{Counts, Kind, Written};
use super::super::places::nodes;
use super::super::subject::{Ground, Subject, looked};
use super::super::tables::{FORMS, Form, columns, together};
use super::super::tour::{self, Given};
use super::super::watch::AS_ASKED;

pub const CASES: &[Case] = &[
    Case {
        name: "exporter.plan",
        rule: "A plan has an entry for each column, in the schema's order and of its name, with a verdict that there is and a \
               reason for what is not zero-copy.",
        stands: "crossdock_exporter.plan, crossdock_column_plan",
        ground: &["errors.unknown_format", "errors.message"],
        on_devices: true,
        check: plan,
    },
    Case {
        name: "exporter.plan_kept",
        rule: "Columns without nulls that the plan says can be written are written.",
        stands: "crossdock_exporter.plan",
        ground: &["exporter.plan"],
        on_devices: true,
        check: plan_kept,
    },
    Case {
        name: "exporter.kept",
        rule: "A batch that was written is not released while an array that was made of it lies in its memory.",
        stands: "crossdock_writer.write, ArrowArray.release",
        ground: &["exporter.plan_kept"],
        on_devices: true,
        check: kept,
    },
    Case {
        name: "exporter.releases",
        rule: "A batch that was written is released once, and the sink with the writer.",
        stands: "crossdock_writer.write",
        ground: &["exporter.kept"],
        on_devices: true,
        check: releases,
    },
    Case {
        name: "exporter.abandoned",
        rule: "A writer that is released before finish gives back all that it took.",
        stands: "crossdock_writer",
        ground: &["exporter.releases"],
        on_devices: true,
        check: abandoned,
    },
    Case {
        name: "exporter.schema",
        rule: "Exported arrays come with the columns that were written: all names, types and metadata.",
        stands: "crossdock_exporter.begin",
        ground: &["exporter.kept"],
        on_devices: true,
        check: schema,
    },
    Case {
        name: "exporter.values",
        rule: "Exported arrays hold the values that were written: nulls, empty batches and slices too.",
        stands: "crossdock_writer.write",
        ground: &["exporter.schema"],
        on_devices: true,
        check: values,
    },
    Case {
        name: "exporter.zero_copy",
        rule: "What the plan calls zero-copy lies where it lay.",
        stands: "CROSSDOCK_ZERO_COPY",
        ground: &["exporter.values"],
        on_devices: true,
        check: zero_copy,
    },
    Case {
        name: "exporter.failing_sink",
        rule: "Where the sink fails, write or finish fails, with what the sink said.",
        stands: "crossdock_sink.write",
        ground: &["exporter.plan_kept", "errors.message"],
        on_devices: false,
        check: failing_sink,
    },
];

/// When what was lent goes.
pub const NOT_EARLY: &str = "no release before that of all that was made of it";

/// The columns of one form that a format takes, side by side.
pub fn accepted(
    ground: &Ground,
    subject: &Subject,
    format: &Format,
    form: Form,
) -> Check<Vec<arrow_array::RecordBatch>> {
    let all = columns(&mut ground.random(), form);
    ground.accepted(subject, format, all)
}

fn plan(ground: &Ground) -> Check {
    let subject = ground.subject()?;
    for format in tour::writable(ground, &subject)? {
        let all = columns(&mut ground.random(), FORMS[1]);
        let Some(table) = together(&all) else { return Err(skipped("no table could be made")) };
        let schema = table.schema();
        let place = format!("plan of '{}'", format.name);
        let plans = tour::plan(ground, &subject, &format, &schema);
        let plans = plans.map_err(|error| failed(&place, "a plan for columns of every type", error))?;
        let names: Vec<_> = plans.iter().map(|plan| plan.name.as_str()).collect();
        let expected: Vec<_> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        if names != expected {
            return Err(failed(place, format!("{expected:?}"), format!("{names:?}")));
        }
        let silent = |plan: &&crossdock::api::ColumnPlan| {
            plan.verdict != Verdict::ZeroCopy && plan.verdict != Verdict::Copied && plan.reason.is_empty()
        };
        if let Some(silent) = plans.iter().find(silent) {
            return Err(failed(place, "a reason", format!("none for '{}', {}", silent.name, silent.verdict)));
        }
    }
    Ok(())
}

fn plan_kept(ground: &Ground) -> Check {
    let subject = ground.subject()?;
    let mut n = 0;
    for format in tour::writable(ground, &subject)? {
        for column in accepted(ground, &subject, &format, FORMS[0])? {
            let batches = ground.table_for(&format, &column)?;
            let schema = column.schema();
            let written =
                tour::write(&subject, &subject.call(), &format, &schema, &batches, &Counts::default());
            let data_type = schema.field(0).data_type();
            let place = format!("'{}', a column of {data_type}", format.name);
            written.map_err(|error| failed(place, "what its plan said: it is written", error))?;
            n += 1;
        }
    }
    if n == 0 { Err(not_offered("the plugin plans to write no column of any type")) } else { Ok(()) }
}

/// Each format, with batches of what it takes.
pub fn each(
    ground: &Ground,
    subject: &Subject,
    form: Form,
    mut visit: impl FnMut(&Format, &arrow_array::RecordBatch, &[DeviceBatch]) -> Check,
) -> Check {
    for format in tour::writable(ground, subject)? {
        let columns = accepted(ground, subject, &format, form)?;
        // A format may hold one column, or all.
        let whole = together(&columns).filter(|_| Kind::of(&format).is_some());
        let few: Vec<_> = whole.into_iter().chain(columns.into_iter().take(3)).collect();
        for table in few {
            visit(&format, &table, &ground.table_for(&format, &table)?)?;
        }
    }
    Ok(())
}

fn kept(ground: &Ground) -> Check {
    let subject = ground.subject()?;
    let memory = ground.session(Device::CPU)?.memory();
    let mut has_any = false;
    each(ground, &subject, FORMS[0], |format, table, batches| {
        let (call, counts) = (subject.call(), Counts::default());
        let written = tour::write(&subject, &call, format, &table.schema(), batches, &counts);
        // What is not written, or is no array, is for those that stand on this to tell.
        let (Some(_), Ok(Given::Capsules(capsules))) = (Kind::of(format), written) else { return Ok(()) };
        let Ok(read) = tour::consume(capsules, memory) else { return Ok(()) };
        has_any = true;
        let wrong = |words| failed(format!("'{}'", format.name), NOT_EARLY, words);
        counts.too_early(&read.batches).map_or(Ok(()), |words| Err(wrong(words)))
    })?;
    if has_any { Ok(()) } else { Err(not_offered("the plugin gives no Arrow structs")) }
}

fn releases(ground: &Ground) -> Check {
    let subject = ground.subject()?;
    each(ground, &subject, FORMS[0], |format, table, batches| {
        let (counts, to) = (Counts::default(), Arc::new(Written::default()));
        let twice = [batches, batches].concat();
        let written =
            tour::write_to(&subject, &subject.call(), format, &table.schema(), &twice, &counts, &to);
        drop(written);
        settled(ground, format, &counts, &to)
    })
}

fn settled(ground: &Ground, format: &Format, counts: &Counts, to: &Arc<Written>) -> Check {
    ground.backend.settle();
    if let Some(wrong) = counts.wrong() {
        return Err(failed(format!("'{}'", format.name), "each batch released once", wrong));
    }
    if Arc::strong_count(to) > 1 {
        return Err(failed(format!("'{}'", format.name), "the sink released with the writer", "it was not"));
    }
    Ok(())
}

fn abandoned(ground: &Ground) -> Check {
    let subject = ground.subject()?;
    each(ground, &subject, FORMS[0], |format, table, batches| {
        let (counts, to) = (Counts::default(), Arc::new(Written::default()));
        let failed_at = |error| failed(format!("'{}'", format.name), "a batch written", error);
        let call = subject.call();
        let mut writer = tour::begin(&subject, &call, format, &table.schema(), &to).map_err(failed_at)?;
        for batch in batches {
            let batch = super::super::lent::batch(batch, subject.stream(), &counts).map_err(failed_at)?;
            drop(writer.write(&call, batch).map_err(failed_at)?);
        }
        drop(writer);
        settled(ground, format, &counts, &to)
    })
}

/// Visits what each format of Arrow's structs makes of tables of each form.
fn exported(
    ground: &Ground,
    forms: &[Form],
    mut visit: impl FnMut(&Subject, &str, &arrow_array::RecordBatch, &tour::Read, &[DeviceBatch]) -> Check,
) -> Check {
    let subject = ground.subject()?;
    let formats = tour::writable(ground, &subject)?.into_iter().filter(|format| Kind::of(format).is_some());
    let formats: Vec<_> = formats.collect();
    if formats.is_empty() {
        return Err(not_offered("the plugin gives no Arrow structs"));
    }
    let memory = ground.session(crossdock::api::Device::CPU)?.memory().clone();
    for format in formats {
        for form in forms {
            let Some(table) = together(&accepted(ground, &subject, &format, *form)?) else { continue };
            let batches = ground.table_for(&format, &table)?;
            let place = format!("'{}', {form}", format.name);
            let (call, counts) = (subject.call(), Counts::default());
            let given = match tour::write(&subject, &call, &format, &table.schema(), &batches, &counts) {
                Ok(given) => given,
                Err(error) if form.nulls && refuses_nulls(&error) => continue,
                Err(error) => return Err(failed(place, "a table written", error)),
            };
            let Given::Capsules(capsules) = given else { continue };
            let read = tour::consume(capsules, &memory).map_err(looked(&place))?;
            visit(&subject, &place, &table, &read, &batches)?;
        }
    }
    Ok(())
}

/// Whether a table with nulls and odd texts may be refused so: a plan sees schemas alone.
pub fn refuses_nulls(error: &Error) -> bool {
    matches!(error.code(), Code::UNSUPPORTED | Code::INVALID_ARGUMENT | Code::BAD_DATA)
}

fn schema(ground: &Ground) -> Check {
    exported(ground, &FORMS[..2], |_, place, table, read, _| {
        let (expected, got) = (table.schema(), &read.schema);
        if **got == *expected { Ok(()) } else { Err(failed(place, expected, got)) }
    })
}

fn values(ground: &Ground) -> Check {
    exported(ground, &FORMS, |subject, place, _, read, batches| {
        let difference = tour::difference(subject, read, batches).map_err(looked(place))?;
        difference.map_or(Ok(()), |words| Err(failed(place, "the same values", words)))
    })
}

fn zero_copy(ground: &Ground) -> Check {
    exported(ground, &FORMS[..1], |subject, place, table, read, given| {
        let formats = tour::writable(ground, subject)?;
        let format = formats.iter().find(|format| place.starts_with(&format!("'{}'", format.name)));
        let Some(format) = format else { return Ok(()) };
        let plans = tour::plan(ground, subject, format, &table.schema()).map_err(looked(place))?;
        let ([got], [given]) = (read.batches.as_slice(), given) else { return Ok(()) };
        let addresses = |column: &crossdock_arrays::DeviceArray| {
            let buffers = nodes(column).into_iter().flat_map(|array| array.buffers().iter().flatten());
            buffers.filter(|b| !b.is_empty()).map(|b| b.address()).collect::<Vec<_>>()
        };
        for ((plan, got), given) in plans.iter().zip(got.columns()).zip(given.columns()) {
            let (got, given) = (addresses(got), addresses(given));
            if plan.verdict == Verdict::ZeroCopy && got != given {
                let place = format!("{place}, '{}'", plan.name);
                return Err(failed(place, format!("buffers at {given:x?}"), format!("{got:x?}")));
            }
        }
        Ok(())
    })
}

fn failing_sink(ground: &Ground) -> Check {
    let subject = ground.subject()?;
    let formats: Vec<_> =
        tour::writable(ground, &subject)?.into_iter().filter(|format| format.bytes).collect();
    if formats.is_empty() {
        return Err(not_offered("the plugin writes no bytes"));
    }
    for format in formats {
        let columns = accepted(ground, &subject, &format, FORMS[0])?;
        let Some(table) = columns.first() else { continue };
        let batches = ground.table_for(&format, table)?;
        let run = |to: &Arc<Written>| {
            tour::write_to(
                &subject,
                &subject.call(),
                &format,
                &table.schema(),
                &batches,
                &Counts::default(),
                to,
            )
        };
        let whole = Arc::new(Written::default());
        drop(run(&whole).map_err(|error| failed(&format.name, "a table written", error))?);
        for nth in 1..=whole.writes().min(20) {
            let place = format!("'{}', whose sink fails at write {nth}", format.name);
            match run(&Written::failing(nth)) {
                Ok(_) => return Err(failed(place, "an error", "success")),
                Err(error) if !error.message().contains(AS_ASKED) => {
                    let expected = format!("a message with '{AS_ASKED}', as the sink said");
                    return Err(failed(place, expected, error));
                }
                Err(_) => {}
            }
        }
    }
    Ok(())
}
