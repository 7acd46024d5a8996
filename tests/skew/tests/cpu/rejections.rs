//! Tests plugins of unsupported versions. The host must reject each with the expected reason and
//! message, before any code of the plugin runs.

use crossdock::load::{Load, PluginFile};
use crossdock_plugin_api::abi;
use crossdock_skew::build::{self, C};
use crossdock_skew::skipped;
use crossdock_skew::sources::Sources;

/// Builds the C fixture with these flags. Returns the id and the message of the reason for which
/// the host rejects the fixture.
fn refusal(name: &str, flags: &[&str]) -> Option<(&'static str, String)> {
    match build::c(&Sources::today(), &C { name, flags, ..C::default() }) {
        Ok(plugin) => {
            let refusal = PluginFile::new(plugin).load().expect_err("the plugin is rejected");
            Some((refusal.reason.id(), refusal.to_string()))
        }
        Err(why) => {
            skipped(&format!("skew: {name} is rejected"), &why);
            None
        }
    }
}

fn assert_rejected(name: &str, flags: &[&str], id: &str, expected: &str) {
    let Some((actual_id, message)) = refusal(name, flags) else { return };
    assert_eq!(actual_id, id, "{message}");
    assert!(message.contains(expected), "expected '{expected}' in: {message}");
}

#[test]
fn rejects_plugin_of_the_next_minor_version() {
    let next = abi::ABI_MINOR + 1;
    let (major, minor) = (abi::ABI_MAJOR, abi::ABI_MINOR);
    let message = format!(
        "built for ABI {major}.{next}, expected {major}.{minor}: get the plugin's build for this host"
    );
    assert_rejected("next-minor", &[&format!("-DMINOR={next}")], "abi-version", &message);
}

#[test]
fn rejects_plugin_of_the_next_major_version() {
    let next = abi::ABI_MAJOR + 1;
    let message = format!("built for ABI {next}.{}", abi::ABI_MINOR);
    assert_rejected("next-major", &[&format!("-DMAJOR={next}")], "abi-version", &message);
}

#[test]
fn rejects_plugin_whose_range_excludes_this_host() {
    let message = format!(
        "the plugin requires ABI versions ^7.1.0, but this host has {}.{}.0",
        abi::ABI_MAJOR,
        abi::ABI_MINOR
    );
    assert_rejected("range", &["-DRANGE=\"^7.1.0\""], "abi-range", &message);
}

#[test]
fn rejects_plugin_that_exports_only_symbols_of_another_major_version() {
    let flags = ["-DENTRY=crossdock_plugin_v2", "-DMETA=crossdock_plugin_meta_v2"];
    let message = "the file is not a Crossdock plugin: it exports no data symbol 'crossdock_plugin_meta_v1'";
    assert_rejected("next-symbols", &flags, "not-a-plugin", message);
}
