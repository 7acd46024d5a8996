//! Checks that the plugin accepts structs with additional fields, as later releases may define
//! them.

use super::super::case::{Case, Check, failed, not_offered};
use super::super::context::CaseContext;
use super::super::counted_objects::{CapsuleKind, ReleaseCounts};
use super::super::raw::Raw;
use super::super::round_trip;
use super::super::tables::{FORMS, columns, together};
use super::super::watch::HostOptions;
use super::memory;

pub const CASES: &[Case] = &[
    Case {
        name: "structs.later_host",
        rule: "The plugin works with a host whose structs are longer than those it knows.",
        spec_ref: "crossdock.h, sizes",
        depends_on: &["importer.values", "memory.blocks", "memory.streams_and_events", "memory.references"],
        on_devices: false,
        check: later_host,
    },
    Case {
        name: "structs.longer_arguments",
        rule: "Of arguments and out parameters that are longer than those it knows, the plugin reads and writes only the fields \
               that it knows.",
        spec_ref: "crossdock.h, sizes, objects",
        depends_on: &["importer.values"],
        on_devices: false,
        check: longer_arguments,
    },
];

fn later_host(context: &CaseContext) -> Check {
    let watch = context.watch(HostOptions { is_extended: true, ..HostOptions::default() });
    let subject = context.create(watch)?.map_err(|error| failed("create", "an instance", error))?;
    memory::run_all(context, &subject, &FORMS[..2])?;
    let formats = round_trip::readable(context, &subject).unwrap_or_default();
    for readable in formats.iter().filter(|readable| readable.kind.is_some()) {
        let Some(table) = together(&columns(&mut context.random(), FORMS[1])) else { continue };
        let read = round_trip::read_back(context, &subject, readable, &table, &ReleaseCounts::default())?;
        let place = format!("'{}'", readable.format.name);
        let read = read.map_err(|error| failed(&place, "the table", error))?;
        super::importer::same_values(context, &subject, &place, readable, &table, &read)?;
    }
    super::entry::no_leaks(subject.end(), "tables in and out, then destroy")
}

fn longer_arguments(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    let formats = round_trip::readable(context, &subject)?;
    let kinds = formats.iter().filter_map(|readable| readable.kind.map(|kind| (readable, kind)));
    let kinds: Vec<(&round_trip::Readable, CapsuleKind)> = kinds.collect();
    if kinds.is_empty() {
        return Err(not_offered("the plugin reads no Arrow capsules"));
    }
    let watch = context.watch(HostOptions::default());
    let raw = Raw::create(context, watch)?.map_err(|error| failed("create", "an instance", error))?;
    let Some(table) = together(&columns(&mut context.random(), FORMS[0])) else { return Ok(()) };
    for (readable, kind) in kinds {
        let batches = context.table_for(&readable.batch_format, &table)?;
        let fail = |error| failed(&readable.format.name, "a batch", error);
        let capsules = kind.capsules(&table.schema(), &batches, subject.stream(), &ReleaseCounts::default());
        let damage = raw.open_extended(&readable.format, capsules.map_err(fail)?).map_err(fail)?;
        if let Some(damage) = damage {
            return Err(failed(format!("'{}'", readable.format.name), "writes to known fields only", damage));
        }
    }
    Ok(())
}
