//! Distributes the rows of a job to threads.

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Threads on which CPU implementations run.
pub trait Threads: Send + Sync {
    /// Calls `f` on this thread, and on at most `n - 1` other threads at the same time. Returns
    /// after all calls have returned. The result is `false` if a call on another thread panicked.
    fn run(&self, n: usize, f: &(dyn Fn() + Sync)) -> bool;

    /// The number of rows of a part, a multiple of 64. A thread processes one part at a time. The
    /// default keeps the rows of a part in the processor's caches, and takes much longer than
    /// waking a thread.
    fn part_rows(&self) -> usize {
        PART_ROWS
    }
}

const PART_ROWS: usize = 1 << 15;

thread_local! {
    static CURRENT: RefCell<Option<Arc<dyn Threads>>> = const { RefCell::new(None) };
}

/// Calls `f`. CPU implementations that `f` launches on this thread use `threads`; others use only
/// the thread that launches them.
pub fn with_threads<R>(threads: &Arc<dyn Threads>, f: impl FnOnce() -> R) -> R {
    /// Restores the threads also if `f` panics.
    struct Restore(Option<Arc<dyn Threads>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            CURRENT.set(self.0.take());
        }
    }
    let _restore = Restore(CURRENT.replace(Some(threads.clone())));
    f()
}

/// The number of rows of a part.
pub(crate) fn part_rows() -> usize {
    CURRENT.with_borrow(|threads| threads.as_ref().map_or(PART_ROWS, |threads| threads.part_rows()))
}

/// Calls `f` for each part, for several parts at the same time if there are threads. Returns `None`
/// if a call on another thread panicked.
pub(crate) fn for_each<T>(
    parts: impl ExactSizeIterator<Item = T> + Send,
    f: impl Fn(T) + Sync,
) -> Option<()> {
    let n = parts.len();
    let parts = Mutex::new(parts);
    let next = || parts.lock().unwrap_or_else(PoisonError::into_inner).next();
    let run = || {
        while let Some(part) = next() {
            f(part);
        }
    };
    match CURRENT.with_borrow(Option::clone) {
        Some(threads) if n > 1 => threads.run(n, &run).then_some(()),
        _ => {
            run();
            Some(())
        }
    }
}

/// The first row that is wrong, which several threads look for.
pub(crate) struct FirstWrong(AtomicUsize);

impl FirstWrong {
    pub(crate) const fn none() -> Self {
        Self(AtomicUsize::new(usize::MAX))
    }

    pub(crate) fn note(&self, row: usize) {
        self.0.fetch_min(row, Ordering::Relaxed);
    }

    /// The first row that was noted. The threads have returned before.
    pub(crate) fn get(self) -> Option<usize> {
        Some(self.0.into_inner()).filter(|row| *row != usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs each part on a thread of its own.
    struct Scoped;

    impl Threads for Scoped {
        fn run(&self, n: usize, f: &(dyn Fn() + Sync)) -> bool {
            std::thread::scope(|scope| {
                let others: Vec<_> = (1..n).map(|_| scope.spawn(f)).collect();
                f();
                others.into_iter().all(|other| other.join().is_ok())
            })
        }

        fn part_rows(&self) -> usize {
            64
        }
    }

    #[test]
    fn threads_are_used_only_within_the_call() {
        let threads: Arc<dyn Threads> = Arc::new(Scoped);
        let nested = || with_threads(&threads, || assert_eq!(part_rows(), 64));
        assert_eq!(part_rows(), PART_ROWS);
        with_threads(&threads, || {
            nested();
            assert_eq!(part_rows(), 64);
            std::thread::scope(|scope| scope.spawn(|| assert_eq!(part_rows(), PART_ROWS)).join().unwrap());
        });
        assert_eq!(part_rows(), PART_ROWS);
        let panicking = || with_threads(&threads, || panic!("the call"));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panicking)).is_err());
        assert_eq!(part_rows(), PART_ROWS);
    }

    #[test]
    fn each_part_is_processed_once() {
        let threads: Arc<dyn Threads> = Arc::new(Scoped);
        for n in [0, 1, 2, 100] {
            let sum = AtomicUsize::new(0);
            let add_one = |i| {
                sum.fetch_add(i + 1, Ordering::Relaxed);
            };
            let add = || for_each(0..n, add_one);
            assert_eq!((add(), with_threads(&threads, add)), (Some(()), Some(())));
            assert_eq!(sum.into_inner(), n * (n + 1), "{n} parts");
        }
    }

    #[test]
    fn panic_of_another_thread_is_reported() {
        let (threads, caller): (Arc<dyn Threads>, _) = (Arc::new(Scoped), std::thread::current().id());
        let barrier = std::sync::Barrier::new(2);
        let part = |_| {
            barrier.wait();
            assert_eq!(std::thread::current().id(), caller, "another thread");
        };
        assert_eq!(with_threads(&threads, || for_each(0..2, part)), None);
    }

    #[test]
    fn first_of_the_wrong_rows_is_reported() {
        let wrong = FirstWrong::none();
        assert_eq!(FirstWrong::none().get(), None);
        [7, 3, 5].into_iter().for_each(|row| wrong.note(row));
        assert_eq!(wrong.get(), Some(3));
    }
}
