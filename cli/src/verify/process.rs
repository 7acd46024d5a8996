//! Processes for cases: started, listened to, and ended.

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
use super::schedule::Done;

/// This very program, whatever has become of its file since.
const PROGRAM: &str = "/proc/self/exe";
/// How much of what a case prints is kept.
const MOST_OUTPUT_BYTES: usize = 64 << 10;
/// What glibc fills memory with that was freed or is new, so that reading it shows.
const PERTURB: &str = "165";

/// Starts this program again for a case.
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

    /// What a person types to run it alone.
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

    pub fn run(&self, run: &Run, limit: Duration) -> std::io::Result<Done> {
        let started = Instant::now();
        let (ours, theirs) = UnixStream::pair()?;
        let mut command = Command::new(PROGRAM);
        command.arg("verify").arg(&self.plugin).args(&self.arguments).args(["--alone", run.case.name]);
        command.args(["--seed", &run.seed.to_string()]);
        if let Some(device) = run.device {
            command.args(["--device", &device.to_string()]);
        }
        // A group of its own, which is ended with whatever the plugin started.
        command.env("MALLOC_PERTURB_", PERTURB).process_group(0);
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        // It holds the other end of the socket too.
        drop(command);
        let outputs = [child.stdout.take().map(OwnedFd::from), child.stderr.take().map(OwnedFd::from)];
        let ended = &AtomicBool::new(false);
        std::thread::scope(|scope| {
            let readers = outputs.map(|output| scope.spawn(move || output.map(|output| read(output, ended))));
            let told = scope.spawn(move || read(ours.into(), ended));
            let status = wait(&mut child, started, limit);
            end_group(&child);
            ended.store(true, Ordering::Relaxed);
            let status = match status {
                Some(status) => Some(status),
                None => child.wait().map(|_| None)?,
            };
            let [stdout, stderr] = readers.map(|reader| reader.join().ok().flatten().unwrap_or_default());
            let told = told.join().unwrap_or_default();
            let told = serde_json::from_str(&told).unwrap_or(Value::Null);
            Ok(Done {
                run: *run,
                outcome: judge(status, &told),
                coverage: told.get("coverage").map(Coverage::from_json).unwrap_or_default(),
                seconds: started.elapsed().as_secs_f64(),
                stdout,
                stderr,
                replay: self.replay(run),
            })
        })
    }
}

/// How a case went: what it told, unless it passed and its process did not end as it should.
fn judge(status: Option<ExitStatus>, told: &Value) -> Outcome {
    let told = Outcome::from_json(told);
    let Some(status) = status else { return Outcome::TimedOut };
    match (told, status.code()) {
        (Some(Outcome::Passed), Some(0)) => Outcome::Passed,
        (Some(outcome), _) if outcome != Outcome::Passed => outcome,
        (_, Some(code)) => Outcome::Exited(code),
        (_, None) => Outcome::Crashed(signal_name(status.signal().unwrap_or_default())),
    }
}

/// Its end, or nothing once it took too long.
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
    // SAFETY: a signal to the group that was made for this child, which has been waited for at most, so that its number is
    // still that group's or nobody's.
    unsafe { libc::kill(-group, libc::SIGKILL) };
}

/// What comes, to its end, or once `ended` to where nothing more does: a process that the plugin started and sent away may have the
/// other side for ever. Of a lot the beginning.
fn read(from: OwnedFd, ended: &AtomicBool) -> String {
    const LOOK_AFTER: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    const MOST_AFTER: Duration = Duration::from_secs(2);
    let mut file = std::fs::File::from(from);
    let (mut kept, mut bytes) = (Vec::new(), [0; 4096]);
    let mut end = None::<Instant>;
    while end.is_none_or(|end| end.elapsed() < MOST_AFTER) {
        if ended.load(Ordering::Relaxed) {
            end.get_or_insert_with(Instant::now);
        }
        match poll(&mut [PollFd::new(&file, PollFlags::IN)], Some(&LOOK_AFTER)) {
            Ok(0) if end.is_some() => break,
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => {}
            Err(_) => break,
        }
        match file.read(&mut bytes) {
            Ok(n @ 1..) => {
                let room = MOST_OUTPUT_BYTES.saturating_sub(kept.len());
                kept.extend_from_slice(bytes.get(..n.min(room)).unwrap_or_default());
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            // A reset connection ends what can be read, as the end does.
            _ => break,
        }
    }
    String::from_utf8_lossy(&kept).into_owned()
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

/// A word as a shell takes it.
fn quoted(word: &OsStr) -> String {
    let Some(word) = word.to_str() else {
        // bash, zsh and POSIX shells since 2024 read these escapes.
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
    use super::super::case::{Lack, Skipped};
    use super::*;

    #[test]
    fn a_process_that_told_nothing_has_not_passed() {
        let exited = |code: i32| ExitStatus::from_raw(code << 8);
        let passed = &Outcome::Passed.to_json();
        assert_eq!(judge(Some(exited(0)), passed), Outcome::Passed);
        assert_eq!(judge(Some(exited(0)), &Value::Null), Outcome::Exited(0));
        assert_eq!(judge(Some(exited(3)), passed), Outcome::Exited(3));
        let crashed = Outcome::Crashed("SIGSEGV".into()).to_json();
        assert_eq!(judge(Some(exited(0)), &crashed), Outcome::Exited(0));
        assert_eq!(judge(Some(ExitStatus::from_raw(11)), passed), Outcome::Crashed("SIGSEGV".into()));
        assert_eq!(judge(None, passed), Outcome::TimedOut);
        let skipped = Outcome::Skipped(Skipped { lack: Lack::Machine, reason: "why".into() });
        assert_eq!(judge(Some(exited(86)), &skipped.to_json()), skipped);
    }

    #[test]
    fn who_sent_a_process_away_with_the_output_is_not_waited_for() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        std::thread::scope(|scope| {
            // It never ends, and its end of it is never closed.
            scope.spawn(|| while std::io::Write::write_all(&mut &theirs, &[b'x'; 4096]).is_ok() {});
            let text = read(ours.into(), &AtomicBool::new(true));
            assert_eq!(text.len(), MOST_OUTPUT_BYTES);
        });
    }

    #[test]
    fn a_shell_reads_what_was_quoted() {
        let quoted = |word: &[u8]| quoted(OsStr::from_bytes(word));
        assert_eq!(quoted(b"a/b.so"), "a/b.so");
        assert_eq!(quoted(b"it's a"), r"'it'\''s a'");
        assert_eq!(quoted(b""), "''");
        assert_eq!(quoted(b"it's \xff\\\n"), r"$'it\'s \xff\\\x0a'");
    }
}
