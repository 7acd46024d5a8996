//! Nothing is silent: what the host and its plugins have to say besides errors, on the command's standard error.

use crate::alone::Alone;
use crate::common::c_plugin;

impl Alone {
    /// The lines on standard error at this level, the default one if it is empty.
    fn lines(&self, level: &str, args: &[&str]) -> Vec<String> {
        let output = self.command().args(args).env("CROSSDOCK_LOG", level).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        text.lines().map(str::to_string).collect()
    }
}

#[test]
fn a_plugin_s_words_are_lines_with_its_name_from_the_level_that_was_asked_for() {
    let alone = Alone::new();
    let path = c_plugin(alone.path(), "a.so", &["WARNS"]).display().to_string();
    let lines = |level| alone.lines(level, &["plugins", "--plugins", &path]);
    let warning = "crossdock: warning: c-nothing: the ?[31mlicence ends";
    assert_eq!(lines(""), [warning]);
    assert_eq!(lines("warn"), [warning]);
    assert_eq!(lines("info"), [warning, "crossdock: info: c-nothing: all is well"]);
    assert!(lines("error").is_empty());
}

#[test]
fn a_level_that_does_not_exist_is_wrong_usage_and_the_help_lists_those_that_do() {
    let alone = Alone::new();
    let output = alone.command().arg("devices").env("CROSSDOCK_LOG", "loud").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let line = String::from_utf8(output.stderr).unwrap();
    assert!(line.contains("CROSSDOCK_LOG is 'loud', expected error, warn, info, debug or trace"), "{line}");
    let help = String::from_utf8(alone.run(&["--help"]).stdout).unwrap();
    assert!(help.contains("CROSSDOCK_LOG=error|warn|info|debug|trace"), "{help}");
}

#[test]
fn a_plugin_that_fails_to_load_is_warned_of_unless_the_error_is_about_it() {
    let alone = Alone::new();
    std::fs::write(alone.path().join("in"), "x").unwrap();
    c_plugin(alone.path(), "broken.so", &["UNRESOLVED"]);
    let lines = alone.lines("", &["convert", "in", "out", "--plugins", "."]);
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].starts_with("crossdock: warning: plugin './broken.so' refused (dlopen): "), "{lines:?}");
    assert!(lines[1].starts_with("crossdock: error: no plugin recognises 'in'"), "{lines:?}");
    for option in ["--from", "--to", "--via"] {
        let lines = alone.lines("", &["convert", "in", "out", "--plugins", ".", option, "c-nothing"]);
        let last = lines.last().unwrap();
        if option == "--from" {
            assert!(last.contains("error: plugin './broken.so' refused (dlopen)"), "{lines:?}");
        }
        assert_eq!(lines.len(), 1, "{option}: {lines:?}");
    }
}

#[test]
fn what_means_to_be_a_plugin_and_is_refused_is_warned_of_and_what_does_not_is_not() {
    let alone = Alone::new();
    let directory = alone.path().join("plugins");
    std::fs::create_dir(&directory).unwrap();
    std::fs::write(alone.path().join("in"), "x").unwrap();
    c_plugin(&directory, "a.so", &["MAJOR=2"]);
    c_plugin(&directory, "b.so", &[]);
    c_plugin(&directory, "c.so", &[]);
    c_plugin(&directory, "library.so", &["NO_META"]);
    std::fs::write(directory.join("text.so"), "hello").unwrap();
    let about = |level: &str| -> Vec<(String, String)> {
        let lines = alone.lines(level, &["convert", "in", "out", "--plugins", "plugins"]);
        let refused = lines.iter().filter_map(|line| line.split_once("refused ("));
        let word = |text: &str, end: char| text.split(end).next().unwrap().to_string();
        refused.map(|(before, after)| (word(&before["crossdock: ".len()..], ':'), word(after, ')'))).collect()
    };
    let pair = |kind: &str, id: &str| (kind.to_string(), id.to_string());
    assert_eq!(about(""), [pair("warning", "abi-version")]);
    let all =
        [("warning", "abi-version"), ("debug", "shadowed"), ("debug", "not-a-plugin"), ("debug", "not-elf")];
    assert_eq!(about("debug"), all.map(|(kind, id)| pair(kind, id)));
}

#[test]
fn a_place_in_the_environment_that_is_not_there_is_warned_of() {
    let alone = Alone::new();
    std::fs::write(alone.path().join("in"), "x").unwrap();
    let output =
        alone.command().args(["convert", "in", "out"]).env("CROSSDOCK_PLUGIN_PATH", "nowhere").output();
    let text = String::from_utf8(output.unwrap().stderr).unwrap();
    assert!(
        text.starts_with("crossdock: warning: CROSSDOCK_PLUGIN_PATH: cannot look into 'nowhere'"),
        "{text}"
    );
}
