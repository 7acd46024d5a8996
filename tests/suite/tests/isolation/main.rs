//! Plugins in processes of their own: what they give is the same, and what they do stays theirs.
//!
//! They need a process of their own: they count its open files, its mappings and its children.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod cgroup;
mod deeds;
mod devices;
mod leak;
mod same;
mod strangers;
mod traced;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crossdock::discovery::Search;
use crossdock::isolation::{Isolation, Program, Which};
use crossdock::memory::Backend;
use crossdock::{Host, HostBuilder, Policy};
use crossdock_tests::built_file;

/// Every plugin, by the command that was built.
fn isolation() -> Isolation {
    marked("")
}

/// The same, in processes that [`processes`] finds by this mark.
fn marked(mark: &str) -> Isolation {
    let mut program = Program::command(built_file("crossdock"));
    program.arguments.push(own(mark).into());
    Isolation { which: Which::All, program: Some(program), ..Isolation::default() }
}

/// A mark of this test program's: it may run several times at once.
fn own(mark: &str) -> String {
    format!("{mark}-{}", std::process::id())
}

/// Whether this system can isolate; else says why `test` is skipped.
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

/// Past what the test runner captures.
fn skip(test: &str, why: &str) {
    std::io::stderr().write_all(format!("skipped: {test}: {why}\n").as_bytes()).unwrap();
}

/// For tests that count what the whole process has mapped.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A host whose plugins, those of `plugins`, run in other processes.
fn host(plugins: &Path, isolation: Isolation) -> HostBuilder {
    let policy = Policy { isolation, ..Policy::default() };
    let search = Search::nowhere().given(plugins);
    Host::builder().policy(policy).backend(Backend::builder().build()).search(search)
}

/// How many files this process has open whose names begin so.
fn open_files(name: &str) -> usize {
    let open = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(Result::ok);
    let names = open.filter_map(|open| std::fs::read_link(open.path()).ok());
    names.filter(|file| file.as_os_str().as_encoded_bytes().starts_with(name.as_bytes())).count()
}

/// How many processes with this mark there are.
fn processes(mark: &str) -> usize {
    all_processes().filter(|process| is_marked(process, mark)).count()
}

/// Whether a process has this mark.
fn is_marked(process: &Path, mark: &str) -> bool {
    let (arguments, mark) = (std::fs::read(process.join("cmdline")).unwrap_or_default(), own(mark));
    arguments.split(|byte| *byte == 0).any(|argument| argument == mark.as_bytes())
}

/// Ends this process's with this mark, from outside.
fn end_processes(mark: &str) {
    let own = Some(std::process::id());
    let processes: Vec<_> =
        all_processes().filter(|process| is_marked(process, mark) && parent(process) == own).collect();
    assert!(!processes.is_empty());
    for process in &processes {
        let number: libc::pid_t = process.file_name().unwrap().to_str().unwrap().parse().unwrap();
        // SAFETY: numbers.
        assert_eq!(unsafe { libc::kill(number, libc::SIGKILL) }, 0);
        // All of its threads: one that is still on its way out is there to everybody.
        // SAFETY: a pointer to a local, of which zeros are a value; the process is left for its host to be waited for.
        unsafe {
            let mut how: libc::siginfo_t = std::mem::zeroed();
            // It fails where the host has done so.
            libc::waitid(libc::P_PID, number as libc::id_t, &mut how, libc::WEXITED | libc::WNOWAIT);
        }
    }
}

/// Folders of /proc.
fn all_processes() -> impl Iterator<Item = PathBuf> {
    std::fs::read_dir("/proc").unwrap().map(|process| process.unwrap().path())
}

/// Of a process that is there and has not ended, its parent.
fn parent(process: &Path) -> Option<u32> {
    let stat = std::fs::read_to_string(process.join("stat")).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let state = fields.next()?;
    fields.next()?.parse().ok().filter(|_| state != "Z" && state != "X")
}
