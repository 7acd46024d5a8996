//! Prints the command that repeats a failed test.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::Write as _;

/// If the test panics while this value is alive, prints a command that repeats the test with all
/// environment variables that affect it.
#[must_use = "it prints when it is dropped"]
pub struct Replay(String);

/// Must be called at the beginning of a test, on the thread of the test.
pub fn on_failure() -> Replay {
    let thread = std::thread::current();
    // The harness names the thread after the test. With only one test thread, the harness runs the
    // test on the thread `main`.
    let test = thread.name().filter(|name| *name != "main");
    let program = std::env::current_exe().map_or_else(|_| "<test program>".to_owned(), |path| quoted(&path));
    let folder = std::env::current_dir().map_or_else(|_| ".".to_owned(), |path| quoted(&path));
    let mut variables: Vec<_> = std::env::vars_os().collect();
    variables.sort();
    Replay(command(&folder, &program, test, &variables))
}

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Writes to stderr directly, because the harness captures `eprintln!` on the thread of
            // the test. An error is ignored: it means that stderr is closed.
            drop(writeln!(std::io::stderr(), "to repeat it:\n{}", self.0));
        }
    }
}

fn command(
    folder: &str,
    program: &str,
    test: Option<&str>,
    variables: &[(impl AsRef<OsStr>, impl AsRef<OsStr>)],
) -> String {
    let mut text = format!("(cd {folder} &&");
    for (name, value) in variables {
        let Some(name) = name.as_ref().to_str() else { continue };
        if name.starts_with("CROSSDOCK_") || name == "LD_LIBRARY_PATH" {
            let _ = write!(text, " {name}={}", quoted(value));
        }
    }
    let _ = write!(text, " {program}");
    if let Some(test) = test {
        let _ = write!(text, " --exact {test}");
    }
    text + ")"
}

/// Quotes `text` as one word of a shell command.
fn quoted(text: impl AsRef<OsStr>) -> String {
    let text = text.as_ref().to_string_lossy();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-:=,+@".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        text.into_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replay_command_contains_the_test_and_the_variables_that_affect_it() {
        let variables = [("CROSSDOCK_FAULTS", "all"), ("HOME", "/root"), ("LD_LIBRARY_PATH", "/a b")];
        assert_eq!(
            command("/here", "/bin/cpu-1", Some("linked::fails"), &variables),
            "(cd /here && CROSSDOCK_FAULTS=all LD_LIBRARY_PATH='/a b' /bin/cpu-1 --exact linked::fails)"
        );
        assert_eq!(command("/here", "x", None, &[("A", "b")]), "(cd /here && x)");
    }

    #[test]
    fn words_are_quoted_for_the_shell() {
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("target/debug/x-1.so"), "target/debug/x-1.so");
    }
}
