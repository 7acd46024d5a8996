//! What the command says, and with which exit status it ends.

use std::process::Command;

use crossdock_tests::{built_file, command, crossdock};
use serde_json::Value;

use crate::bad_cases;
use crate::objects::Objects;

#[test]
fn a_failure_tells_how_to_see_it_again() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = Objects::compile(folder.path()).plugin(Some("NULL_DROPPED"));
    let (_, report) = crate::verify(&plugin, &["--device", "cpu", "--seed", "7", "--timeout", "120"]);
    let failed = report["cases"].as_array().unwrap().iter().find(|case| case["outcome"] == "failed").unwrap();
    assert_eq!(failed["name"], "importer.values");
    let replay = failed["replay"].as_str().unwrap().strip_prefix("crossdock ").unwrap();
    let replay = format!("{} {replay} --json", built_file("crossdock").display());
    let again =
        Command::new("sh").args(["-c", &replay]).env_remove("CROSSDOCK_PLUGIN_PATH").output().unwrap();
    let again: Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!(again["cases"].as_array().unwrap().len(), 1);
    for key in ["name", "device", "outcome", "place", "expected", "got"] {
        assert_eq!(again["cases"][0][key], failed[key], "{key}");
    }
}

#[test]
fn people_are_told_the_rule_and_junit_has_a_case_for_each() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = Objects::compile(folder.path()).plugin(Some("CAPSULE_NEEDS_INSTANCE"));
    let junit = folder.path().join("report.xml");
    let mut verify =
        command(&["verify", plugin.to_str().unwrap(), "--case", "lifetimes.*", "--device", "cpu"]);
    let out = verify.arg("--junit").arg(&junit).output().unwrap();
    assert_eq!(out.status.code(), Some(1));
    let stdout = String::from_utf8(out.stdout).unwrap();
    let expected = [
        "passed    lifetimes.batch on cpu\n",
        "crashed   lifetimes.capsule on cpu: ended by SIGABRT\n",
        "          rule: A capsule outlives the list that it came in, its writer, and its instance.",
        "          stderr: the instance is gone",
        "          again: crossdock verify ",
        "3 passed, 1 failed, 0 skipped, with seed 1\n",
    ];
    for part in expected {
        assert!(stdout.contains(part), "{part:?} is not in {stdout}");
    }
    let xml = std::fs::read_to_string(junit).unwrap();
    assert!(xml.contains("tests=\"4\" failures=\"0\" errors=\"1\" skipped=\"0\""), "{xml}");
    assert!(xml.contains("<testcase classname=\"lifetimes\" name=\"capsule"), "{xml}");
    assert!(xml.contains("<error type=\"crashed\" message=\"ended by SIGABRT\">crossdock verify "), "{xml}");
}

#[test]
fn a_case_alone_does_not_ask_for_its_ground() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = Objects::compile(folder.path()).plugin(Some("COLUMN_DROPPED"));
    let (_, report) = crate::verify(&plugin, &["--device", "cpu", "--case", "importer.values"]);
    assert_eq!(bad_cases(&report), [("importer.values".to_string(), "failed".to_string())]);
    // Another one's name has this one in it.
    let (_, report) = crate::verify(&plugin, &["--device", "cpu", "--case", "exporter.plan"]);
    let names: Vec<_> = report["cases"].as_array().unwrap().iter().map(|case| &case["name"]).collect();
    assert_eq!(names, ["exporter.plan"]);
}

#[test]
fn a_case_in_which_nothing_of_the_plugins_ran_is_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = Objects::compile(folder.path()).plugin(Some("DECODES_ALONE"));
    // Without a sample there is nothing to decode.
    let (out, report) = crate::verify(&plugin, &["--timeout", "120"]);
    assert_eq!((bad_cases(&report), out.status.code()), (Vec::new(), Some(0)));
    let cases = report["cases"].as_array().unwrap().iter();
    let passed = cases.filter(|case| case["outcome"] == "passed").map(|case| case["name"].as_str().unwrap());
    let asked = ["entry.", "interfaces.", "errors.", "encoding.unknown_id", "encoding.lying_nodes"];
    let others: Vec<_> = passed.filter(|name| !asked.iter().any(|asked| name.starts_with(asked))).collect();
    assert!(others.is_empty(), "{others:?}");
}

#[test]
fn cases_are_listed_with_their_rules_and_wrong_usage_is_told_from_failure() {
    let list = crossdock(&["verify", "--list"]);
    let text = String::from_utf8(list.stdout).unwrap();
    assert!(list.status.success() && text.lines().count() > 50);
    assert!(text.lines().all(|line| line.contains('.') && line.ends_with(')')), "{text}");

    let plugin = built_file("libcrossdock_arrow_c_device_plugin.so");
    let plugin = plugin.to_str().unwrap();
    for arguments in [
        &["verify"][..],
        &["verify", "no-such-file.so"],
        &["verify", plugin, "--case", "no-such-case"],
        &["verify", plugin, "--device", "abacus"],
        &["verify", plugin, "--sample", "no-such-file"],
    ] {
        assert_eq!(crossdock(arguments).status.code(), Some(2), "{arguments:?}");
    }
}
