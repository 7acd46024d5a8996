//! Bytes that somebody damaged, and those of strangers.

use std::path::Path;

use arrow_schema::SchemaRef;
use crossdock::api::{CallSettings, Format, Input, Validate};
use crossdock_arrays::{DeviceBatch, Level, validate};

use super::super::case::{Case, Check, failed, not_given};
use super::super::lent::Bytes;
use super::super::lies::{judge, looked_through};
use super::super::subject::{Ground, Subject, looked};
use super::super::tour::{self, Read};
use super::importer::written;
use super::streams;

pub const CASES: &[Case] = &[
    Case {
        name: "hostile.samples",
        rule: "A sample of a format that the plugin reads gives batches that keep the specification, the same each time, and \
               nothing is left behind.",
        stands: "crossdock_importer.open",
        ground: &[
            "errors.message",
            "importer.null_counts",
            "memory.blocks",
            "memory.work",
            "memory.references",
        ],
        on_devices: true,
        check: samples,
    },
    Case {
        name: "hostile.bytes",
        rule: "Bytes that were cut or changed give batches that keep the specification, or an error; they end, and nothing is \
               left behind.",
        stands: "CROSSDOCK_BAD_DATA",
        ground: &["importer.values", "hostile.samples"],
        on_devices: true,
        check: bytes,
    },
];

/// The samples that a format of the plugin's is known by.
pub fn known(ground: &Ground, subject: &Subject) -> Check<Vec<(Format, String, Vec<u8>)>> {
    let formats = subject.importer()?.formats().map_err(|error| failed("formats", "a list", error))?;
    let mut known = Vec::new();
    for file in &ground.samples {
        let bytes =
            std::fs::read(file).map_err(|error| not_given(format!("'{}': {error}", file.display())))?;
        let is_its =
            |format: &&Format| format.bytes && (format.matches(&bytes) || ends(file, &format.endings));
        if let Some(format) = formats.iter().find(is_its) {
            known.push((format.clone(), file.display().to_string(), bytes));
        }
    }
    Ok(known)
}

fn ends(file: &Path, endings: &[String]) -> bool {
    let name = file.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    endings.iter().any(|ending| name.ends_with(ending.as_str()))
}

fn samples(ground: &Ground) -> Check {
    let subject = ground.subject()?;
    let known = known(ground, &subject)?;
    if known.is_empty() {
        return Err(not_given("no sample of a format that the plugin reads (--sample FILE)"));
    }
    for (format, file, bytes) in &known {
        let read = |map: bool| -> Check<Vec<DeviceBatch>> {
            let source = Bytes { map, ..Bytes::of(bytes) };
            let input = Input::Source(source.source());
            let read = tour::read(ground, &subject, format, input, None);
            Ok(read.map_err(|error| failed(file, "a table", error))?.batches)
        };
        let (first, second) = (read(false)?, read(true)?);
        for batch in &first {
            validate(batch, Level::Full, subject.stream()).map_err(looked(file))?;
        }
        if let Some(schema) = second.first().map(|batch| batch.schema().clone()) {
            let again = Read { schema, batches: second };
            let difference = tour::difference(&subject, &again, &first).map_err(looked(file))?;
            difference.map_or(Ok(()), |words| Err(failed(file, "the same values again", words)))?;
        }
    }
    super::entry::nothing_left(subject.end(), "samples that were read")
}

const MUTANTS: usize = 150;

fn bytes(ground: &Ground) -> Check {
    let subject = ground.subject()?;
    let mut seeds: Vec<(Format, Option<SchemaRef>, Vec<u8>)> = Vec::new();
    let own = written(ground, &subject, |readable, table, bytes| {
        seeds.push((readable.format.clone(), tour::expected(readable, &table.schema()), bytes.to_vec()));
        Ok(())
    });
    seeds.extend(known(ground, &subject)?.into_iter().map(|(format, _, bytes)| (format, None, bytes)));
    seeds.extend(streams::samples(ground, &subject).into_iter().map(|(format, bytes)| (format, None, bytes)));
    if seeds.is_empty() {
        own?;
    }
    for (format, asked, bytes) in &seeds {
        let mut random = ground.random();
        let step = (bytes.len() / 24).max(1);
        let cut = (0..bytes.len()).step_by(step).map(|n| bytes[..n].to_vec()).collect::<Vec<_>>();
        let changed: Vec<_> = (0..MUTANTS).map(|_| random.mutated(bytes)).collect();
        for hostile in cut.into_iter().chain(changed) {
            let place = format!("'{}', {} hostile bytes", format.name, hostile.len());
            let source = Bytes { map: random.below(2) == 0, ..Bytes::of(&hostile) };
            let call = CallSettings { validate: Validate::Full, ..subject.call() };
            let input = Input::Source(source.source());
            let made = looked_through(ground, &subject, &call, format, asked.as_ref(), input);
            judge(place, made, false)?;
        }
    }
    super::entry::nothing_left(subject.end(), "after hostile bytes")
}
