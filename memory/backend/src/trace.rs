//! A record of calls across the boundary, in the JSON array form of Chrome's trace event format, which Perfetto opens.
//!
//! A call is written down when it begins and again when it ends, each by one write to the file: what a process did last is
//! there even where it crashed. The array's end is not written, which the format allows.

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
    /// Bytes that the innermost call of this thread has said that it is about.
    static BYTES: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Who calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    Host,
    Plugin,
}

/// A call that begins, or that ends, on some thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The system's number of the thread.
    pub thread: i32,
    /// Since the record of all calls began.
    pub ns: u64,
    /// Which.
    pub moment: Moment<'a>,
}

/// What is known of a call when it begins, and when it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moment<'a> {
    /// It begins.
    Begin {
        /// The plugin that is called, or that calls the host.
        plugin: Cow<'a, str>,
        /// The function.
        what: Cow<'a, str>,
        /// Whether the plugin calls.
        is_callback: bool,
    },
    /// The last one that began on its thread ends.
    End {
        /// What it was about, if it said so.
        bytes: Option<u64>,
        /// What went wrong.
        error: Option<Cow<'a, str>>,
    },
}

/// A file that calls are recorded in. What is recorded by a forked child is lost.
pub struct Trace {
    to: To,
    start: Duration,
    forks: u32,
    /// A write failed; nothing more is recorded, for half a record is none.
    broken: AtomicBool,
}

enum To {
    File(PathBuf, File),
    Another(Box<dyn Fn(Record<'_>) + Send + Sync>),
}

impl Trace {
    /// A new file, or an empty one in place of what is there. It is locked while this lives.
    ///
    /// # Errors
    /// It cannot be made, or written; [`ErrorKind::ResourceBusy`] where another record is being written to it.
    pub fn create(path: impl AsRef<Path>) -> std::io::Result<Self> {
        let path = path.as_ref().to_path_buf();
        let mut file = File::options().write(true).create(true).truncate(false).open(&path)?;
        // Before anything is thrown away. Not every file system has locks, and no pipe has another writer's record in it.
        if file.metadata()?.is_file() {
            if let Err(TryLockError::WouldBlock) = file.try_lock() {
                return Err(Error::new(
                    ErrorKind::ResourceBusy,
                    "another record of calls is being written to it",
                ));
            }
            file.set_len(0)?;
        }
        file.write_all(b"[\n")?;
        Ok(Self::new(To::File(path, file), clock()))
    }

    /// Part of another process's, which began at `began`, as that says it: `tell` has it written there, by [`Trace::add`].
    pub fn of_another(began: Duration, tell: impl Fn(Record<'_>) + Send + Sync + 'static) -> Self {
        Self::new(To::Another(Box::new(tell)), began)
    }

    fn new(to: To, start: Duration) -> Self {
        Self { to, start, forks: forks::count(), broken: AtomicBool::new(false) }
    }

    /// When it began, by the clock that all processes have (`CLOCK_MONOTONIC`).
    pub fn began(&self) -> Duration {
        self.start
    }

    /// Whether all that happened so far was recorded.
    pub fn is_whole(&self) -> bool {
        !self.broken.load(Ordering::Relaxed)
    }

    /// Writes down what another process has recorded.
    pub fn add(&self, process: u32, record: &Record<'_>) {
        let To::File(path, file) = &self.to else { return };
        if !self.is_whole() || forks::count() != self.forks {
            return;
        }
        let line = line(process, record);
        if let Err(error) = (&*file).write_all(line.as_bytes())
            && !self.broken.swap(true, Ordering::Relaxed)
        {
            tracing::warn!("the record of calls in '{}' ends here: {error}", path.display());
        }
    }

    fn put(&self, moment: Moment<'_>) {
        let ns = u64::try_from(clock().saturating_sub(self.start).as_nanos()).unwrap_or(u64::MAX);
        // SAFETY: a plain question.
        let record = Record { thread: unsafe { libc::gettid() }, ns, moment };
        match &self.to {
            To::File(..) => self.add(std::process::id(), &record),
            To::Another(tell) => tell(record),
        }
    }
}

/// The one that all processes have.
fn clock() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a pointer to a local. The clock is there on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// As the format has it.
fn line(process: u32, record: &Record<'_>) -> String {
    let Record { thread, ns, moment } = record;
    let (us, ns) = (ns / 1000, ns % 1000);
    let (phase, more) = match moment {
        Moment::Begin { plugin, what, is_callback } => {
            let (called, kind) = if *is_callback { ("host", "callback") } else { (&**plugin, "call") };
            let (name, plugin) = (Quoted(format_args!("{called}: {what}")), Quoted(format_args!("{plugin}")));
            let name = name.to_string();
            ('B', format!(",\"name\":{name},\"cat\":\"{kind}\",\"args\":{{\"plugin\":{plugin}}}"))
        }
        Moment::End { bytes, error } => {
            let mut args = bytes.map_or_else(String::new, |bytes| format!("\"bytes\":{bytes}"));
            if let Some(error) = error {
                let comma = if args.is_empty() { "" } else { "," };
                // Writing to a string does not fail.
                let _ = write!(args, "{comma}\"error\":{}", Quoted(format_args!("{error}")));
            }
            ('E', format!(",\"args\":{{{args}}}"))
        }
    };
    format!("{{\"ph\":\"{phase}\",\"pid\":{process},\"tid\":{thread},\"ts\":{us}.{ns:03}{more}}},\n")
}

/// Says how many bytes the call is about that this thread is in.
pub fn note_bytes(bytes: u64) {
    BYTES.set(Some(bytes));
}

/// Runs `f`, a call between the host and `plugin` of the function `what`, and records it.
pub(crate) fn record<T, E: Display>(
    trace: Option<&Trace>,
    caller: Caller,
    plugin: &str,
    what: &str,
    f: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    let Some(trace) = trace else { return f() };
    let is_callback = caller == Caller::Plugin;
    trace.put(Moment::Begin { plugin: plugin.into(), what: what.into(), is_callback });
    let mut end = End { trace, above: BYTES.take(), error: None };
    let result = f();
    end.error = result.as_ref().err().map(ToString::to_string);
    result
}

/// Of a call that has begun: when it is dropped, it has ended, whichever way.
struct End<'a> {
    trace: &'a Trace,
    above: Option<u64>,
    error: Option<String>,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        let (bytes, error) = (BYTES.replace(self.above), self.error.take());
        self.trace.put(Moment::End { bytes, error: error.map(Cow::Owned) });
    }
}

/// A JSON string.
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
    fn any_text_becomes_a_json_string() {
        let text = "a \"b\"\\c\n\t\u{1}ß𝄞";
        let quoted = Quoted(format_args!("{text}")).to_string();
        assert_eq!(quoted, "\"a \\\"b\\\"\\\\c\\u000a\\u0009\\u0001ß𝄞\"");
    }

    #[test]
    fn bytes_are_those_of_the_innermost_call_that_says_them() {
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
        assert_eq!(BYTES.take(), Some(1), "of whoever this thread is in");
    }
}
