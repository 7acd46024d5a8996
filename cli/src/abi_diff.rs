//! `crossdock abi-diff`: checks whether hosts that load one build of a plugin can load another
//! build.

use std::path::PathBuf;

use clap::Args;
use crossdock::api::abi;
use crossdock::load::{Inspection, inspect, is_system_library, struct_names};
use serde_json::{Value, json};

use crate::output::{Failure, write_output};
use crate::text;

#[derive(Args)]
#[command(after_help = "\
Neither plugin runs. The exit status is 0 if a host that uses OLD can use NEW instead, otherwise 1. For this, NEW must have
the name, the ABI and all formats, interfaces and encodings of OLD. It must not have requirements of the system that OLD
does not have, except libraries that every system has.")]
pub struct AbiDiff {
    /// The plugin that hosts use
    #[arg(value_name = "OLD")]
    old: PathBuf,
    /// The plugin that should replace it
    #[arg(value_name = "NEW")]
    new: PathBuf,
    /// Prints the changes as JSON
    #[arg(long)]
    json: bool,
}

/// A difference between the plugins.
struct Change {
    what: String,
    old: Option<String>,
    new: Option<String>,
    /// What the change breaks; `None` if it breaks nothing.
    breaks: Option<&'static str>,
}

impl AbiDiff {
    pub fn run(self) -> Result<(), Failure> {
        let inspect = |path: &PathBuf| {
            inspect(path).map_err(|refused| Failure::Host(crossdock::Error::Refused(refused.into())))
        };
        let changes = changes(&inspect(&self.old)?, &inspect(&self.new)?);
        let is_compatible = changes.iter().all(|change| change.breaks.is_none());
        if self.json {
            let list: Vec<_> = changes.iter().map(Change::json).collect();
            write_output(&json!({ "compatible": is_compatible, "changes": list }).to_string())?;
        } else {
            write_output(&table(&changes, is_compatible))?;
        }
        if is_compatible { Ok(()) } else { Err(Failure::Negative) }
    }
}

impl Change {
    fn kind(&self) -> &'static str {
        match (&self.old, &self.new) {
            (None, _) => "added",
            (_, None) => "removed",
            _ => "changed",
        }
    }

    fn json(&self) -> Value {
        json!({
            "what": self.what,
            "change": self.kind(),
            "old": self.old,
            "new": self.new,
            "breaking": self.breaks.is_some(),
            "reason": self.breaks,
        })
    }
}

fn table(changes: &[Change], is_compatible: bool) -> String {
    let cell = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_string());
    let row = |change: &Change| {
        let breaks = change.breaks.unwrap_or("nothing").to_string();
        vec![change.what.clone(), change.kind().to_string(), cell(&change.old), cell(&change.new), breaks]
    };
    let rows: Vec<_> = changes.iter().map(row).collect();
    let table = match rows.as_slice() {
        [] => "no changes\n".to_string(),
        rows => text::table(&["what", "change", "old", "new", "breaks"], rows, &[]),
    };
    let verdict = if is_compatible { "compatible" } else { "not compatible" };
    format!("{table}{verdict}\n")
}

fn changes(old: &Inspection, new: &Inspection) -> Vec<Change> {
    let (o, n) = (&old.metadata, &new.metadata);
    let mut list = Changes::default();
    list.text("name", &o.name, &n.name, Some("users that select it by name"));
    list.text("version", &o.version.to_string(), &n.version.to_string(), None);
    let abi = |(major, minor): (u32, u32)| format!("{major}.{minor}");
    list.text("abi", &abi(o.abi), &abi(n.abi), Some("every host of the old ABI"));
    let old_host = semver::Version::new(o.abi.0.into(), o.abi.1.into(), 0);
    let excluded = (!n.api_range.matches(&old_host)).then_some("hosts that the range excludes");
    list.text("abi range", &o.api_range.to_string(), &n.api_range.to_string(), excluded);
    let users = |what: &'static str| move |added: bool, _: &str| (!added).then_some(what);
    list.items("interface", &o.interfaces, &n.interfaces, users("its users"));
    list.items("format", &o.formats, &n.formats, users("users that read or write it"));
    list.items("encoding", &o.encodings, &n.encodings, users("users that decode it"));
    list.items("requires", &o.required, &n.required, |added, _| {
        added.then_some("hosts without the interface")
    });
    list.sizes(&o.sizes, &n.sizes);
    list.items("needs", &old.needs.libraries, &new.needs.libraries, |added, library| {
        (added && !is_system_library(library)).then_some("hosts whose policy does not allow the library")
    });
    list.items("search path", &old.needs.search_paths, &new.needs.search_paths, |added, _| {
        added.then_some("every host: it refuses the plugin")
    });
    let glibc = |glibc: Option<(u32, u32)>| glibc.map_or("any".to_string(), abi);
    let newer = (new.needs.glibc > old.needs.glibc).then_some("systems with an older glibc");
    list.text("glibc", &glibc(old.needs.glibc), &glibc(new.needs.glibc), newer);
    list.text("toolchain", &o.toolchain, &n.toolchain, None);
    let aborts = (n.panic == "abort" && n.toolchain.starts_with("rustc"))
        .then_some("every host: a panic would abort its process");
    list.text("panics", &o.panic, &n.panic, aborts);
    list.text("licence", &o.licence, &n.licence, None);
    list.0
}

#[derive(Default)]
struct Changes(Vec<Change>);

impl Changes {
    fn text(&mut self, what: &str, old: &str, new: &str, breaks: Option<&'static str>) {
        if old != new {
            let (old, new) = (Some(old.to_string()), Some(new.to_string()));
            self.0.push(Change { what: what.to_string(), old, new, breaks });
        }
    }

    /// Adds the items that only one of the two plugins has. The arguments of `breaks` are whether
    /// the item was added, and the item. The result of `breaks` is what the difference breaks.
    fn items(
        &mut self,
        what: &str,
        old: &[String],
        new: &[String],
        breaks: impl Fn(bool, &str) -> Option<&'static str>,
    ) {
        let removed = old.iter().filter(|item| !new.contains(item));
        self.0.extend(removed.map(|item| Change {
            what: what.to_string(),
            old: Some(item.clone()),
            new: None,
            breaks: breaks(false, item),
        }));
        let added = new.iter().filter(|item| !old.contains(item));
        self.0.extend(added.map(|item| Change {
            what: what.to_string(),
            old: None,
            new: Some(item.clone()),
            breaks: breaks(true, item),
        }));
    }

    /// Adds the structs with different sizes. Within an ABI version, hosts accept structs with
    /// additional fields at the end and structs that lack fields at the end.
    fn sizes(&mut self, old: &[u32], new: &[u32]) {
        let structs = abi::BUILT_SIZES.iter().zip(struct_names());
        for (i, (host_size, name)) in structs.enumerate() {
            let (old, new) = (old.get(i), new.get(i));
            if old == new {
                continue;
            }
            let is_accepted = new.map_or(i >= abi::MIN_META_SIZES, |new| host_size.accepts(*new));
            let bytes = |size: Option<&u32>| size.map(|bytes| format!("{bytes} bytes"));
            self.0.push(Change {
                what: format!("struct {name}"),
                old: bytes(old),
                new: bytes(new),
                breaks: (!is_accepted).then_some("every host: it refuses the plugin"),
            });
        }
    }
}
