//! The command under a policy, its lock files, and what it says of plugins without running them.

use std::process::Output;

use crate::alone::{Alone, json, stdout};
use crate::common::{c_plugin, c_plugin_with, lines, policy_file, set_mode};
use crossdock::load::signature_file;
use minisign::KeyPair;
use serde_json::Value;

impl Alone {
    /// The plugins `a` and `b` in the folder `plugins`.
    fn with_plugins() -> Self {
        let alone = Self::new();
        let folder = alone.path().join("plugins");
        std::fs::create_dir(&folder).unwrap();
        alone.plugin("a", &[]);
        alone.plugin("b", &[]);
        alone
    }

    fn plugin(&self, name: &str, more: &[&str]) -> String {
        let name_is = format!("NAME=\"{name}\"");
        let definitions: Vec<_> = more.iter().copied().chain([name_is.as_str()]).collect();
        let folder = self.path().join("plugins");
        c_plugin(&folder, &format!("{name}.so"), &definitions).display().to_string()
    }

    fn status(&self, args: &[&str]) -> (Option<i32>, String) {
        let output = self.run(args);
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    }
}

/// Of each plugin, what became of it and why.
fn verdicts(output: &Output) -> Vec<(String, String)> {
    let all = json(output);
    let word = |value: &Value| value.as_str().unwrap_or_default().to_string();
    all["plugins"].as_array().unwrap().iter().map(|p| (word(&p["status"]), word(&p["reason"]))).collect()
}

fn pair(status: &str, reason: &str) -> (String, String) {
    (status.to_string(), reason.to_string())
}

#[test]
fn the_policy_is_the_one_given_else_the_environment_s_else_the_user_s() {
    let alone = Alone::with_plugins();
    let config = alone.path().join("config/crossdock");
    let (given, named) = (alone.path().join("given"), alone.path().join("named"));
    for (folder, allowed) in [(&config, "'a', 'b'"), (&given, ""), (&named, "'b'")] {
        std::fs::create_dir_all(folder).unwrap();
        policy_file(folder, &format!("allow = [{allowed}]"));
    }
    let args = ["plugins", "--explain", "--json", "--plugins", "plugins"];
    let refused = || pair("refused", "not-allowed");
    let chosen = || pair("chosen", "");
    assert_eq!(verdicts(&alone.run(&args)), [chosen(), chosen()]);
    let by_environment = |more: &[&str]| {
        let mut command = alone.command();
        command.env("CROSSDOCK_POLICY", named.join("crossdock.toml")).args(args).args(more);
        command.output().unwrap()
    };
    assert_eq!(verdicts(&by_environment(&[])), [refused(), chosen()]);
    let output = by_environment(&["--policy", "given/crossdock.toml"]);
    assert_eq!(verdicts(&output), [refused(), refused()]);
    assert_eq!(json(&output)["policy"], "given/crossdock.toml");
    let text = stdout(&alone.run(&["plugins", "--explain", "--plugins", "plugins"]));
    assert!(text.contains(&format!("policy: {}", config.join("crossdock.toml").display())), "{text}");
}

#[test]
fn a_policy_that_is_not_used_lets_nothing_be_done() {
    let alone = Alone::with_plugins();
    let file = policy_file(alone.path(), "alow = []\n");
    for args in [
        &["plugins", "--policy", "crossdock.toml"][..],
        &["convert", "in", "out", "--policy", "crossdock.toml"],
        &["inspect", "plugins/a.so", "--policy", "crossdock.toml"],
        &["lock", "--policy", "crossdock.toml"],
    ] {
        let (status, line) = alone.fails(args);
        assert_eq!(status, 1);
        assert!(line.contains("policy 'crossdock.toml', line 1") && line.contains("alow"), "{line}");
    }
    set_mode(&file, 0o666);
    assert!(alone.fails(&["plugins", "--policy", "crossdock.toml"]).1.contains("chmod go-w"));
    assert!(alone.fails(&["plugins", "--policy", "none.toml"]).1.contains("there is no such file"));
}

#[test]
fn what_a_policy_leaves_out_is_told_to_those_who_ask_and_what_it_finds_wrong_to_everybody() {
    let alone = Alone::with_plugins();
    std::fs::write(alone.path().join("in"), "x").unwrap();
    let words = |policy: &str, level: &str, more: &[&str]| {
        policy_file(alone.path(), policy);
        let args = ["convert", "in", "out", "--plugins", "plugins", "--policy", "crossdock.toml"];
        let output = alone.command().args(args).args(more).env("CROSSDOCK_LOG", level).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    let allow = "allow = ['a']";
    assert!(!words(allow, "", &[]).contains("refused"));
    assert!(words(allow, "info", &[]).contains("info: plugin 'plugins/b.so' refused (not-allowed)"));
    let asked = words(allow, "", &["--from", "b"]);
    assert!(asked.contains("error: plugin 'plugins/b.so' refused (not-allowed)"), "{asked}");
    let key = KeyPair::generate_unencrypted_keypair().unwrap().pk.to_base64();
    let unsigned = words(&format!("require_signature = true\nkeys = ['{key}']"), "", &[]);
    assert!(unsigned.contains("warning: plugin 'plugins/b.so' refused (unsigned)"), "{unsigned}");
}

#[test]
fn what_files_are_called_neither_begins_a_line_nor_steers_a_terminal() {
    let alone = Alone::with_plugins();
    let folder = alone.path().join("plugins");
    std::fs::rename(folder.join("a.so"), folder.join("a\n  from: \x1b[2J.so")).unwrap();
    std::fs::write(folder.join("c\nb 1.0.0: it.so"), "no library").unwrap();
    let text = stdout(&alone.run(&["plugins", "--explain", "--plugins", "plugins"]));
    assert!(text.contains("a?  from: ?[2J.so") && text.contains("c?b 1.0.0: it.so"), "{text}");
    assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
}

#[test]
fn explain_says_of_each_candidate_whether_it_is_chosen_shadowed_or_refused_and_why() {
    let alone = Alone::with_plugins();
    c_plugin(&alone.path().join("plugins"), "second.so", &["NAME=\"a\""]);
    policy_file(alone.path(), "allow = ['a']");
    let args = ["plugins", "--explain", "--plugins", "plugins", "--policy", "crossdock.toml"];
    let output = alone.run(&[&args[..], &["--json"]].concat());
    let expected = [pair("chosen", ""), pair("refused", "not-allowed"), pair("shadowed", "shadowed")];
    assert_eq!(verdicts(&output), expected);
    let text = stdout(&alone.run(&args));
    assert!(text.contains("refused (not-allowed): the policy's `allow` does not name 'b'"), "{text}");
    assert!(text.contains("shadowed (shadowed): another plugin is called 'a' too"), "{text}");
    assert!(text.contains("policy: crossdock.toml"), "{text}");
}

#[test]
fn inspect_shows_what_is_needed_the_hash_and_the_signature_and_runs_nothing() {
    let alone = Alone::new();
    let ran = alone.path().join("ran");
    let define = format!("RAN=\"{}\"", ran.display());
    let plugin = c_plugin_with(alone.path(), "a.so", &[&define], &["-Wl,--auxiliary,libother.so"]);
    let keys = KeyPair::generate_unencrypted_keypair().unwrap();
    let inspect = || json(&alone.run(&["inspect", "--json", "a.so", "--policy", "crossdock.toml"]));
    policy_file(alone.path(), "");
    let out = inspect();
    let libraries: Vec<_> =
        out["needs"]["libraries"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    assert!(libraries.contains(&"libc.so.6") && libraries.contains(&"libother.so"), "{libraries:?}");
    assert!(out["needs"]["glibc"].as_str().unwrap().starts_with("2."), "{out}");
    assert_eq!(out["reason"], "needed-library");
    assert_eq!(out["signature"]["state"], "none");
    let sum = std::process::Command::new("sha256sum").arg(&plugin).output().unwrap();
    let sum = String::from_utf8(sum.stdout).unwrap();
    assert_eq!(out["sha256"], sum.split_whitespace().next().unwrap());

    let content = std::fs::File::open(&plugin).unwrap();
    let signature = minisign::sign(Some(&keys.pk), &keys.sk, content, None, None).unwrap();
    std::fs::write(signature_file(&plugin), signature.into_string()).unwrap();
    assert_eq!(inspect()["signature"]["state"], "unknown-key");
    let key = keys.pk.to_base64();
    policy_file(alone.path(), &format!("require_signature = true\nkeys = ['{key}']"));
    assert_eq!(inspect()["signature"], serde_json::json!({ "state": "valid", "key": key }));
    let text = stdout(&alone.run(&["inspect", "a.so", "--policy", "crossdock.toml"]));
    for words in ["libother.so", &format!("by {key}"), "no (needed-library)", "2.", "or newer"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    std::fs::write(signature_file(&plugin), "a scribble").unwrap();
    assert_eq!(inspect()["signature"]["state"], "bad");
    assert_eq!(lines(&ran), [""; 0], "nothing has run");
}

#[test]
fn lock_writes_what_a_policy_then_keeps_to_and_check_says_what_differs() {
    let alone = Alone::with_plugins();
    let args = ["lock", "--plugins", "plugins"];
    let written = stdout(&alone.run(&args));
    assert!(written.contains("'crossdock.lock'") && written.contains("a.so"), "{written}");
    let first = std::fs::read_to_string(alone.path().join("crossdock.lock")).unwrap();
    assert!(first.starts_with("# Written by `crossdock lock`"), "{first}");
    stdout(&alone.run(&args));
    let again = std::fs::read_to_string(alone.path().join("crossdock.lock")).unwrap();
    assert_eq!(again, first, "the same plugins make the same lock");
    let check = [&args[..], &["--check"]].concat();
    assert!(stdout(&alone.run(&check)).contains("has what there is"));

    policy_file(alone.path(), "lock = 'crossdock.lock'");
    let policy = ["--policy", "crossdock.toml"];
    let plugins = [&["plugins", "--json", "--explain", "--plugins", "plugins"][..], &policy].concat();
    assert_eq!(verdicts(&alone.run(&plugins)), [pair("chosen", ""), pair("chosen", "")]);
    alone.plugin("a", &["VERSION=\"1.0.1\""]);
    std::fs::remove_file(alone.path().join("plugins/b.so")).unwrap();
    alone.plugin("c", &[]);
    let refused = [pair("refused", "lock-hash"), pair("refused", "not-locked")];
    assert_eq!(verdicts(&alone.run(&plugins)), refused);
    let (status, text) = alone.status(&[&check[..], &policy].concat());
    assert_eq!(status, Some(1));
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert!(
        lines[0].starts_with("a: locked 1.0.0 sha256:") && lines[0].contains("found 1.0.1 sha256:"),
        "{text}"
    );
    assert_eq!(lines[1], "b: locked, and not found");
    assert!(lines[2].starts_with("c: not locked, found 1.0.0 sha256:"), "{text}");
    assert_eq!(
        std::fs::read_to_string(alone.path().join("crossdock.lock")).unwrap(),
        first,
        "only looked at"
    );

    stdout(&alone.run(&[&args[..], &policy].concat()));
    assert_eq!(verdicts(&alone.run(&plugins)), [pair("chosen", ""), pair("chosen", "")]);
}

#[test]
fn a_lock_that_cannot_be_written_is_an_error_and_nothing_of_it_is_left() {
    let alone = Alone::with_plugins();
    let (status, line) = alone.fails(&["lock", "--plugins", "plugins", "--output", "nowhere/x.lock"]);
    assert_eq!(status, 1);
    assert!(line.contains("nowhere/x.lock"), "{line}");
    let (status, line) = alone.fails(&["lock", "--plugins", "plugins", "--check"]);
    assert_eq!(status, 1);
    assert!(line.contains("crossdock.lock") && line.contains("there is no such file"), "{line}");
}

#[test]
fn a_lock_is_not_the_group_s_to_write_whatever_the_umask() {
    use std::os::unix::fs::PermissionsExt;
    let alone = Alone::with_plugins();
    let script = "umask 0002; exec ./crossdock lock --plugins plugins";
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", script]).current_dir(alone.path()).env("XDG_CONFIG_HOME", alone.path());
    assert!(shell.env_remove("CROSSDOCK_POLICY").output().unwrap().status.success());
    let mode = std::fs::metadata(alone.path().join("crossdock.lock")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o644);
}

/// The changes that were found, by what changed, and whether they break something.
fn diff(alone: &Alone, new: &[&str], linked: &[&str]) -> (Option<i32>, Vec<(String, String, bool)>) {
    // RAN makes it use the C library, as most do, and tells if anything of it runs.
    let ran = alone.path().join("ran");
    let ran_there = format!("RAN=\"{}\"", ran.display());
    let old = [
        ran_there.as_str(),
        "INTERFACES=\"crossdock.importer/1 crossdock.exporter/1\"",
        "FORMATS=\"x y\"",
        "PANIC=\"unwind\"",
    ];
    c_plugin(alone.path(), "old.so", &old);
    let kept = old.iter().filter(|kept| !new.iter().any(|n| n.split('=').next() == kept.split('=').next()));
    let definitions: Vec<_> = kept.chain(new).copied().collect();
    c_plugin_with(alone.path(), "new.so", &definitions, linked);
    let output = alone.run(&["abi-diff", "old.so", "new.so", "--json"]);
    assert!(!ran.exists(), "a constructor ran");
    let all: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(all["compatible"], output.status.code() == Some(0));
    let change = |change: &Value| {
        let word = |key: &str| change[key].as_str().unwrap().to_string();
        assert_eq!(change["reason"].is_string(), change["breaking"] == true, "{change}");
        (word("what"), word("change"), change["breaking"].as_bool().unwrap())
    };
    (output.status.code(), all["changes"].as_array().unwrap().iter().map(change).collect())
}

/// Definitions and linked options of the new plugin, and the breaking change that they make.
type Case<'a> = (&'a [&'a str], &'a [&'a str], (&'a str, &'a str));

#[test]
fn abi_diff_tells_what_changed_and_whether_hosts_of_the_old_can_use_the_new() {
    let alone = Alone::new();
    let change = |what: &str, change: &str, breaks| (what.to_string(), change.to_string(), breaks);
    assert_eq!(diff(&alone, &[], &[]), (Some(0), vec![]));
    let more = ["VERSION=\"1.1.0\"", "FORMATS=\"x y z\"", "LICENCE=\"MIT\"", "TOOLCHAIN=\"gcc 13\""];
    let changed =
        [("version", "changed"), ("format", "added"), ("toolchain", "changed"), ("licence", "changed")];
    let expected = changed.map(|(what, how)| change(what, how, false)).to_vec();
    assert_eq!(diff(&alone, &more, &[]), (Some(0), expected));

    let of_the_first_release = format!("struct {}", crossdock::load::struct_names().nth(19).unwrap());
    let breaking: [Case; 8] = [
        (&["NAME=\"other\""], &[], ("name", "changed")),
        (&["FORMATS=\"x\""], &[], ("format", "removed")),
        (&["INTERFACES=\"crossdock.importer/1\""], &[], ("interface", "removed")),
        (&["RANGE=\"^0.2.0\""], &[], ("abi range", "changed")),
        (&[], &["-Wl,--auxiliary,libother.so"], ("needs", "added")),
        (&[], &["-Wl,-rpath,/somewhere"], ("search path", "added")),
        (&["SIZES={72,80,128,49}"], &[], ("struct crossdock_error", "changed")),
        (&["N_SIZES=19"], &[], (&of_the_first_release, "removed")),
    ];
    for (definitions, linked, (what, how)) in breaking {
        let (status, changes) = diff(&alone, definitions, linked);
        assert_eq!(status, Some(1), "{definitions:?} {linked:?}: {changes:?}");
        assert!(changes.contains(&change(what, how, true)), "{what}: {changes:?}");
    }
    // Another minor of the ABI also leaves its hosts out.
    let (status, changes) = diff(&alone, &["MINOR=2"], &[]);
    assert_eq!((status, changes), (Some(1), vec![change("abi", "changed", true)]));
    let (status, changes) = diff(&alone, &["PANIC=\"abort\"", "TOOLCHAIN=\"rustc 1.95.0\""], &[]);
    assert_eq!(status, Some(1));
    assert!(changes.contains(&change("panics", "changed", true)), "{changes:?}");
}

#[test]
fn a_library_that_every_system_has_is_no_break_and_people_read_a_table() {
    let alone = Alone::new();
    let (status, changes) = diff(&alone, &["VERSION=\"1.1.0\""], &["-Wl,--no-as-needed", "-lm"]);
    assert_eq!(status, Some(0), "{changes:?}");
    assert!(changes.contains(&("needs".to_string(), "added".to_string(), false)), "{changes:?}");
    let (status, text) = alone.status(&["abi-diff", "old.so", "new.so"]);
    assert_eq!(status, Some(0));
    assert!(
        text.contains("version") && text.contains("libm.so.6") && text.ends_with("\ncompatible\n"),
        "{text}"
    );
    let (status, text) = alone.status(&["abi-diff", "old.so", "old.so"]);
    assert_eq!((status, text.as_str()), (Some(0), "both say the same\ncompatible\n"));
    let (status, line) = alone.fails(&["abi-diff", "old.so", "crossdock"]);
    assert_eq!(status, 1);
    assert!(line.contains("not-a-plugin"), "{line}");
}
