//! Tests `crossdock doctor`.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::command_dir::CommandDir;
use crate::common::c_plugin;

/// Runs the command. Returns its exit status and its checks: subject, status, found, advice.
fn doctor(dir: &CommandDir, args: &[&str]) -> (i32, Vec<[String; 4]>) {
    let output = dir.run(&[&["doctor", "--json"], args].concat());
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let checks = report["checks"].as_array().unwrap().iter();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let checks: Vec<_> =
        checks.map(|check| ["subject", "status", "found", "advice"].map(|key| text(&check[key]))).collect();
    let problems = checks.iter().filter(|[_, status, ..]| status == "problem").count();
    assert_eq!(report["problems"], problems, "{report}");
    (output.status.code().unwrap(), checks)
}

/// Asserts that a check has this status, and that what it found and its advice contain the words.
#[track_caller]
fn assert_has(checks: &[[String; 4]], subject: &str, status: &str, found: &str, advice: &str) {
    let matches = |check: &[String; 4]| {
        check[0] == subject && check[1] == status && check[2].contains(found) && check[3].contains(advice)
    };
    assert!(
        checks.iter().any(matches),
        "no {status} of {subject} with '{found}' and '{advice}': {checks:#?}"
    );
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn doctor_reports_a_command_without_plugins_as_a_problem() {
    let dir = CommandDir::new();
    let (code, checks) = doctor(&dir, &[]);
    assert_eq!(code, 1);
    assert_has(&checks, "plugins", "problem", "no plugin can be loaded", "../lib/crossdock/plugins");
    assert_has(&checks, "version", "ok", env!("CARGO_PKG_VERSION"), "");
    assert_has(&checks, "policy", "ok", "no policy file", "");
    let text = String::from_utf8(dir.run(&["doctor"]).stdout).unwrap();
    assert!(text.ends_with("1 problem\n") && text.contains(" -> install the plugins"), "{text}");
}

#[test]
fn doctor_succeeds_with_a_plugin_and_says_what_to_do_about_others() {
    let dir = CommandDir::new();
    let good = c_plugin(dir.path(), "good.so", &[]).display().to_string();
    let (code, checks) = doctor(&dir, &["--plugins", &good]);
    assert_eq!(code, 0, "{checks:#?}");
    assert_has(&checks, "plugins", "ok", "1 loaded: c-nothing", "");
    assert_has(&checks, "isolation", "ok", "separate processes", "");

    let writable = dir.path().join("writable.so");
    std::fs::copy(&good, &writable).unwrap();
    set_mode(&writable, 0o666);
    let writable = writable.display().to_string();
    let (code, checks) = doctor(&dir, &["--plugins", &good, "--plugins", &writable]);
    assert_eq!(code, 1);
    assert_has(&checks, "plugins", "problem", "writable.so is not used (writable)", "chmod go-w");

    let unresolved = c_plugin(dir.path(), "unresolved.so", &["UNRESOLVED"]).display().to_string();
    let (code, checks) = doctor(&dir, &["--plugins", &unresolved]);
    assert_eq!(code, 1);
    assert_has(&checks, "plugins", "problem", "unresolved.so is not used (dlopen)", "crossdock verify");

    let same = dir.path().join("same.so");
    std::fs::copy(&good, &same).unwrap();
    set_mode(&same, 0o644);
    let (code, checks) = doctor(&dir, &["--plugins", &good, "--plugins", &same.display().to_string()]);
    assert_eq!(code, 0);
    assert_has(&checks, "plugins", "note", "same.so is not used (shadowed)", "remove one of the two files");
}

#[test]
fn doctor_names_a_policy_that_is_invalid_and_the_policy_in_use() {
    let dir = CommandDir::new();
    let good = c_plugin(dir.path(), "good.so", &[]).display().to_string();
    let policy = dir.path().join("policy.toml");
    std::fs::write(&policy, "allow = []").unwrap();
    set_mode(&policy, 0o644);
    let arguments = ["--plugins", &good, "--policy", "policy.toml"];
    let (code, checks) = doctor(&dir, &arguments);
    assert_eq!(code, 1);
    assert_has(&checks, "policy", "ok", "policy.toml decides", "");
    assert_has(&checks, "plugins", "note", "(not-allowed)", "change the policy");
    std::fs::write(&policy, "allow = 5").unwrap();
    let (code, checks) = doctor(&dir, &arguments);
    assert_eq!(code, 1);
    assert_has(&checks, "policy", "problem", "policy.toml", "correct the file");
}

#[test]
fn command_finds_plugins_in_the_library_folder_of_its_prefix() {
    let dir = CommandDir::new();
    for (folder, file) in [("lib/crossdock/plugins", "one.so"), ("lib/crossdock", "two.so")] {
        let prefix = dir.path().join(file);
        std::fs::create_dir_all(prefix.join("bin")).unwrap();
        std::fs::create_dir_all(prefix.join(folder)).unwrap();
        std::fs::hard_link(dir.path().join("crossdock"), prefix.join("bin/crossdock")).unwrap();
        c_plugin(&prefix.join(folder), file, &[]);
        let mut command = std::process::Command::new(prefix.join("bin/crossdock"));
        command
            .args(["plugins", "--explain"])
            .env_remove("CROSSDOCK_PLUGIN_PATH")
            .env_remove("CROSSDOCK_POLICY");
        command.env("XDG_CONFIG_HOME", &prefix);
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("c-nothing") && text.contains("found: installed"), "{text}");
    }
}
