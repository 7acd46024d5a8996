//! Records calls across the plugin boundary in the JSON array form of Chrome's trace event format,
//! which Perfetto opens.
//!
//! A call is recorded when it begins and again when it ends. Each record is one write to the file,
//! so that the trace of a crashed process is complete up to the crash. The closing bracket of the
//! array is omitted, which the format allows.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt::{Display, Write as _};
use std::fs::{File, TryLockError};
use std::io::{Error, ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::forks;

thread_local! {
    /// Number of bytes that [`note_bytes`] noted for the innermost call of this thread.
    static BYTES: Cell<Option<u64>> = const { Cell::new(None) };
}

/// The side that makes a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    Host,
    Plugin,
}

/// The beginning or end of a call on a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Thread id of the system.
    pub thread: i32,
    /// Time since the start of the trace, in ns.
    pub ns: u64,
    /// What happened.
    pub phase: Phase<'a>,
}

/// The beginning or end of a call, with the data that is known at that time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase<'a> {
    /// The call begins.
    Begin {
        /// The plugin that is called, or that calls the host.
        plugin: Cow<'a, str>,
        /// The function that is called.
        what: Cow<'a, str>,
        /// Whether the plugin calls the host.
        is_callback: bool,
    },
    /// The most recent open call of the thread ends.
    End {
        /// Number of bytes that the call handled, if known.
        bytes: Option<u64>,
        /// The error that the call returned.
        error: Option<Cow<'a, str>>,
    },
}

/// A trace. Calls in a forked child are not recorded.
pub struct Trace {
    target: Target,
    start: Duration,
    forks: u32,
    /// Whether a write failed. Recording then stops, because a partial record makes the file
    /// invalid.
    broken: AtomicBool,
}

enum Target {
    File(PathBuf, File),
    Forwarded(Box<dyn Fn(Record<'_>) + Send + Sync>),
}

impl Trace {
    /// Creates a trace file, or truncates an existing one. The file is locked while the result
    /// lives.
    ///
    /// # Errors
    /// If the file cannot be created or written; [`ErrorKind::ResourceBusy`] if another trace is
    /// being written to it.
    pub fn create(path: impl AsRef<Path>) -> std::io::Result<Self> {
        let path = path.as_ref().to_path_buf();
        let mut file = File::options().write(true).create(true).truncate(false).open(&path)?;
        // The file is locked before it is truncated, so that a trace that is being written is not
        // lost. Other errors of `try_lock` are ignored, because not every file system supports
        // locks. A pipe is not locked, because it cannot contain another trace.
        if file.metadata()?.is_file() {
            if let Err(TryLockError::WouldBlock) = file.try_lock() {
                return Err(Error::new(
                    ErrorKind::ResourceBusy,
                    "another trace is being written to this file",
                ));
            }
            file.set_len(0)?;
        }
        file.write_all(b"[\n")?;
        Ok(Self::new(Target::File(path, file), monotonic_time()))
    }

    /// Creates a part of the trace of another process. That trace began at `start` on
    /// `CLOCK_MONOTONIC`. `forward` sends each record to that process, which adds it with
    /// [`Trace::add`].
    pub fn forwarded(start: Duration, forward: impl Fn(Record<'_>) + Send + Sync + 'static) -> Self {
        Self::new(Target::Forwarded(Box::new(forward)), start)
    }

    fn new(target: Target, start: Duration) -> Self {
        Self { target, start, forks: forks::count(), broken: AtomicBool::new(false) }
    }

    /// When the trace began, on the clock that all processes share (`CLOCK_MONOTONIC`).
    pub fn start(&self) -> Duration {
        self.start
    }

    /// Whether all calls so far were recorded.
    pub fn is_complete(&self) -> bool {
        !self.broken.load(Ordering::Relaxed)
    }

    /// Adds a record of the process with the id `process`.
    pub fn add(&self, process: u32, record: &Record<'_>) {
        let Target::File(path, file) = &self.target else { return };
        if !self.is_complete() || forks::count() != self.forks {
            return;
        }
        let line = line(process, record);
        if let Err(error) = (&*file).write_all(line.as_bytes())
            && !self.broken.swap(true, Ordering::Relaxed)
        {
            tracing::warn!("the trace '{}' is incomplete: {error}", path.display());
        }
    }

    fn put(&self, phase: Phase<'_>) {
        let ns = u64::try_from(monotonic_time().saturating_sub(self.start).as_nanos()).unwrap_or(u64::MAX);
        // The function of the C library exists only from glibc 2.30 on.
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        let record = Record { thread, ns, phase };
        match &self.target {
            Target::File(..) => self.add(std::process::id(), &record),
            Target::Forwarded(forward) => forward(record),
        }
    }
}

/// Reads `CLOCK_MONOTONIC`, the clock that all processes share.
fn monotonic_time() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a local. Every Linux has this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// Formats a record as a line of the trace file.
fn line(process: u32, record: &Record<'_>) -> String {
    let Record { thread, ns, phase } = record;
    let (us, ns) = (ns / 1000, ns % 1000);
    let (letter, rest) = match phase {
        Phase::Begin { plugin, what, is_callback } => {
            let (callee, kind) = if *is_callback { ("host", "callback") } else { (&**plugin, "call") };
            let (name, plugin) = (Quoted(format_args!("{callee}: {what}")), Quoted(format_args!("{plugin}")));
            let name = name.to_string();
            ('B', format!(",\"name\":{name},\"cat\":\"{kind}\",\"args\":{{\"plugin\":{plugin}}}"))
        }
        Phase::End { bytes, error } => {
            let mut args = bytes.map_or_else(String::new, |bytes| format!("\"bytes\":{bytes}"));
            if let Some(error) = error {
                let comma = if args.is_empty() { "" } else { "," };
                // Writing to a string does not fail.
                let _ = write!(args, "{comma}\"error\":{}", Quoted(format_args!("{error}")));
            }
            ('E', format!(",\"args\":{{{args}}}"))
        }
    };
    format!("{{\"ph\":\"{letter}\",\"pid\":{process},\"tid\":{thread},\"ts\":{us}.{ns:03}{rest}}},\n")
}

/// Notes how many bytes the current call of this thread handles.
pub fn note_bytes(bytes: u64) {
    BYTES.set(Some(bytes));
}

/// Runs `f`, a call of the function `what` between the host and `plugin`, and records it.
pub(crate) fn record<T, E: Display>(
    trace: Option<&Trace>,
    caller: Caller,
    plugin: &str,
    what: &str,
    f: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    let Some(trace) = trace else { return f() };
    let is_callback = caller == Caller::Plugin;
    trace.put(Phase::Begin { plugin: plugin.into(), what: what.into(), is_callback });
    let mut end = End { trace, outer_bytes: BYTES.take(), error: None };
    let result = f();
    end.error = result.as_ref().err().map(ToString::to_string);
    result
}

/// Records the end of a call when it is dropped, also during unwinding.
struct End<'a> {
    trace: &'a Trace,
    outer_bytes: Option<u64>,
    error: Option<String>,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        let (bytes, error) = (BYTES.replace(self.outer_bytes), self.error.take());
        self.trace.put(Phase::End { bytes, error: error.map(Cow::Owned) });
    }
}

/// Displays a text as a JSON string.
struct Quoted<'a>(std::fmt::Arguments<'a>);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        struct Escaped<'a, 'b>(&'a mut std::fmt::Formatter<'b>);
        impl std::fmt::Write for Escaped<'_, '_> {
            fn write_str(&mut self, text: &str) -> std::fmt::Result {
                text.chars().try_for_each(|c| match c {
                    '"' | '\\' => write!(self.0, "\\{c}"),
                    c if c < ' ' => write!(self.0, "\\u{:04x}", c as u32),
                    c => self.0.write_char(c),
                })
            }
        }
        f.write_char('"')?;
        write!(Escaped(f), "{}", self.0)?;
        f.write_char('"')
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn quotes_any_text_as_a_json_string() {
        let text = "a \"b\"\\c\n\t\u{1}ß𝄞";
        let quoted = Quoted(format_args!("{text}")).to_string();
        assert_eq!(quoted, "\"a \\\"b\\\"\\\\c\\u000a\\u0009\\u0001ß𝄞\"");
    }

    #[test]
    fn traced_bytes_count_only_for_the_innermost_call() {
        let (reader, writer) = std::io::pipe().unwrap();
        let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
        let trace = Trace::create(path).unwrap();
        drop(writer);
        let call = |what, f: &dyn Fn() -> Result<(), std::convert::Infallible>| {
            let Ok(()) = record(Some(&trace), Caller::Host, "p", what, f);
        };
        note_bytes(1);
        call("outer", &|| {
            note_bytes(2);
            call("inner", &|| {
                note_bytes(3);
                Ok(())
            });
            call("silent", &|| Ok(()));
            Ok(())
        });
        drop(trace);
        let text = std::io::read_to_string(reader).unwrap();
        let ends =
            text.lines().filter(|line| line.contains("\"E\"")).map(|line| line.split("args").nth(1).unwrap());
        assert_eq!(ends.collect::<Vec<_>>(), ["\":{\"bytes\":3}},", "\":{}},", "\":{\"bytes\":2}},"]);
        assert_eq!(BYTES.take(), Some(1), "the outer value is restored");
    }
}
