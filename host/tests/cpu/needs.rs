//! Refusals for a plugin's needs, before code of the plugin or of its libraries runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::{
    SEGMENT_DYNAMIC, c_library, c_plugin, c_plugin_with, lines, policy, refusal_under, segments, set_mode,
    temporary,
};
use crossdock::Policy;
use crossdock::load::{Load, PluginFile, inspect};

/// A library `libhelper.so` and a plugin that needs it, whose constructors each append a line to
/// `ran`.
fn plugin_with_a_library(directory: &Path, ran: &Path, linked: &[&str]) -> PathBuf {
    let source = directory.join("helper.c");
    let text = "#include <stdio.h>\n\
        __attribute__((constructor)) static void ran(void) {\n\
        FILE* file = fopen(RAN, \"a\"); fputs(\"helper\\n\", file); fclose(file); }\n";
    std::fs::write(&source, text).unwrap();
    let ran = format!("RAN=\"{}\"", ran.display());
    let define = format!("-D{ran}");
    let soname = directory.join("libhelper.so").display().to_string();
    let soname_option = format!("-Wl,-soname,{soname}");
    let mut args = vec![source.to_str().unwrap(), &define];
    // The soname is a path, so that the loader finds the library without a search path.
    args.push(&soname_option);
    c_library(directory, "libhelper.so", &args);
    let mut all = vec!["-Wl,--no-as-needed", &soname];
    all.extend(linked);
    c_plugin_with(directory, "plugin.so", &[&ran], &all)
}

#[test]
fn constructors_of_a_refused_plugin_and_its_libraries_do_not_run() {
    let directory = temporary();
    let ran = directory.path().join("ran");
    let plugin = plugin_with_a_library(directory.path(), &ran, &[]);
    let helper = directory.path().join("libhelper.so").display().to_string();
    let (id, sentence) = refusal_under(&plugin, &Arc::default());
    assert_eq!(id, "needed-library", "{sentence}");
    assert!(sentence.contains(&helper) && sentence.contains("`libraries`"), "{sentence}");
    assert!(!sentence.contains("needs libc.so.6"), "{sentence}");
    let inspection = inspect(&plugin).unwrap();
    assert_eq!(inspection.refusal.unwrap().id(), "needed-library");
    assert!(inspection.needs.libraries.contains(&helper));
    assert_eq!(lines(&ran), [""; 0], "code ran");

    let allowed = policy(directory.path(), &format!("libraries = ['{helper}']")).unwrap();
    PluginFile::with_policy(&plugin, allowed).load().unwrap();
    assert_eq!(lines(&ran), ["helper", "c-nothing"]);
}

#[test]
fn filter_and_audit_libraries_count_as_needed() {
    let directory = temporary();
    for option in ["-Wl,--auxiliary,libother.so", "-Wl,--filter,libother.so", "-Wl,--audit,libother.so"] {
        let plugin = c_plugin_with(directory.path(), "plugin.so", &[], &[option]);
        let (id, sentence) = refusal_under(&plugin, &Arc::default());
        assert_eq!(id, "needed-library", "{option}: {sentence}");
        assert!(sentence.contains("needs libother.so,"), "{option}: {sentence}");
    }
}

#[test]
fn error_for_library_search_path_in_plugin_gives_advice() {
    let directory = temporary();
    for option in ["-Wl,-rpath,/somewhere,--enable-new-dtags", "-Wl,-rpath,/somewhere,--disable-new-dtags"] {
        let plugin = c_plugin_with(directory.path(), "plugin.so", &[], &[option]);
        let (id, sentence) = refusal_under(&plugin, &Arc::default());
        assert_eq!(id, "search-path", "{option}: {sentence}");
        assert!(sentence.contains("'/somewhere'") && sentence.contains("patchelf"), "{sentence}");
    }
}

/// Replaces the first glibc version in the file by another of the same length.
fn with_another_glibc(plugin: &Path, to: impl Fn(usize) -> String) {
    let mut bytes = std::fs::read(plugin).unwrap();
    let prefix = b"GLIBC_";
    let at = bytes.windows(prefix.len()).position(|w| w == prefix).unwrap() + prefix.len();
    let length = bytes[at..].iter().position(|b| *b == 0).unwrap();
    let version = to(length);
    assert_eq!(version.len(), length);
    bytes[at..at + length].copy_from_slice(version.as_bytes());
    std::fs::write(plugin, bytes).unwrap();
}

#[test]
fn rejects_newer_glibc_before_loading() {
    let directory = temporary();
    let plugin = c_plugin(directory.path(), "plugin.so", &["RAN=\"/nowhere\""]);
    let needs = inspect(&plugin).unwrap().needs;
    assert!(needs.glibc.unwrap() >= (2, 2));
    with_another_glibc(&plugin, |length| format!("9.{}", "9".repeat(length - 2)));
    let (id, sentence) = refusal_under(&plugin, &Arc::default());
    assert_eq!(id, "glibc", "{sentence}");
    assert!(sentence.contains("needs glibc 9.9") && sentence.contains("this system has 2."), "{sentence}");
}

#[test]
fn rejects_rust_plugins_whose_panics_abort() {
    let directory = temporary();
    let load = |toolchain: &str, panic: &str| {
        let definitions = [format!("TOOLCHAIN=\"{toolchain}\""), format!("PANIC=\"{panic}\"")];
        let plugin = c_plugin(directory.path(), "plugin.so", &definitions.each_ref().map(String::as_str));
        PluginFile::new(plugin).load().map_err(|refused| (refused.reason.id(), refused.to_string()))
    };
    let (id, sentence) = load("rustc 1.95.0", "abort").unwrap_err();
    assert_eq!(id, "panic-strategy");
    assert!(sentence.contains("rustc 1.95.0") && sentence.contains("panic = \"unwind\""), "{sentence}");
    assert!(load("rustc 1.95.0", "unwind").is_ok());
    assert!(load("gcc 12.2.0", "abort").is_ok());
}

#[test]
fn rejects_executable_stack() {
    let directory = temporary();
    let load = |stack: &str| {
        let plugin = c_plugin_with(directory.path(), "plugin.so", &[], &["-z", stack]);
        PluginFile::new(plugin)
            .check()
            .map(drop)
            .map_err(|refused| (refused.reason.id(), refused.to_string()))
    };
    let (id, sentence) = load("execstack").unwrap_err();
    assert!(id == "executable-stack" && sentence.contains("-z noexecstack"), "{id}: {sentence}");
    assert_eq!(load("noexecstack"), Ok(()));
}

#[test]
fn rejects_denied_toolchains() {
    let directory = temporary();
    let plugin = c_plugin(directory.path(), "plugin.so", &["TOOLCHAIN=\"rustc 1.90.1\""]);
    let under = |denied: &str| {
        let policy = Policy { deny_toolchains: vec![denied.to_string()], ..Policy::default() };
        PluginFile::with_policy(&plugin, Arc::new(policy)).check().map_err(|refused| refused.to_string())
    };
    let sentence = under("rustc 1.90").err().unwrap();
    assert!(sentence.contains("(toolchain)") && sentence.contains("'rustc 1.90.1'"), "{sentence}");
    assert!(under("rustc 1.9").is_ok());
    assert!(under("gcc").is_ok());
}

#[test]
fn parser_reads_the_last_string_table_as_the_loader_does() {
    let directory = temporary();
    let plugin = c_plugin(directory.path(), "plugin.so", &[]);
    let mut bytes = std::fs::read(&plugin).unwrap();
    let word = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    // The first of the empty entries at the end of the dynamic segment.
    let dynamic = segments(&bytes, SEGMENT_DYNAMIC)[0];
    let (start, n) = (word(&bytes, dynamic + 8) as usize, word(&bytes, dynamic + 32) as usize / 16);
    let end = (0..n).map(|i| start + i * 16).find(|at| word(&bytes, *at) == 0).unwrap();
    assert!(end + 16 < start + n * 16, "the dynamic segment has no spare entry");
    // The entry declares another string table, at an address that is not mapped.
    bytes[end..end + 8].copy_from_slice(&5u64.to_le_bytes());
    bytes[end + 8..end + 16].copy_from_slice(&u64::MAX.to_le_bytes());
    std::fs::write(&plugin, bytes).unwrap();
    set_mode(&plugin, 0o755);
    assert_eq!(refusal_under(&plugin, &Arc::default()).0, "damaged");
}
