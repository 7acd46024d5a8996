//! How failures are told, and what is left alone by them.

use crossdock::api::Options;
use crossdock_arrays::export_schema;

use super::super::case::{Case, Check, failed, not_offered};
use super::super::lent::Counts;
use super::super::raw::{Attempt, NO_OPTION, Raw, Wrong};
use super::super::subject::Ground;
use super::super::tables::FORMS;
use super::super::tour;
use super::super::watch::Wishes;
use super::encoding;

pub const CASES: &[Case] = &[
    Case {
        name: "errors.unknown_format",
        rule: "A format that is not in the list is refused.",
        stands: "crossdock_format.name",
        ground: &["interfaces.answers"],
        on_devices: false,
        check: |ground| refused(ground, Wrong::Format),
    },
    Case {
        name: "errors.unknown_option",
        rule: "An option that a format does not list is refused, so that a misspelt wish is not ignored.",
        stands: "crossdock_format.options",
        ground: &["interfaces.answers"],
        on_devices: false,
        check: |ground| refused(ground, Wrong::Option).and_then(|()| refused_reading(ground)),
    },
    Case {
        name: "errors.message",
        rule: "A failure fills in the struct: the code that was returned, one line of UTF-8, details or NULL, and no byte more.",
        stands: "crossdock_error",
        ground: &["errors.unknown_format"],
        on_devices: false,
        check: |ground| look(ground, Wrong::Format, true, "a struct that tells", |attempt| attempt.error),
    },
    Case {
        name: "errors.without_struct",
        rule: "A caller need not want to know: the error struct may be NULL.",
        stands: "crossdock.h, status",
        ground: &["errors.unknown_format"],
        on_devices: false,
        check: |ground| look(ground, Wrong::Format, false, "a code", |_| None),
    },
    Case {
        name: "errors.out_parameters",
        rule: "Out parameters are written on success only.",
        stands: "crossdock.h, status",
        ground: &["errors.unknown_format"],
        on_devices: false,
        check: |ground| {
            look(ground, Wrong::Format, true, "an out parameter as it was", |attempt| attempt.out)
        },
    },
    Case {
        name: "errors.handed_over",
        rule: "What open and begin take they take on failure too: source, capsules and sink are released once.",
        stands: "crossdock_importer.open, crossdock_exporter.begin",
        ground: &["errors.unknown_format"],
        on_devices: false,
        check: |ground| {
            look(ground, Wrong::Format, true, "what was handed over released once", |attempt| attempt.handed)
        },
    },
];

fn attempts(ground: &Ground, wrong: Wrong, told: bool) -> Check<Vec<Attempt>> {
    let subject = ground.subject()?;
    let read = subject.importer().map(|importer| importer.formats());
    let written = subject.exporter().map(|exporter| exporter.formats());
    let formats = |formats: Check<Result<_, crossdock::api::Error>>| match formats {
        Ok(formats) => formats.map_err(|error| failed("formats", "a list", error)),
        Err(_) => Ok(Vec::new()),
    };
    let (read, written) = (formats(read)?, formats(written)?);
    let watch = ground.watch(Wishes::default());
    let raw = Raw::create(ground, watch)?.map_err(|error| failed("create", "an instance", error))?;
    let attempts = raw.attempts(&read, &written, wrong, told);
    let mut attempts = attempts.map_err(|error| failed("the suite's own schema", "a schema", error))?;
    if wrong == Wrong::Format {
        // Whether it is refused is for `encoding.unknown_id`.
        let check = raw.check(encoding::unknown(ground)?, told);
        attempts.extend(check.filter(|attempt| attempt.code != 0));
    }
    if attempts.is_empty() {
        return Err(not_offered("the plugin has nothing that it could refuse"));
    }
    Ok(attempts)
}

fn refused(ground: &Ground, wrong: Wrong) -> Check {
    match attempts(ground, wrong, true)?.into_iter().find(|attempt| attempt.code == 0) {
        Some(attempt) => Err(failed(attempt.place, "an error", "success")),
        None => Ok(()),
    }
}

/// The same of inputs that are as they should be but for the option.
fn refused_reading(ground: &Ground) -> Check {
    let subject = ground.subject()?;
    let options = Options::new().with(NO_OPTION, "1");
    for readable in tour::readable(ground, &subject).unwrap_or_default() {
        let name = &readable.format.name;
        let Ok(Some(table)) = ground.first_table(&subject, &readable, FORMS[0]) else { continue };
        let batches = ground.table_for(&readable.taker, &table)?;
        // What it cannot write so is another case's.
        let input = tour::input(&subject, &readable, &table.schema(), &batches, &Counts::default());
        let Ok(input) = input else { continue };
        let schema = tour::expected(&readable, &table.schema()).map(|schema| export_schema(&schema));
        let schema =
            schema.transpose().map_err(|error| failed("the suite's own schema", "a schema", error))?;
        if subject.importer()?.open(&subject.call(), name, input, schema.as_ref(), &options).is_ok() {
            let place = format!("open of '{name}' with an option that it does not list");
            return Err(failed(place, "an error", "success"));
        }
    }
    Ok(())
}

fn look(
    ground: &Ground,
    wrong: Wrong,
    told: bool,
    expected: &str,
    complaint: fn(Attempt) -> Option<String>,
) -> Check {
    for attempt in attempts(ground, wrong, told)? {
        let place = attempt.place.clone();
        if let Some(words) = complaint(attempt) {
            return Err(failed(place, expected, words));
        }
    }
    Ok(())
}
