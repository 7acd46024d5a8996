//! Requests for some columns and rows of an input.

use crossdock::api::{Device, ReadRequest, Selection};
use crossdock_arrays::{DeviceBatch, export_schema};

use super::super::case::{Case, Check, failed};
use super::super::context::CaseContext;
use super::super::counted_objects::ReleaseCounts;
use super::super::round_trip::{self, ReadTable, Readable};
use super::super::subject::{Subject, invalid_array};
use super::super::tables::FORMS;

pub const CASES: &[Case] = &[Case {
    name: "importer.selection",
    rule: "A stream that states that it honours the requested columns or rows returns exactly these.",
    spec_ref: "crossdock_batch_stream.honoured",
    depends_on: &["importer.values"],
    on_devices: true,
    check: selection,
}];

fn selection(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    for readable in round_trip::readable(context, &subject)? {
        for table in context.tables(&subject, &readable, FORMS[0])? {
            let batches = context.table_for(&readable.batch_format, &table)?;
            let schema = table.schema();
            let n_rows = table.num_rows() as u64;
            let last = schema.fields().last().map(|field| field.name().clone());
            // The first row and the last row, which are in different batches if there are several.
            let rows = if n_rows > 2 { vec![0..1, n_rows - 1..n_rows] } else { Vec::new() };
            let columns = last.clone().map(|name| vec![vec![name]]);
            let all = Selection::default();
            for selection in [
                Selection { columns: columns.clone(), ..all.clone() },
                Selection { rows: Some(rows.clone()), ..all.clone() },
                Selection { columns, rows: Some(rows), batch_rows: 1, ..all.clone() },
            ] {
                read(context, &subject, &readable, &batches, &selection)?;
            }
        }
    }
    Ok(())
}

/// Reads the table of `batches` with a request, and checks that the stream keeps its statements.
fn read(
    context: &CaseContext,
    subject: &Subject,
    readable: &Readable,
    batches: &[DeviceBatch],
    selection: &Selection,
) -> Check {
    let Some(schema) = batches.first().map(|batch| batch.schema().clone()) else { return Ok(()) };
    let place = format!("'{}', a request for some columns or rows", readable.format.name);
    let error = |error| failed(place.clone(), "the table", error);
    let input = round_trip::input(subject, readable, &schema, batches, &ReleaseCounts::default());
    let expected_schema = round_trip::expected_schema(readable, &schema);
    let expected_schema = expected_schema.map(|schema| export_schema(&schema)).transpose().map_err(error)?;
    let request = ReadRequest::new(&readable.format.name)
        .with_schema(expected_schema.as_deref())
        .with_selection(selection);
    let call = subject.call();
    let mut stream = subject.importer()?.open(&call, input.map_err(error)?, &request).map_err(error)?;
    let honoured = stream.honoured();
    let memory = context.session(Device::CPU)?.memory().clone();
    let table = round_trip::drain(&mut stream, &call, &memory).map_err(error)?;
    let mut expected = batches.to_vec();
    let same = invalid_array(&place);
    if let (true, Some(columns)) = (honoured.columns, &selection.columns) {
        let indices: Vec<_> =
            columns.iter().flatten().filter_map(|name| schema.index_of(name).ok()).collect();
        let names: Vec<_> = table.schema.fields().iter().map(|field| field.name().clone()).collect();
        if names != columns.concat() {
            return Err(failed(&place, format!("the columns {:?}", columns.concat()), format!("{names:?}")));
        }
        expected =
            expected.iter().map(|batch| batch.select(&indices)).collect::<Result<_, _>>().map_err(&same)?;
    }
    if let (true, Some(rows)) = (honoured.rows, &selection.rows) {
        expected = slices(&expected, rows).map_err(&same)?;
    }
    let returned: u64 = table.batches.iter().map(|batch| batch.len() as u64).sum();
    if let Some(stated) = honoured.n_rows.filter(|stated| *stated != returned) {
        return Err(failed(&place, format!("{stated} rows, as the stream states"), returned));
    }
    compare(subject, &place, &table, &expected)
}

fn compare(subject: &Subject, place: &str, table: &ReadTable, expected: &[DeviceBatch]) -> Check {
    let difference = round_trip::difference(subject, table, expected).map_err(invalid_array(place))?;
    difference.map_or(Ok(()), |details| Err(failed(place, "exactly the requested columns and rows", details)))
}

/// The rows of the batches at these positions in the whole table.
fn slices(
    batches: &[DeviceBatch],
    rows: &[std::ops::Range<u64>],
) -> crossdock::api::Result<Vec<DeviceBatch>> {
    let (mut begin, mut slices) = (0, Vec::new());
    for batch in batches {
        let end = begin + batch.len() as u64;
        for range in rows {
            let (from, to) = (range.start.max(begin), range.end.min(end));
            if from < to {
                slices.push(batch.slice((from - begin) as usize, (to - from) as usize)?);
            }
        }
        begin = end;
    }
    Ok(slices)
}
