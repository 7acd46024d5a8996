//! Tests `CROSSDOCK_GUARD` and `CROSSDOCK_GUARD_OR`, the FFI door for plugins in C++.

use std::io::Write;

use crate::layout::compiler::Language;

/// A program whose functions throw an object, throw a number, return an error or succeed. It prints
/// the results of the functions.
const PROGRAM: &str = r#"
#include <crossdock.h>
#include <cstdio>
#include <stdexcept>

static int released = 0;
struct Local { ~Local() { released++; } };

static crossdock_code f(int how, crossdock_error* err) noexcept {
  CROSSDOCK_GUARD(err, {
    Local local;
    if (how == 1) throw std::runtime_error("lost, but caught");
    if (how == 2) throw 42;
    if (how == 3) { err->code = CROSSDOCK_IO; return CROSSDOCK_IO; }
    return CROSSDOCK_OK;
  })
}

static void without_result(bool fails) noexcept { CROSSDOCK_GUARD_OR(, { Local local; if (fails) throw 42; }) }

static const void* with_result(bool fails) noexcept {
  CROSSDOCK_GUARD_OR(nullptr, { if (fails) throw 42; return &released; })
}

int main() {
  for (int how = 0; how < 4; how++) {
    crossdock_error err = {};
    err.struct_size = sizeof err;
    crossdock_code code = f(how, &err);
    std::printf("%d %d %s %d\n", code, err.code, err.message ? err.message : "-", err.release != nullptr);
  }
  crossdock_code code = f(1, nullptr);
  without_result(false);
  without_result(true);
  std::printf("%d, %d unwound, %d %d\n", code, released, with_result(false) == &released, with_result(true) == nullptr);
}
"#;

#[test]
fn guards_turn_exceptions_into_errors_or_default_values() {
    if !Language::Cpp.exists() {
        // The test harness captures the output of `eprintln!`, but not the output of `writeln!`.
        writeln!(std::io::stderr(), "skipped: CROSSDOCK_GUARD: no C++ compiler (CXX, c++)").unwrap();
        return;
    }
    let folder = std::env::temp_dir().join(format!("crossdock-guard-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let output = Language::Cpp.run(PROGRAM, &folder.join("guard"));
    std::fs::remove_dir_all(&folder).unwrap();
    let panicked = "9 9 a C++ exception was caught at the plugin's boundary 0\n";
    assert_eq!(output.unwrap(), format!("0 0 - 0\n{panicked}{panicked}7 7 - 0\n9, 7 unwound, 1 1\n"));
}

/// Defines both exported symbols in C++.
const SYMBOLS: &str = r#"
#include <crossdock.h>
CROSSDOCK_EXPORT const crossdock_plugin_entry crossdock_plugin_v1 = {};
CROSSDOCK_EXPORT const crossdock_plugin_meta crossdock_plugin_meta_v1 = {};
"#;

#[test]
fn symbols_compile_in_cpp_without_warnings() {
    if !Language::Cpp.exists() {
        writeln!(std::io::stderr(), "skipped: CROSSDOCK_EXPORT: no C++ compiler (CXX, c++)").unwrap();
        return;
    }
    Language::Cpp
        .check(&format!("#pragma GCC diagnostic ignored \"-Wmissing-field-initializers\"\n{SYMBOLS}"))
        .unwrap();
}
