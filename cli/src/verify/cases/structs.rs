//! Structs of releases after the plugin's.

use super::super::case::{Case, Check, failed, not_offered};
use super::super::lent::{Counts, Kind};
use super::super::raw::Raw;
use super::super::subject::Ground;
use super::super::tables::{FORMS, columns, together};
use super::super::tour;
use super::super::watch::Wishes;
use super::memory;

pub const CASES: &[Case] = &[
    Case {
        name: "structs.later_host",
        rule: "A host whose structs are longer than the plugin knows is worked with.",
        stands: "crossdock.h, sizes",
        ground: &["importer.values", "memory.blocks", "memory.work", "memory.references"],
        on_devices: false,
        check: later_host,
    },
    Case {
        name: "structs.longer_places",
        rule: "Calls and out parameters that are longer than the plugin knows are read and filled in as far as it does.",
        stands: "crossdock.h, sizes, objects",
        ground: &["importer.values"],
        on_devices: false,
        check: places,
    },
];

fn later_host(ground: &Ground) -> Check {
    let watch = ground.watch(Wishes { longer: true, ..Wishes::default() });
    let subject = ground.create(watch)?.map_err(|error| failed("create", "an instance", error))?;
    memory::tour(ground, &subject, &FORMS[..2])?;
    let formats = tour::readable(ground, &subject).unwrap_or_default();
    for readable in formats.iter().filter(|readable| readable.kind.is_some()) {
        let Some(table) = together(&columns(&mut ground.random(), FORMS[1])) else { continue };
        let read = tour::round(ground, &subject, readable, &table, &Counts::default())?;
        let place = format!("'{}'", readable.format.name);
        let read = read.map_err(|error| failed(&place, "the table", error))?;
        super::importer::same_values(ground, &subject, &place, readable, &table, &read)?;
    }
    super::entry::nothing_left(subject.end(), "tables in and out, then destroy")
}

fn places(ground: &Ground) -> Check {
    let subject = ground.subject()?;
    let formats = tour::readable(ground, &subject)?;
    let kinds = formats.iter().filter_map(|readable| readable.kind.map(|kind| (readable, kind)));
    let kinds: Vec<(&tour::Readable, Kind)> = kinds.collect();
    if kinds.is_empty() {
        return Err(not_offered("the plugin reads no Arrow capsules"));
    }
    let watch = ground.watch(Wishes::default());
    let raw = Raw::create(ground, watch)?.map_err(|error| failed("create", "an instance", error))?;
    let Some(table) = together(&columns(&mut ground.random(), FORMS[0])) else { return Ok(()) };
    for (readable, kind) in kinds {
        let batches = ground.table_for(&readable.taker, &table)?;
        let wrong = |error| failed(&readable.format.name, "a batch", error);
        let capsules = kind.capsules(&table.schema(), &batches, subject.stream(), &Counts::default());
        let damage = raw.open_longer(&readable.format, capsules.map_err(wrong)?).map_err(wrong)?;
        if let Some(damage) = damage {
            return Err(failed(format!("'{}'", readable.format.name), "today's fields alone", damage));
        }
    }
    Ok(())
}
