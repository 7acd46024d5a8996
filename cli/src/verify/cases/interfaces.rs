//! What an instance says that it can.

use std::collections::HashSet;

use crossdock::api::{Error, Format};

use super::super::case::{Case, Check, failed};
use super::super::coverage;
use super::super::raw::Raw;
use super::super::subject::{Ground, Subject};
use super::super::watch::Wishes;

pub const CASES: &[Case] = &[
    Case {
        name: "interfaces.functions",
        rule: "An interface has all its functions, but for those that its own words make optional.",
        stands: "crossdock_importer, crossdock_exporter, crossdock_encoding",
        ground: &["entry.create"],
        on_devices: false,
        check: functions,
    },
    Case {
        name: "interfaces.answers",
        rule: "Formats and ids are given when they are asked for, as lists of UTF-8 text.",
        stands: "crossdock_importer.formats, crossdock_exporter.formats, crossdock_encoding.ids",
        ground: &["interfaces.functions"],
        on_devices: false,
        check: answers,
    },
    Case {
        name: "interfaces.same_answers",
        rule: "Formats and ids are the same each time, and in each instance.",
        stands: "crossdock_format",
        ground: &["interfaces.answers"],
        on_devices: false,
        check: same_answers,
    },
    Case {
        name: "interfaces.once",
        rule: "No format, ending, option or encoding is claimed twice in one list, and none is without a name.",
        stands: "crossdock_format",
        ground: &["interfaces.answers"],
        on_devices: false,
        check: once,
    },
    Case {
        name: "interfaces.metadata",
        rule: "The metadata lists the interfaces, formats and encodings that instances have, and no others.",
        stands: "crossdock_plugin_meta.interfaces, formats, encodings",
        ground: &["interfaces.same_answers"],
        on_devices: false,
        check: metadata,
    },
];

fn functions(ground: &Ground) -> Check {
    let watch = ground.watch(Wishes::default());
    let raw = Raw::create(ground, watch)?.map_err(|error| failed("create", "an instance", error))?;
    let mut there = Vec::new();
    if let Some(importer) = raw.importer() {
        there.push(("importer.formats", importer.formats.is_some()));
        there.push(("importer.open", importer.open.is_some()));
    }
    if let Some(exporter) = raw.exporter() {
        there.push(("exporter.formats", exporter.formats.is_some()));
        there.push(("exporter.plan", exporter.plan.is_some()));
        there.push(("exporter.begin", exporter.begin.is_some()));
    }
    if let Some(encoding) = raw.encoding() {
        there.push(("encoding.ids", encoding.ids.is_some()));
        there.push(("encoding.check", encoding.check.is_some()));
        there.push(("encoding.size", encoding.size.is_some()));
        there.push(("encoding.decode or lower", encoding.decode.is_some() || encoding.lower.is_some()));
    }
    match there.iter().find(|(_, is_there)| !is_there) {
        Some((name, _)) => Err(failed(name, "a function", "NULL")),
        None => Ok(()),
    }
}

/// All that an instance says.
#[derive(PartialEq, Debug)]
struct Answers {
    read: Vec<Format>,
    written: Vec<Format>,
    ids: Vec<String>,
}

fn ask(subject: &Subject) -> Check<Answers> {
    let wrong = |place| move |error: Error| failed(place, "a list", error);
    Ok(Answers {
        read: match subject.importer() {
            Ok(importer) => importer.formats().map_err(wrong("importer.formats"))?,
            Err(_) => Vec::new(),
        },
        written: match subject.exporter() {
            Ok(exporter) => exporter.formats().map_err(wrong("exporter.formats"))?,
            Err(_) => Vec::new(),
        },
        ids: match subject.encoding() {
            Ok(encoding) => encoding.ids().map_err(wrong("encoding.ids"))?,
            Err(_) => Vec::new(),
        },
    })
}

fn answers(ground: &Ground) -> Check {
    let Answers { read, written, ids } = ask(&ground.subject()?)?;
    coverage::offered(&read, &written, &ids);
    Ok(())
}

fn same_answers(ground: &Ground) -> Check {
    let [first, second] = [ground.subject()?, ground.subject()?];
    let before = ask(&first)?;
    for (subject, which) in [(&first, "again"), (&second, "in another instance"), (&first, "a third time")] {
        let now = ask(subject)?;
        if now != before {
            return Err(failed(format!("asked {which}"), format!("{before:?}"), format!("{now:?}")));
        }
    }
    Ok(())
}

fn once(ground: &Ground) -> Check {
    let Answers { read, written, ids } = ask(&ground.subject()?)?;
    for (formats, whose) in [(&read, "importer"), (&written, "exporter")] {
        let names = formats.iter().map(|format| format.name.as_str());
        each_once(names, &format!("a format of the {whose}"))?;
        let endings = formats.iter().flat_map(|format| &format.endings).map(String::as_str);
        each_once(endings, &format!("an ending of the {whose}"))?;
        for format in formats {
            let keys = format.options.iter().map(|option| option.key.as_str());
            each_once(keys, &format!("an option of '{}'", format.name))?;
        }
    }
    each_once(ids.iter().map(String::as_str), "an encoding")
}

fn each_once<'a>(names: impl Iterator<Item = &'a str>, what: &str) -> Check {
    let mut seen = HashSet::new();
    for name in names {
        if name.is_empty() || name.chars().any(char::is_control) {
            return Err(failed(what, "a name", format!("{name:?}")));
        }
        if !seen.insert(name) {
            return Err(failed(what, "each name once", format!("'{name}' twice")));
        }
    }
    Ok(())
}

fn metadata(ground: &Ground) -> Check {
    let metadata = ground.loaded()?.metadata;
    let subject = ground.subject()?;
    let Answers { read, written, ids } = ask(&subject)?;
    let has = [
        ("crossdock.importer/1", subject.importer().is_ok()),
        ("crossdock.exporter/1", subject.exporter().is_ok()),
        ("crossdock.encoding/1", subject.encoding().is_ok()),
    ];
    let interfaces = has.iter().filter(|(_, has)| *has).map(|(id, _)| (*id).to_string());
    let formats = read.into_iter().chain(written).map(|format| format.name);
    same("interfaces", &metadata.interfaces, interfaces)?;
    same("formats", &metadata.formats, formats)?;
    same("encodings", &metadata.encodings, ids.into_iter())
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
