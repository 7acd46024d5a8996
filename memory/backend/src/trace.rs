//! A record of calls across the boundary, in the JSON array form of Chrome's trace event format, which Perfetto opens.
//!
//! A call is written down when it begins and again when it ends, each by one write to the file: what a process did last is
//! there even where it crashed. The array's end is not written, which the format allows.

use std::cell::Cell;
use std::fmt::{Display, Write as _};
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

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

/// A file that calls are recorded in. What is recorded by a forked child is lost.
pub struct Trace {
    path: PathBuf,
    file: File,
    start: Instant,
    forks: u32,
    /// A write failed; nothing more is recorded, for half a record is none.
    broken: AtomicBool,
}

impl Trace {
    /// A new file, or an empty one in place of what is there.
    ///
    /// # Errors
    /// It cannot be made, or written.
    pub fn create(path: impl AsRef<Path>) -> std::io::Result<Self> {
        let path = path.as_ref().to_path_buf();
        let mut file = File::create(&path)?;
        file.write_all(b"[\n")?;
        let (start, forks) = (Instant::now(), forks::count());
        Ok(Self { path, file, start, forks, broken: AtomicBool::new(false) })
    }

    /// Whether all that happened so far was recorded.
    pub fn is_whole(&self) -> bool {
        !self.broken.load(Ordering::Relaxed)
    }

    fn put(&self, phase: char, more: std::fmt::Arguments<'_>) {
        if !self.is_whole() || forks::count() != self.forks {
            return;
        }
        let ns = self.start.elapsed().as_nanos();
        // SAFETY: plain questions.
        let (process, thread) = unsafe { (libc::getpid(), libc::gettid()) };
        let (us, ns) = (ns / 1000, ns % 1000);
        let line =
            format!("{{\"ph\":\"{phase}\",\"pid\":{process},\"tid\":{thread},\"ts\":{us}.{ns:03}{more}}},\n");
        if let Err(error) = (&self.file).write_all(line.as_bytes())
            && !self.broken.swap(true, Ordering::Relaxed)
        {
            tracing::warn!("the record of calls in '{}' ends here: {error}", self.path.display());
        }
    }
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
    let (called, kind) = match caller {
        Caller::Host => (plugin, "call"),
        Caller::Plugin => ("host", "callback"),
    };
    let name = Quoted(format_args!("{called}: {what}"));
    let args = format_args!("{{\"plugin\":{}}}", Quoted(format_args!("{plugin}")));
    trace.put('B', format_args!(",\"name\":{name},\"cat\":\"{kind}\",\"args\":{args}"));
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
        let mut args = String::new();
        if let Some(bytes) = BYTES.replace(self.above) {
            // Writing to a string does not fail.
            let _ = write!(args, "\"bytes\":{bytes}");
        }
        if let Some(error) = &self.error {
            let comma = if args.is_empty() { "" } else { "," };
            let _ = write!(args, "{comma}\"error\":{}", Quoted(format_args!("{error}")));
        }
        self.trace.put('E', format_args!(",\"args\":{{{args}}}"));
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
