//! The command, in a directory where no plugin lies beside it.

use std::process::Stdio;

use crate::alone::{Alone, json, stdout};
use crate::common::{c_library, c_plugin};

#[test]
fn wrong_usage_is_status_2_and_help_is_status_0_with_examples() {
    let alone = Alone::new();
    assert_eq!(alone.run(&["convert"]).status.code(), Some(2));
    assert_eq!(alone.run(&["convert", "a", "b", "--device", "tpu"]).status.code(), Some(2));
    assert_eq!(alone.run(&["convert", "a", "b", "--memory", "much"]).status.code(), Some(2));
    assert_eq!(alone.run(&["convert", "a", "b", "--threads", "0"]).status.code(), Some(2));
    for args in [&["--help"][..], &["convert", "--help"], &["plan", "--help"]] {
        assert!(stdout(&alone.run(args)).contains("Example"));
    }
}

#[test]
fn a_missing_input_is_one_line_and_status_1() {
    let alone = Alone::new();
    let (status, line) = alone.fails(&["convert", "none.arrow", "out.arrow"]);
    assert_eq!(status, 1);
    assert!(line.contains("'none.arrow'") && line.contains("No such file"), "{line}");
}

#[test]
fn without_plugins_the_error_says_how_to_find_out_why() {
    let alone = Alone::new();
    std::fs::write(alone.path().join("in.arrow"), "ARROW1").unwrap();
    let (status, line) = alone.fails(&["convert", "in.arrow", "out.arrow"]);
    assert_eq!(status, 1);
    assert!(line.contains("crossdock plugins --explain"), "{line}");
    assert!(!alone.path().join("out.arrow").exists());
}

#[test]
fn every_bad_plugin_that_is_given_is_one_line_and_status_1() {
    let alone = Alone::new();
    let at = |name: &str| alone.path().join(name).display().to_string();
    std::fs::write(at("text.so"), "hello").unwrap();
    std::fs::write(at("in"), "x").unwrap();
    c_plugin(alone.path(), "major.so", &["MAJOR=2"]);
    c_plugin(alone.path(), "symbol.so", &["UNRESOLVED"]);
    for (file, words) in [("none.so", "missing"), ("text.so", "not-elf"), ("major.so", "abi-version")] {
        let (status, line) = alone.fails(&["convert", "in", "out", "--plugins", &at(file)]);
        assert_eq!(status, 1, "{line}");
        assert!(line.contains(file) && line.contains(words), "{line}");
    }
    let (status, line) =
        alone.fails(&["convert", "in", "out", "--plugins", &at("symbol.so"), "--from", "c-nothing"]);
    assert_eq!(status, 1, "{line}");
    assert!(line.contains("a_function_that_nobody_has"), "{line}");
}

#[test]
fn plugins_explains_what_was_chosen_shadowed_and_refused() {
    let alone = Alone::new();
    let directory = alone.path().join("plugins");
    std::fs::create_dir(&directory).unwrap();
    c_plugin(&directory, "a.so", &[]);
    c_plugin(&directory, "b.so", &["VERSION=\"2.0.0\""]);
    c_plugin(&directory, "c.so", &["NAME=\"c\"", "UNRESOLVED"]);
    std::fs::write(directory.join("d.so"), "hello").unwrap();
    let out = json(&alone.run(&["plugins", "--explain", "--json", "--plugins", "plugins"]));
    let plugins = out["plugins"].as_array().unwrap();
    let outcome = |i: usize| (plugins[i]["status"].as_str().unwrap(), plugins[i]["reason"].as_str());
    assert_eq!(plugins.len(), 4);
    assert_eq!(outcome(0), ("chosen", None));
    assert_eq!(outcome(1), ("shadowed", Some("shadowed")));
    assert_eq!(outcome(2), ("refused", Some("dlopen")));
    assert_eq!(outcome(3), ("refused", Some("not-elf")));
    assert_eq!(plugins[0]["metadata"]["version"], "1.0.0");
    let text = stdout(&alone.run(&["plugins", "--explain", "--plugins", "plugins"]));
    assert!(text.contains("refused (dlopen)") && text.contains("a_function_that_nobody_has"), "{text}");
    let text = stdout(&alone.run(&["plugins", "--plugins", "plugins"]));
    assert!(text.contains("c-nothing 1.0.0") && text.contains("3 more refused or shadowed"), "{text}");
}

#[test]
fn the_environment_variable_is_looked_at() {
    let alone = Alone::new();
    let directory = alone.path().join("plugins");
    std::fs::create_dir(&directory).unwrap();
    c_plugin(&directory, "a.so", &[]);
    let output =
        alone.command().env("CROSSDOCK_PLUGIN_PATH", &directory).args(["plugins", "--json"]).output();
    assert_eq!(json(&output.unwrap())["plugins"][0]["found"], "CROSSDOCK_PLUGIN_PATH");
}

#[test]
fn inspect_shows_metadata_and_whether_it_would_load_without_running_it() {
    let alone = Alone::new();
    let path = c_plugin(alone.path(), "a.so", &["RANGE=\"^9.0.0\"", "UNRESOLVED"]).display().to_string();
    let out = json(&alone.run(&["inspect", "--json", &path]));
    assert_eq!(out["name"], "c-nothing");
    assert_eq!(out["loads"], false);
    assert_eq!(out["reason"], "abi-range");
    assert_eq!(out["struct_sizes"]["ArrowArray"], 80);
    assert!(stdout(&alone.run(&["inspect", &path])).contains("no (abi-range)"));
    let (status, line) = alone.fails(&["inspect", "crossdock"]);
    assert_eq!(status, 1);
    assert!(line.contains("not-a-plugin"), "{line}");
}

#[test]
fn devices_lists_the_cpu_and_says_what_cuda_needs() {
    let alone = Alone::new();
    let out = json(&alone.run(&["devices", "--json"]));
    assert_eq!(out["devices"][0]["name"], "cpu");
    let cuda = &out["cuda"];
    assert!(cuda["missing"].is_string() != cuda["driver_version"].is_string(), "{out}");
    assert!(stdout(&alone.run(&["devices"])).contains("cuda: "));
}

#[test]
fn completions_are_a_script() {
    assert!(stdout(&Alone::new().run(&["completions", "bash"])).contains("crossdock"));
}

#[test]
fn ctrl_c_ends_a_wait_for_input_with_one_line_and_status_1() {
    let alone = Alone::new();
    let mut child = alone
        .command()
        .args(["convert", "-", "out.arrow"])
        // The signal may find the leak checker at work, which then has lines of its own to say.
        .env("ASAN_OPTIONS", "detect_leaks=0")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let status = format!("/proc/{}/status", child.id());
    // The handler is there once the signal is among those that the process catches (SigCgt, bit 1 for SIGINT).
    let catches = || {
        let text = std::fs::read_to_string(&status).unwrap();
        let mask = text.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap().trim().to_string();
        u64::from_str_radix(&mask, 16).unwrap() & 2 != 0
    };
    while !catches() {
        std::thread::yield_now();
    }
    // SAFETY: our own child, which has not been waited for.
    unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGINT) };
    let stdin = child.stdin.take();
    let output = child.wait_with_output().unwrap();
    drop(stdin);
    let line = String::from_utf8(output.stderr).unwrap();
    // Without a plugin no byte is looked at: either answer is one line, and no file.
    assert_eq!(output.status.code(), Some(1), "{line}");
    assert_eq!(line.trim_end().lines().count(), 1, "{line}");
    assert!(!alone.path().join("out.arrow").exists());
}

#[test]
fn inspect_shows_a_tables_format_its_reader_and_its_columns() {
    let alone = Alone::new();
    assert!(alone.run(&["new", "lines", "--language", "c"]).status.success());
    let folder = alone.path().join("lines");
    let (include, source) = (folder.display().to_string(), folder.join("plugin.c").display().to_string());
    let plugin = c_library(alone.path(), "lines.so", &["-I", &include, &source]).display().to_string();
    let inspect =
        |more: &[&str]| alone.run(&[&["inspect", "lines/sample.lines", "--plugins", &plugin], more].concat());
    let expected = "format       lines\nread by      lines\ncolumns      line: Binary, no nulls\n";
    assert_eq!(stdout(&inspect(&[])), expected);
    let column = serde_json::json!({ "name": "line", "type": "Binary", "nullable": false, "metadata": {} });
    let expected =
        serde_json::json!({ "format": "lines", "plugin": "lines", "columns": [column], "metadata": {} });
    assert_eq!(json(&inspect(&["--json"])), expected);
}
