//! Encoders of columns.

use std::sync::Arc;

use arrow_schema::Schema;
use crossdock::api::{Code, Device, Options};
use crossdock_arrays::{DeviceBatch, export_field, first_difference};

use super::super::case::{Case, Check, failed};
use super::super::context::CaseContext;
use super::super::counted_objects::{self, ReleaseCounts};
use super::super::coverage::{self, Part};
use super::super::raw::NO_OPTION;
use super::super::subject::Subject;
use super::super::tables::{Form, columns};
use super::encoding::{host, session};

pub const CASES: &[Case] = &[
    Case {
        name: "encoder.refusals",
        rule: "An encoder returns CROSSDOCK_UNSUPPORTED or CROSSDOCK_INVALID_ARGUMENT for an encoding that is not in its \
               list, and for an unknown option.",
        spec_ref: "crossdock_encoder.encode",
        depends_on: &["interfaces.answers", "errors.message"],
        on_devices: false,
        check: refusals,
    },
    Case {
        name: "encoder.releases",
        rule: "The column of an `encode` call is released once, by the plugin or with the encoded array, also on failure.",
        spec_ref: "crossdock_encoder.encode",
        depends_on: &["encoder.refusals", "memory.blocks", "memory.references"],
        on_devices: false,
        check: releases,
    },
    Case {
        name: "encoder.values",
        rule: "An encoded column has the type and the values of the column, on all devices.",
        spec_ref: "crossdock_encoder.encode",
        depends_on: &[
            "encoder.releases",
            "encoding.device_rows",
            "encoding.samples",
            "lifetimes.host",
            "memory.reads",
        ],
        on_devices: true,
        check: values,
    },
];

/// Columns of each type that the suite makes, each in a batch of its own.
fn samples(context: &CaseContext, device: Device) -> Check<Vec<DeviceBatch>> {
    let mut random = context.random();
    let forms = [
        Form { rows: 0, nulls: false, sliced: false },
        Form { rows: 100, nulls: false, sliced: false },
        Form { rows: 1500, nulls: true, sliced: true },
    ];
    let mut all = Vec::new();
    for form in forms {
        for column in columns(&mut random, form) {
            for batch in context.table(&column, device)? {
                let field = batch.schema().fields().first().map(|field| field.as_ref().clone().with_name(""));
                // An encoded array has no name.
                let schema = Arc::new(Schema::new(field.into_iter().collect::<Vec<_>>()));
                let unnamed = DeviceBatch::try_new(schema, batch.len(), batch.columns().to_vec());
                let unnamed = unnamed.and_then(|unnamed| unnamed.with_default_device(device));
                all.push(unnamed.map_err(|error| failed("the suite's own column", "a batch", error))?);
            }
        }
    }
    Ok(all)
}

fn ids(subject: &Subject) -> Check<Vec<String>> {
    subject.encoder()?.ids().map_err(|error| failed("encoder.ids", "a list", error))
}

/// Encodes a column with the subject. `counts` counts the releases of the column.
fn encode(
    subject: &Subject,
    column: &DeviceBatch,
    id: &str,
    options: &Options,
    counts: &ReleaseCounts,
) -> Check<crossdock::api::Result<crossdock::api::EncodedArray>> {
    let own = |error| failed("the suite's own column", "a batch", error);
    let schema = column.schema();
    let field = schema.fields().first();
    let field = field.ok_or_else(|| failed("the suite's own column", "one column", "none"))?;
    let schema = export_field(field).map_err(own)?;
    let raw = counted_objects::batch(column, subject.stream(), counts).map_err(own)?;
    coverage::record_data_call();
    Ok(subject.encoder()?.encode(&subject.call(), id, options, &schema, raw))
}

fn refusals(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    let (known, counts) = (ids(&subject)?, ReleaseCounts::default());
    let none = Options::new();
    let unknown = Options::new().with(NO_OPTION, "1");
    let unknown_id = "crossdock.verify.no-such-encoding";
    for column in samples(context, context.device)? {
        let result = encode(&subject, &column, unknown_id, &none, &counts)?;
        require_refusal(format!("encode to '{unknown_id}'"), result)?;
        for id in &known {
            let result = encode(&subject, &column, id, &unknown, &counts)?;
            require_refusal(format!("encode to '{id}' with an unknown option"), result)?;
        }
    }
    Ok(())
}

fn require_refusal<T>(place: String, result: crossdock::api::Result<T>) -> Check {
    match result {
        Err(error) if [Code::UNSUPPORTED, Code::INVALID_ARGUMENT].contains(&error.code()) => Ok(()),
        Err(error) => Err(failed(place, "UNSUPPORTED or INVALID_ARGUMENT", error)),
        Ok(_) => Err(failed(place, "UNSUPPORTED or INVALID_ARGUMENT", "success")),
    }
}

fn releases(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    for id in ids(&subject)? {
        for column in samples(context, context.device)? {
            let (place, counts) = (place(&id, &column), ReleaseCounts::default());
            match encode(&subject, &column, &id, &Options::new(), &counts)? {
                Ok(array) => drop(array),
                Err(error) if error.code() == Code::UNSUPPORTED => {}
                Err(error) => return Err(failed(place, "an encoded array, or UNSUPPORTED", error)),
            }
            context.backend.settle();
            if let Some(details) = counts.violation() {
                return Err(failed(place, "each column released once", details));
            }
        }
    }
    super::entry::no_leaks(subject.end(), "after encoding")
}

fn place(id: &str, column: &DeviceBatch) -> String {
    let schema = column.schema();
    let data_type = schema.fields().first().map_or_else(String::new, |field| field.data_type().to_string());
    format!("{} values of {data_type} to '{id}'", column.len())
}

fn values(context: &CaseContext) -> Check {
    let ids = ids(&context.subject()?)?;
    let host = host(context);
    for device in [Device::CPU, Device::UNTOUCHABLE, context.device] {
        let session = session(&host, device)?;
        for column in samples(context, Device::CPU)? {
            let column = column.move_to(session.stream(), device);
            let column = column.map_err(|error| failed("the suite's own column", "a batch", error))?;
            for id in &ids {
                let place = format!("{} on {device}", place(id, &column));
                coverage::record_data_call();
                let encoded = match session.encode(&column, id, &Options::new()) {
                    Ok(array) => array,
                    Err(crossdock::Error::Plugin { source, .. }) if source.code() == Code::UNSUPPORTED => {
                        continue;
                    }
                    Err(error) => {
                        return Err(failed(place, "an encoded array, or UNSUPPORTED", error.one_line()));
                    }
                };
                let encoded = session.with_arrow_types(encoded).and_then(|array| session.decode(array));
                let decoded = encoded.map_err(|error| failed(&place, "values", error.one_line()))?;
                let difference = first_difference(&decoded, &column, session.stream());
                if let Some(details) = difference.map_err(|error| failed(&place, "an array", error))? {
                    return Err(failed(place, "the values of the column", details));
                }
                coverage::record_exercised(Part::encode(id));
            }
        }
    }
    if let Some(leak) = host.settle().first() {
        return Err(failed("encoding", "no memory held after encoding", leak));
    }
    Ok(())
}
