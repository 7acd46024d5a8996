//! Draws a progress bar in one line of standard error.

use std::io::Write;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const WIDTH: u64 = 30;
/// Shortest time between two drawings.
const MIN_REDRAW_INTERVAL: Duration = Duration::from_millis(50);
/// Moves to the start of the line and erases it.
const CLEAR: &str = "\r\x1b[K";

/// A progress bar that counts bytes.
pub struct Bar {
    start: Instant,
    last_drawn: Mutex<Option<Instant>>,
}

impl Default for Bar {
    fn default() -> Self {
        Self { start: Instant::now(), last_drawn: Mutex::default() }
    }
}

impl Bar {
    /// Draws `done` of `total` bytes (0: unknown), at most once per `MIN_REDRAW_INTERVAL`.
    pub fn show(&self, done: u64, total: u64) {
        let mut last_drawn = self.last_drawn.lock().unwrap_or_else(PoisonError::into_inner);
        if last_drawn.is_some_and(|time| time.elapsed() < MIN_REDRAW_INTERVAL) {
            return;
        }
        *last_drawn = Some(Instant::now());
        write(&line(done, total, self.start.elapsed()));
    }

    /// Erases the bar.
    pub fn clear(&self) {
        if self.last_drawn.lock().unwrap_or_else(PoisonError::into_inner).take().is_some() {
            write("");
        }
    }
}

/// Ignores errors, because the bar is not visible if standard error is closed.
fn write(line: &str) {
    let mut stderr = std::io::stderr().lock();
    let _ = write!(stderr, "{CLEAR}{line}").and_then(|()| stderr.flush());
}

/// Formats the bar, the bytes done and in total, the bytes per second, and the remaining seconds.
fn line(done: u64, total: u64, elapsed: Duration) -> String {
    let total = total.max(done);
    let full = (u128::from(done) * u128::from(WIDTH)).checked_div(u128::from(total)).unwrap_or(0) as usize;
    let bar = format!("{}{}", "█".repeat(full), "░".repeat(WIDTH as usize - full));
    let per_second = done as f64 / elapsed.as_secs_f64().max(1e-3);
    let remaining = (total - done) as f64 / per_second.max(1.0);
    format!("{bar} {}/{} {}/s {remaining:.0}s", bytes(done as f64), bytes(total as f64), bytes(per_second))
}

/// Formats a size: "1.50 GiB", "12 B".
fn bytes(mut n: f64) -> String {
    if n < 1024.0 {
        return format!("{n:.0} B");
    }
    let mut unit = "";
    for name in ["KiB", "MiB", "GiB", "TiB"] {
        if n < 1024.0 {
            break;
        }
        n /= 1024.0;
        unit = name;
    }
    format!("{n:.2} {unit}")
}
