//! `crossdock verify`: plugins that keep the rules pass, and of those that do not each is found by the case for its sin.
//!
//! A program of its own because it takes long and gains nothing from being repeated on every simulated machine.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod answers;
mod bad;
mod good;
mod objects;
mod sins;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crossdock_memory_backend::Backend;
use crossdock_tests::{command, simulated_driver};
use serde_json::Value;

/// Where a CUDA device comes from.
enum Driver {
    /// The machine has one, real or simulated.
    Own,
    Simulated(PathBuf),
    None,
}

fn driver() -> &'static Driver {
    static DRIVER: OnceLock<Driver> = OnceLock::new();
    DRIVER.get_or_init(|| match Backend::builder().build().cuda() {
        Ok(_) => Driver::Own,
        Err(_) => simulated_driver().map_or(Driver::None, Driver::Simulated),
    })
}

/// Whether there is a device `cuda:0`, which is said where there is none.
fn has_cuda(test: &str) -> bool {
    if let Driver::None = driver() {
        let _ = writeln!(
            std::io::stderr(),
            "skipped: {test}: neither a CUDA driver nor the simulated one is there"
        );
        return false;
    }
    true
}

/// For runs on a device: one case looks at all that the device has given away, which others have too where it is a real one.
fn turn(arguments: &[&str]) -> Option<MutexGuard<'static, ()>> {
    static TURN: Mutex<()> = Mutex::new(());
    let on_device = arguments.contains(&"cuda:0") || !arguments.contains(&"--device");
    (on_device && matches!(driver(), Driver::Own))
        .then(|| TURN.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A run of all cases, as JSON: with one seed where none is asked for.
fn verify(plugin: &Path, arguments: &[&str]) -> (Output, Value) {
    let _turn = turn(arguments);
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

/// The cases that neither passed nor were skipped: name, outcome.
fn bad_cases(report: &Value) -> Vec<(String, String)> {
    let text = |case: &Value, key: &str| case[key].as_str().unwrap().to_string();
    let cases = report["cases"].as_array().unwrap().iter();
    let bad = cases.filter(|case| !matches!(case["outcome"].as_str(), Some("passed" | "skipped")));
    bad.map(|case| (text(case, "name"), text(case, "outcome"))).collect()
}

/// Whether this case passed, wherever.
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
