//! Counts panics on all threads, and aborts the run if a case hangs.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A case usually takes milliseconds. The limit also allows for slow machines with a sanitizer.
const MAX_CASE_TIME: Duration = Duration::from_secs(60);

static PANICS: AtomicU64 = AtomicU64::new(0);

/// Installs a panic hook that counts panics, and then reports them as before.
pub fn count_panics() -> &'static AtomicU64 {
    let previous = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        previous(info);
    }));
    &PANICS
}

#[derive(Default)]
struct Now {
    case: Option<(String, Instant)>,
    slowest: (Duration, String),
}

pub struct Watch(Arc<Mutex<Now>>);

impl Watch {
    pub fn start() -> Self {
        let now = Arc::<Mutex<Now>>::default();
        let watched = Arc::downgrade(&now);
        std::thread::spawn(move || {
            while let Some(now) = watched.upgrade() {
                if let Some((case, since)) = &now.lock().unwrap().case
                    && since.elapsed() > MAX_CASE_TIME
                {
                    eprintln!("{case} hangs");
                    std::process::abort();
                }
                drop(now);
                std::thread::sleep(Duration::from_millis(200));
            }
        });
        Self(now)
    }

    pub fn begin(&self, case: u64, name: &str) {
        self.0.lock().unwrap().case = Some((format!("case {case} ({name})"), Instant::now()));
    }

    pub fn end(&self) {
        let mut now = self.0.lock().unwrap();
        if let Some((case, since)) = now.case.take()
            && since.elapsed() > now.slowest.0
        {
            now.slowest = (since.elapsed(), case);
        }
    }

    /// A description of the slowest case.
    pub fn slowest(&self) -> String {
        let now = self.0.lock().unwrap();
        format!("the slowest case, {}, took {:.0} ms", now.slowest.1, now.slowest.0.as_secs_f64() * 1e3)
    }
}
