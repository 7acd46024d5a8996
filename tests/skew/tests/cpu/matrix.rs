//! Tests plugins of every release and toolchain under the current host.

use crossdock::load::{Load, PluginFile};
use crossdock_plugin_api::abi;
use crossdock_skew::build::{C, c};
use crossdock_skew::matrix::ROWS;
use crossdock_skew::skipped;
use crossdock_skew::sources::{Release, Sources, parse_releases};

const RELEASES: &str = include_str!("../../releases.txt");

/// Runs a row with the working tree's sources.
fn today(name: &str) {
    let row = ROWS.iter().find(|row| row.name == name).unwrap_or_else(|| panic!("no row '{name}'"));
    row.run_or_skip(&Sources::today());
}

/// Asserts that the plugin of a release with another ABI is rejected, and that the message names
/// this ABI.
fn assert_other_abi_is_rejected(sources: &Sources) {
    match c(sources, &C { name: "c-rejected", ..C::default() }) {
        Ok(plugin) => {
            let refusal = PluginFile::new(plugin).load().expect_err("the plugin is rejected");
            let (major, minor) = sources.abi();
            let message = format!("built for ABI {major}.{minor}");
            assert_eq!(refusal.reason.id(), "abi-version");
            assert!(refusal.to_string().contains(&message), "expected '{message}' in: {refusal}");
        }
        Err(why) => skipped(&format!("skew: {} is rejected", sources.name), &why),
    }
}

#[test]
fn rust_plugin_built_with_the_default_toolchain_runs() {
    today("Rust, opt-level 0");
}

#[test]
fn rust_plugin_built_with_the_nightly_toolchain_and_lto_runs() {
    today("Rust, nightly, opt-level 3 and LTO");
}

#[test]
fn c_plugin_runs() {
    today("C, -O0");
}

#[test]
fn c_plugin_built_with_lto_runs() {
    today("C, -O3 -flto");
}

#[test]
fn c_plugin_built_with_another_compiler_runs() {
    today("C, clang");
}

#[test]
fn plugin_with_grown_structs_runs() {
    today("C, grown structs");
}

#[test]
fn plugin_with_only_required_fields_runs() {
    today("C, structs without optional fields");
}

#[test]
fn every_row_of_the_skew_matrix_has_a_test() {
    let source = include_str!("matrix.rs");
    let missing: Vec<_> =
        ROWS.iter().filter(|row| !source.contains(&format!("today(\"{}\")", row.name))).collect();
    assert!(missing.is_empty(), "{:?}", missing.iter().map(|row| row.name).collect::<Vec<_>>());
}

#[test]
fn plugins_of_every_released_version_run_in_the_current_host() {
    let releases = parse_releases(RELEASES);
    if releases.is_empty() {
        skipped("skew: earlier releases", "none is listed in tests/skew/releases.txt yet");
    }
    for Release { version, commit, .. } in releases {
        match Sources::of_commit(&version, &commit) {
            Ok(sources) if sources.abi() == (abi::ABI_MAJOR, abi::ABI_MINOR) => {
                ROWS.iter().for_each(|row| row.run_or_skip(&sources));
            }
            Ok(sources) => assert_other_abi_is_rejected(&sources),
            Err(why) => skipped(&format!("skew: plugins of {version}"), &why),
        }
    }
}

/// Extracts the last commit and builds it in the same way as a release.
#[test]
fn plugin_from_the_sources_of_a_commit_runs() {
    match Sources::of_commit("HEAD", "HEAD") {
        Ok(sources) => {
            assert!(sources.at("plugin-api/include/crossdock.h").exists());
            ROWS.iter()
                .filter(|row| ["Rust, opt-level 0", "C, -O0"].contains(&row.name))
                .for_each(|row| row.run_or_skip(&sources));
        }
        Err(why) => skipped("skew: a plugin from the sources of a commit", &why),
    }
}

#[test]
fn sources_of_a_missing_commit_are_an_error_that_names_the_commit() {
    let nowhere = "0123456789012345678901234567890123456789";
    let why = Sources::of_commit("nowhere", nowhere).err().unwrap();
    assert!(why.contains(nowhere) && why.contains("git"), "{why}");
}

#[test]
fn parses_list_of_released_versions_and_rejects_malformed_lines() {
    let commit = "0123456789abcdef0123456789abcdef01234567";
    let text = format!("# comment\n\n0.1.0 v0.1.0 {commit}\n");
    let release = Release { version: "0.1.0".into(), tag: "v0.1.0".into(), commit: commit.into() };
    assert_eq!(parse_releases(&text), [release]);
    for wrong in ["0.1.0 v0.1.0", "0.1.0 v0.1.0 HEAD"] {
        assert!(std::panic::catch_unwind(|| parse_releases(wrong)).is_err(), "{wrong}");
    }
}
