//! Call sites, and reports on stderr.

use std::collections::HashMap;
use std::io::Write as _;

/// The maximum number of stack frames that are recorded for a call site.
const MAX_FRAMES: usize = 24;
/// The prefix of the source paths of the standard library.
const STANDARD_LIBRARY: &str = "/rustc/";
/// The maximum number of stack frames that a report prints for a call site.
const MAX_REPORTED_FRAMES: usize = 8;

/// The number of a call site in [`Sites`]. 0 means that there is no call site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Site(u32);

/// All recorded call sites, as lists of return addresses. Symbols are resolved only for reports,
/// because most call sites are never reported.
#[derive(Default)]
pub(crate) struct Sites {
    known: HashMap<Vec<usize>, u32>,
    list: Vec<(&'static str, Vec<usize>)>,
}

impl Sites {
    /// The call site of the exported function `call`.
    pub(crate) fn here(&mut self, call: &'static str) -> Site {
        let mut frames = Vec::with_capacity(MAX_FRAMES);
        backtrace::trace(|frame| {
            frames.push(frame.ip() as usize);
            frames.len() < MAX_FRAMES
        });
        if let Some(known) = self.known.get(&frames) {
            return Site(*known);
        }
        self.list.push((call, frames.clone()));
        let number = self.list.len() as u32;
        self.known.insert(frames, number);
        Site(number)
    }

    /// Returns the name of the exported function, and the stack of its callers with the innermost
    /// caller first.
    pub(crate) fn describe(&self, site: Site) -> String {
        let Some((call, frames)) = (site.0 as usize).checked_sub(1).and_then(|at| self.list.get(at)) else {
            return "    (no call)\n".to_owned();
        };
        let mut lines: Vec<String> = Vec::new();
        for ip in frames {
            backtrace::resolve(*ip as *mut std::ffi::c_void, |symbol| {
                let name = symbol.name().map_or_else(|| "?".to_owned(), |name| format!("{name:#}"));
                let file = symbol.filename().map(|file| file.display().to_string());
                // The exported function and the functions that it calls belong to the simulator.
                if name == *call {
                    lines.clear();
                } else if !file.as_ref().is_some_and(|file| file.starts_with(STANDARD_LIBRARY)) {
                    let place = file.map(|file| format!(" ({file}:{})", symbol.lineno().unwrap_or(0)));
                    lines.push(format!("    at {name}{}\n", place.unwrap_or_default()));
                }
            });
        }
        lines.truncate(MAX_REPORTED_FRAMES);
        format!("    {call}\n{}", lines.concat())
    }

    /// Returns one line with the name of the exported function and its innermost callers.
    pub(crate) fn short(&self, site: Site) -> String {
        let text = self.describe(site);
        let mut lines = text.lines().map(str::trim);
        let call = lines.next().unwrap_or_default().to_owned();
        let callers: Vec<&str> = lines.take(6).collect();
        format!("{call} {}", callers.join(" "))
    }
}

/// Writes a line directly to stderr, so that no test harness captures the line.
pub(crate) fn say(text: &str) {
    say_plain(&format!("crossdock-sim-cuda: {text}"));
}

/// Writes a line without a prefix, because the project's test runner parses the beginning of the
/// line.
pub(crate) fn say_plain(text: &str) {
    // A single write, so that the lines of several threads are not mixed. An error is ignored,
    // because it means that stderr is closed.
    drop(std::io::stderr().write_all(format!("{text}\n").as_bytes()));
}

/// The kinds of violations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Violation {
    ReadAfterWrite,
    WriteAfterWrite,
    WriteAfterRead,
    UseBeforeAllocation,
    UseAfterFree,
    EarlyFree,
    DoubleFree,
    OutOfBounds,
    NotReachable,
    HostFreedInUse,
    StaleHandle,
    PoolDestroyedInUse,
    WrongArguments,
}

impl Violation {
    pub(crate) fn name(self) -> &'static std::ffi::CStr {
        match self {
            Self::ReadAfterWrite => c"read after write",
            Self::WriteAfterWrite => c"write after write",
            Self::WriteAfterRead => c"write after read",
            Self::UseBeforeAllocation => c"use before allocation",
            Self::UseAfterFree => c"use after free",
            Self::EarlyFree => c"early free",
            Self::DoubleFree => c"double free",
            Self::OutOfBounds => c"out of bounds",
            Self::NotReachable => c"not reachable",
            Self::HostFreedInUse => c"pinned memory freed in use",
            Self::StaleHandle => c"stale handle",
            Self::PoolDestroyedInUse => c"pool destroyed in use",
            Self::WrongArguments => c"wrong arguments",
        }
    }
}

/// The violations so far.
#[derive(Default)]
pub(crate) struct Findings {
    pub count: u64,
    pub last: Option<Violation>,
    /// Whether violations are only counted and do not end the process.
    pub only_count: bool,
}
