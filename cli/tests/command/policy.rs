//! Tests policies, lock files, and the commands that inspect plugins without running them.

use std::process::Output;

use crate::command_dir::{CommandDir, json, stdout};
use crate::common::{c_plugin, c_plugin_with, lines, policy_file, set_mode};
use crossdock::load::signature_file;
use minisign::KeyPair;
use serde_json::Value;

impl CommandDir {
    /// Creates the plugins `a` and `b` in the folder `plugins`.
    fn with_plugins() -> Self {
        let dir = Self::new();
        let folder = dir.path().join("plugins");
        std::fs::create_dir(&folder).unwrap();
        dir.plugin("a", &[]);
        dir.plugin("b", &[]);
        dir
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

/// The status and the reason of each plugin.
fn verdicts(output: &Output) -> Vec<(String, String)> {
    let all = json(output);
    let word = |value: &Value| value.as_str().unwrap_or_default().to_string();
    all["plugins"].as_array().unwrap().iter().map(|p| (word(&p["status"]), word(&p["reason"]))).collect()
}

fn pair(status: &str, reason: &str) -> (String, String) {
    (status.to_string(), reason.to_string())
}

#[test]
fn policy_option_precedes_environment_variable_and_user_file() {
    let dir = CommandDir::with_plugins();
    let config = dir.path().join("config/crossdock");
    let (option, named) = (dir.path().join("option"), dir.path().join("named"));
    for (folder, allowed) in [(&config, "'a', 'b'"), (&option, ""), (&named, "'b'")] {
        std::fs::create_dir_all(folder).unwrap();
        policy_file(folder, &format!("allow = [{allowed}]"));
    }
    let args = ["plugins", "--explain", "--json", "--plugins", "plugins"];
    let refused = || pair("refused", "not-allowed");
    let chosen = || pair("chosen", "");
    assert_eq!(verdicts(&dir.run(&args)), [chosen(), chosen()]);
    let by_environment = |more: &[&str]| {
        let mut command = dir.command();
        command.env("CROSSDOCK_POLICY", named.join("crossdock.toml")).args(args).args(more);
        command.output().unwrap()
    };
    assert_eq!(verdicts(&by_environment(&[])), [refused(), chosen()]);
    let output = by_environment(&["--policy", "option/crossdock.toml"]);
    assert_eq!(verdicts(&output), [refused(), refused()]);
    assert_eq!(json(&output)["policy"], "option/crossdock.toml");
    let text = stdout(&dir.run(&["plugins", "--explain", "--plugins", "plugins"]));
    assert!(text.contains(&format!("policy: {}", config.join("crossdock.toml").display())), "{text}");
}

#[test]
fn invalid_policy_fails_every_command() {
    let dir = CommandDir::with_plugins();
    let file = policy_file(dir.path(), "alow = []\n");
    for args in [
        &["plugins", "--policy", "crossdock.toml"][..],
        &["convert", "in", "out", "--policy", "crossdock.toml"],
        &["inspect", "plugins/a.so", "--policy", "crossdock.toml"],
        &["lock", "--policy", "crossdock.toml"],
    ] {
        let (status, line) = dir.fails(args);
        assert_eq!(status, 1);
        assert!(line.contains("policy 'crossdock.toml', line 1") && line.contains("alow"), "{line}");
    }
    set_mode(&file, 0o666);
    assert!(dir.fails(&["plugins", "--policy", "crossdock.toml"]).1.contains("chmod go-w"));
    assert!(dir.fails(&["plugins", "--policy", "none.toml"]).1.contains("there is no such file"));
}

#[test]
fn warns_of_unsigned_plugins_but_not_of_disallowed_plugins_by_default() {
    let dir = CommandDir::with_plugins();
    std::fs::write(dir.path().join("in"), "x").unwrap();
    let words = |policy: &str, level: &str, more: &[&str]| {
        policy_file(dir.path(), policy);
        let args = ["convert", "in", "out", "--plugins", "plugins", "--policy", "crossdock.toml"];
        let output = dir.command().args(args).args(more).env("CROSSDOCK_LOG", level).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    let allow = "allow = ['a']";
    assert!(!words(allow, "", &[]).contains("refused"));
    assert!(words(allow, "info", &[]).contains("info: plugin 'plugins/b.so' refused (not-allowed)"));
    let selected = words(allow, "", &["--from", "b"]);
    assert!(selected.contains("error: plugin 'plugins/b.so' refused (not-allowed)"), "{selected}");
    let key = KeyPair::generate_unencrypted_keypair().unwrap().pk.to_base64();
    let unsigned = words(&format!("require_signature = true\nkeys = ['{key}']"), "", &[]);
    assert!(unsigned.contains("warning: plugin 'plugins/b.so' refused (unsigned)"), "{unsigned}");
}

#[test]
fn control_characters_in_file_names_are_replaced() {
    let dir = CommandDir::with_plugins();
    let folder = dir.path().join("plugins");
    std::fs::rename(folder.join("a.so"), folder.join("a\n  from: \x1b[2J.so")).unwrap();
    std::fs::write(folder.join("c\nb 1.0.0: it.so"), "no library").unwrap();
    let text = stdout(&dir.run(&["plugins", "--explain", "--plugins", "plugins"]));
    assert!(text.contains("a?  from: ?[2J.so") && text.contains("c?b 1.0.0: it.so"), "{text}");
    assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
}

#[test]
fn explain_shows_status_and_reason_of_each_candidate() {
    let dir = CommandDir::with_plugins();
    c_plugin(&dir.path().join("plugins"), "second.so", &["NAME=\"a\""]);
    policy_file(dir.path(), "allow = ['a']");
    let args = ["plugins", "--explain", "--plugins", "plugins", "--policy", "crossdock.toml"];
    let output = dir.run(&[&args[..], &["--json"]].concat());
    let expected = [pair("chosen", ""), pair("refused", "not-allowed"), pair("shadowed", "shadowed")];
    assert_eq!(verdicts(&output), expected);
    let text = stdout(&dir.run(&args));
    assert!(text.contains("refused (not-allowed): the policy's `allow` does not name 'b'"), "{text}");
    assert!(text.contains("shadowed (shadowed): another plugin is called 'a' too"), "{text}");
    assert!(text.contains("policy: crossdock.toml"), "{text}");
}

#[test]
fn inspect_shows_requirements_hash_and_signature_without_running_code() {
    let dir = CommandDir::new();
    let ran = dir.path().join("ran");
    let define = format!("RAN=\"{}\"", ran.display());
    let plugin = c_plugin_with(dir.path(), "a.so", &[&define], &["-Wl,--auxiliary,libother.so"]);
    let keys = KeyPair::generate_unencrypted_keypair().unwrap();
    let inspect = || json(&dir.run(&["inspect", "--json", "a.so", "--policy", "crossdock.toml"]));
    policy_file(dir.path(), "");
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
    policy_file(dir.path(), &format!("require_signature = true\nkeys = ['{key}']"));
    assert_eq!(inspect()["signature"], serde_json::json!({ "state": "valid", "key": key }));
    let text = stdout(&dir.run(&["inspect", "a.so", "--policy", "crossdock.toml"]));
    for words in ["libother.so", &format!("by {key}"), "no (needed-library)", "2.", "or newer"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    std::fs::write(signature_file(&plugin), "a scribble").unwrap();
    assert_eq!(inspect()["signature"]["state"], "bad");
    assert_eq!(lines(&ran), [""; 0], "the plugin ran");
}

#[test]
fn lock_file_is_enforced_by_policy_and_compared_by_check_option() {
    let dir = CommandDir::with_plugins();
    let args = ["lock", "--plugins", "plugins"];
    let written = stdout(&dir.run(&args));
    assert!(written.contains("'crossdock.lock'") && written.contains("a.so"), "{written}");
    let first = std::fs::read_to_string(dir.path().join("crossdock.lock")).unwrap();
    assert!(first.starts_with("# Written by `crossdock lock`"), "{first}");
    stdout(&dir.run(&args));
    let again = std::fs::read_to_string(dir.path().join("crossdock.lock")).unwrap();
    assert_eq!(again, first, "the same plugins make the same lock");
    let check = [&args[..], &["--check"]].concat();
    assert!(stdout(&dir.run(&check)).contains("is up to date"));

    policy_file(dir.path(), "lock = 'crossdock.lock'");
    let policy = ["--policy", "crossdock.toml"];
    let plugins = [&["plugins", "--json", "--explain", "--plugins", "plugins"][..], &policy].concat();
    assert_eq!(verdicts(&dir.run(&plugins)), [pair("chosen", ""), pair("chosen", "")]);
    dir.plugin("a", &["VERSION=\"1.0.1\""]);
    std::fs::remove_file(dir.path().join("plugins/b.so")).unwrap();
    dir.plugin("c", &[]);
    let refused = [pair("refused", "lock-hash"), pair("refused", "not-locked")];
    assert_eq!(verdicts(&dir.run(&plugins)), refused);
    let (status, text) = dir.status(&[&check[..], &policy].concat());
    assert_eq!(status, Some(1));
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert!(
        lines[0].starts_with("a: locked 1.0.0 sha256:") && lines[0].contains("found 1.0.1 sha256:"),
        "{text}"
    );
    assert_eq!(lines[1], "b: locked, but not found");
    assert!(lines[2].starts_with("c: not locked, found 1.0.0 sha256:"), "{text}");
    assert_eq!(
        std::fs::read_to_string(dir.path().join("crossdock.lock")).unwrap(),
        first,
        "--check changed the lock"
    );

    stdout(&dir.run(&[&args[..], &policy].concat()));
    assert_eq!(verdicts(&dir.run(&plugins)), [pair("chosen", ""), pair("chosen", "")]);
}

#[test]
fn unwritable_or_missing_lock_is_an_error() {
    let dir = CommandDir::with_plugins();
    let (status, line) = dir.fails(&["lock", "--plugins", "plugins", "--output", "nowhere/x.lock"]);
    assert_eq!(status, 1);
    assert!(line.contains("nowhere/x.lock"), "{line}");
    let (status, line) = dir.fails(&["lock", "--plugins", "plugins", "--check"]);
    assert_eq!(status, 1);
    assert!(line.contains("crossdock.lock") && line.contains("there is no such file"), "{line}");
}

#[test]
fn lock_is_not_group_writable_with_any_umask() {
    use std::os::unix::fs::PermissionsExt;
    let dir = CommandDir::with_plugins();
    let script = "umask 0002; exec ./crossdock lock --plugins plugins";
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", script]).current_dir(dir.path()).env("XDG_CONFIG_HOME", dir.path());
    assert!(shell.env_remove("CROSSDOCK_POLICY").output().unwrap().status.success());
    let mode = std::fs::metadata(dir.path().join("crossdock.lock")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o644);
}

/// The exit status, and for each change the changed item, the kind of change, and whether the
/// change is breaking.
fn diff(dir: &CommandDir, new: &[&str], linked: &[&str]) -> (Option<i32>, Vec<(String, String, bool)>) {
    // With the definition RAN, the plugin uses the C library, as most plugins do, and its
    // constructor creates the file `ran`.
    let ran = dir.path().join("ran");
    let ran_definition = format!("RAN=\"{}\"", ran.display());
    let old = [
        ran_definition.as_str(),
        "INTERFACES=\"crossdock.importer/1 crossdock.exporter/1\"",
        "FORMATS=\"x y\"",
        "PANIC=\"unwind\"",
    ];
    c_plugin(dir.path(), "old.so", &old);
    let unchanged = old
        .iter()
        .filter(|definition| !new.iter().any(|n| n.split('=').next() == definition.split('=').next()));
    let definitions: Vec<_> = unchanged.chain(new).copied().collect();
    c_plugin_with(dir.path(), "new.so", &definitions, linked);
    let output = dir.run(&["abi-diff", "old.so", "new.so", "--json"]);
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

/// Definitions and linker options of the new plugin, and the breaking change that they cause.
type Case<'a> = (&'a [&'a str], &'a [&'a str], (&'a str, &'a str));

#[test]
fn abi_diff_shows_changes_and_whether_they_break_hosts() {
    let dir = CommandDir::new();
    let change = |what: &str, change: &str, breaks| (what.to_string(), change.to_string(), breaks);
    assert_eq!(diff(&dir, &[], &[]), (Some(0), vec![]));
    let more = ["VERSION=\"1.1.0\"", "FORMATS=\"x y z\"", "LICENCE=\"MIT\"", "TOOLCHAIN=\"gcc 13\""];
    let changed =
        [("version", "changed"), ("format", "added"), ("toolchain", "changed"), ("licence", "changed")];
    let expected = changed.map(|(what, how)| change(what, how, false)).to_vec();
    assert_eq!(diff(&dir, &more, &[]), (Some(0), expected));

    let of_the_first_release = format!("struct {}", crossdock::load::struct_names().nth(19).unwrap());
    let breaking: [Case; 8] = [
        (&["NAME=\"other\""], &[], ("name", "changed")),
        (&["FORMATS=\"x\""], &[], ("format", "removed")),
        (&["INTERFACES=\"crossdock.importer/1\""], &[], ("interface", "removed")),
        (&["RANGE=\"^0.1.0\""], &[], ("abi range", "changed")),
        (&[], &["-Wl,--auxiliary,libother.so"], ("needs", "added")),
        (&[], &["-Wl,-rpath,/somewhere"], ("search path", "added")),
        (&["SIZES={72,80,128,49}"], &[], ("struct crossdock_error", "changed")),
        (&["N_SIZES=19"], &[], (&of_the_first_release, "removed")),
    ];
    for (definitions, linked, (what, how)) in breaking {
        let (status, changes) = diff(&dir, definitions, linked);
        assert_eq!(status, Some(1), "{definitions:?} {linked:?}: {changes:?}");
        assert!(changes.contains(&change(what, how, true)), "{what}: {changes:?}");
    }
    // A change of the ABI's minor version is also breaking, because some hosts can no longer load
    // the plugin.
    let (status, changes) = diff(&dir, &["MINOR=9"], &[]);
    assert_eq!((status, changes), (Some(1), vec![change("abi", "changed", true)]));
    let (status, changes) = diff(&dir, &["PANIC=\"abort\"", "TOOLCHAIN=\"rustc 1.95.0\""], &[]);
    assert_eq!(status, Some(1));
    assert!(changes.contains(&change("panics", "changed", true)), "{changes:?}");
}

#[test]
fn additional_system_library_is_not_a_breaking_change() {
    let dir = CommandDir::new();
    let (status, changes) = diff(&dir, &["VERSION=\"1.1.0\""], &["-Wl,--no-as-needed", "-lm"]);
    assert_eq!(status, Some(0), "{changes:?}");
    assert!(changes.contains(&("needs".to_string(), "added".to_string(), false)), "{changes:?}");
    let (status, text) = dir.status(&["abi-diff", "old.so", "new.so"]);
    assert_eq!(status, Some(0));
    assert!(
        text.contains("version") && text.contains("libm.so.6") && text.ends_with("\ncompatible\n"),
        "{text}"
    );
    let (status, text) = dir.status(&["abi-diff", "old.so", "old.so"]);
    assert_eq!((status, text.as_str()), (Some(0), "no changes\ncompatible\n"));
    let (status, line) = dir.fails(&["abi-diff", "old.so", "crossdock"]);
    assert_eq!(status, 1);
    assert!(line.contains("not-a-plugin"), "{line}");
}
