//! Tests trees of every encoding with the plugin `encodings` of one release under the host of
//! another release. The decoded values must be the same as with the current plugin and the current
//! host.

use std::path::Path;

use crossdock::discovery::Search;
use crossdock::source::Input;
use crossdock::{Host, ReadOptions, Session};
use crossdock_arrays::{DeviceBatch, first_difference};
use crossdock_memory_backend::Backend;
use crossdock_plugin_api::Device;
use crossdock_skew::skipped;
use crossdock_tests::built_file;
use crossdock_tests::golden::{Golden, one_of_each, trees};

use crate::hosts::built::{
    ENCODINGS, IPC, assert_requires_kernels, assert_succeeds, command, test_folder, with_releases,
};

/// A session of the current host with only these plugins.
fn session(backend: &Backend, plugins: &[&Path], device: Device) -> Session {
    let search = plugins.iter().fold(Search::nowhere(), |search, plugin| search.with_path(plugin));
    let host = Host::builder().backend(backend.clone()).search(search).build().unwrap();
    host.session().device(device).open().unwrap()
}

/// Reads the only batch.
fn read(session: &Session, input: Input, name: &str) -> DeviceBatch {
    let reader = session.read(input, &ReadOptions::default());
    let mut reader = reader.unwrap_or_else(|error| panic!("{name}: {}", error.one_line()));
    let batch = reader.next().unwrap_or_else(|error| panic!("{name}: {}", error.one_line()));
    batch.unwrap_or_else(|| panic!("{name}: no batch"))
}

fn decode(session: &Session, tree: &Golden) -> DeviceBatch {
    read(session, Input::bytes(tree.tree.clone()), &tree.name)
}

#[track_caller]
fn assert_same(actual: &DeviceBatch, expected: &DeviceBatch, session: &Session, what: &str) {
    let difference = first_difference(actual, expected, session.stream()).unwrap();
    assert!(difference.is_none(), "{what}: {}", difference.unwrap_or_default());
}

#[test]
fn encodings_of_every_released_version_decode_in_the_current_host() {
    let name = "skew: encodings of earlier releases";
    with_releases(name, |version, earlier| {
        let Some(encodings) = &earlier.encodings else {
            return skipped(
                &format!("{name}: {version}"),
                "it has no plugin 'encodings' with the current ABI",
            );
        };
        let backend = Backend::builder().untouchable(true).build();
        for device in [Device::CPU, Device::UNTOUCHABLE] {
            let current = session(&backend, &[&built_file(ENCODINGS)], device);
            let older = session(&backend, &[encodings], device);
            // Trees with encodings that the release does not support are skipped.
            let known: Vec<_> = older.encodings().into_iter().map(|(id, _)| id).collect();
            let all: Vec<_> =
                trees().into_iter().filter(|tree| known.iter().any(|id| id == tree.encoding())).collect();
            let missing: Vec<_> =
                known.iter().filter(|id| all.iter().all(|tree| tree.encoding() != **id)).collect();
            assert!(!known.is_empty() && missing.is_empty(), "{version}: no trees of {missing:?}");
            for tree in &all {
                let what = format!("{} by {version} on {device}", tree.name);
                let (actual, expected) = (decode(&older, tree), decode(&current, tree));
                assert_same(&actual, &expected, &current, &what);
                // Encode the values with the older exporter, and decode the result.
                let array =
                    older.encode_uncompressed(expected.schema(), std::slice::from_ref(&expected)).unwrap();
                let again = older.decode(older.with_arrow_types(array).unwrap()).unwrap();
                assert_same(&again, &expected, &current, &what);
            }
        }
    });
}

#[test]
fn current_encodings_decode_in_every_released_host() {
    let name = "skew: today's encodings under earlier hosts";
    with_releases(name, |version, earlier| {
        let Some(program) = &earlier.command else {
            return skipped(&format!("{name}: {version}"), "it has another ABI");
        };
        let encodings = built_file(ENCODINGS);
        let backend = Backend::builder().build();
        let current = session(&backend, &[&encodings, &built_file(IPC)], Device::CPU);
        let folder = test_folder(version, "trees");
        let (from, to) = (folder.join("from.cdenc"), folder.join("to.arrow"));
        for tree in one_of_each() {
            std::fs::write(&from, &tree.tree).unwrap();
            let plugins = [Path::new("--plugins"), &encodings, Path::new("--plugins"), &earlier.plugins];
            let convert = [&[Path::new("convert"), &from, &to], &plugins[..]].concat();
            if !earlier.offers_kernels {
                assert_requires_kernels(&mut command(program, &convert));
                continue;
            }
            assert_succeeds(&mut command(program, &convert));
            let actual = read(&current, Input::open(&to, current.cancel_flag()).unwrap(), &tree.name);
            assert_same(
                &actual,
                &decode(&current, &tree),
                &current,
                &format!("{} under {version}", tree.name),
            );
        }
    });
}
