//! Tests the reports and the exit status of `crossdock verify`.

use std::process::Command;

use crossdock_tests::{CASE_TIMEOUT_S, built_file, command, crossdock};
use serde_json::Value;

use crate::bad_cases;
use crate::objects::Objects;

#[test]
fn reported_command_replays_the_failure() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = Objects::compile(folder.path()).plugin(Some("NULL_DROPPED"));
    let (_, report) =
        crate::verify(&plugin, &["--device", "cpu", "--seed", "7", "--timeout", CASE_TIMEOUT_S]);
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
fn text_report_has_the_rule_of_a_failure_and_junit_report_has_each_case() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = Objects::compile(folder.path()).plugin(Some("CAPSULE_NEEDS_INSTANCE"));
    let junit = folder.path().join("report.xml");
    let mut verify = command(&[
        "verify",
        plugin.to_str().unwrap(),
        "--case",
        "lifetimes.*",
        "--device",
        "cpu",
        "--seed",
        "1",
    ]);
    let out = verify.arg("--junit").arg(&junit).output().unwrap();
    assert_eq!(out.status.code(), Some(1));
    let stdout = String::from_utf8(out.stdout).unwrap();
    let expected = [
        "passed    lifetimes.batch on cpu\n",
        "crashed   lifetimes.capsule on cpu: ended by SIGABRT\n",
        "          rule: A capsule outlives its list, its writer, and its instance.",
        "          stderr: the instance is destroyed",
        "          replay: crossdock verify ",
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
fn later_seed_finds_a_bug_that_the_first_seed_misses() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = Objects::compile(folder.path()).plugin(Some("RARE_VALUE_CHANGED"));
    let case = ["--device", "cpu", "--case", "importer.values"];
    let with = |arguments: &[&str]| crate::verify(&plugin, &[&case, arguments].concat());
    // The tables of `crossdock verify` are the same on every machine. If they change, the rare
    // value in rows_batch.c (`RARE`) must also change.
    let (out, report) = with(&["--seed", "1"]);
    assert_eq!((out.status.code(), &report["seeds"]), (Some(0), &serde_json::json!([1])), "{report}");
    let (out, report) = with(&["--seeds", "8"]);
    assert_eq!(out.status.code(), Some(1));
    let cases = report["cases"].as_array().unwrap();
    assert_eq!((cases.len(), &report["failed"], &report["passed"]), (1, &Value::from(1), &Value::from(0)));
    let seed = cases[0]["seed"].as_u64().unwrap();
    assert!(seed > 1, "{report}");
    // A case that failed is reported once, and does not run again.
    assert_eq!(report["seeds"], serde_json::json!((1..=seed).collect::<Vec<_>>()));
    let replay = cases[0]["replay"].as_str().unwrap();
    assert!(replay.contains(&format!("--seed {seed} ")), "{replay}");
    let (_, again) = with(&["--seed", &seed.to_string()]);
    assert_eq!(again["cases"][0]["got"], cases[0]["got"]);
}

#[test]
fn plugin_parts_that_no_case_ran_are_reported_and_fail_a_strict_run() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = Objects::compile(folder.path()).plugin(Some("DECODES_ALONE"));
    let junit = folder.path().join("report.xml");
    let plugin = plugin.to_str().unwrap();
    let run = |arguments: &[&str]| {
        let basic = ["verify", plugin, "--device", "cpu", "--seeds", "1", "--timeout", CASE_TIMEOUT_S];
        let out = command(&[&basic, arguments].concat()).arg("--junit").arg(&junit).output().unwrap();
        let xml = std::fs::read_to_string(&junit).unwrap();
        (out.status.code(), String::from_utf8(out.stdout).unwrap(), xml)
    };
    let not_exercised = "not exercised: decode 'base.reference': needs an encoded array with such a node: --sample FILE.cdenc";
    let in_xml = |outcome: &str| {
        format!("<testcase classname=\"exercised\" name=\"decode &#39;base.reference&#39;\"><{outcome} message=\"not exercised")
            .replace("&#39;", "'")
    };
    let (code, text, xml) = run(&[]);
    assert!(code == Some(0) && text.contains(not_exercised) && text.contains(" without a sample"), "{text}");
    assert!(xml.contains(&in_xml("skipped")), "{xml}");
    let (code, text, xml) = run(&["--strict"]);
    assert!(code == Some(1) && text.contains(not_exercised), "{text}");
    assert!(xml.contains(&in_xml("failure")) && xml.contains("failures=\"1\""), "{xml}");
    let (_, text, _) = run(&["--json"]);
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["not_exercised"].as_array().unwrap().len(), 1);
    assert_eq!(report["not_exercised"][0]["part"], "decode 'base.reference'");
    let by_lack = report["skipped_by_lack"].as_object().unwrap().values();
    assert_eq!(by_lack.map(|n| n.as_u64().unwrap()).sum::<u64>(), report["skipped"].as_u64().unwrap());

    let samples = crate::bugs::samples(folder.path());
    let samples: Vec<_> = samples.iter().map(String::as_str).collect();
    let (code, text, xml) = run(&[&["--strict"], &samples[..]].concat());
    assert!(code == Some(0) && !text.contains("not exercised"), "{text}");
    assert!(!xml.contains("exercised"), "{xml}");
}

#[test]
fn single_case_runs_without_its_dependencies() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = Objects::compile(folder.path()).plugin(Some("COLUMN_DROPPED"));
    let (_, report) = crate::verify(&plugin, &["--device", "cpu", "--case", "importer.values"]);
    assert_eq!(bad_cases(&report), [("importer.values".to_string(), "failed".to_string())]);
    // The name of this case is a part of the name of another case, which must not run.
    let (_, report) = crate::verify(&plugin, &["--device", "cpu", "--case", "exporter.plan"]);
    let names: Vec<_> = report["cases"].as_array().unwrap().iter().map(|case| &case["name"]).collect();
    assert_eq!(names, ["exporter.plan"]);
}

#[test]
fn case_without_input_is_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = Objects::compile(folder.path()).plugin(Some("DECODES_ALONE"));
    // Without a sample, `verify` has no array to decode, so it skips the case.
    let (out, report) = crate::verify(&plugin, &["--timeout", CASE_TIMEOUT_S]);
    assert_eq!((bad_cases(&report), out.status.code()), (Vec::new(), Some(0)));
    let cases = report["cases"].as_array().unwrap().iter();
    let passed = cases.filter(|case| case["outcome"] == "passed").map(|case| case["name"].as_str().unwrap());
    let without_data =
        ["entry.", "interfaces.", "errors.", "encoding.unknown_id", "encoding.malformed_nodes"];
    let is_without_data = |name: &&str| without_data.iter().any(|prefix| name.starts_with(prefix));
    let others: Vec<_> = passed.filter(|name| !is_without_data(name)).collect();
    assert!(others.is_empty(), "{others:?}");
}

#[test]
fn lists_cases_with_rules_and_accepts_former_names() {
    let list = crossdock(&["verify", "--list"]);
    let text = String::from_utf8(list.stdout).unwrap();
    assert!(list.status.success() && text.lines().count() > 50);
    assert!(text.lines().all(|line| line.contains('.') && line.ends_with(')')), "{text}");

    let list = crossdock(&["verify", "--list", "--case", "exporter.kept"]);
    let text = String::from_utf8(list.stdout).unwrap();
    assert!(text.starts_with("exporter.input_lifetime ") && text.lines().count() == 1, "{text}");
}

#[test]
fn wrong_usage_exits_with_status_2() {
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
