//! Tests hosts of earlier releases. An earlier host and the current host run in one process, each
//! host with its own plugins. Earlier hosts also run the current plugins.

mod built;
mod trees;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crossdock_skew::matrix::ROWS;
use crossdock_skew::skipped;
use crossdock_skew::sources::{Sources, repository};

use built::{
    Built, ENCODINGS, IPC, assert_requires_kernels, assert_succeeds, command, output_text, test_folder,
    today, with_releases,
};

const PLUGINS: [&str; 3] = [IPC, "libcrossdock_dlpack_plugin.so", "libcrossdock_arrow_c_device_plugin.so"];
const SAMPLE: &str = "examples/data/flights-january.arrow";
/// The number of rows of the sample.
const ROW_COUNT: usize = 27_004;

/// Compiles hosts.c, and runs the program with two hosts.
fn run(folder: &Path, first: &Built, second: &Built) -> Output {
    let program = folder.join("hosts");
    let source = repository().join("tests/skew/tests/cpu/hosts/hosts.c");
    let headers = ["plugin-api/include", "capi/include"].map(|path| repository().join(path));
    let mut cc = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".into()));
    cc.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror"]).arg(source).arg("-o").arg(&program).arg("-ldl");
    headers.iter().for_each(|path| {
        cc.arg("-I").arg(path);
    });
    assert!(cc.status().unwrap().success(), "{cc:?}");
    let mut command = Command::new(&program);
    command.env_remove("CROSSDOCK_PLUGIN_PATH").env_remove("CROSSDOCK_POLICY");
    for built in [first, second] {
        command.arg(&built.library).arg(&built.plugins);
    }
    command.arg(repository().join(SAMPLE)).arg(folder).output().unwrap()
}

#[test]
fn hosts_of_two_versions_run_in_one_process() {
    with_releases("skew: hosts of two versions", |version, earlier| {
        let folder = test_folder(version, "hosts");
        let today = today(&folder);
        let line = |version: &str| format!("{version} {ROW_COUNT} {ROW_COUNT}\n");
        let line_of_today = line(env!("CARGO_PKG_VERSION"));
        for (first, second, expected) in [
            (&today, earlier, line_of_today.clone() + &line(version)),
            (earlier, &today, line(version) + &line_of_today),
        ] {
            let output = run(&folder, first, second);
            assert!(output.status.success(), "{:?}: {}", output.status, output_text(&output));
            assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
        }
    });
}

/// A current plugin.
struct CurrentPlugin {
    plugin: PathBuf,
    /// A tree with an encoding that the plugin decodes. `None` if the plugin decodes no encoding.
    sample: Option<PathBuf>,
    /// Whether the plugin launches the host's kernels.
    needs_kernels: bool,
}

/// The current plugins and the examples.
fn current_plugins(name: &str, folder: &Path) -> Vec<CurrentPlugin> {
    let tree = |name: &str, bytes: Vec<u8>| {
        let path = folder.join(format!("{name}.cdenc"));
        std::fs::write(&path, bytes).unwrap();
        Some(path)
    };
    let shipped = |plugin, sample| CurrentPlugin {
        plugin: crossdock_tests::built_file(plugin),
        sample,
        needs_kernels: true,
    };
    let example = |plugin, sample| CurrentPlugin { plugin, sample, needs_kernels: false };
    let mut plugins: Vec<_> = PLUGINS.map(|plugin| shipped(plugin, None)).into();
    plugins.push(shipped(ENCODINGS, tree("encodings", crossdock_tests::sample_tree())));
    plugins.push(example(crossdock_tests::csv_plugin(), tree("scaled", crossdock_tests::scaled_tree())));
    let in_rust = crossdock_tests::example_plugin(name);
    plugins.extend(in_rust.map(|plugin| example(plugin, tree("xor", crossdock_tests::xor_tree()))));
    plugins
}

/// A host with the current ABI must verify the plugins with its own `verify` and convert a file
/// with the fixtures. A host with another ABI must reject the plugins. If a plugin needs an
/// interface that the host lacks, the plugin must report the missing interface.
#[test]
fn current_plugins_run_or_are_rejected_in_every_released_host() {
    let name = "skew: today's plugins under earlier hosts";
    with_releases(name, |version, earlier| {
        let Some(program) = &earlier.command else {
            let folder = test_folder(version, "refuses");
            let today = today(&folder);
            let with_current_plugins = Built { plugins: today.plugins.clone(), ..earlier.clone() };
            let output = run(&folder, &with_current_plugins, &today);
            let message = format!("reading of version {version}: ");
            assert!(
                !output.status.success() && output_text(&output).contains(&message),
                "{}",
                output_text(&output)
            );
            return;
        };
        let folder = test_folder(version, "plugins");
        for CurrentPlugin { plugin, sample, needs_kernels } in current_plugins(name, &folder) {
            let mut verify = command(program, &[Path::new("verify"), &plugin]);
            if let Some(sample) = &sample {
                verify.arg("--sample").arg(sample);
            }
            // Adds the release's plugin `encodings`, because it decodes the children of the
            // examples' nodes.
            if let Some(folder) = earlier.encodings.as_deref().and_then(Path::parent) {
                verify.env("CROSSDOCK_PLUGIN_PATH", folder);
            }
            if needs_kernels && !earlier.offers_kernels {
                assert_requires_kernels(&mut verify);
            } else {
                assert_succeeds(&mut verify);
            }
        }
        let (from, to) = (folder.join("from.skew"), folder.join("to.skew"));
        let values = [1i32, -2, 3, 4, 5, 6, 7].iter().flat_map(|value| value.to_le_bytes());
        let values: Vec<u8> = b"SKEW".iter().copied().chain(values).collect();
        std::fs::write(&from, &values).unwrap();
        // The C fixtures are skipped, because they need a device that the command does not support.
        for row in ROWS.iter().filter(|row| row.name.starts_with("Rust")) {
            match row.build_fixture(&Sources::today()) {
                Ok(plugin) => {
                    let options = ["--from", "skew", "--to", "skew", "--plugins"].map(Path::new);
                    let convert = [&[Path::new("convert"), &from, &to], &options[..], &[&plugin]].concat();
                    assert_succeeds(&mut command(program, &convert));
                    assert_eq!(std::fs::read(&to).unwrap(), values, "{}", row.name);
                    std::fs::remove_file(&to).unwrap();
                }
                Err(why) => skipped(&format!("{name}: {version}, {}", row.name), &why),
            }
        }
    });
}
