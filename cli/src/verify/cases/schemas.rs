//! When a stream knows its schema, and what becomes of one that is expected.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use crossdock::api::Input;
use crossdock_arrays::import_schema;

use super::super::case::{Case, Check, failed};
use super::super::lent::Bytes;
use super::super::subject::{Ground, looked};
use super::super::tour;
use super::importer::written;

pub const CASES: &[Case] = &[
    Case {
        name: "importer.schema_at_once",
        rule: "A stream that was opened knows its schema: nothing is read for it any more.",
        stands: "crossdock_batch_stream.get_schema",
        ground: &["importer.values"],
        on_devices: false,
        check: at_once,
    },
    Case {
        name: "importer.expected",
        rule: "Where other columns are expected than there are, open refuses, or the stream has those.",
        stands: "crossdock_importer.open, schema",
        ground: &["importer.values"],
        on_devices: false,
        check: expected,
    },
];

fn at_once(ground: &Ground) -> Check {
    let subject = ground.subject()?;
    written(ground, &subject, |readable, table, bytes| {
        let name = &readable.format.name;
        let source = Bytes::of(bytes);
        let state = source.state.clone();
        let asked = tour::expected(readable, &table.schema());
        let input = Input::Source(source.source());
        let stream = tour::open(&subject, &subject.call(), &readable.format, input, asked.as_ref());
        let mut stream = stream.map_err(|error| failed(name, "a stream", error))?;
        let before = state.reads();
        drop(stream.schema().map_err(|error| failed(name, "a schema", error))?);
        match state.reads() - before {
            0 => Ok(()),
            n => Err(failed(format!("'{name}', get_schema"), "no reads of the source", format!("{n}"))),
        }
    })
}

/// The columns under another name, and with another type.
fn others(table: &RecordBatch) -> [SchemaRef; 2] {
    let schema = tour::bare(&table.schema());
    let with = |change: fn(Field) -> Field| {
        let fields = schema.fields().iter().map(|field| change(field.as_ref().clone()));
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    };
    let other_type = |field: Field| {
        let is_text = *field.data_type() == DataType::Utf8;
        field.with_data_type(if is_text { DataType::Int16 } else { DataType::Utf8 })
    };
    [with(|field| field.with_name("crossdock-verify-no-such-column")), with(other_type)]
}

fn expected(ground: &Ground) -> Check {
    let subject = ground.subject()?;
    written(ground, &subject, |readable, table, bytes| {
        for other in others(table) {
            let place = format!("'{}', asked for {:?}", readable.format.name, other.field(0));
            let input = Input::Source(Bytes::of(bytes).source());
            let stream = tour::open(&subject, &subject.call(), &readable.format, input, Some(&other));
            let Ok(mut stream) = stream else { continue };
            let raw = stream.schema().map_err(|error| failed(&place, "a schema", error))?;
            let got = import_schema(&raw).map_err(looked(&place))?;
            let columns = |schema: &Schema| {
                let fields = schema.fields().iter();
                fields.map(|field| (field.name().clone(), field.data_type().clone())).collect::<Vec<_>>()
            };
            if columns(&got) != columns(&other) {
                return Err(failed(place, "these columns, or an error", format!("{:?}", columns(&got))));
            }
        }
        Ok(())
    })
}
