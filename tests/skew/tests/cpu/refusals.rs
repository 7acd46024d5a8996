//! Plugins of versions that this host does not speak: each is refused with its reason and its words, before any of its
//! code runs.

use crossdock::load::{Load, PluginFile};
use crossdock_plugin_api::abi;
use crossdock_skew::build::{self, C};
use crossdock_skew::skipped;
use crossdock_skew::sources::Sources;

/// The reason's name and the whole sentence, for the fixture in C with these definitions.
fn refusal(name: &str, flags: &[&str]) -> Option<(&'static str, String)> {
    match build::c(&Sources::today(), &C { name, flags, ..C::default() }) {
        Ok(plugin) => {
            let refused = PluginFile::new(plugin).load().expect_err("a refusal");
            Some((refused.reason.id(), refused.to_string()))
        }
        Err(why) => {
            skipped(&format!("skew: {name} is refused"), &why);
            None
        }
    }
}

fn assert_refused(name: &str, flags: &[&str], id: &str, words: &str) {
    let Some((got, sentence)) = refusal(name, flags) else { return };
    assert_eq!(got, id, "{sentence}");
    assert!(sentence.contains(words), "expected '{words}' in: {sentence}");
}

#[test]
fn a_plugin_of_the_next_minor() {
    let next = abi::ABI_MINOR + 1;
    let (major, minor) = (abi::ABI_MAJOR, abi::ABI_MINOR);
    let words = format!(
        "built for ABI {major}.{next}, expected {major}.{minor}: get the plugin's build for this host"
    );
    assert_refused("next-minor", &[&format!("-DMINOR={next}")], "abi-version", &words);
}

#[test]
fn a_plugin_of_the_next_major() {
    let next = abi::ABI_MAJOR + 1;
    let words = format!("built for ABI {next}.{}", abi::ABI_MINOR);
    assert_refused("next-major", &[&format!("-DMAJOR={next}")], "abi-version", &words);
}

#[test]
fn a_plugin_whose_range_leaves_this_host_out() {
    let words =
        format!("it asks for ABI versions ^7.1.0, this host has {}.{}.0", abi::ABI_MAJOR, abi::ABI_MINOR);
    assert_refused("range", &["-DRANGE=\"^7.1.0\""], "abi-range", &words);
}

#[test]
fn a_plugin_with_the_symbols_of_another_major_alone() {
    let flags = ["-DENTRY=crossdock_plugin_v2", "-DMETA=crossdock_plugin_meta_v2"];
    let words = "not a Crossdock plugin: it exports no data symbol 'crossdock_plugin_meta_v1'";
    assert_refused("next-symbols", &flags, "not-a-plugin", words);
}
