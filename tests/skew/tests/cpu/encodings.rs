//! Tests the encoding of the C example under the current host. The example is built with the header
//! of a later release.

use std::path::Path;

use crossdock::discovery::Search;
use crossdock::source::Input;
use crossdock::{Host, Session};
use crossdock_arrays::{DeviceBatch, first_difference};
use crossdock_memory_backend::Backend;
use crossdock_plugin_api::Device;
use crossdock_skew::build::{C, c};
use crossdock_skew::sources::Sources;
use crossdock_skew::{header, skipped};
use crossdock_tests::{built_file, csv_plugin, scaled_tree};

fn session(backend: &Backend, plugin: &Path, device: Device) -> Session {
    let search =
        Search::nowhere().with_path(plugin).with_path(built_file("libcrossdock_encodings_plugin.so"));
    let host = Host::builder().backend(backend.clone()).search(search).build().unwrap();
    host.session().device(device).open().unwrap()
}

fn decode(session: &Session) -> DeviceBatch {
    let array = session.read_encoded(&Input::bytes(scaled_tree())).unwrap();
    session.decode(array).unwrap()
}

#[test]
fn c_encoding_with_grown_structs_decodes_the_same_values() {
    let name = "scaled-grown";
    let sources = Sources::today();
    let header = std::fs::read_to_string(sources.at("plugin-api/include/crossdock.h")).unwrap();
    // Disables the warning about missing initializers, because the example does not name the added
    // fields.
    let flags = ["-O1", "-D_POSIX_C_SOURCE=200809L", "-Wno-missing-field-initializers"];
    let (folder, header) = (Some("examples/c-plugin"), Some(header::grown(&header)));
    let plugin = match c(&sources, &C { name, folder, flags: &flags, header, ..C::default() }) {
        Ok(plugin) => plugin,
        Err(why) => return skipped("skew: an encoding with grown structs", &why),
    };
    let backend = Backend::builder().untouchable(true).build();
    for device in [Device::CPU, Device::UNTOUCHABLE] {
        let (grown, current) = (session(&backend, &plugin, device), session(&backend, &csv_plugin(), device));
        let difference = first_difference(&decode(&grown), &decode(&current), current.stream()).unwrap();
        assert!(difference.is_none(), "{device}: {}", difference.unwrap_or_default());
    }
}
