//! `CROSSDOCK_GUARD` and `CROSSDOCK_GUARD_OR`, the doors that the header gives to authors in C++.

use std::io::Write;

use crate::layout::compiler::Language;

/// Throws what C++ may throw, an object and a number, and succeeds or fails by itself too.
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

static void no_answer(bool fails) noexcept { CROSSDOCK_GUARD_OR(, { Local local; if (fails) throw 42; }) }

static const void* answer(bool fails) noexcept {
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
  no_answer(false);
  no_answer(true);
  std::printf("%d, %d unwound, %d %d\n", code, released, answer(false) == &released, answer(true) == nullptr);
}
"#;

#[test]
fn an_exception_in_a_guarded_function_becomes_a_panic_s_words_or_the_answer_without_one() {
    if !Language::Cpp.exists() {
        // Past the capture of the test harness, to be counted.
        writeln!(std::io::stderr(), "skipped: CROSSDOCK_GUARD: no C++ compiler (CXX, c++)").unwrap();
        return;
    }
    let folder = std::env::temp_dir().join(format!("crossdock-guard-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let said = Language::Cpp.run(PROGRAM, &folder.join("guard"));
    std::fs::remove_dir_all(&folder).unwrap();
    let panicked = "9 9 a C++ exception was caught at the plugin's boundary 0\n";
    assert_eq!(said.unwrap(), format!("0 0 - 0\n{panicked}{panicked}7 7 - 0\n9, 7 unwound, 1 1\n"));
}

/// Both symbols, as an author in C++ defines them.
const SYMBOLS: &str = r#"
#include <crossdock.h>
CROSSDOCK_EXPORT const crossdock_plugin_entry crossdock_plugin_v1 = {};
CROSSDOCK_EXPORT const crossdock_plugin_meta crossdock_plugin_meta_v1 = {};
"#;

#[test]
fn the_symbols_are_defined_in_c_plus_plus_without_a_warning() {
    if !Language::Cpp.exists() {
        writeln!(std::io::stderr(), "skipped: CROSSDOCK_EXPORT: no C++ compiler (CXX, c++)").unwrap();
        return;
    }
    Language::Cpp
        .check(&format!("#pragma GCC diagnostic ignored \"-Wmissing-field-initializers\"\n{SYMBOLS}"))
        .unwrap();
}
