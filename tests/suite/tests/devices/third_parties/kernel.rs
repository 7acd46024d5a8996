//! Compiles the CUDA source of `examples/rust-plugin` as C++, and runs it without a GPU.

use std::io::Write;
use std::path::Path;
use std::process::Command;

#[test]
fn kernel_matches_its_cpu_implementation_and_stays_within_its_ranges() {
    let test = "kernel_matches_its_cpu_implementation_and_stays_within_its_ranges";
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("xor_kernel");
    let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
    let mut compile = Command::new(&compiler);
    compile.args(["-std=c++17", "-O1", "-g", "-w", "-o"]).arg(&program).arg(here.join("c/xor_kernel.cpp"));
    compile.args(["-fsanitize=alignment,bounds", "-fno-sanitize-recover=all"]);
    compile.arg("-I").arg(here.join("../../examples/rust-plugin/cuda"));
    compile.arg("-I").arg(here.join("../../kernels/cuda"));
    let why = match compile.output() {
        Ok(out) if out.status.success() => None,
        Ok(_) if !here.exists() => Some("the CUDA source is missing".to_string()),
        Ok(out) => panic!("{}", String::from_utf8_lossy(&out.stderr)),
        Err(error) => Some(format!("no C++ compiler: {}: {error}", compiler.display())),
    };
    if let Some(why) = why {
        let _ = writeln!(std::io::stderr(), "skipped: {test}: {why}");
        return;
    }
    let out = Command::new(&program).output().unwrap();
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{stderr}");
    assert!(out.stdout.ends_with(b" cases\n") && stderr.is_empty(), "{stderr}");
}
