//! A bar on standard error, one line that is written over again and again.

use std::io::Write;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const WIDTH: u64 = 30;
/// It is drawn no more often.
const REDRAW_AFTER: Duration = Duration::from_millis(50);
/// Back to the beginning of the line, and away with the rest of it.
const CLEAR: &str = "\r\x1b[K";

/// A bar of bytes, from now on.
pub struct Bar {
    begun: Instant,
    drawn: Mutex<Option<Instant>>,
}

impl Default for Bar {
    fn default() -> Self {
        Self { begun: Instant::now(), drawn: Mutex::default() }
    }
}

impl Bar {
    /// Draws `done` of `total` bytes, which is 0 where nobody knows it, unless it was drawn just now.
    pub fn show(&self, done: u64, total: u64) {
        let mut drawn = self.drawn.lock().unwrap_or_else(PoisonError::into_inner);
        if drawn.is_some_and(|drawn| drawn.elapsed() < REDRAW_AFTER) {
            return;
        }
        *drawn = Some(Instant::now());
        write(&line(done, total, self.begun.elapsed()));
    }

    /// Takes it away.
    pub fn clear(&self) {
        if self.drawn.lock().unwrap_or_else(PoisonError::into_inner).take().is_some() {
            write("");
        }
    }
}

/// Where standard error is closed there is nothing to see.
fn write(line: &str) {
    let mut to = std::io::stderr().lock();
    let _ = write!(to, "{CLEAR}{line}").and_then(|()| to.flush());
}

/// The bar, bytes done and in all, bytes a second, and the seconds that are left.
fn line(done: u64, total: u64, since: Duration) -> String {
    let total = total.max(done);
    let full = (u128::from(done) * u128::from(WIDTH)).checked_div(u128::from(total)).unwrap_or(0) as usize;
    let bar = format!("{}{}", "█".repeat(full), "░".repeat(WIDTH as usize - full));
    let per_second = done as f64 / since.as_secs_f64().max(1e-3);
    let left = (total - done) as f64 / per_second.max(1.0);
    format!("{bar} {}/{} {}/s {left:.0}s", bytes(done as f64), bytes(total as f64), bytes(per_second))
}

/// "1.50 GiB", "12 B".
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
