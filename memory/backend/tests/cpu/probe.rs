//! Tests the search for a CUDA driver with a stand-in driver. Each case runs in its own process,
//! because a process loads a driver only once.

use std::path::{Path, PathBuf};
use std::process::Command;

use crossdock_memory_backend::cuda::probe;

/// The environment variable that is set only in the child process.
const CHILD: &str = "CROSSDOCK_TEST_PROBE";

/// Runs in the child process, and does nothing in a process without the variable.
#[test]
fn child_process_prints_probe_result() {
    if std::env::var_os(CHILD).is_some() {
        match probe() {
            Ok(presence) => println!("found {presence:?}"),
            Err(missing) => println!("missing {missing}"),
        }
    }
}

/// Builds the stand-in as `libcuda.so` in a folder of its own.
fn stand_in(name: &str, flags: &[&str]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).unwrap();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stand_in_driver.c");
    let mut cc = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    cc.args(["-shared", "-fPIC", "-Wl,-soname,libcuda.so", "-o"])
        .arg(folder.join("libcuda.so"))
        .arg(source)
        .args(flags);
    assert!(cc.status().unwrap().success(), "the C compiler did not build the stand-in driver");
    folder
}

fn probe_with(folder: &Path, variables: &[(&str, &str)]) -> String {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child
        .args(["--exact", "probe::child_process_prints_probe_result", "--nocapture"])
        .env(CHILD, "1")
        .env("LD_LIBRARY_PATH", folder);
    let output = child.envs(variables.iter().copied()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let start = text.find("found ").or_else(|| text.find("missing ")).unwrap();
    text[start..].lines().next().unwrap().to_string()
}

#[test]
fn describes_a_working_driver() {
    let output = probe_with(&stand_in("works", &[]), &[("STAND_IN_DEVICES", "2")]);
    assert!(output.starts_with("found CudaPresence { driver_version: (13, 0)"), "{output}");
    for (id, memory_bytes, capability) in [(0, 1u64 << 30, "(9, 0)"), (1, 2 << 30, "(9, 1)")] {
        let device = format!("device: Device {{ id: {id}, type: 2, reserved: 0 }}");
        let expected = format!(
            "{device}, name: \"Stand-in\", memory_bytes: {memory_bytes}, compute_capability: {capability}, memory_pools: true }}"
        );
        assert!(output.contains(&expected), "expected {expected}, got {output}");
    }
}

#[test]
fn reports_any_error_code_of_the_driver() {
    let folder = stand_in("refuses", &[]);
    for (code, words) in [
        ("803", "returned 803 from cuInit: library and kernel module differ"),
        ("34", "returned 34 from cuInit: it is a stub library"),
        ("123456", "returned 123456 from cuInit: look the code up"),
        ("-1", "returned -1 from cuInit"),
    ] {
        let missing = probe_with(&folder, &[("STAND_IN_INIT", code)]);
        assert!(missing.starts_with("missing ") && missing.contains(words), "{missing}");
    }
}

#[test]
fn reports_a_driver_without_devices() {
    let missing = probe_with(&stand_in("empty", &[]), &[("STAND_IN_DEVICES", "0")]);
    assert!(missing.contains("has no device; check nvidia-smi and CUDA_VISIBLE_DEVICES"), "{missing}");
}

#[test]
fn reports_a_driver_that_lacks_a_function() {
    let missing = probe_with(&stand_in("old", &["-DWITHOUT_MEMORY"]), &[]);
    assert!(missing.contains("lacks 'cuDeviceTotalMem_v2'; install a newer NVIDIA driver"), "{missing}");
}

#[test]
fn ignores_a_file_that_is_not_a_library() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("junk");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("libcuda.so"), "not a library").unwrap();
    let output = probe_with(&folder, &[]);
    // On a machine with a real driver, the loader continues its search and finds the real driver.
    assert!(output.starts_with("found ") || output.contains("libcuda.so was not found"), "{output}");
}
