//! Requests for some columns and rows of an input.

use arrow_schema::{DataType, Schema};
use crossdock::api::{Device, Honoured, ReadRequest, Selection};
use crossdock_arrays::filter::{self, Comparison, Decimal, Literal, Operator};
use crossdock_arrays::{DeviceBatch, export_schema};

use super::super::case::{Case, Check, failed};
use super::super::context::CaseContext;
use super::super::counted_objects::ReleaseCounts;
use super::super::round_trip::{self, ReadTable, Readable};
use super::super::subject::{Subject, invalid_array};
use super::super::tables::FORMS;

pub const CASES: &[Case] = &[
    Case {
        name: "importer.write_options",
        rule: "The options that a stream returns are options of the exporter's format of the same name.",
        spec_ref: "crossdock_batch_stream.write_options",
        depends_on: &["importer.values"],
        on_devices: false,
        check: write_options,
    },
    Case {
        name: "importer.selection",
        rule: "A stream that states that it honours the requested columns or rows returns exactly these.",
        spec_ref: "crossdock_batch_stream.honoured",
        depends_on: &["importer.values"],
        on_devices: true,
        check: selection,
    },
    Case {
        name: "importer.filter",
        rule: "A stream that prunes rows returns each row that fulfils the predicates, and only rows that fulfil \
               the predicates that it states to apply.",
        spec_ref: "crossdock_batch_stream.exact_predicates",
        depends_on: &["importer.selection"],
        on_devices: true,
        check: filtered,
    },
];

fn write_options(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    for readable in round_trip::byte_formats(context, &subject)? {
        let Some(table) = context.first_table(&subject, &readable, FORMS[0])? else { continue };
        let batches = context.table_for(&readable.batch_format, &table)?;
        let place = format!("'{}', the options of its input", readable.format.name);
        let error = |error| failed(place.clone(), "a stream", error);
        let (schema, counts) = (table.schema(), ReleaseCounts::default());
        let input = round_trip::input(&subject, &readable, &schema, &batches, &counts).map_err(error)?;
        let expected = round_trip::expected_schema(&readable, &schema);
        let expected = expected.map(|schema| export_schema(&schema)).transpose().map_err(error)?;
        let selection = Selection { write_options: true, ..Selection::default() };
        let request = ReadRequest::new(&readable.format.name)
            .with_schema(expected.as_deref())
            .with_selection(&selection);
        let stream = subject.importer()?.open(&subject.call(), input, &request).map_err(error)?;
        let options = stream.write_options().map_err(error)?;
        if let Some((key, _)) = options.iter().find(|(key, _)| !readable.batch_format.has_option(key)) {
            return Err(failed(place, "an option of the exporter's format", format!("'{key}'")));
        }
    }
    Ok(())
}

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

/// Reads tables with predicates on each of their columns.
fn filtered(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    for readable in round_trip::readable(context, &subject)? {
        if !readable.format.filters {
            continue;
        }
        for table in context.tables(&subject, &readable, FORMS[0])? {
            let batches = context.table_for(&readable.batch_format, &table)?;
            let schema = table.schema();
            let n_rows = table.num_rows() as u64;
            for (index, field) in schema.fields().iter().enumerate() {
                for (operator, literal) in comparisons(field.data_type()) {
                    let Ok(comparison) = Comparison::new(field.data_type(), operator, &literal) else {
                        continue;
                    };
                    let column = vec![field.name().clone()];
                    let Some(predicate) = comparison.for_importer(column, field.data_type()) else {
                        continue;
                    };
                    let conditions = [filter::Predicate { path: vec![index], comparison }];
                    let all = Selection { predicates: vec![predicate], ..Selection::default() };
                    read_filtered(context, &subject, &readable, &batches, &all, &conditions)?;
                    let rows = Selection { rows: Some(vec![0..n_rows / 2 + 1]), ..all };
                    read_filtered(context, &subject, &readable, &batches, &rows, &conditions)?;
                }
            }
        }
    }
    Ok(())
}

/// Comparisons of values of a type. Together they hold for all values except NaN.
fn comparisons(data_type: &DataType) -> Vec<(Operator, Literal)> {
    let literals = [
        Literal::Decimal(Decimal::scaled(15, 1)),
        Literal::Text("m".to_owned()),
        Literal::Bytes(vec![0x6d]),
        Literal::Bool(true),
        Literal::Date(0),
        Literal::Time(1),
        Literal::Timestamp { ns: 0, has_zone: false },
        Literal::Timestamp { ns: 0, has_zone: true },
        Literal::Duration(0),
    ];
    let fits = |literal: &&Literal| Comparison::new(data_type, Operator::Less, literal).is_ok();
    let literal = literals.iter().find(fits);
    let operators = [Operator::Less, Operator::GreaterEqual, Operator::NotEqual];
    literal
        .map(|literal| operators.map(|operator| (operator, literal.clone())))
        .into_iter()
        .flatten()
        .collect()
}

/// Reads the table of `batches` with predicates, whose conditions are those of the table.
fn read_filtered(
    context: &CaseContext,
    subject: &Subject,
    readable: &Readable,
    batches: &[DeviceBatch],
    selection: &Selection,
    conditions: &[filter::Predicate],
) -> Check {
    let place = format!("'{}', a request with a predicate", readable.format.name);
    let same = invalid_array(&place);
    let (table, honoured) = open(context, subject, readable, batches, selection, &place)?;
    if !honoured.prunes {
        if honoured.exact != 0 {
            return Err(failed(&place, "no exact predicates without pruned rows", honoured.exact));
        }
        return Ok(());
    }
    if selection.rows.is_some() && !honoured.rows {
        return Err(failed(
            &place,
            "that a stream that prunes rows also selects the requested rows",
            "it does not",
        ));
    }
    let stream = context.session(Device::CPU)?.stream().clone();
    let apply = |batches: &[DeviceBatch]| {
        let kept = batches.iter().map(|batch| filter::filter(batch, conditions, &stream));
        kept.filter_map(Result::transpose).collect::<Result<Vec<_>, _>>()
    };
    let mut expected = batches.to_vec();
    if let Some(rows) = &selection.rows {
        expected = slices(&expected, rows).map_err(&same)?;
    }
    let expected = apply(&expected).map_err(&same)?;
    // Rows that do not fulfil a predicate may be there only if the stream does not state otherwise.
    let returned = match honoured.exact {
        0 => ReadTable { batches: apply(&table.batches).map_err(&same)?, ..table },
        _ => table,
    };
    let difference = round_trip::difference(subject, &returned, &expected).map_err(&same)?;
    difference
        .map_or(Ok(()), |details| Err(failed(&place, "exactly the rows that fulfil the predicate", details)))
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
    let (table, honoured) = open(context, subject, readable, batches, selection, &place)?;
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

/// Reads the table of `batches` with a request. Also returns what the stream states.
fn open(
    context: &CaseContext,
    subject: &Subject,
    readable: &Readable,
    batches: &[DeviceBatch],
    selection: &Selection,
    place: &str,
) -> Check<(ReadTable, Honoured)> {
    let error = |error| failed(place.to_owned(), "the table", error);
    let schema =
        batches.first().map(|batch| batch.schema().clone()).unwrap_or_else(|| Schema::empty().into());
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
    Ok((table, honoured))
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
