//! Hosts of earlier releases: beside today's in one process, each its library with its plugins, and with today's plugins.

mod built;
mod trees;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crossdock_skew::matrix::ROWS;
use crossdock_skew::skipped;
use crossdock_skew::sources::{Sources, repository};

use built::{
    Built, ENCODINGS, IPC, assert_asks_for_kernels, assert_succeeds, command, made, said, today,
    with_releases,
};

const PLUGINS: [&str; 3] = [IPC, "libcrossdock_dlpack_plugin.so", "libcrossdock_arrow_c_device_plugin.so"];
const SAMPLE: &str = "examples/data/flights-january.arrow";
/// Of the sample.
const ROW_COUNT: usize = 27_004;

/// The program that puts two to work.
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
fn hosts_of_two_versions_work_beside_each_other() {
    with_releases("skew: hosts of two versions", |version, earlier| {
        let made = made(version, "hosts");
        let today = today(&made);
        let line = |version: &str| format!("{version} {ROW_COUNT} {ROW_COUNT}\n");
        let ours = line(env!("CARGO_PKG_VERSION"));
        for (first, second, expected) in
            [(&today, earlier, ours.clone() + &line(version)), (earlier, &today, line(version) + &ours)]
        {
            let output = run(&made, first, second);
            assert!(output.status.success(), "{:?}: {}", output.status, said(&output));
            assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
        }
    });
}

/// A plugin of today.
struct Given {
    plugin: PathBuf,
    /// A tree of its encoding, where it decodes one.
    sample: Option<PathBuf>,
    /// Whether it launches the host's kernels.
    needs_kernels: bool,
}

/// Today's plugins and the examples.
fn given(name: &str, folder: &Path) -> Vec<Given> {
    let tree = |name: &str, bytes: Vec<u8>| {
        let path = folder.join(format!("{name}.cdenc"));
        std::fs::write(&path, bytes).unwrap();
        Some(path)
    };
    let of_ours =
        |plugin, sample| Given { plugin: crossdock_tests::built_file(plugin), sample, needs_kernels: true };
    let example = |plugin, sample| Given { plugin, sample, needs_kernels: false };
    let mut given: Vec<_> = PLUGINS.map(|plugin| of_ours(plugin, None)).into();
    given.push(of_ours(ENCODINGS, tree("encodings", crossdock_tests::sample_tree())));
    given.push(example(crossdock_tests::csv_plugin(), tree("scaled", crossdock_tests::scaled_tree())));
    let in_rust = crossdock_tests::example_plugin(name);
    given.extend(in_rust.map(|plugin| example(plugin, tree("xor", crossdock_tests::xor_tree()))));
    given
}

/// Of its own ABI it holds them to its own rules, and the fixtures carry what it reads; of another one it takes none. Those
/// that need an interface which it does not have yet say so.
#[test]
fn today_s_plugins_under_the_host_of_every_release() {
    let name = "skew: today's plugins under earlier hosts";
    with_releases(name, |version, earlier| {
        let Some(program) = &earlier.command else {
            let made = made(version, "refuses");
            let today = today(&made);
            let without = Built { plugins: today.plugins.clone(), ..earlier.clone() };
            let output = run(&made, &without, &today);
            let words = format!("reading of version {version}: ");
            assert!(!output.status.success() && said(&output).contains(&words), "{}", said(&output));
            return;
        };
        let folder = made(version, "given");
        for Given { plugin, sample, needs_kernels } in given(name, &folder) {
            let mut verify = command(program, &[Path::new("verify"), &plugin]);
            if let Some(sample) = &sample {
                verify.arg("--sample").arg(sample);
            }
            // What lies below an example's nodes its own plugin of encodings decodes.
            if let Some(folder) = earlier.encodings.as_deref().and_then(Path::parent) {
                verify.env("CROSSDOCK_PLUGIN_PATH", folder);
            }
            if needs_kernels && !earlier.offers_kernels {
                assert_asks_for_kernels(&mut verify);
            } else {
                assert_succeeds(&mut verify);
            }
        }
        let (from, to) = (folder.join("from.skew"), folder.join("to.skew"));
        let values = [1i32, -2, 3, 4, 5, 6, 7].iter().flat_map(|value| value.to_le_bytes());
        let values: Vec<u8> = b"SKEW".iter().copied().chain(values).collect();
        std::fs::write(&from, &values).unwrap();
        // The fixture in C asks for a device that no command has.
        for row in ROWS.iter().filter(|row| row.name.starts_with("Rust")) {
            match row.built(&Sources::today()) {
                Ok(plugin) => {
                    let words = ["--from", "skew", "--to", "skew", "--plugins"].map(Path::new);
                    let convert = [&[Path::new("convert"), &from, &to], &words[..], &[&plugin]].concat();
                    assert_succeeds(&mut command(program, &convert));
                    assert_eq!(std::fs::read(&to).unwrap(), values, "{}", row.name);
                    std::fs::remove_file(&to).unwrap();
                }
                Err(why) => skipped(&format!("{name}: {version}, {}", row.name), &why),
            }
        }
    });
}
