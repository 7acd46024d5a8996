//! The plugin's two symbols, and its instances.

use crossdock::load::{Load, PluginFile, inspect};

use super::super::case::{Case, Check, failed, skipped};
use super::super::context::CaseContext;
use super::super::raw::Raw;
use super::super::watch::{HostOptions, Watch};

pub const CASES: &[Case] = &[
    Case {
        name: "entry.metadata",
        rule: "The file contains its metadata as plain bytes that can be read without running its code.",
        spec_ref: "crossdock_plugin_meta",
        depends_on: &[],
        on_devices: false,
        check: metadata,
    },
    Case {
        name: "entry.loads",
        rule: "A host of this release accepts the plugin's versions, struct sizes and entry.",
        spec_ref: "crossdock_plugin_entry",
        depends_on: &["entry.metadata"],
        on_devices: false,
        check: loads,
    },
    Case {
        name: "entry.create",
        rule: "Instances can be created and destroyed any number of times, several at the same time, without leaks.",
        spec_ref: "crossdock_plugin_entry.create, destroy",
        depends_on: &["entry.loads"],
        on_devices: false,
        check: create,
    },
    Case {
        name: "entry.bare_host",
        rule: "With a host that offers no interfaces, create succeeds, or fails without leaks.",
        spec_ref: "crossdock_host.get_interface",
        depends_on: &["entry.create"],
        on_devices: false,
        check: bare_host,
    },
    Case {
        name: "entry.required",
        rule: "With a host that offers only the interfaces that the metadata lists as required, create succeeds.",
        spec_ref: "crossdock_plugin_meta.required",
        depends_on: &["entry.create"],
        on_devices: false,
        check: required,
    },
    Case {
        name: "entry.failing_create",
        rule: "If a function of the host fails, create succeeds, or fails with an error and without leaks.",
        spec_ref: "crossdock_plugin_entry.create",
        depends_on: &["entry.create"],
        on_devices: false,
        check: failing_create,
    },
    Case {
        name: "entry.unknown_interface",
        rule: "get_interface returns NULL for an id that the plugin does not have.",
        spec_ref: "crossdock_plugin_entry.get_interface",
        depends_on: &["entry.loads"],
        on_devices: false,
        check: unknown_interface,
    },
];

fn metadata(context: &CaseContext) -> Check {
    let inspection = inspect(&context.plugin);
    let fail = |error| failed("the file", "a readable crossdock_plugin_meta_v1", error);
    inspection.map(drop).map_err(fail)
}

fn loads(context: &CaseContext) -> Check {
    let loaded = PluginFile::new(&context.plugin).load();
    loaded.map(drop).map_err(|refused| failed("load", "a plugin that this host can load", refused))
}

fn create(context: &CaseContext) -> Check {
    for round in 0..4 {
        let [first, second] = [context.subject()?, context.subject()?];
        let watches = [first.end(), second.end()];
        watches.into_iter().try_for_each(|watch| no_leaks(watch, &format!("instance {round}")))?;
    }
    Ok(())
}

/// Checks that a destroyed instance holds no references to the host, and no blocks, streams or
/// events.
pub fn no_leaks(watch: Watch, place: &str) -> Check {
    if watch.references() != 0 {
        let got = format!("{}", watch.references());
        return Err(failed(place, "no reference to the host after destroy", got));
    }
    match watch.blocks_held().or(watch.streams_and_events_held()) {
        Some(leak) => Err(failed(place, "no leaks after destroy", leak)),
        None => Ok(()),
    }
}

fn bare_host(context: &CaseContext) -> Check {
    let watch = context.watch(HostOptions { is_bare: true, ..HostOptions::default() });
    let place = match context.create(watch)? {
        Ok(subject) => {
            subject.end();
            "an instance of a host without interfaces"
        }
        Err(_) => "after create failed",
    };
    no_leaks(watch, place)
}

fn required(context: &CaseContext) -> Check {
    let watch = context.watch(HostOptions { is_minimal: true, ..HostOptions::default() });
    let loaded = context.loaded()?;
    let list = &loaded.metadata.required;
    let place = if list.is_empty() {
        "create with a host that offers no interfaces, because the metadata requires none".to_string()
    } else {
        format!("create with a host that offers only {}", list.join(", "))
    };
    let subject = context.create(watch)?.map_err(|error| failed(&place, "an instance", error))?;
    subject.end();
    no_leaks(watch, &place)
}

fn failing_create(context: &CaseContext) -> Check {
    for nth in 1..64 {
        let watch = context.watch(HostOptions::default());
        watch.fail(nth);
        if let Ok(subject) = context.create(watch)? {
            subject.end();
        }
        no_leaks(watch, &format!("create, call {nth} to the host failed"))?;
        if !watch.has_failed() {
            break;
        }
    }
    Ok(())
}

fn unknown_interface(context: &CaseContext) -> Check {
    let watch = context.watch(HostOptions::default());
    let raw = Raw::create(context, watch)?.map_err(|error| skipped(format!("create fails: {error}")))?;
    let ids =
        [c"", c"crossdock", c"crossdock.importer/", c"crossdock.importer/2", c"crossdock.verify.no-such/1"];
    match ids.into_iter().find(|id| raw.has(id)) {
        Some(id) => Err(failed(format!("get_interface({id:?})"), "NULL", "an interface")),
        None => Ok(()),
    }
}
