//! Tests `crossdock verify`. Correct plugins must pass, and the case for a rule must find each
//! injected bug that breaks this rule.
//!
//! These tests are a separate program because they take long and need not be repeated on each
//! simulated machine.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bugs;
mod filters;
mod injected_bugs;
mod objects;
mod reports;
mod shipped_plugins;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crossdock_memory_backend::Backend;
use crossdock_tests::{command, simulated_driver};
use serde_json::Value;

/// The CUDA driver for the tests.
enum Driver {
    /// The driver that is installed on the machine or in `LD_LIBRARY_PATH`, real or simulated.
    Installed,
    Simulated(PathBuf),
    None,
}

fn driver() -> &'static Driver {
    static DRIVER: OnceLock<Driver> = OnceLock::new();
    DRIVER.get_or_init(|| match Backend::builder().build().cuda() {
        Ok(_) => Driver::Installed,
        Err(_) => simulated_driver().map_or(Driver::None, Driver::Simulated),
    })
}

/// Whether there is a device `cuda:0`. If there is none, reports that `test` is skipped.
fn has_cuda(test: &str) -> bool {
    if let Driver::None = driver() {
        let _ = writeln!(
            std::io::stderr(),
            "skipped: {test}: there is neither a CUDA driver nor the simulated one"
        );
        return false;
    }
    true
}

/// Serialises runs on an installed device, because one case measures the memory of the whole
/// device.
fn lock_device(arguments: &[&str]) -> Option<MutexGuard<'static, ()>> {
    static DEVICE: Mutex<()> = Mutex::new(());
    let on_device = arguments.contains(&"cuda:0") || !arguments.contains(&"--device");
    (on_device && matches!(driver(), Driver::Installed))
        .then(|| DEVICE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Runs `crossdock verify --json`. Uses one seed if the arguments do not select seeds.
fn verify(plugin: &Path, arguments: &[&str]) -> (Output, Value) {
    let _device = lock_device(arguments);
    let mut command = command(&["verify", plugin.to_str().unwrap(), "--json"]);
    if let Driver::Simulated(folder) = driver() {
        command.env("LD_LIBRARY_PATH", folder);
    }
    if !arguments.iter().any(|argument| argument.starts_with("--seed")) {
        command.args(["--seeds", "1"]);
    }
    let out = command.args(arguments).output().unwrap();
    let value = serde_json::from_slice(&out.stdout).unwrap_or(Value::Null);
    assert!(value["cases"].is_array(), "{out:?}");
    (out, value)
}

/// The names and outcomes of the cases that neither passed nor were skipped.
fn bad_cases(report: &Value) -> Vec<(String, String)> {
    let text = |case: &Value, key: &str| case[key].as_str().unwrap().to_string();
    let cases = report["cases"].as_array().unwrap().iter();
    let bad = cases.filter(|case| !matches!(case["outcome"].as_str(), Some("passed" | "skipped")));
    bad.map(|case| (text(case, "name"), text(case, "outcome"))).collect()
}

/// Whether this case passed on any device.
fn passed(report: &Value, name: &str) -> bool {
    let cases = report["cases"].as_array().unwrap();
    cases.iter().any(|case| case["name"] == name && case["outcome"] == "passed")
}

/// The cases that passed on this device.
fn passed_on<'a>(report: &'a Value, device: &str) -> Vec<&'a str> {
    let cases = report["cases"].as_array().unwrap().iter();
    let passed = cases.filter(|case| case["outcome"] == "passed" && case["device"] == device);
    passed.map(|case| case["name"].as_str().unwrap()).collect()
}
