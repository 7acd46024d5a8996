//! The schemas of streams: when they are available, and expected schemas.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use crossdock::api::Input;
use crossdock_arrays::import_schema;

use super::super::case::{Case, Check, failed};
use super::super::context::CaseContext;
use super::super::round_trip;
use super::super::subject::invalid_array;
use super::super::test_io::TestSource;
use super::importer::written;

pub const CASES: &[Case] = &[
    Case {
        name: "importer.schema_on_open",
        rule: "An open stream returns its schema without reading from its source.",
        spec_ref: "crossdock_batch_stream.get_schema",
        depends_on: &["importer.values"],
        on_devices: false,
        check: schema_on_open,
    },
    Case {
        name: "importer.expected",
        rule: "If the expected schema differs from the input's, open fails, or the stream has the expected columns.",
        spec_ref: "crossdock_importer.open, schema",
        depends_on: &["importer.values"],
        on_devices: false,
        check: expected,
    },
];

fn schema_on_open(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    written(context, &subject, |readable, table, bytes| {
        let name = &readable.format.name;
        let source = TestSource::of(bytes);
        let state = source.state.clone();
        let expected_schema = round_trip::expected_schema(readable, &table.schema());
        let input = Input::Source(source.source());
        let stream =
            round_trip::open(&subject, &subject.call(), &readable.format, input, expected_schema.as_ref());
        let mut stream = stream.map_err(|error| failed(name, "a stream", error))?;
        let before = state.reads();
        drop(stream.schema().map_err(|error| failed(name, "a schema", error))?);
        match state.reads() - before {
            0 => Ok(()),
            n => Err(failed(format!("'{name}', get_schema"), "0 reads of the source", n)),
        }
    })
}

/// Returns two schemas that differ from the table's schema, one in the column name and one in the
/// type.
fn other_schemas(table: &RecordBatch) -> [SchemaRef; 2] {
    let schema = round_trip::without_metadata(&table.schema());
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

fn expected(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    written(context, &subject, |readable, table, bytes| {
        for other in other_schemas(table) {
            let place = format!(
                "'{}', opened with an expected schema that has the field {:?}",
                readable.format.name,
                other.field(0)
            );
            let input = Input::Source(TestSource::of(bytes).source());
            let stream = round_trip::open(&subject, &subject.call(), &readable.format, input, Some(&other));
            let Ok(mut stream) = stream else { continue };
            let raw = stream.schema().map_err(|error| failed(&place, "a schema", error))?;
            let got = import_schema(&raw).map_err(invalid_array(&place))?;
            let columns = |schema: &Schema| {
                let fields = schema.fields().iter();
                fields.map(|field| (field.name().clone(), field.data_type().clone())).collect::<Vec<_>>()
            };
            if columns(&got) != columns(&other) {
                return Err(failed(
                    place,
                    "the expected columns, or an error",
                    format!("{:?}", columns(&got)),
                ));
            }
        }
        Ok(())
    })
}
