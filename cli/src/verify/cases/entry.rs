//! The two symbols, and instances.

use crossdock::load::{Load, PluginFile, inspect};

use super::super::case::{Case, Check, failed, skipped};
use super::super::raw::Raw;
use super::super::subject::Ground;
use super::super::watch::{Watch, Wishes};

pub const CASES: &[Case] = &[
    Case {
        name: "entry.metadata",
        rule: "The file says who it is as plain bytes that are read before any of its code runs.",
        stands: "crossdock_plugin_meta",
        ground: &[],
        on_devices: false,
        check: metadata,
    },
    Case {
        name: "entry.loads",
        rule: "Its versions, its structs' sizes and its entry are such that a host of this release loads it.",
        stands: "crossdock_plugin_entry",
        ground: &["entry.metadata"],
        on_devices: false,
        check: loads,
    },
    Case {
        name: "entry.create",
        rule: "Instances are made and destroyed any number of times, several at once, and leave nothing behind.",
        stands: "crossdock_plugin_entry.create, destroy",
        ground: &["entry.loads"],
        on_devices: false,
        check: create,
    },
    Case {
        name: "entry.bare_host",
        rule: "With a host that offers no interfaces create succeeds, or fails and leaves nothing behind.",
        stands: "crossdock_host.get_interface",
        ground: &["entry.create"],
        on_devices: false,
        check: bare_host,
    },
    Case {
        name: "entry.failing_create",
        rule: "Whichever of the host's functions fails, create works or fails with an error, and leaves nothing behind.",
        stands: "crossdock_plugin_entry.create",
        ground: &["entry.create"],
        on_devices: false,
        check: failing_create,
    },
    Case {
        name: "entry.unknown_interface",
        rule: "An id that the plugin does not have is answered with NULL.",
        stands: "crossdock_plugin_entry.get_interface",
        ground: &["entry.loads"],
        on_devices: false,
        check: unknown_interface,
    },
];

fn metadata(ground: &Ground) -> Check {
    let inspection = inspect(&ground.plugin);
    let refused = |error| failed("the file", "a readable crossdock_plugin_meta_v1", error);
    inspection.map(drop).map_err(refused)
}

fn loads(ground: &Ground) -> Check {
    let loaded = PluginFile::new(&ground.plugin).load();
    loaded.map(drop).map_err(|refused| failed("load", "a plugin for this host", refused))
}

fn create(ground: &Ground) -> Check {
    for round in 0..4 {
        let [first, second] = [ground.subject()?, ground.subject()?];
        let ended = [first.end(), second.end()];
        ended.into_iter().try_for_each(|watch| nothing_left(watch, &format!("instance {round}")))?;
    }
    Ok(())
}

/// Neither references to the host nor blocks, streams or events of it.
pub fn nothing_left(watch: Watch, place: &str) -> Check {
    if watch.references() != 0 {
        let got = format!("{}", watch.references());
        return Err(failed(place, "no reference to the host after destroy", got));
    }
    match watch.blocks_held().or(watch.work_held()) {
        Some(held) => Err(failed(place, "nothing of the host's after destroy", held)),
        None => Ok(()),
    }
}

fn bare_host(ground: &Ground) -> Check {
    let watch = ground.watch(Wishes { bare: true, ..Wishes::default() });
    let what = match ground.create(watch)? {
        Ok(subject) => {
            subject.end();
            "an instance of a bare host"
        }
        Err(_) => "after create failed",
    };
    nothing_left(watch, what)
}

fn failing_create(ground: &Ground) -> Check {
    for nth in 1..64 {
        let watch = ground.watch(Wishes::default());
        watch.fail(nth);
        if let Ok(subject) = ground.create(watch)? {
            subject.end();
        }
        nothing_left(watch, &format!("the host's call {nth} failed in create"))?;
        if !watch.has_failed() {
            break;
        }
    }
    Ok(())
}

fn unknown_interface(ground: &Ground) -> Check {
    let watch = ground.watch(Wishes::default());
    let raw = Raw::create(ground, watch)?.map_err(|error| skipped(format!("create fails: {error}")))?;
    let ids =
        [c"", c"crossdock", c"crossdock.importer/", c"crossdock.importer/2", c"crossdock.verify.no-such/1"];
    match ids.into_iter().find(|id| raw.has(id)) {
        Some(id) => Err(failed(format!("get_interface({id:?})"), "NULL", "an address")),
        None => Ok(()),
    }
}
