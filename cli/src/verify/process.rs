//! Starts a process for each case, reads its output, and ends it.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;

use super::case::{Outcome, Run};
use super::coverage::Coverage;
use super::schedule::CaseResult;

/// This program, even if its file was replaced since it started.
const PROGRAM: &str = "/proc/self/exe";
/// The maximum number of bytes of a case's output that are stored.
const MAX_OUTPUT_BYTES: usize = 64 << 10;
/// The byte with which glibc fills new and freed memory, so that reads of it are noticed.
const PERTURB: &str = "165";

/// Starts this program for a case.
pub struct Starter {
    plugin: PathBuf,
    arguments: Vec<OsString>,
}

impl Starter {
    pub fn new(plugin: &Path, timeout: u64, samples: &[PathBuf]) -> Self {
        let mut arguments: Vec<OsString> = vec!["--timeout".into(), timeout.to_string().into()];
        for sample in samples {
            arguments.extend(["--sample".into(), sample.clone().into_os_string()]);
        }
        Self { plugin: plugin.to_path_buf(), arguments }
    }

    /// The shell command that runs the case alone.
    fn replay(&self, run: &Run) -> String {
        let mut words: Vec<OsString> =
            vec!["crossdock".into(), "verify".into(), self.plugin.clone().into_os_string()];
        words.extend(["--case".into(), run.case.name.into()]);
        words
            .extend(run.device.into_iter().flat_map(|device| ["--device".into(), device.to_string().into()]));
        words.extend(["--seed".into(), run.seed.to_string().into()]);
        words.extend(self.arguments.iter().cloned());
        words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
    }

    /// Runs a case in a new process, and ends the process after `limit`.
    ///
    /// # Errors
    /// The process cannot be started.
    pub fn run(&self, run: &Run, limit: Duration) -> std::io::Result<CaseResult> {
        let started = Instant::now();
        let (parent_end, child_end) = UnixStream::pair()?;
        let mut command = Command::new(PROGRAM);
        command.arg("verify").arg(&self.plugin).args(&self.arguments).args(["--alone", run.case.name]);
        command.args(["--seed", &run.seed.to_string()]);
        if let Some(device) = run.device {
            command.args(["--device", &device.to_string()]);
        }
        // The new process group includes the processes that the plugin starts.
        command.env("MALLOC_PERTURB_", PERTURB).process_group(0);
        command.stdin(OwnedFd::from(child_end)).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        // Closes the command's copy of the child's socket, so that reading ends when the child
        // exits.
        drop(command);
        let outputs = [child.stdout.take().map(OwnedFd::from), child.stderr.take().map(OwnedFd::from)];
        let ended = &AtomicBool::new(false);
        std::thread::scope(|scope| {
            let readers = outputs.map(|output| scope.spawn(move || output.map(|output| read(output, ended))));
            let report = scope.spawn(move || read(parent_end.into(), ended));
            let status = wait(&mut child, started, limit);
            end_group(&child);
            ended.store(true, Ordering::Relaxed);
            let status = match status {
                Some(status) => Some(status),
                None => child.wait().map(|_| None)?,
            };
            let [stdout, stderr] = readers.map(|reader| reader.join().ok().flatten().unwrap_or_default());
            let report = report.join().unwrap_or_default();
            let report = serde_json::from_str(&report).unwrap_or(Value::Null);
            Ok(CaseResult {
                run: *run,
                outcome: judge(status, &report),
                coverage: report.get("coverage").map(Coverage::from_json).unwrap_or_default(),
                seconds: started.elapsed().as_secs_f64(),
                stdout,
                stderr,
                replay: self.replay(run),
            })
        })
    }
}

/// The outcome that the process reported. A reported pass counts only if the process also exited
/// with code 0.
fn judge(status: Option<ExitStatus>, report: &Value) -> Outcome {
    let reported = Outcome::from_json(report);
    let Some(status) = status else { return Outcome::TimedOut };
    match (reported, status.code()) {
        (Some(Outcome::Passed), Some(0)) => Outcome::Passed,
        (Some(outcome), _) if outcome != Outcome::Passed => outcome,
        (_, Some(code)) => Outcome::Exited(code),
        (_, None) => Outcome::Crashed(signal_name(status.signal().unwrap_or_default())),
    }
}

/// Waits for the process to exit. `None` if it exceeds the time limit.
fn wait(child: &mut Child, started: Instant, limit: Duration) -> Option<ExitStatus> {
    let mut pause = Duration::from_micros(500);
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        if started.elapsed() > limit {
            return None;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(10));
    }
}

fn end_group(child: &Child) {
    let Ok(group) = libc::pid_t::try_from(child.id()) else { return };
    // SAFETY: kill has no memory preconditions. `process_group(0)` made the group for this child.
    // The number of a group is not reused while the group has members, and this function runs right
    // after the wait for the child.
    unsafe { libc::kill(-group, libc::SIGKILL) };
}

/// Reads to the end of the stream and returns the first [`MAX_OUTPUT_BYTES`]. Once `ended` is set,
/// an idle stream also counts as ended, because a process that the plugin started may hold the
/// other end open.
fn read(from: OwnedFd, ended: &AtomicBool) -> String {
    const POLL_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    const MAX_TIME_AFTER_END: Duration = Duration::from_secs(2);
    let mut file = std::fs::File::from(from);
    let (mut output, mut bytes) = (Vec::new(), [0; 4096]);
    let mut end = None::<Instant>;
    while end.is_none_or(|end| end.elapsed() < MAX_TIME_AFTER_END) {
        if ended.load(Ordering::Relaxed) {
            end.get_or_insert_with(Instant::now);
        }
        match poll(&mut [PollFd::new(&file, PollFlags::IN)], Some(&POLL_INTERVAL)) {
            Ok(0) if end.is_some() => break,
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => {}
            Err(_) => break,
        }
        match file.read(&mut bytes) {
            Ok(n @ 1..) => {
                let capacity = MAX_OUTPUT_BYTES.saturating_sub(output.len());
                output.extend_from_slice(bytes.get(..n.min(capacity)).unwrap_or_default());
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            // A reset connection is treated as the end of the stream.
            _ => break,
        }
    }
    String::from_utf8_lossy(&output).into_owned()
}

fn signal_name(signal: i32) -> String {
    const NAMES: [(i32, &str); 10] = [
        (libc::SIGSEGV, "SIGSEGV"),
        (libc::SIGABRT, "SIGABRT"),
        (libc::SIGBUS, "SIGBUS"),
        (libc::SIGFPE, "SIGFPE"),
        (libc::SIGILL, "SIGILL"),
        (libc::SIGTRAP, "SIGTRAP"),
        (libc::SIGKILL, "SIGKILL"),
        (libc::SIGTERM, "SIGTERM"),
        (libc::SIGPIPE, "SIGPIPE"),
        (libc::SIGSYS, "SIGSYS"),
    ];
    let name = NAMES.iter().find(|(number, _)| *number == signal);
    name.map_or_else(|| format!("signal {signal}"), |(_, name)| (*name).into())
}

/// Quotes a word for a shell.
fn quoted(word: &OsStr) -> String {
    let Some(word) = word.to_str() else {
        // bash, zsh and shells that implement POSIX.1-2024 understand these escapes.
        let escaped = |byte: &u8| match byte {
            b'\'' | b'\\' => format!("\\{}", char::from(*byte)),
            0x20..=0x7e => char::from(*byte).to_string(),
            _ => format!("\\x{byte:02x}"),
        };
        return format!("$'{}'", word.as_bytes().iter().map(escaped).collect::<String>());
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.into();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::super::case::{SkipKind, Skipped};
    use super::*;

    #[test]
    fn process_passes_only_if_it_exits_with_0_and_reports_success() {
        let exited = |code: i32| ExitStatus::from_raw(code << 8);
        let passed = &Outcome::Passed.to_json();
        assert_eq!(judge(Some(exited(0)), passed), Outcome::Passed);
        assert_eq!(judge(Some(exited(0)), &Value::Null), Outcome::Exited(0));
        assert_eq!(judge(Some(exited(3)), passed), Outcome::Exited(3));
        let crashed = Outcome::Crashed("SIGSEGV".into()).to_json();
        assert_eq!(judge(Some(exited(0)), &crashed), Outcome::Exited(0));
        assert_eq!(judge(Some(ExitStatus::from_raw(11)), passed), Outcome::Crashed("SIGSEGV".into()));
        assert_eq!(judge(None, passed), Outcome::TimedOut);
        let skipped = Outcome::Skipped(Skipped { kind: SkipKind::Machine, reason: "why".into() });
        assert_eq!(judge(Some(exited(86)), &skipped.to_json()), skipped);
    }

    #[test]
    fn read_does_not_wait_for_process_that_keeps_the_output_open() {
        let (reader, writer) = UnixStream::pair().unwrap();
        std::thread::scope(|scope| {
            // The writer never stops and never closes its end.
            scope.spawn(|| while std::io::Write::write_all(&mut &writer, &[b'x'; 4096]).is_ok() {});
            let text = read(reader.into(), &AtomicBool::new(true));
            assert_eq!(text.len(), MAX_OUTPUT_BYTES);
        });
    }

    #[test]
    fn quotes_words_for_a_shell() {
        let quoted = |word: &[u8]| quoted(OsStr::from_bytes(word));
        assert_eq!(quoted(b"a/b.so"), "a/b.so");
        assert_eq!(quoted(b"it's a"), r"'it'\''s a'");
        assert_eq!(quoted(b""), "''");
        assert_eq!(quoted(b"it's \xff\\\n"), r"$'it\'s \xff\\\x0a'");
    }
}
