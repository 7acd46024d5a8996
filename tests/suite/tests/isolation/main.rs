//! Tests isolated plugins. Their results must be the same as without isolation, and their failures
//! must not affect the host.
//!
//! The tests need a process of their own, because they count the open files, mappings and children
//! of the process.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod actions;
mod cgroup;
mod devices;
mod encoded_rows;
mod equivalence;
mod leak;
mod other_programs;
mod sources;
mod tracing;
mod writing;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crossdock::discovery::Search;
use crossdock::isolation::{Isolation, Program, Which};
use crossdock::memory::Backend;
use crossdock::{Host, HostBuilder, Policy};
use crossdock_tests::built_file;

/// Isolates all plugins in processes of the built command.
fn isolation() -> Isolation {
    marked("")
}

/// Isolates all plugins in processes whose arguments contain a mark. [`processes`] counts them.
fn marked(mark: &str) -> Isolation {
    let mut program = Program::command(built_file("crossdock"));
    program.arguments.push(process_mark(mark).into());
    Isolation { which: Which::All, program: Some(program), ..Isolation::default() }
}

/// A mark that contains the id of this process, because several processes may run this test program
/// concurrently.
fn process_mark(mark: &str) -> String {
    format!("{mark}-{}", std::process::id())
}

/// Whether `test` must be skipped, because this system cannot isolate plugins. Reports the reason.
fn skips(test: &str) -> bool {
    let host = host(&built_file("libcrossdock_arrow_ipc_plugin.so"), isolation()).build().unwrap();
    match host.session().open().unwrap().plugin("arrow-ipc") {
        Err(error) if error.one_line().contains("this system cannot") => {
            skip(test, &error.one_line());
            true
        }
        _ => false,
    }
}

/// Whether `test`, which has a small memory limit, must be skipped. Reports the reason.
fn skips_memory_limit(test: &str) -> bool {
    let is_sanitized = std::env::var_os("CROSSDOCK_TEST_C_FLAGS").is_some();
    if is_sanitized {
        skip(test, "a sanitizer needs more memory");
    }
    is_sanitized
}

/// Reports a skipped test on stderr, which the harness does not capture here.
fn skip(test: &str, why: &str) {
    std::io::stderr().write_all(format!("skipped: {test}: {why}\n").as_bytes()).unwrap();
}

/// Serialises tests that count mappings of the whole process.
fn lock_process() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A host with the plugins at the path `plugins`, isolated according to `isolation`.
fn host(plugins: &Path, isolation: Isolation) -> HostBuilder {
    let policy = Policy { isolation, ..Policy::default() };
    let search = Search::nowhere().with_path(plugins);
    Host::builder().policy(policy).backend(Backend::builder().build()).search(search)
}

/// The number of open files of this process whose names begin with `name`.
fn open_files(name: &str) -> usize {
    let files = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(Result::ok);
    let names = files.filter_map(|file| std::fs::read_link(file.path()).ok());
    names.filter(|file| file.as_os_str().as_encoded_bytes().starts_with(name.as_bytes())).count()
}

/// The number of processes with a mark.
fn processes(mark: &str) -> usize {
    all_processes().filter(|process| is_marked(process, mark)).count()
}

/// Whether a process has a mark.
fn is_marked(process: &Path, mark: &str) -> bool {
    let (arguments, mark) = (std::fs::read(process.join("cmdline")).unwrap_or_default(), process_mark(mark));
    arguments.split(|byte| *byte == 0).any(|argument| argument == mark.as_bytes())
}

/// Kills the children of this process that have a mark.
fn end_processes(mark: &str) {
    let this_process = Some(std::process::id());
    let processes: Vec<_> = all_processes()
        .filter(|process| is_marked(process, mark) && parent(process) == this_process)
        .collect();
    assert!(!processes.is_empty());
    for process in &processes {
        let number: libc::pid_t = process.file_name().unwrap().to_str().unwrap().parse().unwrap();
        // SAFETY: `kill` takes integers; the process is a child of this one.
        assert_eq!(unsafe { libc::kill(number, libc::SIGKILL) }, 0);
        // Waits until all threads have ended, because the process exists until then. SAFETY: zeros
        // are a valid `siginfo_t`, and the pointer refers to a local variable. With WNOWAIT, the
        // host can still wait for the process.
        unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            // Fails if the host has already waited for the process.
            libc::waitid(libc::P_PID, number as libc::id_t, &mut info, libc::WEXITED | libc::WNOWAIT);
        }
    }
}

/// The folders in /proc.
fn all_processes() -> impl Iterator<Item = PathBuf> {
    std::fs::read_dir("/proc").unwrap().map(|process| process.unwrap().path())
}

/// The parent of a running process.
fn parent(process: &Path) -> Option<u32> {
    let stat = std::fs::read_to_string(process.join("stat")).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let state = fields.next()?;
    fields.next()?.parse().ok().filter(|_| state != "Z" && state != "X")
}
