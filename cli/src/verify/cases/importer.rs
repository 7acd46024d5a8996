//! Tables on their way in.

use arrow_array::RecordBatch;
use crossdock::api::{Device, Input};
use crossdock_arrays::DeviceBatch;

use super::super::case::{Case, Check, failed, ran};
use super::super::lent::{Bytes, Counts};
use super::super::places::nodes;
use super::super::subject::{Ground, Subject, looked};
use super::super::tables::{FORMS, Form};
use super::super::tour::{self, Given, Readable};
use super::super::watch::AS_ASKED;
use super::exporter::{NOT_EARLY, refuses_nulls};

pub const CASES: &[Case] = &[
    Case {
        name: "importer.kept",
        rule: "What is read is not released while a batch that was made of it lies in its memory.",
        stands: "crossdock_importer.open, ArrowArray.release",
        ground: &["errors.unknown_format", "exporter.kept", "errors.message"],
        on_devices: true,
        check: kept,
    },
    Case {
        name: "importer.schema",
        rule: "A stream has the columns that were given: all names and types, and their metadata where the format has a place \
               for it.",
        stands: "crossdock_batch_stream.get_schema",
        ground: &["importer.kept"],
        on_devices: true,
        check: schema,
    },
    Case {
        name: "importer.values",
        rule: "Batches hold the values that were given, to the last row: nulls, empty batches and slices too.",
        stands: "crossdock_batch_stream.get_next",
        ground: &["importer.schema"],
        on_devices: true,
        check: values,
    },
    Case {
        name: "importer.null_counts",
        rule: "An array's null count is -1, or the number of its nulls.",
        stands: "ArrowArray.null_count",
        ground: &["importer.values"],
        on_devices: true,
        check: null_counts,
    },
    Case {
        name: "importer.batches",
        rule: "A stream of several batches gives all of them and then its end, and one of none its end at once.",
        stands: "crossdock_batch_stream.get_next",
        ground: &["importer.values"],
        on_devices: true,
        check: batches,
    },
    Case {
        name: "importer.releases",
        rule: "What is read is released once, at the latest when nothing made of it is left.",
        stands: "crossdock_importer.open",
        ground: &["importer.values", "exporter.releases"],
        on_devices: true,
        check: releases,
    },
    Case {
        name: "importer.abandoned",
        rule: "A stream that is released before its end gives back all that it took.",
        stands: "crossdock_batch_stream",
        ground: &["importer.releases"],
        on_devices: true,
        check: abandoned,
    },
    Case {
        name: "importer.failing_source",
        rule: "Where the source fails, open or get_next fails, with what the source said.",
        stands: "crossdock_source.read_at",
        ground: &["importer.values", "errors.message"],
        on_devices: false,
        check: failing_source,
    },
    Case {
        name: "importer.pipe",
        rule: "A source of unknown length is read in order, and gives the same values or is refused at open.",
        stands: "crossdock_source.bytes",
        ground: &["importer.values"],
        on_devices: false,
        check: pipe,
    },
    Case {
        name: "importer.short_source",
        rule: "A source that ends before the length that it tells is an error.",
        stands: "crossdock_source.bytes",
        ground: &["importer.values"],
        on_devices: false,
        check: short_source,
    },
];

/// Visits what becomes of tables of each form in each format.
fn each(
    ground: &Ground,
    subject: &Subject,
    forms: &[Form],
    mut visit: impl FnMut(&str, &Readable, &RecordBatch, tour::Read) -> Check,
) -> Check {
    for readable in tour::readable(ground, subject)? {
        for form in forms {
            for table in ground.tables(subject, &readable, *form)? {
                let types = table.schema().field(0).data_type().clone();
                let place = match readable.kind {
                    Some(_) => format!("'{}', {form}", readable.format.name),
                    None => format!("'{}', {types}, {form}", readable.format.name),
                };
                match tour::round(ground, subject, &readable, &table, &Counts::default())? {
                    Ok(read) => visit(&place, &readable, &table, read)?,
                    Err(error) if readable.kind.is_none() && form.nulls && refuses_nulls(&error) => {}
                    Err(error) => return Err(failed(place, "the table", error)),
                }
            }
        }
    }
    Ok(())
}

fn schema(ground: &Ground) -> Check {
    let subject = ground.subject()?;
    each(ground, &subject, &FORMS[..1], |place, readable, table, read| {
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

fn values(ground: &Ground) -> Check {
    let subject = ground.subject()?;
    each(ground, &subject, &FORMS, |place, readable, table, read| {
        same_values(ground, &subject, place, readable, table, &read)
    })
}

pub fn same_values(
    ground: &Ground,
    subject: &Subject,
    place: &str,
    readable: &Readable,
    table: &RecordBatch,
    read: &tour::Read,
) -> Check {
    let given = ground.table_for(&readable.taker, table)?;
    let difference = tour::difference(subject, read, &given).map_err(looked(place))?;
    difference.map_or(Ok(()), |words| Err(failed(place, "the same values", words)))
}

fn null_counts(ground: &Ground) -> Check {
    let subject = ground.subject()?;
    each(ground, &subject, &[FORMS[1], FORMS[3]], |place, _, _, read| {
        for batch in &read.batches {
            let host = batch.move_to(subject.stream(), Device::CPU).map_err(looked(place))?;
            let told = batch.columns().iter().flat_map(nodes);
            for (told, node) in told.zip(host.columns().iter().flat_map(nodes)) {
                // On its way from a device only what is used of an array is copied.
                let is_whole = (told.len(), told.offset()) == (node.len(), node.offset());
                let count = told.null_count().filter(|_| told.layout().is_validity(0) && is_whole);
                let Some(told) = count else { continue };
                let counted = node.recount_nulls(subject.stream()).map_err(looked(place))?;
                if told != counted {
                    let place = format!("{place}, an array of {}", node.data_type());
                    return Err(failed(place, format!("a null count of {counted}"), told));
                }
            }
        }
        Ok(())
    })
}

/// A table of the format, as the plugin takes it, and the batch that it is.
fn one_table(
    ground: &Ground,
    subject: &Subject,
    readable: &Readable,
) -> Check<Option<(RecordBatch, Vec<DeviceBatch>)>> {
    let Some(table) = ground.first_table(subject, readable, FORMS[0])? else {
        return Ok(None);
    };
    let batches = ground.table_for(&readable.taker, &table)?;
    Ok(Some((table, batches)))
}

fn batches(ground: &Ground) -> Check {
    let subject = ground.subject()?;
    for readable in tour::readable(ground, &subject)? {
        let Some((table, batches)) = one_table(ground, &subject, &readable)? else { continue };
        let schema = table.schema();
        for n in [3, 0] {
            let place = format!("'{}', {n} batches", readable.format.name);
            let given: Vec<DeviceBatch> = std::iter::repeat_n(batches.clone(), n).flatten().collect();
            let wrong = |error| failed(&place, "all batches", error);
            let input = match tour::input(&subject, &readable, &schema, &given, &Counts::default()) {
                Ok(input) => input,
                // A format may hold one batch.
                Err(error) if readable.kind.is_none() && refuses_nulls(&error) => continue,
                Err(error) => return Err(wrong(error)),
            };
            let asked = tour::expected(&readable, &schema);
            let read = match tour::read(ground, &subject, &readable.format, input, asked.as_ref()) {
                Ok(read) => read,
                Err(error) if readable.kind.is_none() && refuses_nulls(&error) => continue,
                Err(error) => return Err(wrong(error)),
            };
            let difference = tour::difference(&subject, &read, &given).map_err(looked(&place))?;
            difference.map_or(Ok(()), |words| Err(failed(&place, "the same values", words)))?;
        }
    }
    Ok(())
}

/// As many columns, of numbers and truth values, are enough to be made something of.
const FEW: usize = 4;

fn kept(ground: &Ground) -> Check {
    let subject = ground.subject()?;
    let mut has_any = false;
    for readable in tour::readable(ground, &subject)? {
        // What is not read, or is no array, is for those that stand on this to tell.
        let Ok(Some(table)) = ground.first_table(&subject, &readable, FORMS[0]) else { continue };
        let few: Vec<_> = (0..table.num_columns().min(FEW)).collect();
        let Ok(table) = table.project(&few) else { continue };
        let given = ground.table_for(&readable.taker, &table)?;
        let (counts, asked) = (Counts::default(), tour::expected(&readable, &table.schema()));
        let input = tour::input(&subject, &readable, &table.schema(), &given, &counts);
        let read = |input| tour::read(ground, &subject, &readable.format, input, asked.as_ref());
        let Ok(read) = input.and_then(read) else { continue };
        has_any = true;
        if let Some(words) = counts.too_early(&read.batches) {
            let place = format!("'{}'", readable.format.name);
            return Err(failed(place, NOT_EARLY, words));
        }
    }
    ran(has_any, "reads")
}

fn releases(ground: &Ground) -> Check {
    let subject = ground.subject()?;
    for readable in tour::readable(ground, &subject)? {
        let Some((table, batches)) = one_table(ground, &subject, &readable)? else { continue };
        let counts = Counts::default();
        let place = format!("'{}'", readable.format.name);
        let wrong = |error| failed(&place, "the table", error);
        let input = tour::input(&subject, &readable, &table.schema(), &batches, &counts).map_err(wrong)?;
        let asked = tour::expected(&readable, &table.schema());
        drop(tour::read(ground, &subject, &readable.format, input, asked.as_ref()).map_err(wrong)?);
        ground.backend.settle();
        if let Some(words) = counts.wrong() {
            return Err(failed(&place, "each released once", words));
        }
    }
    Ok(())
}

fn abandoned(ground: &Ground) -> Check {
    let subject = ground.subject()?;
    for readable in tour::readable(ground, &subject)? {
        let Some((table, batches)) = one_table(ground, &subject, &readable)? else { continue };
        let given = [batches.clone(), batches].concat();
        for taken in [0, 1] {
            let counts = Counts::default();
            let place = format!("'{}', {taken} of 2 batches taken", readable.format.name);
            let Ok(input) = tour::input(&subject, &readable, &table.schema(), &given, &counts) else {
                continue;
            };
            let asked = tour::expected(&readable, &table.schema());
            let call = subject.call();
            let Ok(mut stream) = tour::open(&subject, &call, &readable.format, input, asked.as_ref()) else {
                continue;
            };
            for _ in 0..taken {
                drop(stream.next(&call).map_err(|error| failed(&place, "a batch", error))?);
            }
            drop(stream);
            ground.backend.settle();
            if let Some(words) = counts.wrong() {
                return Err(failed(&place, "each released once", words));
            }
        }
    }
    Ok(())
}

/// The formats of bytes with what the plugin writes for a table that it takes.
pub fn written(
    ground: &Ground,
    subject: &Subject,
    mut visit: impl FnMut(&Readable, &RecordBatch, &[u8]) -> Check,
) -> Check {
    for readable in tour::byte_formats(ground, subject)? {
        let Some((table, batches)) = one_table(ground, subject, &readable)? else { continue };
        let (call, counts) = (subject.call(), Counts::default());
        let given = tour::write(subject, &call, &readable.taker, &table.schema(), &batches, &counts);
        let given = given.map_err(|error| failed(&readable.format.name, "a table written", error))?;
        let Given::Bytes(bytes) = given else { continue };
        visit(&readable, &table, &bytes)?;
    }
    Ok(())
}

fn read_bytes(
    ground: &Ground,
    subject: &Subject,
    readable: &Readable,
    table: &RecordBatch,
    bytes: Bytes,
) -> crossdock::api::Result<tour::Read> {
    let asked = tour::expected(readable, &table.schema());
    tour::read(ground, subject, &readable.format, Input::Source(bytes.source()), asked.as_ref())
}

fn failing_source(ground: &Ground) -> Check {
    let subject = ground.subject()?;
    written(ground, &subject, |readable, table, bytes| {
        let whole = Bytes::of(bytes);
        let reads = whole.state.clone();
        drop(
            read_bytes(ground, &subject, readable, table, whole)
                .map_err(|error| failed(&readable.format.name, "what the plugin wrote", error))?,
        );
        for nth in 1..=reads.reads().min(20) {
            let place = format!("'{}', whose source fails at read {nth}", readable.format.name);
            let failing = Bytes { failing: nth, ..Bytes::of(bytes) };
            match read_bytes(ground, &subject, readable, table, failing) {
                Ok(_) => return Err(failed(place, "an error", "success")),
                Err(error) if !error.message().contains(AS_ASKED) => {
                    let expected = format!("a message with '{AS_ASKED}', as the source said");
                    return Err(failed(place, expected, error));
                }
                Err(_) => {}
            }
        }
        Ok(())
    })
}

fn pipe(ground: &Ground) -> Check {
    let subject = ground.subject()?;
    written(ground, &subject, |readable, table, bytes| {
        let place = format!("'{}' from a pipe", readable.format.name);
        let pipe = Bytes { pipe: true, ..Bytes::of(bytes) };
        let state = pipe.state.clone();
        let read = read_bytes(ground, &subject, readable, table, pipe);
        if state.jumps() > 0 {
            return Err(failed(place, "reads that begin where the last one ended", "one elsewhere"));
        }
        match read {
            Ok(read) => same_values(ground, &subject, &place, readable, table, &read),
            Err(_) => Ok(()),
        }
    })
}

fn short_source(ground: &Ground) -> Check {
    let subject = ground.subject()?;
    written(ground, &subject, |readable, table, bytes| {
        // Some formats end wherever their bytes do; those that have a length of their own must see that it is not there.
        let whole = read_bytes(ground, &subject, readable, table, Bytes::of(&bytes[..bytes.len() / 2]));
        let short =
            Bytes { missing: (bytes.len() - bytes.len() / 2) as u64, ..Bytes::of(&bytes[..bytes.len() / 2]) };
        let place = format!("'{}', half of it", readable.format.name);
        match (whole, read_bytes(ground, &subject, readable, table, short)) {
            (Err(_), Ok(_)) => Err(failed(place, "an error, as where the half is told to be all", "success")),
            _ => Ok(()),
        }
    })
}
