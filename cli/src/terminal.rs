//! Prints messages and a progress bar on standard error.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use clap::builder::styling::{AnsiColor, Styles};
use indicatif::{ProgressBar, ProgressStyle};

static BAR: Mutex<Option<ProgressBar>> = Mutex::new(None);
static IS_SHOWN: AtomicBool = AtomicBool::new(false);

fn bar() -> MutexGuard<'static, Option<ProgressBar>> {
    BAR.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A progress bar on standard error. Dropping this value removes the bar.
pub struct Progress(ProgressBar);

impl Progress {
    /// Shows a bar that counts bytes, if standard error is a terminal.
    pub fn show() -> Option<Self> {
        Self::with("{bar:30} {bytes}/{total_bytes} {binary_bytes_per_sec} {eta}")
    }

    /// Shows a bar that counts items, if standard error is a terminal.
    pub fn show_count() -> Option<Self> {
        Self::with("{bar:30} {pos}/{len}")
    }

    fn with(style: &str) -> Option<Self> {
        if !std::io::stderr().is_terminal() {
            return None;
        }
        let new = ProgressBar::new(0);
        // The template is a valid constant. With an invalid template, the bar would keep the
        // default style.
        if let Ok(style) = ProgressStyle::with_template(style) {
            new.set_style(style);
        }
        *bar() = Some(new.clone());
        IS_SHOWN.store(true, Ordering::Relaxed);
        Some(Self(new))
    }

    /// Returns a function that moves the bar to `done` of `total`. An unknown `total` is 0.
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

/// Whether the bar is visible. Async-signal-safe.
pub fn has_progress() -> bool {
    IS_SHOWN.load(Ordering::Relaxed)
}

/// Prints one line in clap's style, above the bar: `error: ...`. If standard error is closed, the
/// exit status still reports the failure.
pub fn report(kind: &str, line: &str) {
    print(&format!("{} {}", label(kind), crossdock::one_line(line)));
}

/// Returns `kind` and a colon, in clap's colours if standard error is a terminal that supports
/// colours.
fn label(kind: &str) -> String {
    let has_colours = std::io::stderr().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
    if !has_colours {
        return format!("{kind}:");
    }
    let style = match kind {
        "error" => *Styles::styled().get_error(),
        "warning" => AnsiColor::Yellow.on_default().bold(),
        _ => *Styles::styled().get_literal(),
    };
    format!("{style}{kind}:{style:#}")
}

/// Prints lines on standard error, above the bar.
pub fn print(text: &str) {
    without_bar(|| drop(writeln!(std::io::stderr(), "{}", text.trim_end())));
}

/// Runs `write` while the bar is hidden.
pub fn without_bar<T>(write: impl FnOnce() -> T) -> T {
    match &*bar() {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn has_progress_is_false_before_a_progress_bar_is_shown() {
        assert!(!super::has_progress());
    }
}
