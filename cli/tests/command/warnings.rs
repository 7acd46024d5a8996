//! Log events of the host and of plugins on standard error.

use crate::command_dir::CommandDir;
use crate::common::c_plugin;

impl CommandDir {
    /// The lines on standard error at this level; an empty level stands for the default level.
    fn lines(&self, level: &str, args: &[&str]) -> Vec<String> {
        let output = self.command().args(args).env("CROSSDOCK_LOG", level).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        text.lines().map(str::to_string).collect()
    }
}

#[test]
fn log_level_selects_plugin_events_and_each_line_names_the_plugin() {
    let dir = CommandDir::new();
    let path = c_plugin(dir.path(), "a.so", &["WARNS"]).display().to_string();
    let lines = |level| dir.lines(level, &["plugins", "--plugins", &path]);
    let warning = "warning: c-nothing: the ?[31mlicence ends";
    assert_eq!(lines(""), [warning]);
    assert_eq!(lines("warn"), [warning]);
    assert_eq!(lines("info"), [warning, "info: c-nothing: all is well"]);
    assert!(lines("error").is_empty());
}

#[test]
fn rejects_an_unknown_level_and_help_lists_the_levels() {
    let dir = CommandDir::new();
    let output = dir.command().arg("devices").env("CROSSDOCK_LOG", "loud").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let line = String::from_utf8(output.stderr).unwrap();
    assert!(line.contains("CROSSDOCK_LOG is 'loud', expected error, warn, info, debug or trace"), "{line}");
    let help = String::from_utf8(dir.run(&["--help"]).stdout).unwrap();
    assert!(help.contains("CROSSDOCK_LOG=error|warn|info|debug|trace"), "{help}");
}

#[test]
fn warns_of_a_plugin_that_fails_to_load_unless_the_error_names_it() {
    let dir = CommandDir::new();
    std::fs::write(dir.path().join("in"), "x").unwrap();
    c_plugin(dir.path(), "broken.so", &["UNRESOLVED"]);
    let lines = dir.lines("", &["convert", "in", "out", "--plugins", "."]);
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].starts_with("warning: plugin './broken.so' refused (dlopen): "), "{lines:?}");
    assert!(lines[1].starts_with("error: no plugin recognises 'in'"), "{lines:?}");
    for option in ["--from", "--to", "--via"] {
        let lines = dir.lines("", &["convert", "in", "out", "--plugins", ".", option, "c-nothing"]);
        let last = lines.last().unwrap();
        if option == "--from" {
            assert!(last.contains("error: plugin './broken.so' refused (dlopen)"), "{lines:?}");
        }
        assert_eq!(lines.len(), 1, "{option}: {lines:?}");
    }
}

#[test]
fn warns_of_refused_plugins_but_not_of_other_files() {
    let dir = CommandDir::new();
    let directory = dir.path().join("plugins");
    std::fs::create_dir(&directory).unwrap();
    std::fs::write(dir.path().join("in"), "x").unwrap();
    c_plugin(&directory, "a.so", &["MAJOR=2"]);
    c_plugin(&directory, "b.so", &[]);
    c_plugin(&directory, "c.so", &[]);
    c_plugin(&directory, "library.so", &["NO_META"]);
    std::fs::write(directory.join("text.so"), "hello").unwrap();
    let about = |level: &str| -> Vec<(String, String)> {
        let lines = dir.lines(level, &["convert", "in", "out", "--plugins", "plugins"]);
        let refused = lines.iter().filter_map(|line| line.split_once("refused ("));
        let word = |text: &str, end: char| text.split(end).next().unwrap().to_string();
        refused.map(|(before, after)| (word(before, ':'), word(after, ')'))).collect()
    };
    let pair = |kind: &str, id: &str| (kind.to_string(), id.to_string());
    assert_eq!(about(""), [pair("warning", "abi-version")]);
    let all =
        [("warning", "abi-version"), ("debug", "shadowed"), ("debug", "not-a-plugin"), ("debug", "not-elf")];
    assert_eq!(about("debug"), all.map(|(kind, id)| pair(kind, id)));
}

#[test]
fn warns_of_a_missing_directory_in_the_environment() {
    let dir = CommandDir::new();
    std::fs::write(dir.path().join("in"), "x").unwrap();
    let output =
        dir.command().args(["convert", "in", "out"]).env("CROSSDOCK_PLUGIN_PATH", "nowhere").output();
    let text = String::from_utf8(output.unwrap().stderr).unwrap();
    assert!(text.starts_with("warning: CROSSDOCK_PLUGIN_PATH: cannot read directory 'nowhere'"), "{text}");
}
