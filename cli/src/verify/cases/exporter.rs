//! Tables that the plugin writes.

use std::sync::Arc;

use crossdock::api::{Code, Device, Error, Format, Verdict};
use crossdock_arrays::DeviceBatch;

use super::super::buffer_ranges::nested_arrays;
use super::super::case::{Case, Check, failed, not_offered, skipped};
use super::super::context::CaseContext;
use super::super::counted_objects::{self, CapsuleKind, ReleaseCounts};
use super::super::round_trip::{self, WriterOutput};
use super::super::subject::{Subject, invalid_array};
use super::super::tables::{FORMS, Form, columns, together};
use super::super::test_io::TestSink;
use super::super::watch::INJECTED_FAILURE;

pub const CASES: &[Case] = &[
    Case {
        name: "exporter.plan",
        rule: "A plan has an entry for each column, with its name and in the schema's order, a valid verdict, and a reason if \
               the column is converted or unsupported.",
        spec_ref: "crossdock_exporter.plan, crossdock_column_plan",
        depends_on: &["errors.unknown_format", "errors.message"],
        on_devices: true,
        check: plan,
    },
    Case {
        name: "exporter.follows_plan",
        rule: "Columns without nulls that the plan accepts can be written.",
        spec_ref: "crossdock_exporter.plan",
        depends_on: &["exporter.plan"],
        on_devices: true,
        check: follows_plan,
    },
    Case {
        name: "exporter.input_lifetime",
        rule: "A batch that was written is not released while an exported array uses its memory.",
        spec_ref: "crossdock_writer.write, ArrowArray.release",
        depends_on: &["exporter.follows_plan"],
        on_devices: true,
        check: input_lifetime,
    },
    Case {
        name: "exporter.releases",
        rule: "A batch that was written is released once, and the sink is released with the writer.",
        spec_ref: "crossdock_writer.write",
        depends_on: &["exporter.input_lifetime"],
        on_devices: true,
        check: releases,
    },
    Case {
        name: "exporter.abandoned",
        rule: "A writer that is released before finish releases everything that it owns.",
        spec_ref: "crossdock_writer",
        depends_on: &["exporter.releases"],
        on_devices: true,
        check: abandoned,
    },
    Case {
        name: "exporter.schema",
        rule: "Exported arrays have the schema that was written: all names, types and metadata.",
        spec_ref: "crossdock_exporter.begin",
        depends_on: &["exporter.input_lifetime"],
        on_devices: true,
        check: schema,
    },
    Case {
        name: "exporter.values",
        rule: "Exported arrays have the values that were written, including nulls, empty batches and slices.",
        spec_ref: "crossdock_writer.write",
        depends_on: &["exporter.schema"],
        on_devices: true,
        check: values,
    },
    Case {
        name: "exporter.zero_copy",
        rule: "Columns that the plan calls zero-copy keep the addresses of their buffers.",
        spec_ref: "CROSSDOCK_ZERO_COPY",
        depends_on: &["exporter.values"],
        on_devices: true,
        check: zero_copy,
    },
    Case {
        name: "exporter.failing_sink",
        rule: "If the sink fails, write or finish fails with the sink's message.",
        spec_ref: "crossdock_sink.write",
        depends_on: &["exporter.follows_plan", "errors.message"],
        on_devices: false,
        check: failing_sink,
    },
];

/// The expected behaviour that a case reports if an input was released while a batch still used its
/// memory.
pub const RELEASED_LAST: &str = "no release before all batches that use its memory are released";

/// The columns of one form that a format accepts, each in its own batch.
pub fn accepted(
    context: &CaseContext,
    subject: &Subject,
    format: &Format,
    form: Form,
) -> Check<Vec<arrow_array::RecordBatch>> {
    let all = columns(&mut context.random(), form);
    context.accepted(subject, format, all)
}

fn plan(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    for format in round_trip::writable(context, &subject)? {
        let all = columns(&mut context.random(), FORMS[1]);
        let Some(table) = together(&all) else { return Err(skipped("cannot make a table")) };
        let schema = table.schema();
        let place = format!("plan of '{}'", format.name);
        let plans = round_trip::plan(context, &subject, &format, &schema);
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

fn follows_plan(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    let mut n = 0;
    for format in round_trip::writable(context, &subject)? {
        for column in accepted(context, &subject, &format, FORMS[0])? {
            let batches = context.table_for(&format, &column)?;
            let schema = column.schema();
            let written = round_trip::write(
                &subject,
                &subject.call(),
                &format,
                &schema,
                &batches,
                &ReleaseCounts::default(),
            );
            let data_type = schema.field(0).data_type();
            let place = format!("'{}', a column of {data_type}", format.name);
            written.map_err(|error| failed(place, "success, as its plan says", error))?;
            n += 1;
        }
    }
    if n == 0 { Err(not_offered("the plugin's plan accepts no columns of any type")) } else { Ok(()) }
}

/// Visits each format with tables that it accepts.
pub fn each(
    context: &CaseContext,
    subject: &Subject,
    form: Form,
    mut visit: impl FnMut(&Format, &arrow_array::RecordBatch, &[DeviceBatch]) -> Check,
) -> Check {
    for format in round_trip::writable(context, subject)? {
        let columns = accepted(context, subject, &format, form)?;
        // Some formats store only one column.
        let whole = together(&columns).filter(|_| CapsuleKind::of(&format).is_some());
        let tables: Vec<_> = whole.into_iter().chain(columns.into_iter().take(3)).collect();
        for table in tables {
            visit(&format, &table, &context.table_for(&format, &table)?)?;
        }
    }
    Ok(())
}

fn input_lifetime(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    let memory = context.session(Device::CPU)?.memory();
    let mut has_input = false;
    each(context, &subject, FORMS[0], |format, table, batches| {
        let (call, counts) = (subject.call(), ReleaseCounts::default());
        let written = round_trip::write(&subject, &call, format, &table.schema(), batches, &counts);
        // Other cases report tables that cannot be written or imported.
        let (Some(_), Ok(WriterOutput::Capsules(capsules))) = (CapsuleKind::of(format), written) else {
            return Ok(());
        };
        let Ok(read) = round_trip::import_capsules(capsules, memory) else { return Ok(()) };
        has_input = true;
        let fail = |details| failed(format!("'{}'", format.name), RELEASED_LAST, details);
        counts.early_release(&read.batches).map_or(Ok(()), |details| Err(fail(details)))
    })?;
    if has_input { Ok(()) } else { Err(not_offered("the plugin exports no Arrow structs")) }
}

fn releases(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    each(context, &subject, FORMS[0], |format, table, batches| {
        let (counts, sink) = (ReleaseCounts::default(), Arc::new(TestSink::default()));
        let twice = [batches, batches].concat();
        let written =
            round_trip::write_to(&subject, &subject.call(), format, &table.schema(), &twice, &counts, &sink);
        drop(written);
        require_released(context, format, &counts, &sink)
    })
}

fn require_released(
    context: &CaseContext,
    format: &Format,
    counts: &ReleaseCounts,
    sink: &Arc<TestSink>,
) -> Check {
    context.backend.settle();
    if let Some(fail) = counts.violation() {
        return Err(failed(format!("'{}'", format.name), "each batch released once", fail));
    }
    if Arc::strong_count(sink) > 1 {
        return Err(failed(format!("'{}'", format.name), "the sink released with the writer", "it was not"));
    }
    Ok(())
}

fn abandoned(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    each(context, &subject, FORMS[0], |format, table, batches| {
        let (counts, sink) = (ReleaseCounts::default(), Arc::new(TestSink::default()));
        let failed_at = |error| failed(format!("'{}'", format.name), "a batch written", error);
        let call = subject.call();
        let mut writer =
            round_trip::begin(&subject, &call, format, &table.schema(), &sink).map_err(failed_at)?;
        for batch in batches {
            let batch = counted_objects::batch(batch, subject.stream(), &counts).map_err(failed_at)?;
            drop(writer.write(&call, batch).map_err(failed_at)?);
        }
        drop(writer);
        require_released(context, format, &counts, &sink)
    })
}

/// Visits the exported tables of each form, in each format of Arrow capsules.
fn exported(
    context: &CaseContext,
    forms: &[Form],
    mut visit: impl FnMut(
        &Subject,
        &str,
        &arrow_array::RecordBatch,
        &round_trip::ReadTable,
        &[DeviceBatch],
    ) -> Check,
) -> Check {
    let subject = context.subject()?;
    let formats = round_trip::writable(context, &subject)?
        .into_iter()
        .filter(|format| CapsuleKind::of(format).is_some());
    let formats: Vec<_> = formats.collect();
    if formats.is_empty() {
        return Err(not_offered("the plugin exports no Arrow structs"));
    }
    let memory = context.session(crossdock::api::Device::CPU)?.memory().clone();
    for format in formats {
        for form in forms {
            let Some(table) = together(&accepted(context, &subject, &format, *form)?) else { continue };
            let batches = context.table_for(&format, &table)?;
            let place = format!("'{}', {form}", format.name);
            let (call, counts) = (subject.call(), ReleaseCounts::default());
            let output = match round_trip::write(&subject, &call, &format, &table.schema(), &batches, &counts)
            {
                Ok(output) => output,
                Err(error) if form.nulls && may_reject_nulls(&error) => continue,
                Err(error) => return Err(failed(place, "a table written", error)),
            };
            let WriterOutput::Capsules(capsules) = output else { continue };
            let read = round_trip::import_capsules(capsules, &memory).map_err(invalid_array(&place))?;
            visit(&subject, &place, &table, &read, &batches)?;
        }
    }
    Ok(())
}

/// Returns whether the plugin may return this error for a table with nulls or unusual texts,
/// although the plan accepts the table. A plan depends only on the schema, not on the values.
pub fn may_reject_nulls(error: &Error) -> bool {
    matches!(error.code(), Code::UNSUPPORTED | Code::INVALID_ARGUMENT | Code::BAD_DATA)
}

fn schema(context: &CaseContext) -> Check {
    exported(context, &FORMS[..2], |_, place, table, read, _| {
        let (expected, got) = (table.schema(), &read.schema);
        if **got == *expected { Ok(()) } else { Err(failed(place, expected, got)) }
    })
}

fn values(context: &CaseContext) -> Check {
    exported(context, &FORMS, |subject, place, _, read, batches| {
        let difference = round_trip::difference(subject, read, batches).map_err(invalid_array(place))?;
        difference.map_or(Ok(()), |details| Err(failed(place, "the same values", details)))
    })
}

fn zero_copy(context: &CaseContext) -> Check {
    exported(context, &FORMS[..1], |subject, place, table, read, written| {
        let formats = round_trip::writable(context, subject)?;
        let format = formats.iter().find(|format| place.starts_with(&format!("'{}'", format.name)));
        let Some(format) = format else { return Ok(()) };
        let plans =
            round_trip::plan(context, subject, format, &table.schema()).map_err(invalid_array(place))?;
        let ([got], [written]) = (read.batches.as_slice(), written) else { return Ok(()) };
        let addresses = |column: &crossdock_arrays::DeviceArray| {
            let buffers =
                nested_arrays(column).into_iter().flat_map(|array| array.buffers().iter().flatten());
            buffers.filter(|b| !b.is_empty()).map(|b| b.address()).collect::<Vec<_>>()
        };
        for ((plan, got), written) in plans.iter().zip(got.columns()).zip(written.columns()) {
            let (got, expected) = (addresses(got), addresses(written));
            if plan.verdict == Verdict::ZeroCopy && got != expected {
                let place = format!("{place}, '{}'", plan.name);
                return Err(failed(place, format!("buffers at {expected:x?}"), format!("{got:x?}")));
            }
        }
        Ok(())
    })
}

fn failing_sink(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    let formats: Vec<_> =
        round_trip::writable(context, &subject)?.into_iter().filter(|format| format.bytes).collect();
    if formats.is_empty() {
        return Err(not_offered("the plugin writes no byte formats"));
    }
    for format in formats {
        let columns = accepted(context, &subject, &format, FORMS[0])?;
        let Some(table) = columns.first() else { continue };
        let batches = context.table_for(&format, table)?;
        let run = |sink: &Arc<TestSink>| {
            round_trip::write_to(
                &subject,
                &subject.call(),
                &format,
                &table.schema(),
                &batches,
                &ReleaseCounts::default(),
                sink,
            )
        };
        let whole = Arc::new(TestSink::default());
        drop(run(&whole).map_err(|error| failed(&format.name, "a table written", error))?);
        for nth in 1..=whole.writes().min(20) {
            let place = format!("'{}', whose sink fails at write {nth}", format.name);
            match run(&TestSink::failing(nth)) {
                Ok(_) => return Err(failed(place, "an error", "success")),
                Err(error) if !error.message().contains(INJECTED_FAILURE) => {
                    let expected = format!("the sink's message, '{INJECTED_FAILURE}'");
                    return Err(failed(place, expected, error));
                }
                Err(_) => {}
            }
        }
    }
    Ok(())
}
