//! Batches whose number of rows is on the device.

use crossdock::api::{Capsule, Result};
use crossdock_arrays::{IntType, PendingBatch, count_rows, export_pending};

use super::super::case::{Case, Check, failed};
use super::super::context::CaseContext;
use super::super::counted_objects::ReleaseCounts;
use super::super::encoded_trees::trees;
use super::super::round_trip::{self, Readable, WriterOutput};
use super::super::subject::{Subject, invalid_array};
use super::super::tables::FORMS;
use super::super::test_io::TestSink;
use super::encoding;

/// The case of importers. It precedes the cases that read tables.
pub const IMPORTER: &[Case] = &[Case {
    name: "importer.device_rows",
    rule: "If the number of a batch's rows is on the device, it is 0 to the length of the array.",
    spec_ref: "crossdock_batch.n_rows_device",
    depends_on: &["errors.unknown_format", "exporter.input_lifetime", "errors.message"],
    on_devices: true,
    check: importer,
}];

/// The case of exporters. It needs an importer, which reads what was written.
pub const EXPORTER: &[Case] = &[Case {
    name: "exporter.device_rows",
    rule: "A writer of a format with CROSSDOCK_FORMAT_DEVICE_ROWS writes only the rows that the number on the device states.",
    spec_ref: "CROSSDOCK_FORMAT_DEVICE_ROWS, crossdock_batch.n_rows_device",
    depends_on: &["importer.values"],
    on_devices: true,
    check: exporter,
}];

/// The case of encodings. It precedes the cases that decode samples.
pub const ENCODING: &[Case] = &[Case {
    name: "encoding.device_rows",
    rule: "The number of rows of a decoded batch is the length of its array, not a number on the device.",
    spec_ref: "crossdock_batch.n_rows_device",
    depends_on: &["interfaces.answers", "errors.message"],
    on_devices: true,
    check: decoder,
}];

fn decoder(context: &CaseContext) -> Check {
    encoding::own_samples(context)?;
    let subject = context.subject()?;
    for tree in trees(context, &subject)? {
        // Other cases report nodes that cannot be decoded.
        let Ok(batch) = tree.decode_once(context, &subject) else { continue };
        if !batch.raw.n_rows_device.is_null() {
            return Err(failed(&tree.place, "n_rows_device to be NULL", "an address"));
        }
    }
    Ok(())
}

fn importer(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    for readable in round_trip::readable(context, &subject)? {
        // Other cases report tables that cannot be written or read.
        let Ok(tables) = context.tables(&subject, &readable, FORMS[1]) else { continue };
        for table in tables {
            let batches = context.table_for(&readable.batch_format, &table)?;
            let schema = table.schema();
            let input = round_trip::input(&subject, &readable, &schema, &batches, &ReleaseCounts::default());
            let (Ok(input), call) = (input, subject.call()) else { continue };
            let expected = round_trip::expected_schema(&readable, &schema);
            let stream = round_trip::open(&subject, &call, &readable.format, input, expected.as_ref());
            let Ok(mut stream) = stream else { continue };
            while let Ok(Some(batch)) = stream.next(&call) {
                let place = format!("'{}', n_rows_device", readable.format.name);
                let counted =
                    if batch.n_rows_device.is_null() { Ok(0) } else { count_rows(&batch, subject.stream()) };
                counted.map_err(|error| {
                    failed(place, "a number of rows that the arrays have room for", error)
                })?;
            }
        }
    }
    Ok(())
}

fn exporter(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    for readable in round_trip::readable(context, &subject)? {
        if readable.kind.is_some() || !readable.batch_format.device_rows {
            continue;
        }
        for form in [FORMS[0], FORMS[1]] {
            for table in context.tables(&subject, &readable, form)? {
                let batches = context.table_for(&readable.batch_format, &table)?;
                for batch in batches {
                    let rows = batch.len() / 3;
                    let place = format!("'{}', {rows} of {} rows", readable.format.name, batch.len());
                    let invalid = invalid_array(&place);
                    let expected = batch.slice(0, rows).map_err(&invalid)?;
                    let counter = counter(&subject, &batch, rows).map_err(&invalid)?;
                    if !counter.has_fixed_width() {
                        continue;
                    }
                    let fail = |error| failed(&place, "the rows that n_rows_device states", error);
                    let written = write(&subject, &readable, &counter).map_err(fail)?;
                    let schema = round_trip::expected_schema(&readable, &table.schema());
                    let input = written.into_input();
                    let read = round_trip::read(context, &subject, &readable.format, input, schema.as_ref());
                    let difference = round_trip::difference(&subject, &read.map_err(fail)?, &[expected]);
                    if let Some(details) = difference.map_err(&invalid)? {
                        return Err(failed(&place, "the rows that n_rows_device states", details));
                    }
                }
            }
        }
    }
    Ok(())
}

/// Adds a number of rows on the batch's device.
fn counter(subject: &Subject, batch: &crossdock_arrays::DeviceBatch, rows: usize) -> Result<PendingBatch> {
    let memory = subject.stream().memory();
    let stream = memory.default_stream(batch.device())?;
    let bytes = memory.alloc_with(&stream, 8, |to| {
        to.copy_from_slice(&(rows as i64).to_ne_bytes());
        Ok(())
    })?;
    let of = IntType { width_bytes: 8, signed: true };
    PendingBatch::try_new(batch.clone(), &bytes.freeze(&stream)?, of, &stream)
}

fn write(subject: &Subject, readable: &Readable, batch: &PendingBatch) -> Result<WriterOutput> {
    let (call, format) = (subject.call(), &readable.batch_format);
    let sink = std::sync::Arc::new(TestSink::default());
    let mut writer = round_trip::begin(subject, &call, format, batch.schema(), &sink)?;
    let raw = export_pending(batch, subject.stream(), false)?;
    let mut capsules: Vec<Capsule> = writer.write(&call, raw)?;
    capsules.extend(writer.finish(&call)?);
    Ok(if format.bytes { WriterOutput::Bytes(sink.bytes()) } else { WriterOutput::Capsules(capsules) })
}
