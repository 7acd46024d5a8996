//! Tests `crossdock-host.hpp`. The program in `cpp/` calls all of its functions.

use std::path::Path;
use std::process::Command;

use crate::support::{cxx_with, library_folder, plugin_folder, run, sample, skipped, under_valgrind};

/// Builds the program in `folder`, and returns its command. If no C++ compiler is installed,
/// reports a skipped test and returns `None`.
fn built_program(test: &str, folder: &Path) -> Option<Command> {
    let Some(mut cxx) = cxx_with("-std=c++20") else {
        skipped(test, "no C++ compiler (CXX, c++)");
        return None;
    };
    let program = folder.join("program");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cpp/main.cpp");
    let lib = library_folder(folder);
    cxx.arg(source).arg("-o").arg(&program).arg(lib.join(crate::support::soname()));
    run(cxx.arg(format!("-Wl,-rpath,{}", lib.display())));
    let command = match under_valgrind(test, &program) {
        Some(command) => command,
        None => Command::new(program),
    };
    Some(command)
}

#[test]
fn cpp_header_wraps_every_function() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut command) = built_program("cpp_header_wraps_every_function", folder.path()) else { return };
    let (plugins, outputs) = (plugin_folder(folder.path()), folder.path().join("outputs"));
    std::fs::create_dir(&outputs).unwrap();
    command.env_remove("CROSSDOCK_PLUGIN_PATH").env_remove("CROSSDOCK_POLICY");
    assert_eq!(run(command.arg(sample()).arg(plugins).arg(outputs)), "passed\n");
}

/// Every function of `crossdock-host.h` has a caller in `crossdock-host.hpp`, except those that
/// only C programs need.
#[test]
fn cpp_header_calls_every_function_of_the_c_header() {
    let c = include_str!("../../include/crossdock-host.h");
    let cpp = include_str!("../../include/crossdock-host.hpp");
    let declarations = c.lines().filter(|line| {
        !line.starts_with([' ', '#', '}', '/', '*']) && !line.starts_with("typedef") && line.contains('(')
    });
    let names = declarations.filter_map(|line| line.split('(').next()?.rsplit([' ', '*']).next());
    let names: Vec<&str> = names.filter(|name| name.starts_with("crossdock_")).collect();
    assert!(names.len() > 15, "the header was not parsed: {names:?}");
    let for_c =
        ["crossdock_error_clear", "crossdock_text", "crossdock_check_version", "crossdock_handle_sigbus"];
    for name in names.iter().filter(|name| !for_c.contains(name)) {
        assert!(cpp.contains(name), "crossdock-host.hpp does not call {name}");
    }
}
