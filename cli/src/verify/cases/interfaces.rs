//! The interfaces, formats and encodings that an instance offers.

use std::collections::HashSet;

use crossdock::api::{Error, Format};

use super::super::case::{Case, Check, failed};
use super::super::context::CaseContext;
use super::super::coverage;
use super::super::raw::Raw;
use super::super::subject::Subject;
use super::super::watch::HostOptions;

pub const CASES: &[Case] = &[
    Case {
        name: "interfaces.functions",
        rule: "An interface has all functions that are not documented as optional.",
        spec_ref: "crossdock_importer, crossdock_exporter, crossdock_encoding, crossdock_encoder, crossdock_opener",
        depends_on: &["entry.create"],
        on_devices: false,
        check: functions,
    },
    Case {
        name: "interfaces.answers",
        rule: "Formats, encoding ids and URI schemes are returned as lists of UTF-8 texts.",
        spec_ref: "crossdock_importer.formats, crossdock_exporter.formats, crossdock_encoding.ids, crossdock_encoder.ids, crossdock_opener.schemes",
        depends_on: &["interfaces.functions"],
        on_devices: false,
        check: answers,
    },
    Case {
        name: "interfaces.same_answers",
        rule: "Formats, encoding ids and URI schemes are the same in each call and in each instance.",
        spec_ref: "crossdock_format",
        depends_on: &["interfaces.answers"],
        on_devices: false,
        check: same_answers,
    },
    Case {
        name: "interfaces.unique_names",
        rule: "Formats, file extensions, options, encodings and URI schemes have non-empty names that are unique in their list.",
        spec_ref: "crossdock_format",
        depends_on: &["interfaces.answers"],
        on_devices: false,
        check: once,
    },
    Case {
        name: "interfaces.metadata",
        rule: "The metadata lists exactly the interfaces, formats, encodings and URI schemes that instances have.",
        spec_ref: "crossdock_plugin_meta.interfaces, formats, encodings, schemes",
        depends_on: &["interfaces.same_answers"],
        on_devices: false,
        check: metadata,
    },
];

fn functions(context: &CaseContext) -> Check {
    let watch = context.watch(HostOptions::default());
    let raw = Raw::create(context, watch)?.map_err(|error| failed("create", "an instance", error))?;
    let mut has = Vec::new();
    if let Some(importer) = raw.importer() {
        has.push(("importer.formats", importer.formats.is_some()));
        has.push(("importer.open", importer.open.is_some()));
    }
    if let Some(exporter) = raw.exporter() {
        has.push(("exporter.formats", exporter.formats.is_some()));
        has.push(("exporter.plan", exporter.plan.is_some()));
        has.push(("exporter.begin", exporter.begin.is_some()));
    }
    if let Some(encoding) = raw.encoding() {
        has.push(("encoding.ids", encoding.ids.is_some()));
        has.push(("encoding.check", encoding.check.is_some()));
        has.push(("encoding.size", encoding.size.is_some()));
        has.push(("encoding.decode or lower", encoding.decode.is_some() || encoding.lower.is_some()));
    }
    if let Some(encoder) = raw.encoder() {
        has.push(("encoder.ids", encoder.ids.is_some()));
        has.push(("encoder.encode", encoder.encode.is_some()));
    }
    if let Some(opener) = raw.opener() {
        has.push(("opener.schemes", opener.schemes.is_some()));
        has.push(("opener.open", opener.open.is_some()));
    }
    match has.iter().find(|(_, has)| !has) {
        Some((name, _)) => Err(failed(name, "a function", "NULL")),
        None => Ok(()),
    }
}

/// Everything that an instance offers.
#[derive(PartialEq, Debug)]
struct Answers {
    read: Vec<Format>,
    written: Vec<Format>,
    ids: Vec<String>,
    encoded: Vec<String>,
    schemes: Vec<String>,
}

fn ask(subject: &Subject) -> Check<Answers> {
    let fail = |place| move |error: Error| failed(place, "a list", error);
    Ok(Answers {
        read: match subject.importer() {
            Ok(importer) => importer.formats().map_err(fail("importer.formats"))?,
            Err(_) => Vec::new(),
        },
        written: match subject.exporter() {
            Ok(exporter) => exporter.formats().map_err(fail("exporter.formats"))?,
            Err(_) => Vec::new(),
        },
        ids: match subject.encoding() {
            Ok(encoding) => encoding.ids().map_err(fail("encoding.ids"))?,
            Err(_) => Vec::new(),
        },
        encoded: match subject.encoder() {
            Ok(encoder) => encoder.ids().map_err(fail("encoder.ids"))?,
            Err(_) => Vec::new(),
        },
        schemes: match subject.opener() {
            Ok(opener) => opener.schemes().map_err(fail("opener.schemes"))?,
            Err(_) => Vec::new(),
        },
    })
}

fn answers(context: &CaseContext) -> Check {
    let Answers { read, written, ids, encoded, schemes } = ask(&context.subject()?)?;
    coverage::record_offer(&read, &written, &ids, &encoded, &schemes);
    Ok(())
}

fn same_answers(context: &CaseContext) -> Check {
    let [first, second] = [context.subject()?, context.subject()?];
    let before = ask(&first)?;
    for (subject, which) in [(&first, "again"), (&second, "in another instance"), (&first, "a third time")] {
        let now = ask(subject)?;
        if now != before {
            return Err(failed(
                format!("formats and ids {which}"),
                format!("{before:?}"),
                format!("{now:?}"),
            ));
        }
    }
    Ok(())
}

fn once(context: &CaseContext) -> Check {
    let Answers { read, written, ids, encoded, schemes } = ask(&context.subject()?)?;
    require_unique(encoded.iter().map(String::as_str), "an encoding of the encoder")?;
    require_unique(schemes.iter().map(String::as_str), "a URI scheme")?;
    for (formats, interface) in [(&read, "importer"), (&written, "exporter")] {
        let names = formats.iter().map(|format| format.name.as_str());
        require_unique(names, &format!("a format of the {interface}"))?;
        let extensions = formats.iter().flat_map(|format| &format.extensions).map(String::as_str);
        require_unique(extensions, &format!("a file extension of the {interface}"))?;
        for format in formats {
            let keys = format.options.iter().map(|option| option.key.as_str());
            require_unique(keys, &format!("an option of '{}'", format.name))?;
        }
    }
    require_unique(ids.iter().map(String::as_str), "an encoding")
}

fn require_unique<'a>(names: impl Iterator<Item = &'a str>, what: &str) -> Check {
    let mut seen = HashSet::new();
    for name in names {
        if name.is_empty() || name.chars().any(char::is_control) {
            return Err(failed(what, "a name", format!("{name:?}")));
        }
        if !seen.insert(name) {
            return Err(failed(what, "unique names", format!("'{name}' twice")));
        }
    }
    Ok(())
}

fn metadata(context: &CaseContext) -> Check {
    let metadata = context.loaded()?.metadata;
    let subject = context.subject()?;
    let Answers { read, written, ids, schemes, .. } = ask(&subject)?;
    let has = [
        ("crossdock.importer/1", subject.importer().is_ok()),
        ("crossdock.exporter/1", subject.exporter().is_ok()),
        ("crossdock.encoding/1", subject.encoding().is_ok()),
        ("crossdock.encoder/1", subject.encoder().is_ok()),
        ("crossdock.opener/1", subject.opener().is_ok()),
    ];
    let interfaces = has.iter().filter(|(_, has)| *has).map(|(id, _)| (*id).to_string());
    let formats = read.into_iter().chain(written).map(|format| format.name);
    same("interfaces", &metadata.interfaces, interfaces)?;
    same("formats", &metadata.formats, formats)?;
    same("encodings", &metadata.encodings, ids.into_iter())?;
    same("URI schemes", &metadata.schemes, schemes.into_iter())
}

fn same(what: &str, listed: &[String], has: impl Iterator<Item = String>) -> Check {
    let sorted = |names: HashSet<String>| {
        let mut names: Vec<_> = names.into_iter().collect();
        names.sort();
        names.join(" ")
    };
    let (listed, has) = (sorted(listed.iter().cloned().collect()), sorted(has.collect()));
    if listed == has {
        return Ok(());
    }
    Err(failed(
        format!("the metadata's {what}"),
        format!("'{has}', which an instance has"),
        format!("'{listed}'"),
    ))
}
