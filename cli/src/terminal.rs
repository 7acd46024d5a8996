//! Standard error: single lines, and a progress bar that they do not get mixed up with.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use indicatif::{ProgressBar, ProgressStyle};

static BAR: Mutex<Option<ProgressBar>> = Mutex::new(None);
static IS_SHOWN: AtomicBool = AtomicBool::new(false);

fn bar() -> MutexGuard<'static, Option<ProgressBar>> {
    BAR.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A progress bar on standard error, gone when this is dropped.
pub struct Progress(ProgressBar);

impl Progress {
    /// Shows one of bytes, if standard error is a terminal.
    pub fn show() -> Option<Self> {
        Self::with("{bar:30} {bytes}/{total_bytes} {binary_bytes_per_sec} {eta}")
    }

    /// The same of things that are counted.
    pub fn of_number() -> Option<Self> {
        Self::with("{bar:30} {pos}/{len}")
    }

    fn with(style: &str) -> Option<Self> {
        if !std::io::stderr().is_terminal() {
            return None;
        }
        let new = ProgressBar::new(0);
        // The template is a constant: one that does not parse leaves the default look.
        if let Ok(style) = ProgressStyle::with_template(style) {
            new.set_style(style);
        }
        *bar() = Some(new.clone());
        IS_SHOWN.store(true, Ordering::Relaxed);
        Some(Self(new))
    }

    /// Moves it to `done` of `total`, which is 0 where nobody knows it.
    pub fn listener(&self) -> impl Fn(u64, u64) + Send + Sync + 'static {
        let bar = self.0.clone();
        move |done, total| {
            bar.set_length(total.max(done));
            bar.set_position(done);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        IS_SHOWN.store(false, Ordering::Relaxed);
        *bar() = None;
        self.0.finish_and_clear();
    }
}

/// Whether a bar is on the screen. May be asked in a signal handler.
pub fn has_progress() -> bool {
    IS_SHOWN.load(Ordering::Relaxed)
}

/// One line of the command's own, above the bar. Where standard error is closed, the exit status is all that is left.
pub fn complain(kind: &str, line: &str) {
    print(&format!("crossdock: {kind}: {}", crossdock::one_line(line)));
}

/// Lines on standard error, above the bar.
pub fn print(text: &str) {
    without_bar(|| drop(writeln!(std::io::stderr(), "{}", text.trim_end())));
}

/// Runs what writes to the terminal while the bar is out of its way.
pub fn without_bar<T>(write: impl FnOnce() -> T) -> T {
    match &*bar() {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_bar_is_on_the_screen_before_one_is_shown() {
        assert!(!super::has_progress());
    }
}
