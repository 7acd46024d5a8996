//! Bytes that somebody damaged.

use arrow_array::RecordBatch;
use crossdock::api::{CallSettings, Device, Error, Input, Result, Validate};
use crossdock_arrays::{Level, import_batch, import_schema, validate};

use super::super::case::{Case, Check, failed};
use super::super::lent::Bytes;
use super::super::subject::{Ground, Subject};
use super::super::tour::{self, Readable};
use super::importer::written;

pub const CASES: &[Case] = &[Case {
    name: "hostile.bytes",
    rule: "Bytes that were cut or changed give batches that keep the specification, or an error; they end, and nothing is left \
           behind.",
    stands: "CROSSDOCK_BAD_DATA",
    ground: &["importer.values", "memory.blocks", "memory.work", "memory.references"],
    on_devices: true,
    check: bytes,
}];

const MUTANTS: usize = 150;

fn bytes(ground: &Ground) -> Check {
    let subject = ground.subject()?;
    let done = written(ground, &subject, |readable, table, bytes| {
        let mut random = ground.random();
        let step = (bytes.len() / 24).max(1);
        let cut = (0..bytes.len()).step_by(step).map(|n| bytes[..n].to_vec()).collect::<Vec<_>>();
        let changed: Vec<_> = (0..MUTANTS).map(|_| random.mutated(bytes)).collect();
        for hostile in cut.into_iter().chain(changed) {
            let source = Bytes { map: random.below(2) == 0, ..Bytes::of(&hostile) };
            let place = format!("'{}', {} hostile bytes", readable.format.name, hostile.len());
            look_through(ground, &subject, readable, table, source)
                .map_err(|error| failed(place, "batches that keep the specification, or an error", error))?;
        }
        Ok(())
    });
    let watch = subject.end();
    done?;
    super::entry::nothing_left(watch, "after hostile bytes")
}

/// Reads what may be nonsense. Errors of the plugin are as they should be; those of what it gave are not.
fn look_through(
    ground: &Ground,
    subject: &Subject,
    readable: &Readable,
    table: &RecordBatch,
    source: Bytes,
) -> Result<()> {
    let call = CallSettings { validate: Validate::Full, ..subject.call() };
    let asked = tour::expected(readable, &table.schema());
    let input = Input::Source(source.source());
    let Ok(mut stream) = tour::open(subject, &call, &readable.format, input, asked.as_ref()) else {
        return Ok(());
    };
    let Ok(raw) = stream.schema() else { return Ok(()) };
    let schema = std::sync::Arc::new(import_schema(&raw)?);
    let session = ground.session(Device::CPU).map_err(|_| Error::internal("no session"))?;
    while let Ok(Some(batch)) = stream.next(&call) {
        let batch = import_batch(batch, &schema, session.memory())?;
        validate(&batch, Level::Full, subject.stream())?;
    }
    Ok(())
}
