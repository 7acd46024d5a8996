//! Arrow IPC that another library wrote.

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Schema, SchemaRef};
use crossdock::api::{Code, Device, Format, Input};

use super::super::case::{Case, Check, failed, not_offered};
use super::super::context::CaseContext;
use super::super::ipc::{IPC_FORMATS, IpcFormat};
use super::super::round_trip;
use super::super::subject::{Subject, invalid_array};
use super::super::tables::{FORMS, columns, together};
use super::super::test_io::TestSource;

pub const CASES: &[Case] = &[Case {
    name: "streams.values",
    rule: "Arrow IPC that another library wrote is read correctly: with nulls, slices, no rows, no or several batches, any \
           alignment of buffers and at any address. Or it is rejected as CROSSDOCK_UNSUPPORTED.",
    spec_ref: "crossdock_importer.open",
    depends_on: &["errors.unknown_format", "errors.message"],
    on_devices: true,
    check: values,
}];

/// The memory location of the bytes, and their alignment.
#[derive(Clone, Copy)]
struct Placement {
    name: &'static str,
    alignment: usize,
    map: bool,
    lead: usize,
}

/// The locations and alignments that cases try. The first entry is the usual placement.
const PLACEMENTS: [Placement; 4] = [
    Placement { name: "read", alignment: 64, map: false, lead: 0 },
    Placement { name: "in memory, aligned to 8 bytes", alignment: 8, map: true, lead: 0 },
    Placement { name: "in memory, at an odd address", alignment: 64, map: true, lead: 1 },
    Placement { name: "in memory, aligned to 4 bytes", alignment: 8, map: true, lead: 4 },
];

/// The plugin's formats that are Arrow IPC.
fn formats(subject: &Subject) -> Check<Vec<(Format, IpcFormat)>> {
    let formats = subject.importer()?.formats().map_err(|error| failed("formats", "a list", error))?;
    let empty = Schema::empty();
    let mut known = Vec::new();
    for ipc in IPC_FORMATS {
        let Ok(bytes) = ipc.bytes(&empty, &[], 64) else { continue };
        let its = formats.iter().find(|format| ipc.is_of(format, &bytes));
        known.extend(its.map(|format| (format.clone(), ipc)));
    }
    if known.is_empty() { Err(not_offered("the plugin reads no Arrow IPC")) } else { Ok(known) }
}

/// Returns two samples in each Arrow IPC format: a table with columns of every type, and a table of
/// integers for plugins that support only a few types.
pub fn samples(context: &CaseContext, subject: &Subject) -> Vec<(Format, Vec<u8>)> {
    let columns = columns(&mut context.random(), FORMS[1]);
    let numbers = columns.iter().find(|column| *column.schema().field(0).data_type() == DataType::Int64);
    let tables: Vec<_> = together(&columns).into_iter().chain(numbers.cloned()).collect();
    let bytes = |ipc: IpcFormat| {
        tables
            .iter()
            .filter_map(move |table| ipc.bytes(&table.schema(), std::slice::from_ref(table), 64).ok())
    };
    let formats = formats(subject).unwrap_or_default().into_iter();
    formats.flat_map(|(format, ipc)| bytes(ipc).map(move |bytes| (format.clone(), bytes))).collect()
}

/// A table and its description.
struct Table {
    description: String,
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
}

/// Returns tables with one column of each type, and tables with columns of all types.
fn tables(context: &CaseContext) -> Vec<Table> {
    let mut tables = Vec::new();
    for form in FORMS {
        let columns = columns(&mut context.random(), form);
        if let Some(table) = together(&columns) {
            let (schema, description) = (table.schema(), format!("every type, {form}"));
            let no_batch = format!("{description}, no batch");
            tables.push(Table { description: no_batch, schema: schema.clone(), batches: Vec::new() });
            tables.push(Table { description, schema, batches: vec![table] });
        }
        tables.extend(columns.into_iter().map(|column| {
            let (schema, n) = (column.schema(), column.num_rows());
            let description = format!("{}, {form}, in three batches", schema.field(0).data_type());
            let batches = vec![column.clone(), column.slice(0, 0), column.slice(n / 3, n / 2)];
            Table { description, schema, batches }
        }));
    }
    tables
}

fn values(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    let mut n_read = 0;
    for (format, ipc) in formats(&subject)? {
        for table in tables(context) {
            for at in PLACEMENTS {
                // Types that arrow-rs cannot write are left out.
                let Ok(bytes) = ipc.bytes(&table.schema, &table.batches, at.alignment) else { continue };
                let place = format!("'{}', {}, {}", format.name, table.description, at.name);
                n_read += usize::from(check_one(context, &subject, &format, &place, &table, &bytes, at)?);
            }
        }
    }
    if n_read == 0 {
        Err(not_offered("the plugin rejects Arrow IPC with columns of every type"))
    } else {
        Ok(())
    }
}

/// Reads a table. Returns whether the plugin supports it.
fn check_one(
    context: &CaseContext,
    subject: &Subject,
    format: &Format,
    place: &str,
    table: &Table,
    bytes: &[u8],
    at: Placement,
) -> Check<bool> {
    let source =
        TestSource { map: at.map, lead: at.lead, ..TestSource::of(&[&vec![0; at.lead], bytes].concat()) };
    let read = match round_trip::read(context, subject, format, Input::Source(source.source()), None) {
        Ok(read) => read,
        Err(error) if error.code() == Code::UNSUPPORTED => return Ok(false),
        Err(error) => return Err(failed(place, "the table, or CROSSDOCK_UNSUPPORTED", error)),
    };
    if read.schema != table.schema {
        return Err(failed(place, &table.schema, read.schema));
    }
    let mut expected = Vec::new();
    for batch in &table.batches {
        expected.extend(context.table(batch, Device::CPU)?);
    }
    let difference = round_trip::difference(subject, &read, &expected).map_err(invalid_array(place))?;
    difference.map_or(Ok(true), |details| Err(failed(place, "the same values", details)))
}
