//! Several plugins that decode one id: the first is asked, and the command says which that is.

use std::path::{Path, PathBuf};

use arrow_array::Float32Array;
use arrow_schema::DataType;
use crossdock::memory::Backend;
use crossdock::{Host, Session};
use crossdock_plugin_api::Device;
use crossdock_tests::tree::Node;
use crossdock_tests::{built, command, compile_plugin, crossdock, example_plugin};

use crate::third_parties::trees::decoded;

/// A plugin in C that says that `id` is its own, and decodes integers alone.
fn other(folder: &Path, name: &str, id: &str) -> PathBuf {
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

/// Two floats of the example's encoding.
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
fn of_two_that_decode_one_id_the_first_is_asked() {
    let Some(example) = example_plugin("of_two_that_decode_one_id_the_first_is_asked") else { return };
    let folder = tempfile::tempdir().unwrap();
    let other = other(folder.path(), "other", "example.xor");

    let first = session([&example, &other]);
    assert_eq!(names_of(&first, "example.xor"), ["example", "other"]);
    let array = decoded(&first, floats().tree(&first, Device::CPU));
    assert_eq!(*array, Float32Array::from(vec![1.5, -2.0]));

    let second = session([&other, &example]);
    assert_eq!(names_of(&second, "example.xor"), ["other", "example"]);
    let line = second.decode(floats().tree(&second, Device::CPU)).err().unwrap().one_line();
    assert!(line.contains("other 0.1.0") && line.contains("not Int32"), "{line}");

    // Neither knows of the other's host, though both are loaded in this process.
    let again = decoded(&first, floats().tree(&first, Device::CPU));
    assert_eq!(*again, Float32Array::from(vec![1.5, -2.0]));
}

#[test]
fn the_command_says_which_of_several_is_asked() {
    let Some(example) = example_plugin("the_command_says_which_of_several_is_asked") else { return };
    let folder = tempfile::tempdir().unwrap();
    let other = other(folder.path(), "other", "example.xor");
    let built_in = self::other(folder.path(), "usurper", "vortex.constant");
    let path = |path: &Path| path.to_str().unwrap().to_string();
    let (example, other, built_in) = (path(&example), path(&other), path(&built_in));
    let given = ["--plugins", &other, "--plugins", &example, "--plugins", &built_in];
    let out = crossdock(&[&["plugins", "--explain"], &given[..]].concat());
    let text = String::from_utf8(out.stdout).unwrap();
    for expected in [
        "note: several plugins decode example.xor, the first is asked: other, example\n",
        "note: several plugins decode vortex.constant, the first is asked: usurper, encodings\n",
    ] {
        assert!(text.contains(expected), "{text}");
    }
}
