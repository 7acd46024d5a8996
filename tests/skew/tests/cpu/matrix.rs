//! Plugins of every release and every toolchain under today's host.

use crossdock::load::{Load, PluginFile};
use crossdock_plugin_api::abi;
use crossdock_skew::build::{C, c};
use crossdock_skew::matrix::ROWS;
use crossdock_skew::skipped;
use crossdock_skew::sources::{Release, Sources, listed};

const RELEASES: &str = include_str!("../../releases.txt");

/// Runs a row with the working tree's sources.
fn today(name: &str) {
    let row = ROWS.iter().find(|row| row.name == name).unwrap_or_else(|| panic!("no row '{name}'"));
    row.run_or_skip(&Sources::today());
}

/// A release that spoke another ABI: its plugins are not run, and the refusal says what they were built for.
fn refused(sources: &Sources) {
    match c(sources, &C { name: "c-refused", ..C::default() }) {
        Ok(plugin) => {
            let refusal = PluginFile::new(plugin).load().expect_err("a refusal");
            let (major, minor) = sources.abi();
            let words = format!("built for ABI {major}.{minor}");
            assert_eq!(refusal.reason.id(), "abi-version");
            assert!(refusal.to_string().contains(&words), "expected '{words}' in: {refusal}");
        }
        Err(why) => skipped(&format!("skew: {} is refused", sources.name), &why),
    }
}

#[test]
fn a_plugin_in_rust_by_the_default_toolchain() {
    today("Rust, opt-level 0");
}

#[test]
fn a_plugin_in_rust_by_another_toolchain_optimised_and_linked_as_one() {
    today("Rust, nightly, opt-level 3 and LTO");
}

#[test]
fn a_plugin_in_c() {
    today("C, -O0");
}

#[test]
fn a_plugin_in_c_optimised_and_linked_as_one() {
    today("C, -O3 -flto");
}

#[test]
fn a_plugin_in_c_by_another_compiler() {
    today("C, clang");
}

#[test]
fn a_plugin_of_a_later_release_whose_every_struct_has_grown() {
    today("C, structs that have grown");
}

#[test]
fn a_plugin_of_an_earlier_release_whose_structs_lack_their_ends() {
    today("C, structs that lack their ends");
}

#[test]
fn every_row_has_a_test_of_its_own() {
    let source = include_str!("matrix.rs");
    let missing: Vec<_> =
        ROWS.iter().filter(|row| !source.contains(&format!("today(\"{}\")", row.name))).collect();
    assert!(missing.is_empty(), "{:?}", missing.iter().map(|row| row.name).collect::<Vec<_>>());
}

#[test]
fn plugins_of_every_release_under_today_s_host() {
    let releases = listed(RELEASES);
    if releases.is_empty() {
        skipped("skew: the releases before", "none is listed in tests/skew/releases.txt yet");
    }
    for Release { version, commit, .. } in releases {
        match Sources::of_commit(&version, &commit) {
            Ok(sources) if sources.abi() == (abi::ABI_MAJOR, abi::ABI_MINOR) => {
                ROWS.iter().for_each(|row| row.run_or_skip(&sources));
            }
            Ok(sources) => refused(&sources),
            Err(why) => skipped(&format!("skew: plugins of {version}"), &why),
        }
    }
}

/// The way that a release's sources take, taken now: by the last commit.
#[test]
fn a_plugin_from_the_sources_of_a_commit() {
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
fn a_commit_that_is_not_there_is_a_reason_to_skip_and_no_failure() {
    let nowhere = "0123456789012345678901234567890123456789";
    let why = Sources::of_commit("nowhere", nowhere).err().unwrap();
    assert!(why.contains(nowhere) && why.contains("git"), "{why}");
}

#[test]
fn the_list_of_releases_is_read_and_a_wrong_line_is_named() {
    let commit = "0123456789abcdef0123456789abcdef01234567";
    let text = format!("# comment\n\n0.1.0 v0.1.0 {commit}\n");
    let release = Release { version: "0.1.0".into(), tag: "v0.1.0".into(), commit: commit.into() };
    assert_eq!(listed(&text), [release]);
    for wrong in ["0.1.0 v0.1.0", "0.1.0 v0.1.0 HEAD"] {
        assert!(std::panic::catch_unwind(|| listed(wrong)).is_err(), "{wrong}");
    }
}
