//! Usage errors, help, and commands without plugins.

use std::process::Stdio;

use crate::command_dir::{CommandDir, json, stdout};
use crate::common::{c_library, c_plugin};

#[test]
fn wrong_usage_exits_with_status_2_and_help_shows_examples() {
    let dir = CommandDir::new();
    assert_eq!(dir.run(&["convert"]).status.code(), Some(2));
    assert_eq!(dir.run(&["convert", "a", "b", "--device", "tpu"]).status.code(), Some(2));
    assert_eq!(dir.run(&["convert", "a", "b", "--memory", "much"]).status.code(), Some(2));
    assert_eq!(dir.run(&["convert", "a", "b", "--threads", "0"]).status.code(), Some(2));
    for args in [&["--help"][..], &["convert", "--help"], &["plan", "--help"]] {
        assert!(stdout(&dir.run(args)).contains("Example"));
    }
}

#[test]
fn missing_input_prints_one_line_and_exits_with_status_1() {
    let dir = CommandDir::new();
    let (status, line) = dir.fails(&["convert", "none.arrow", "out.arrow"]);
    assert_eq!(status, 1);
    assert!(line.contains("'none.arrow'") && line.contains("No such file"), "{line}");
}

#[test]
fn error_without_plugins_mentions_explain() {
    let dir = CommandDir::new();
    std::fs::write(dir.path().join("in.arrow"), "ARROW1").unwrap();
    let (status, line) = dir.fails(&["convert", "in.arrow", "out.arrow"]);
    assert_eq!(status, 1);
    assert!(line.contains("crossdock plugins --explain"), "{line}");
    assert!(!dir.path().join("out.arrow").exists());
}

#[test]
fn unusable_plugin_file_prints_one_line_and_exits_with_status_1() {
    let dir = CommandDir::new();
    let at = |name: &str| dir.path().join(name).display().to_string();
    std::fs::write(at("text.so"), "hello").unwrap();
    std::fs::write(at("in"), "x").unwrap();
    c_plugin(dir.path(), "major.so", &["MAJOR=2"]);
    c_plugin(dir.path(), "symbol.so", &["UNRESOLVED"]);
    for (file, words) in [("none.so", "missing"), ("text.so", "not-elf"), ("major.so", "abi-version")] {
        let (status, line) = dir.fails(&["convert", "in", "out", "--plugins", &at(file)]);
        assert_eq!(status, 1, "{line}");
        assert!(line.contains(file) && line.contains(words), "{line}");
    }
    let (status, line) =
        dir.fails(&["convert", "in", "out", "--plugins", &at("symbol.so"), "--from", "c-nothing"]);
    assert_eq!(status, 1, "{line}");
    assert!(line.contains("undefined_function"), "{line}");
}

#[test]
fn plugins_command_shows_used_shadowed_and_refused_candidates() {
    let dir = CommandDir::new();
    let directory = dir.path().join("plugins");
    std::fs::create_dir(&directory).unwrap();
    c_plugin(&directory, "a.so", &[]);
    c_plugin(&directory, "b.so", &["VERSION=\"2.0.0\""]);
    c_plugin(&directory, "c.so", &["NAME=\"c\"", "UNRESOLVED"]);
    std::fs::write(directory.join("d.so"), "hello").unwrap();
    let out = json(&dir.run(&["plugins", "--explain", "--json", "--plugins", "plugins"]));
    let plugins = out["plugins"].as_array().unwrap();
    let outcome = |i: usize| (plugins[i]["status"].as_str().unwrap(), plugins[i]["reason"].as_str());
    assert_eq!(plugins.len(), 4);
    assert_eq!(outcome(0), ("chosen", None));
    assert_eq!(outcome(1), ("shadowed", Some("shadowed")));
    assert_eq!(outcome(2), ("refused", Some("dlopen")));
    assert_eq!(outcome(3), ("refused", Some("not-elf")));
    assert_eq!(plugins[0]["metadata"]["version"], "1.0.0");
    let text = stdout(&dir.run(&["plugins", "--explain", "--plugins", "plugins"]));
    assert!(text.contains("refused (dlopen)") && text.contains("undefined_function"), "{text}");
    let text = stdout(&dir.run(&["plugins", "--plugins", "plugins"]));
    assert!(text.contains("c-nothing 1.0.0") && text.contains("3 more refused or shadowed"), "{text}");
}

#[test]
fn plugins_are_found_through_path_environment_variable() {
    let dir = CommandDir::new();
    let directory = dir.path().join("plugins");
    std::fs::create_dir(&directory).unwrap();
    c_plugin(&directory, "a.so", &[]);
    let output = dir.command().env("CROSSDOCK_PLUGIN_PATH", &directory).args(["plugins", "--json"]).output();
    assert_eq!(json(&output.unwrap())["plugins"][0]["found"], "CROSSDOCK_PLUGIN_PATH");
}

#[test]
fn inspect_shows_metadata_and_whether_the_plugin_would_load() {
    let dir = CommandDir::new();
    let path = c_plugin(dir.path(), "a.so", &["RANGE=\"^9.0.0\"", "UNRESOLVED"]).display().to_string();
    let out = json(&dir.run(&["inspect", "--json", &path]));
    assert_eq!(out["name"], "c-nothing");
    assert_eq!(out["loads"], false);
    assert_eq!(out["reason"], "abi-range");
    assert_eq!(out["struct_sizes"]["ArrowArray"], 80);
    assert!(stdout(&dir.run(&["inspect", &path])).contains("no (abi-range)"));
    let (status, line) = dir.fails(&["inspect", "crossdock"]);
    assert_eq!(status, 1);
    assert!(line.contains("not-a-plugin"), "{line}");
}

#[test]
fn devices_command_lists_the_cpu_and_the_state_of_cuda() {
    let dir = CommandDir::new();
    let out = json(&dir.run(&["devices", "--json"]));
    assert_eq!(out["devices"][0]["name"], "cpu");
    let cuda = &out["cuda"];
    assert!(cuda["missing"].is_string() != cuda["driver_version"].is_string(), "{out}");
    assert!(stdout(&dir.run(&["devices"])).contains("cuda: "));
}

#[test]
fn completions_command_prints_a_shell_script() {
    assert!(stdout(&CommandDir::new().run(&["completions", "bash"])).contains("crossdock"));
}

#[test]
fn ctrl_c_cancels_a_blocked_read() {
    let dir = CommandDir::new();
    let mut child = dir
        .command()
        .args(["convert", "-", "out.arrow"])
        // The leak checker is off, because it may print additional lines when the signal arrives.
        .env("ASAN_OPTIONS", "detect_leaks=0")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let status = format!("/proc/{}/status", child.id());
    // The handler is installed once SigCgt has the bit of SIGINT (bit 1).
    let catches = || {
        let text = std::fs::read_to_string(&status).unwrap();
        let mask = text.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap().trim().to_string();
        u64::from_str_radix(&mask, 16).unwrap() & 2 != 0
    };
    while !catches() {
        std::thread::yield_now();
    }
    // SAFETY: `child` has not been waited for, so its id is still valid.
    unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGINT) };
    let stdin = child.stdin.take();
    let output = child.wait_with_output().unwrap();
    drop(stdin);
    let line = String::from_utf8(output.stderr).unwrap();
    // Without plugins, the command may fail before it reads the input. In either case it prints one
    // line and leaves no output file.
    assert_eq!(output.status.code(), Some(1), "{line}");
    assert_eq!(line.trim_end().lines().count(), 1, "{line}");
    assert!(!dir.path().join("out.arrow").exists());
}

#[test]
fn inspect_shows_the_format_the_plugin_and_the_columns_of_a_table() {
    let dir = CommandDir::new();
    assert!(dir.run(&["new", "lines", "--language", "c"]).status.success());
    let folder = dir.path().join("lines");
    let (include, source) = (folder.display().to_string(), folder.join("plugin.c").display().to_string());
    let plugin = c_library(dir.path(), "lines.so", &["-I", &include, &source]).display().to_string();
    let inspect =
        |more: &[&str]| dir.run(&[&["inspect", "lines/sample.lines", "--plugins", &plugin], more].concat());
    let expected = "format       lines\nread by      lines\ncolumns      line: binary, no nulls\n";
    assert_eq!(stdout(&inspect(&[])), expected);
    let column = serde_json::json!({ "name": "line", "type": "binary", "nullable": false, "metadata": {} });
    let expected =
        serde_json::json!({ "format": "lines", "plugin": "lines", "columns": [column], "metadata": {} });
    assert_eq!(json(&inspect(&["--json"])), expected);
}
