//! Arrow IPC that the plugin did not write.

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Schema, SchemaRef};
use crossdock::api::{Code, Device, Format, Input};

use super::super::case::{Case, Check, failed, not_offered};
use super::super::lent::Bytes;
use super::super::streams::{FORMS as ENCODINGS, Form as Encoding};
use super::super::subject::{Ground, Subject, looked};
use super::super::tables::{FORMS, columns, together};
use super::super::tour;

pub const CASES: &[Case] = &[Case {
    name: "streams.values",
    rule: "Arrow IPC is read as another library wrote it: nulls, slices, no rows, no batches or several, buffers of any alignment, \
           wherever the bytes lie. Or it is refused as CROSSDOCK_UNSUPPORTED.",
    stands: "crossdock_importer.open",
    ground: &["errors.unknown_format", "errors.message"],
    on_devices: true,
    check: values,
}];

/// How the bytes lie.
#[derive(Clone, Copy)]
struct Place {
    words: &'static str,
    alignment: usize,
    map: bool,
    lead: usize,
}

/// The one that libraries write, and each other thing once.
const PLACES: [Place; 4] = [
    Place { words: "read", alignment: 64, map: false, lead: 0 },
    Place { words: "in memory, aligned to 8 bytes", alignment: 8, map: true, lead: 0 },
    Place { words: "in memory, at an odd address", alignment: 64, map: true, lead: 1 },
    Place { words: "in memory, 4 bytes beside", alignment: 8, map: true, lead: 4 },
];

/// The formats that are Arrow IPC, each with which.
fn formats(subject: &Subject) -> Check<Vec<(Format, Encoding)>> {
    let formats = subject.importer()?.formats().map_err(|error| failed("formats", "a list", error))?;
    let empty = Schema::empty();
    let mut known = Vec::new();
    for encoding in ENCODINGS {
        let Ok(bytes) = encoding.bytes(&empty, &[], 64) else { continue };
        let its = formats.iter().find(|format| encoding.is_of(format, &bytes));
        known.extend(its.map(|format| (format.clone(), encoding)));
    }
    if known.is_empty() { Err(not_offered("the plugin reads no Arrow IPC")) } else { Ok(known) }
}

/// A table of every type in each format that is Arrow IPC, and one of numbers, which more plugins read.
pub fn samples(ground: &Ground, subject: &Subject) -> Vec<(Format, Vec<u8>)> {
    let columns = columns(&mut ground.random(), FORMS[1]);
    let numbers = columns.iter().find(|column| *column.schema().field(0).data_type() == DataType::Int64);
    let tables: Vec<_> = together(&columns).into_iter().chain(numbers.cloned()).collect();
    let bytes = |encoding: Encoding| {
        tables
            .iter()
            .filter_map(move |table| encoding.bytes(&table.schema(), std::slice::from_ref(table), 64).ok())
    };
    let formats = formats(subject).unwrap_or_default().into_iter();
    formats.flat_map(|(format, encoding)| bytes(encoding).map(move |bytes| (format.clone(), bytes))).collect()
}

/// A table, and what is to be said of it.
struct Table {
    words: String,
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
}

/// Each type by itself, and all side by side.
fn tables(ground: &Ground) -> Vec<Table> {
    let mut tables = Vec::new();
    for form in FORMS {
        let columns = columns(&mut ground.random(), form);
        if let Some(table) = together(&columns) {
            let (schema, words) = (table.schema(), format!("every type, {form}"));
            let none = format!("{words}, no batch");
            tables.push(Table { words: none, schema: schema.clone(), batches: Vec::new() });
            tables.push(Table { words, schema, batches: vec![table] });
        }
        tables.extend(columns.into_iter().map(|column| {
            let (schema, n) = (column.schema(), column.num_rows());
            let words = format!("{}, {form}, in three batches", schema.field(0).data_type());
            // One of no rows between two that are not the same.
            let batches = vec![column.clone(), column.slice(0, 0), column.slice(n / 3, n / 2)];
            Table { words, schema, batches }
        }));
    }
    tables
}

fn values(ground: &Ground) -> Check {
    let subject = ground.subject()?;
    let mut n_read = 0;
    for (format, encoding) in formats(&subject)? {
        for table in tables(ground) {
            for at in PLACES {
                // What the library does not write nobody can be asked to read.
                let Ok(bytes) = encoding.bytes(&table.schema, &table.batches, at.alignment) else { continue };
                let place = format!("'{}', {}, {}", format.name, table.words, at.words);
                n_read += usize::from(one(ground, &subject, &format, &place, &table, &bytes, at)?);
            }
        }
    }
    if n_read == 0 {
        Err(not_offered("the plugin refuses Arrow IPC with columns of every type"))
    } else {
        Ok(())
    }
}

/// Whether it was read.
fn one(
    ground: &Ground,
    subject: &Subject,
    format: &Format,
    place: &str,
    table: &Table,
    bytes: &[u8],
    at: Place,
) -> Check<bool> {
    let source = Bytes { map: at.map, lead: at.lead, ..Bytes::of(&[&vec![0; at.lead], bytes].concat()) };
    let read = match tour::read(ground, subject, format, Input::Source(source.source()), None) {
        Ok(read) => read,
        Err(error) if error.code() == Code::UNSUPPORTED => return Ok(false),
        Err(error) => return Err(failed(place, "the table, or CROSSDOCK_UNSUPPORTED", error)),
    };
    if read.schema != table.schema {
        return Err(failed(place, &table.schema, read.schema));
    }
    let mut given = Vec::new();
    for batch in &table.batches {
        given.extend(ground.table(batch, Device::CPU)?);
    }
    let difference = tour::difference(subject, &read, &given).map_err(looked(place))?;
    difference.map_or(Ok(true), |words| Err(failed(place, "the same values", words)))
}
