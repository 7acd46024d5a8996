//! Failures: error structs, out parameters, and the ownership of inputs.

use crossdock::api::{Code, Options, ReadRequest, abi};
use crossdock_arrays::export_schema;

use super::super::case::{Case, Check, failed, not_offered};
use super::super::context::CaseContext;
use super::super::counted_objects::ReleaseCounts;
use super::super::raw::{Attempt, Defect, NO_OPTION, Raw};
use super::super::round_trip;
use super::super::tables::FORMS;
use super::super::watch::HostOptions;
use super::encoding;

pub const CASES: &[Case] = &[
    Case {
        name: "errors.unknown_format",
        rule: "A format that is not in the plugin's list is rejected.",
        spec_ref: "crossdock_format.name",
        depends_on: &["interfaces.answers"],
        on_devices: false,
        check: |context| rejected(context, Defect::Format),
    },
    Case {
        name: "errors.unknown_option",
        rule: "An option that a format does not list is rejected, so that a misspelt option is not ignored.",
        spec_ref: "crossdock_format.options",
        depends_on: &["interfaces.answers"],
        on_devices: false,
        check: |context| rejected(context, Defect::Option).and_then(|()| rejected_on_read(context)),
    },
    Case {
        name: "errors.reserved_fields",
        rule: "A reserved field of a call or a read request that is not 0 is rejected with CROSSDOCK_INVALID_ARGUMENT.",
        spec_ref: "crossdock.h, flags",
        depends_on: &["errors.unknown_format"],
        on_devices: false,
        check: |context| {
            rejected_with(context, Defect::ReservedInCall, abi::INVALID_ARGUMENT)?;
            rejected_with(context, Defect::ReservedInRequest, abi::INVALID_ARGUMENT)
        },
    },
    Case {
        name: "errors.unknown_setting",
        rule: "An unknown value of a call's validate is rejected with CROSSDOCK_UNSUPPORTED.",
        spec_ref: "crossdock.h, flags",
        depends_on: &["errors.unknown_format"],
        on_devices: false,
        check: |context| rejected_with(context, Defect::Validation, abi::UNSUPPORTED),
    },
    Case {
        name: "errors.message",
        rule: "A failure fills in the error struct: the returned code, a message of one line of UTF-8, details or NULL, and \
               no bytes after the struct.",
        spec_ref: "crossdock_error",
        depends_on: &["errors.unknown_format"],
        on_devices: false,
        check: |context| {
            check_attempts(context, Defect::Format, true, "a complete error struct", |attempt| attempt.error)
        },
    },
    Case {
        name: "errors.without_struct",
        rule: "The error struct may be NULL.",
        spec_ref: "crossdock.h, status",
        depends_on: &["errors.unknown_format"],
        on_devices: false,
        check: |context| check_attempts(context, Defect::Format, false, "a code", |_| None),
    },
    Case {
        name: "errors.out_parameters",
        rule: "Out parameters are written only on success.",
        spec_ref: "crossdock.h, status",
        depends_on: &["errors.unknown_format"],
        on_devices: false,
        check: |context| {
            check_attempts(context, Defect::Format, true, "an unchanged out parameter", |attempt| attempt.out)
        },
    },
    Case {
        name: "errors.handed_over",
        rule: "open and begin take ownership of their inputs also on failure: source, capsules and sink are released once.",
        spec_ref: "crossdock_importer.open, crossdock_exporter.begin",
        depends_on: &["errors.unknown_format"],
        on_devices: false,
        check: |context| {
            check_attempts(context, Defect::Format, true, "each input released once", |attempt| attempt.input)
        },
    },
];

/// Makes all calls with this defect. If `has_error_struct` is false, the error struct is NULL.
fn attempts(context: &CaseContext, defect: Defect, has_error_struct: bool) -> Check<Vec<Attempt>> {
    let subject = context.subject()?;
    let read = subject.importer().map(|importer| importer.formats());
    let written = subject.exporter().map(|exporter| exporter.formats());
    let formats = |formats: Check<Result<_, crossdock::api::Error>>| match formats {
        Ok(formats) => formats.map_err(|error| failed("formats", "a list", error)),
        Err(_) => Ok(Vec::new()),
    };
    let (read, written) = (formats(read)?, formats(written)?);
    let watch = context.watch(HostOptions::default());
    let raw = Raw::create(context, watch)?.map_err(|error| failed("create", "an instance", error))?;
    let attempts = raw.attempts(&read, &written, defect, has_error_struct);
    let mut attempts = attempts.map_err(|error| failed("the suite's own schema", "a schema", error))?;
    if defect == Defect::Format {
        // A success of `check` is left out here, because the case `encoding.unknown_id` reports it.
        let check = raw.check(encoding::unknown(context)?, has_error_struct);
        attempts.extend(check.filter(|attempt| attempt.code != 0));
    }
    if attempts.is_empty() {
        return Err(not_offered("the plugin has no function that such a call could fail in"));
    }
    Ok(attempts)
}

fn rejected(context: &CaseContext, defect: Defect) -> Check {
    match attempts(context, defect, true)?.into_iter().find(|attempt| attempt.code == 0) {
        Some(attempt) => Err(failed(attempt.place, "an error", "success")),
        None => Ok(()),
    }
}

/// Checks that each call with this defect returns `expected`.
fn rejected_with(context: &CaseContext, defect: Defect, expected: abi::Code) -> Check {
    let text = |code: abi::Code| Code(code).text();
    match attempts(context, defect, true)?.into_iter().find(|attempt| attempt.code != expected) {
        Some(attempt) => {
            let got = if attempt.code == abi::OK { "success".into() } else { text(attempt.code) };
            Err(failed(attempt.place, text(expected), got))
        }
        None => Ok(()),
    }
}

/// Opens valid inputs with an unknown option.
fn rejected_on_read(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    let options = Options::new().with(NO_OPTION, "1");
    for readable in round_trip::readable(context, &subject).unwrap_or_default() {
        let name = &readable.format.name;
        let Ok(Some(table)) = context.first_table(&subject, &readable, FORMS[0]) else { continue };
        let batches = context.table_for(&readable.batch_format, &table)?;
        // Another case reports a table that cannot be written.
        let input =
            round_trip::input(&subject, &readable, &table.schema(), &batches, &ReleaseCounts::default());
        let Ok(input) = input else { continue };
        let schema =
            round_trip::expected_schema(&readable, &table.schema()).map(|schema| export_schema(&schema));
        let schema =
            schema.transpose().map_err(|error| failed("the suite's own schema", "a schema", error))?;
        let request = ReadRequest::new(name).with_schema(schema.as_deref()).with_options(&options);
        if subject.importer()?.open(&subject.call(), input, &request).is_ok() {
            let place = format!("open of '{name}' with an unknown option");
            return Err(failed(place, "an error", "success"));
        }
    }
    Ok(())
}

fn check_attempts(
    context: &CaseContext,
    defect: Defect,
    has_error_struct: bool,
    expected: &str,
    violation: fn(Attempt) -> Option<String>,
) -> Check {
    for attempt in attempts(context, defect, has_error_struct)? {
        let place = attempt.place.clone();
        if let Some(details) = violation(attempt) {
            return Err(failed(place, expected, details));
        }
    }
    Ok(())
}
