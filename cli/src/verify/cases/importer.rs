//! Tables that the plugin reads.

use arrow_array::RecordBatch;
use crossdock::api::{Device, Input};
use crossdock_arrays::DeviceBatch;

use super::super::buffer_ranges::nested_arrays;
use super::super::case::{Case, Check, failed, require_input};
use super::super::context::CaseContext;
use super::super::counted_objects::ReleaseCounts;
use super::super::round_trip::{self, Readable, WriterOutput};
use super::super::subject::{Subject, invalid_array};
use super::super::tables::{FORMS, Form};
use super::super::test_io::TestSource;
use super::super::watch::INJECTED_FAILURE;
use super::exporter::{RELEASED_LAST, may_reject_nulls};

pub const CASES: &[Case] = &[
    Case {
        name: "importer.input_lifetime",
        rule: "An input is not released while a batch uses its memory.",
        spec_ref: "crossdock_importer.open, ArrowArray.release",
        depends_on: &["importer.device_rows"],
        on_devices: true,
        check: input_lifetime,
    },
    Case {
        name: "importer.schema",
        rule: "A stream has the columns of its input: all names and types, and their metadata if the format stores it.",
        spec_ref: "crossdock_batch_stream.get_schema",
        depends_on: &["importer.input_lifetime"],
        on_devices: true,
        check: schema,
    },
    Case {
        name: "importer.values",
        rule: "Batches have the values of their input to the last row, including nulls, empty batches and slices.",
        spec_ref: "crossdock_batch_stream.get_next",
        depends_on: &["importer.schema"],
        on_devices: true,
        check: values,
    },
    Case {
        name: "importer.null_counts",
        rule: "An array's null count is -1 or the number of its nulls.",
        spec_ref: "ArrowArray.null_count",
        depends_on: &["importer.values"],
        on_devices: true,
        check: null_counts,
    },
    Case {
        name: "importer.batches",
        rule: "A stream returns all its batches and then its end; without batches it returns its end first.",
        spec_ref: "crossdock_batch_stream.get_next",
        depends_on: &["importer.values"],
        on_devices: true,
        check: batches,
    },
    Case {
        name: "importer.releases",
        rule: "An input is released once, no later than the last batch that uses its memory.",
        spec_ref: "crossdock_importer.open",
        depends_on: &["importer.values", "exporter.releases"],
        on_devices: true,
        check: releases,
    },
    Case {
        name: "importer.abandoned",
        rule: "A stream that is released before its end releases everything that it owns.",
        spec_ref: "crossdock_batch_stream",
        depends_on: &["importer.releases"],
        on_devices: true,
        check: abandoned,
    },
    Case {
        name: "importer.failing_source",
        rule: "If the source fails, open or get_next fails with the source's message.",
        spec_ref: "crossdock_source.read_at",
        depends_on: &["importer.values", "errors.message"],
        on_devices: false,
        check: failing_source,
    },
    Case {
        name: "importer.pipe",
        rule: "A source of unknown length is read in order, with the same values, or is rejected by open.",
        spec_ref: "crossdock_source.bytes",
        depends_on: &["importer.values"],
        on_devices: false,
        check: pipe,
    },
    Case {
        name: "importer.short_source",
        rule: "A source that ends before its declared length is an error.",
        spec_ref: "crossdock_source.bytes",
        depends_on: &["importer.values"],
        on_devices: false,
        check: short_source,
    },
];

/// For each format and each form, reads the written tables back, and visits the results.
fn each(
    context: &CaseContext,
    subject: &Subject,
    forms: &[Form],
    mut visit: impl FnMut(&str, &Readable, &RecordBatch, round_trip::ReadTable) -> Check,
) -> Check {
    for readable in round_trip::readable(context, subject)? {
        for form in forms {
            for table in context.tables(subject, &readable, *form)? {
                let types = table.schema().field(0).data_type().clone();
                let place = match readable.kind {
                    Some(_) => format!("'{}', {form}", readable.format.name),
                    None => format!("'{}', {types}, {form}", readable.format.name),
                };
                match round_trip::read_back(context, subject, &readable, &table, &ReleaseCounts::default())? {
                    Ok(read) => visit(&place, &readable, &table, read)?,
                    Err(error) if readable.kind.is_none() && form.nulls && may_reject_nulls(&error) => {}
                    Err(error) => return Err(failed(place, "the table", error)),
                }
            }
        }
    }
    Ok(())
}

fn schema(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    each(context, &subject, &FORMS[..1], |place, readable, table, read| {
        let (expected, got) = (table.schema(), &read.schema);
        let types = |schema: &arrow_schema::Schema| {
            let fields = schema.fields().iter();
            fields.map(|field| (field.name().clone(), field.data_type().clone())).collect::<Vec<_>>()
        };
        let is_same = match readable.kind {
            Some(_) => **got == *expected,
            None => types(got) == types(&expected),
        };
        if is_same { Ok(()) } else { Err(failed(place, expected, got)) }
    })
}

fn values(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    each(context, &subject, &FORMS, |place, readable, table, read| {
        same_values(context, &subject, place, readable, table, &read)
    })
}

pub fn same_values(
    context: &CaseContext,
    subject: &Subject,
    place: &str,
    readable: &Readable,
    table: &RecordBatch,
    read: &round_trip::ReadTable,
) -> Check {
    let batches = context.table_for(&readable.batch_format, table)?;
    let difference = round_trip::difference(subject, read, &batches).map_err(invalid_array(place))?;
    difference.map_or(Ok(()), |details| Err(failed(place, "the same values", details)))
}

fn null_counts(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    each(context, &subject, &[FORMS[1], FORMS[3]], |place, _, _, read| {
        for batch in &read.batches {
            let host = batch.move_to(subject.stream(), Device::CPU).map_err(invalid_array(place))?;
            let arrays = batch.columns().iter().flat_map(nested_arrays);
            for (array, copy) in arrays.zip(host.columns().iter().flat_map(nested_arrays)) {
                // A copy from a device contains only the used part of an array, so its null count
                // may differ.
                let is_whole = (array.len(), array.offset()) == (copy.len(), copy.offset());
                let count = array.null_count().filter(|_| array.layout().is_validity(0) && is_whole);
                let Some(declared) = count else { continue };
                let actual = copy.recount_nulls(subject.stream()).map_err(invalid_array(place))?;
                if declared != actual {
                    let place = format!("{place}, an array of {}", copy.data_type());
                    return Err(failed(place, format!("a null count of {actual}"), declared));
                }
            }
        }
        Ok(())
    })
}

/// A table for the format: as a record batch, and as batches on the format's device.
fn one_table(
    context: &CaseContext,
    subject: &Subject,
    readable: &Readable,
) -> Check<Option<(RecordBatch, Vec<DeviceBatch>)>> {
    let Some(table) = context.first_table(subject, readable, FORMS[0])? else {
        return Ok(None);
    };
    let batches = context.table_for(&readable.batch_format, &table)?;
    Ok(Some((table, batches)))
}

fn batches(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    for readable in round_trip::readable(context, &subject)? {
        let Some((table, batches)) = one_table(context, &subject, &readable)? else { continue };
        let schema = table.schema();
        for n in [3, 0] {
            let place = format!("'{}', {n} batches", readable.format.name);
            let batches: Vec<DeviceBatch> = std::iter::repeat_n(batches.clone(), n).flatten().collect();
            let fail = |error| failed(&place, "all batches", error);
            let input =
                match round_trip::input(&subject, &readable, &schema, &batches, &ReleaseCounts::default()) {
                    Ok(input) => input,
                    // Some formats store only one batch.
                    Err(error) if readable.kind.is_none() && may_reject_nulls(&error) => continue,
                    Err(error) => return Err(fail(error)),
                };
            let expected_schema = round_trip::expected_schema(&readable, &schema);
            let read = match round_trip::read(
                context,
                &subject,
                &readable.format,
                input,
                expected_schema.as_ref(),
            ) {
                Ok(read) => read,
                Err(error) if readable.kind.is_none() && may_reject_nulls(&error) => continue,
                Err(error) => return Err(fail(error)),
            };
            let difference =
                round_trip::difference(&subject, &read, &batches).map_err(invalid_array(&place))?;
            difference.map_or(Ok(()), |details| Err(failed(&place, "the same values", details)))?;
        }
    }
    Ok(())
}

/// The maximum number of columns of the table for `importer.input_lifetime`. The first columns
/// contain nulls, booleans and integers.
const N_COLUMNS: usize = 4;

fn input_lifetime(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    let mut has_input = false;
    for readable in round_trip::readable(context, &subject)? {
        // Other cases report tables that cannot be read or imported.
        let Ok(Some(table)) = context.first_table(&subject, &readable, FORMS[0]) else { continue };
        let columns: Vec<_> = (0..table.num_columns().min(N_COLUMNS)).collect();
        let Ok(table) = table.project(&columns) else { continue };
        let batches = context.table_for(&readable.batch_format, &table)?;
        let (counts, expected_schema) =
            (ReleaseCounts::default(), round_trip::expected_schema(&readable, &table.schema()));
        let input = round_trip::input(&subject, &readable, &table.schema(), &batches, &counts);
        let read =
            |input| round_trip::read(context, &subject, &readable.format, input, expected_schema.as_ref());
        let Ok(read) = input.and_then(read) else { continue };
        has_input = true;
        if let Some(details) = counts.early_release(&read.batches) {
            let place = format!("'{}'", readable.format.name);
            return Err(failed(place, RELEASED_LAST, details));
        }
    }
    require_input(has_input, "reads")
}

fn releases(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    for readable in round_trip::readable(context, &subject)? {
        let Some((table, batches)) = one_table(context, &subject, &readable)? else { continue };
        let counts = ReleaseCounts::default();
        let place = format!("'{}'", readable.format.name);
        let fail = |error| failed(&place, "the table", error);
        let input =
            round_trip::input(&subject, &readable, &table.schema(), &batches, &counts).map_err(fail)?;
        let expected_schema = round_trip::expected_schema(&readable, &table.schema());
        drop(
            round_trip::read(context, &subject, &readable.format, input, expected_schema.as_ref())
                .map_err(fail)?,
        );
        context.backend.settle();
        if let Some(details) = counts.violation() {
            return Err(failed(&place, "each input released once", details));
        }
    }
    Ok(())
}

fn abandoned(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    for readable in round_trip::readable(context, &subject)? {
        let Some((table, batches)) = one_table(context, &subject, &readable)? else { continue };
        let batches = [batches.clone(), batches].concat();
        for n_taken in [0, 1] {
            let counts = ReleaseCounts::default();
            let place = format!("'{}', {n_taken} of 2 batches read", readable.format.name);
            let Ok(input) = round_trip::input(&subject, &readable, &table.schema(), &batches, &counts) else {
                continue;
            };
            let expected_schema = round_trip::expected_schema(&readable, &table.schema());
            let call = subject.call();
            let Ok(mut stream) =
                round_trip::open(&subject, &call, &readable.format, input, expected_schema.as_ref())
            else {
                continue;
            };
            for _ in 0..n_taken {
                drop(stream.next(&call).map_err(|error| failed(&place, "a batch", error))?);
            }
            drop(stream);
            context.backend.settle();
            if let Some(details) = counts.violation() {
                return Err(failed(&place, "each input released once", details));
            }
        }
    }
    Ok(())
}

/// Visits each byte format with a table and the bytes that the plugin writes for it.
pub fn written(
    context: &CaseContext,
    subject: &Subject,
    mut visit: impl FnMut(&Readable, &RecordBatch, &[u8]) -> Check,
) -> Check {
    for readable in round_trip::byte_formats(context, subject)? {
        let Some((table, batches)) = one_table(context, subject, &readable)? else { continue };
        let (call, counts) = (subject.call(), ReleaseCounts::default());
        let output =
            round_trip::write(subject, &call, &readable.batch_format, &table.schema(), &batches, &counts);
        let output = output.map_err(|error| failed(&readable.format.name, "a table written", error))?;
        let WriterOutput::Bytes(bytes) = output else { continue };
        visit(&readable, &table, &bytes)?;
    }
    Ok(())
}

fn read_bytes(
    context: &CaseContext,
    subject: &Subject,
    readable: &Readable,
    table: &RecordBatch,
    bytes: TestSource,
) -> crossdock::api::Result<round_trip::ReadTable> {
    let expected_schema = round_trip::expected_schema(readable, &table.schema());
    round_trip::read(
        context,
        subject,
        &readable.format,
        Input::Source(bytes.source()),
        expected_schema.as_ref(),
    )
}

fn failing_source(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    written(context, &subject, |readable, table, bytes| {
        let whole = TestSource::of(bytes);
        let reads = whole.state.clone();
        drop(
            read_bytes(context, &subject, readable, table, whole)
                .map_err(|error| failed(&readable.format.name, "what the plugin wrote", error))?,
        );
        for nth in 1..=reads.reads().min(20) {
            let place = format!("'{}', whose source fails at read {nth}", readable.format.name);
            let failing = TestSource { failing: nth, ..TestSource::of(bytes) };
            match read_bytes(context, &subject, readable, table, failing) {
                Ok(_) => return Err(failed(place, "an error", "success")),
                Err(error) if !error.message().contains(INJECTED_FAILURE) => {
                    let expected = format!("the source's message, '{INJECTED_FAILURE}'");
                    return Err(failed(place, expected, error));
                }
                Err(_) => {}
            }
        }
        Ok(())
    })
}

fn pipe(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    written(context, &subject, |readable, table, bytes| {
        let place = format!("'{}' from a pipe", readable.format.name);
        let pipe = TestSource { pipe: true, ..TestSource::of(bytes) };
        let state = pipe.state.clone();
        let read = read_bytes(context, &subject, readable, table, pipe);
        if state.jumps() > 0 {
            return Err(failed(place, "reads at consecutive offsets", "a read at another offset"));
        }
        match read {
            Ok(read) => same_values(context, &subject, &place, readable, table, &read),
            Err(_) => Ok(()),
        }
    })
}

fn short_source(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    written(context, &subject, |readable, table, bytes| {
        // Some formats do not store the length of their bytes, so reading only the first half
        // succeeds. In any other format, the plugin must notice that bytes are missing.
        let whole = read_bytes(context, &subject, readable, table, TestSource::of(&bytes[..bytes.len() / 2]));
        let short = TestSource {
            missing: (bytes.len() - bytes.len() / 2) as u64,
            ..TestSource::of(&bytes[..bytes.len() / 2])
        };
        let place = format!("'{}', the first half of the bytes", readable.format.name);
        match (whole, read_bytes(context, &subject, readable, table, short)) {
            (Err(_), Ok(_)) => Err(failed(place, "an error, as without the declared length", "success")),
            _ => Ok(()),
        }
    })
}
