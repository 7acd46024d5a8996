//! Tests several plugins that decode the same encoding id. The host must use the first plugin, and
//! the command must name it.

use std::path::{Path, PathBuf};

use arrow_array::Float32Array;
use arrow_schema::DataType;
use crossdock::memory::Backend;
use crossdock::{Host, Session};
use crossdock_plugin_api::Device;
use crossdock_tests::tree::Node;
use crossdock_tests::{built, command, compile_plugin, crossdock, example_plugin};

use crate::third_parties::trees::decoded;

/// Builds a C plugin that decodes the encoding `id`, but only to integers.
fn build_plugin(folder: &Path, name: &str, id: &str) -> PathBuf {
    let arguments = ["new", name, "--language", "c", "--encoding", id];
    let out = command(&arguments).current_dir(folder).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    compile_plugin(&folder.join(name).join("plugin.c"), folder, name)
}

fn session(plugins: [&Path; 2]) -> Session {
    let backend = Backend::builder().untouchable(true).build();
    let host = Host::builder().backend(backend).plugins(built());
    let host = plugins.into_iter().fold(host, |host, plugin| host.plugins(plugin)).build().unwrap();
    host.session().open().unwrap()
}

/// A node of the example's encoding with two floats.
fn floats() -> Node {
    let words = [1.5f32, -2.0].map(|value| value.to_bits() ^ 0x0403_0201);
    let words = Node::words(DataType::UInt32, &words, u32::to_ne_bytes);
    Node::xor(DataType::Float32, &[1, 2, 3, 4], words)
}

fn names_of(session: &Session, id: &str) -> Vec<String> {
    let encodings = session.encodings();
    let (_, plugins) = encodings.iter().find(|(known, _)| known == id).unwrap();
    plugins.iter().map(|plugin| plugin.name().to_string()).collect()
}

#[test]
fn first_of_two_plugins_for_an_encoding_decodes_it() {
    let Some(example) = example_plugin("first_of_two_plugins_for_an_encoding_decodes_it") else { return };
    let folder = tempfile::tempdir().unwrap();
    let other = build_plugin(folder.path(), "other", "example.xor");

    let first = session([&example, &other]);
    assert_eq!(names_of(&first, "example.xor"), ["example", "other"]);
    let array = decoded(&first, floats().tree(&first, Device::CPU));
    assert_eq!(*array, Float32Array::from(vec![1.5, -2.0]));

    let second = session([&other, &example]);
    assert_eq!(names_of(&second, "example.xor"), ["other", "example"]);
    let line = second.decode(floats().tree(&second, Device::CPU)).err().unwrap().one_line();
    assert!(line.contains("other 0.1.0") && line.contains("expected the type Int32"), "{line}");

    // The two hosts are independent although they run in one process.
    let again = decoded(&first, floats().tree(&first, Device::CPU));
    assert_eq!(*again, Float32Array::from(vec![1.5, -2.0]));
}

#[test]
fn plugins_command_notes_which_of_several_plugins_decodes_an_encoding() {
    let Some(example) = example_plugin("plugins_command_notes_which_of_several_plugins_decodes_an_encoding")
    else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let other = build_plugin(folder.path(), "other", "example.xor");
    let built_in = build_plugin(folder.path(), "duplicate", "vortex.constant");
    let path = |path: &Path| path.to_str().unwrap().to_string();
    let (example, other, built_in) = (path(&example), path(&other), path(&built_in));
    let plugins = ["--plugins", &other, "--plugins", &example, "--plugins", &built_in];
    let out = crossdock(&[&["plugins", "--explain"], &plugins[..]].concat());
    let text = String::from_utf8(out.stdout).unwrap();
    for expected in [
        "note: several plugins decode example.xor, the first is used: other, example\n",
        "note: several plugins decode vortex.constant, the first is used: duplicate, encodings\n",
    ] {
        assert!(text.contains(expected), "{text}");
    }
}
