//! Tests the code of `docs/plugins.md`: its plugins in C and C++ are compiled with the commands of
//! the page, and its Rust plugin is the crate `tests/plugin-page`, which extracts its code from the
//! page.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crossdock_tests::{CASE_TIMEOUT_S, assert_rejected, built, built_file, crossdock};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page() -> String {
    std::fs::read_to_string(root().join("docs/plugins.md")).unwrap()
}

/// All code blocks of a language, concatenated.
fn blocks(language: &str) -> String {
    let page = page();
    let (mut code, mut inside) = (String::new(), false);
    for line in page.lines() {
        match (inside, line) {
            (false, line) if line == format!("```{language}") => inside = true,
            (true, "```") => {
                inside = false;
                code += "\n";
            }
            (true, line) => code = code + line + "\n",
            _ => {}
        }
    }
    assert!(!code.is_empty(), "the page has no code in {language}");
    code
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Runs the commands of the page in a folder that contains the page's C plugin. Returns the folder
/// and the output.
fn lines() -> (tempfile::TempDir, Output) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("lines.c"), blocks("c")).unwrap();
    let path = format!("{}:{}", text(&built()), std::env::var("PATH").unwrap());
    let out = Command::new("sh")
        .args(["-euc", &blocks("sh")])
        .current_dir(folder.path())
        .env("PATH", path)
        .env("CROSSDOCK_INCLUDE", root().join("plugin-api/include").canonicalize().unwrap())
        .env_remove("CROSSDOCK_PLUGIN_PATH")
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    (folder, out)
}

/// Builds the page's C++ plugin. If no C++ compiler is installed, reports a skip of `test` and
/// returns `None`.
fn cpp_lines(test: &str) -> Option<tempfile::TempDir> {
    if Command::new("c++").arg("--version").output().is_err() {
        let _ = writeln!(std::io::stderr(), "skipped: {test}: no C++ compiler");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("lines.cpp"), blocks("cpp")).unwrap();
    let page = page();
    let command = page.lines().find_map(|line| line.strip_prefix("$ c++ ")).expect("the command");
    let out = Command::new("sh")
        .args(["-euc", &format!("c++ -Wall -Wextra -Werror -pedantic {command}")])
        .current_dir(folder.path())
        .env("CROSSDOCK_INCLUDE", root().join("plugin-api/include").canonicalize().unwrap())
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    Some(folder)
}

fn convert(plugin: &Path, from: &Path, to: &Path, more: &[&str]) -> Output {
    let arguments = ["convert", text(from), text(to), "--plugins", text(plugin), "--quiet"];
    crossdock(&[&arguments[..], more].concat())
}

#[track_caller]
fn assert_success(out: &Output) {
    assert!(out.status.success() && out.stderr.is_empty(), "{}", String::from_utf8_lossy(&out.stderr));
}

#[test]
fn commands_of_the_page_build_and_run_its_c_plugin() {
    let (folder, out) = lines();
    let stdout = String::from_utf8(out.stdout).unwrap();
    for part in ["lines", "loads here   yes", "skip_blank", "written line by line"] {
        assert!(stdout.contains(part), "{stdout:?} does not contain {part:?}");
    }
    assert_eq!(std::fs::read_to_string(folder.path().join("again.lines")).unwrap(), "one\ntwo\n");
}

const LINES: &str = "libcrossdock_lines_plugin.so";

#[test]
fn plugins_of_the_page_pass_verify() {
    let (folder, _) = lines();
    let cpp = cpp_lines("the page's C++ plugin passes verify");
    let numbers = folder.path().join("libcrossdock_numbers_plugin.so");
    std::fs::copy(built_file("libplugin_page.so"), &numbers).unwrap();
    let plugins = [folder.path().join(LINES), numbers].into_iter();
    for plugin in plugins.chain(cpp.as_ref().map(|folder| folder.path().join(LINES))) {
        let out = crossdock(&["verify", text(&plugin), "--timeout", CASE_TIMEOUT_S]);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout));
    }
}

#[test]
fn c_plugin_reads_writes_and_reports_errors() {
    let (folder, _) = lines();
    assert_lines_are_read_and_written(folder.path());
}

#[test]
fn cpp_plugin_reads_writes_and_reports_errors() {
    let Some(folder) = cpp_lines("cpp_plugin_reads_writes_and_reports_errors") else { return };
    assert_lines_are_read_and_written(folder.path());
}

fn assert_lines_are_read_and_written(folder: &Path) {
    let plugin = folder.join(LINES);
    let (input, arrow) = (folder.join("in.lines"), folder.join("in.arrow"));
    let again = folder.join("again.lines");
    let long = "x".repeat(1_000_000);
    let many = "some words\n".repeat(300_000);
    for content in ["", "\n", "a", "a\n\n\nb", &many, &format!("{long}\n{long}\nend")] {
        std::fs::write(&input, content).unwrap();
        assert_success(&convert(&plugin, &input, &arrow, &[]));
        assert_success(&convert(&plugin, &arrow, &again, &[]));
        let expected = if content.is_empty() || content.ends_with('\n') {
            content.into()
        } else {
            format!("{content}\n")
        };
        assert!(std::fs::read_to_string(&again).unwrap() == expected, "{} bytes", content.len());
    }
    std::fs::remove_file(&arrow).unwrap();
    std::fs::write(&input, "x".repeat(3 << 20)).unwrap();
    assert_rejected(&convert(&plugin, &input, &arrow, &[]), &["lines 0.1.0", "1 MiB"], &arrow);
    let sample = crossdock_tests::sample();
    std::fs::remove_file(&again).unwrap();
    assert_rejected(&convert(&plugin, &sample, &again, &[]), &["lines 0.1.0", "one column"], &again);
}

#[test]
fn rust_plugin_reads_writes_and_reports_errors_on_every_device() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = folder.path().join("libcrossdock_numbers_plugin.so");
    std::fs::copy(built_file("libplugin_page.so"), &plugin).unwrap();
    let (input, arrow) = (folder.path().join("in.numbers"), folder.path().join("in.arrow"));
    let again = folder.path().join("again.numbers");
    let numbers: String = (-70_000_i64..70_000).map(|n| format!("{}\n", n * 131_071_131_071)).collect();
    for device in ["cpu", "untouchable"] {
        for content in ["", "1\n", &numbers] {
            std::fs::write(&input, content).unwrap();
            assert_success(&convert(
                &plugin,
                &input,
                &arrow,
                &["--device", device, "--from-option", "batch_rows=1000"],
            ));
            assert_success(&convert(&plugin, &arrow, &again, &["--device", device]));
            assert!(std::fs::read_to_string(&again).unwrap() == content, "{device}");
        }
    }
    std::fs::remove_file(&arrow).unwrap();
    std::fs::write(&input, "1\n2\nthree\n").unwrap();
    let expected = [
        concat!("numbers ", env!("CARGO_PKG_VERSION")),
        "in.numbers",
        "line 3",
        "expected a 64-bit integer",
        "three",
    ];
    assert_rejected(&convert(&plugin, &input, &arrow, &[]), &expected, &arrow);
}

/// The manifest on the page and the manifest of the crate have the same dependencies.
#[test]
fn manifest_of_the_page_has_the_dependencies_of_its_code() {
    let names = |manifest: &str| -> Vec<String> {
        let rest = manifest.split("[dependencies]").nth(1).unwrap();
        let lines = rest.lines().skip(1).take_while(|line| !line.trim().is_empty());
        lines.map(|line| line.split([' ', '.', '=']).next().unwrap().to_string()).collect()
    };
    let manifest = std::fs::read_to_string(root().join("tests/plugin-page/Cargo.toml")).unwrap();
    assert_eq!(names(&blocks("toml")), names(&manifest));
}
