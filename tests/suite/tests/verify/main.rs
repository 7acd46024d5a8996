//! `crossdock verify`: plugins that keep the rules pass, and of those that do not each is found by the case for its sin.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod answers;
mod bad;
mod good;
mod sins;

use std::path::Path;
use std::process::Output;

use crossdock_tests::command;
use serde_json::Value;

/// A run of all cases, as JSON.
fn verify(plugin: &Path, arguments: &[&str]) -> (Output, Value) {
    let mut command = command(&["verify", plugin.to_str().unwrap(), "--json"]);
    let out = command.args(arguments).output().unwrap();
    let value = serde_json::from_slice(&out.stdout).unwrap_or(Value::Null);
    assert!(value["cases"].is_array(), "{out:?}");
    (out, value)
}

/// The cases that neither passed nor were skipped: name, outcome.
fn bad_cases(report: &Value) -> Vec<(String, String)> {
    let text = |case: &Value, key: &str| case[key].as_str().unwrap().to_string();
    let cases = report["cases"].as_array().unwrap().iter();
    let bad = cases.filter(|case| !matches!(case["outcome"].as_str(), Some("passed" | "skipped")));
    bad.map(|case| (text(case, "name"), text(case, "outcome"))).collect()
}

/// Whether this case passed.
fn passed(report: &Value, name: &str) -> bool {
    let cases = report["cases"].as_array().unwrap();
    cases.iter().any(|case| case["name"] == name && case["outcome"] == "passed")
}
