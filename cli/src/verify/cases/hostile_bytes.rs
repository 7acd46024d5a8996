//! Samples, and bytes that were cut or mutated.

use std::path::Path;

use arrow_schema::SchemaRef;
use crossdock::api::{CallSettings, Format, Input, Validate};
use crossdock_arrays::{DeviceBatch, Level, validate};

use super::super::case::{Case, Check, failed, missing_sample};
use super::super::context::CaseContext;
use super::super::malformed::{judge, read_and_validate};
use super::super::round_trip::{self, ReadTable};
use super::super::subject::{Subject, invalid_array};
use super::super::test_io::TestSource;
use super::importer::written;
use super::ipc;

pub const CASES: &[Case] = &[
    Case {
        name: "hostile.samples",
        rule: "A sample of a format that the plugin reads gives valid batches, with the same values each time and without leaks.",
        spec_ref: "crossdock_importer.open",
        depends_on: &[
            "errors.message",
            "importer.null_counts",
            "memory.blocks",
            "memory.streams_and_events",
            "memory.references",
        ],
        on_devices: true,
        check: samples,
    },
    Case {
        name: "hostile.bytes",
        rule: "Bytes that were cut or mutated give valid batches or an error, and reading them ends without leaks.",
        spec_ref: "CROSSDOCK_BAD_DATA",
        depends_on: &["importer.values", "hostile.samples"],
        on_devices: true,
        check: bytes,
    },
];

/// The samples that one of the plugin's formats recognises, with the format and the file's name.
pub fn recognised_samples(context: &CaseContext, subject: &Subject) -> Check<Vec<(Format, String, Vec<u8>)>> {
    let formats = subject.importer()?.formats().map_err(|error| failed("formats", "a list", error))?;
    let mut samples = Vec::new();
    for file in &context.samples {
        let bytes =
            std::fs::read(file).map_err(|error| missing_sample(format!("'{}': {error}", file.display())))?;
        let is_recognised = |format: &&Format| {
            format.bytes && (format.matches(&bytes) || has_extension(file, &format.extensions))
        };
        if let Some(format) = formats.iter().find(is_recognised) {
            samples.push((format.clone(), file.display().to_string(), bytes));
        }
    }
    Ok(samples)
}

fn has_extension(file: &Path, extensions: &[String]) -> bool {
    let name = file.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    extensions.iter().any(|extension| name.ends_with(extension.as_str()))
}

fn samples(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    let samples = recognised_samples(context, &subject)?;
    if samples.is_empty() {
        return Err(missing_sample("no sample of a format that the plugin reads (--sample FILE)"));
    }
    for (format, file, bytes) in &samples {
        let read = |map: bool| -> Check<Vec<DeviceBatch>> {
            let source = TestSource { map, ..TestSource::of(bytes) };
            let input = Input::Source(source.source());
            let read = round_trip::read(context, &subject, format, input, None);
            Ok(read.map_err(|error| failed(file, "a table", error))?.batches)
        };
        let (first, second) = (read(false)?, read(true)?);
        for batch in &first {
            validate(batch, Level::Full, subject.stream()).map_err(invalid_array(file))?;
        }
        if let Some(schema) = second.first().map(|batch| batch.schema().clone()) {
            let again = ReadTable { schema, batches: second };
            let difference = round_trip::difference(&subject, &again, &first).map_err(invalid_array(file))?;
            difference.map_or(Ok(()), |details| Err(failed(file, "the same values again", details)))?;
        }
    }
    super::entry::no_leaks(subject.end(), "after reading the samples")
}

const N_MUTATIONS: usize = 150;

fn bytes(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    let mut seeds: Vec<(Format, Option<SchemaRef>, Vec<u8>)> = Vec::new();
    let visited = written(context, &subject, |readable, table, bytes| {
        seeds.push((
            readable.format.clone(),
            round_trip::expected_schema(readable, &table.schema()),
            bytes.to_vec(),
        ));
        Ok(())
    });
    let samples = recognised_samples(context, &subject)?;
    seeds.extend(samples.into_iter().map(|(format, _, bytes)| (format, None, bytes)));
    seeds.extend(ipc::samples(context, &subject).into_iter().map(|(format, bytes)| (format, None, bytes)));
    if seeds.is_empty() {
        visited?;
    }
    for (format, expected_schema, bytes) in &seeds {
        let mut random = context.random();
        let step = (bytes.len() / 24).max(1);
        let cut = (0..bytes.len()).step_by(step).map(|n| bytes[..n].to_vec()).collect::<Vec<_>>();
        let mutated: Vec<_> = (0..N_MUTATIONS).map(|_| random.mutated(bytes)).collect();
        for hostile in cut.into_iter().chain(mutated) {
            let place = format!("'{}', {} hostile bytes", format.name, hostile.len());
            let source = TestSource { map: random.below(2) == 0, ..TestSource::of(&hostile) };
            let call = CallSettings { validate: Validate::Full, ..subject.call() };
            let input = Input::Source(source.source());
            let result = read_and_validate(context, &subject, &call, format, expected_schema.as_ref(), input);
            judge(place, result, false)?;
        }
    }
    super::entry::no_leaks(subject.end(), "after hostile bytes")
}
