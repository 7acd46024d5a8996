//! Converts the signal SIGBUS into an error if another program truncated a mapped file.
//!
//! The system sends SIGBUS to a thread that accesses a page after the end of a mapped file. With
//! [`handle_sigbus`], such a page reads as zeros until the call of [`guarded`] that accessed the
//! page returns. This call returns an error that names the file. Then the page is mapped from the
//! file again, so that a thread that accesses the page outside of [`guarded`] gets the signal.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};

use crossdock_memory_backend::ProcessWide;
use crossdock_plugin_api::Error as ApiError;

/// A mapped file became shorter while a call read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Truncated {
    /// Each file's path, its length in bytes when it was mapped, and its current length.
    pub files: Vec<File>,
}

impl fmt::Display for Truncated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.files.is_empty() {
            f.write_str("a mapped file was truncated while it was read")?;
        }
        for (i, (path, expected, got)) in self.files.iter().enumerate() {
            let and = if i > 0 { "; " } else { "" };
            write!(
                f,
                "{and}'{path}' was truncated while it was mapped: expected {expected} bytes, got {got}"
            )?;
        }
        f.write_str("; to read a file that other programs write to, turn memory mapping off")
    }
}

impl std::error::Error for Truncated {}

impl From<Truncated> for ApiError {
    fn from(truncated: Truncated) -> Self {
        Self::io(truncated.to_string())
    }
}

/// The maximum number of mappings that the signal handler handles. A thread that accesses a missing
/// page of an additional mapping gets the signal.
const MAX_MAPPINGS: usize = 1024;
/// The `start` of a free slot.
const FREE: usize = 0;
/// The `start` of a slot that a thread is filling in.
const CLAIMED: usize = 1;
/// The `replaced_from` of a slot without replaced pages.
const NONE_REPLACED: usize = usize::MAX;

/// A slot of the table of mappings. The signal handler reads the table without a lock.
struct Slot {
    start: AtomicUsize,
    end: AtomicUsize,
    bytes: AtomicUsize,
    /// The descriptor of the file, which is open while the slot is in use.
    file: AtomicI32,
    /// The address of the first replaced page, or [`NONE_REPLACED`].
    replaced_from: AtomicUsize,
}

static SLOTS: [Slot; MAX_MAPPINGS] = [const {
    Slot {
        start: AtomicUsize::new(FREE),
        end: AtomicUsize::new(0),
        bytes: AtomicUsize::new(0),
        file: AtomicI32::new(-1),
        replaced_from: AtomicUsize::new(NONE_REPLACED),
    }
}; MAX_MAPPINGS];
/// The number of running calls of [`guarded`].
static CALLS: ThreadCount = ThreadCount::new();
/// The number of threads that are replacing pages.
static REPLACING: ThreadCount = ThreadCount::new();
/// The number of times that pages were replaced.
static REPLACED: AtomicUsize = AtomicUsize::new(0);
/// The value of [`REPLACED`] at the last time that all replaced pages were mapped from their files
/// again.
static RESTORED: AtomicUsize = AtomicUsize::new(0);
/// The action of SIGBUS before the handler was installed. It is set once the handler is installed.
static PREVIOUS: OnceLock<Action> = OnceLock::new();
/// The files whose pages were replaced, the newest last. Each file has the value of [`REPLACED`] at
/// the time of its replacement.
static TRUNCATED_FILES: ProcessWide<VecDeque<(usize, File)>> = ProcessWide::new();
/// The maximum number of truncated files that are kept for running calls.
const MAX_TRUNCATED_FILES: usize = 64;

/// The path of a file, its length when it was mapped, and its current length (both in bytes).
type File = (String, u64, u64);

/// Counts threads of this process. In a forked child, the count starts at 0. All methods are
/// async-signal-safe.
struct ThreadCount(AtomicU64);

impl ThreadCount {
    const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    fn enter(&self) {
        self.change(|count| count + 1);
    }

    fn leave(&self) {
        self.change(|count| count.saturating_sub(1));
    }

    fn count(&self) -> u32 {
        Self::of(self.0.load(Ordering::SeqCst), std::process::id())
    }

    /// The count in `state`. The upper half of `state` is the process id, and the lower half is the
    /// count.
    fn of(state: u64, process: u32) -> u32 {
        if state >> 32 == u64::from(process) { state as u32 } else { 0 }
    }

    fn change(&self, change: impl Fn(u32) -> u32) {
        let process = std::process::id();
        let new_state = |state| Some(u64::from(process) << 32 | u64::from(change(Self::of(state, process))));
        // `new_state` always returns a value, so the update cannot fail.
        let _ = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, new_state);
    }
}

struct Action(libc::sigaction);

// SAFETY: a sigaction is plain data: the address of a function, a mask and flags.
unsafe impl Send for Action {}
// SAFETY: the value is never changed after `PREVIOUS` is set.
unsafe impl Sync for Action {}

/// Installs a handler for SIGBUS. If a [`guarded`] call accesses a missing page of a mapped input,
/// the call returns an error instead. The handler passes other SIGBUS signals to the handler that
/// was installed before. A second call does nothing.
///
/// # Errors
/// The system cannot install the handler.
pub fn handle_sigbus() -> io::Result<()> {
    if PREVIOUS.get().is_some() {
        return Ok(());
    }
    let mut previous = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: `previous` is a local, and all zeros is a valid sigaction, so it is initialised even
    // if the system writes only a part of it.
    let previous = unsafe {
        if libc::sigaction(libc::SIGBUS, std::ptr::null(), previous.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        previous.assume_init()
    };
    if PREVIOUS.set(Action(previous)).is_err() {
        return Ok(());
    }
    // SAFETY: all zeros is a valid sigaction with an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_signal as extern "C" fn(_, *mut libc::siginfo_t, *mut libc::c_void) as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: `on_signal` has the signature that SA_SIGINFO demands, and calls async-signal-safe
    // functions only.
    match unsafe { libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Handles SIGBUS. May use only atomics and async-signal-safe functions.
extern "C" fn on_signal(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO, `info` points to the signal's description. `__errno_location` points
    // to this thread's errno.
    unsafe {
        let errno = *libc::__errno_location();
        let is_beyond_end = (*info).si_code == libc::BUS_ADRERR;
        REPLACING.enter();
        let handled = is_beyond_end && replace((*info).si_addr().addr());
        REPLACING.leave();
        *libc::__errno_location() = errno;
        if !handled {
            pass_on(signal, info, context);
        }
    }
}

/// Replaces the pages from `address` to the end of the mapping by zeros, because a file that ends
/// before one page also ends before all later pages. Returns whether `address` is in a registered
/// mapping.
fn replace(address: usize) -> bool {
    if CALLS.count() == 0 {
        return false;
    }
    for slot in &SLOTS {
        let start = slot.start.load(Ordering::Acquire);
        let end = slot.end.load(Ordering::Acquire);
        // The second load detects that the slot was reused for another mapping after the first
        // load.
        if start <= CLAIMED || !(start..end).contains(&address) || slot.start.load(Ordering::Acquire) != start
        {
            continue;
        }
        let from = start + (address - start) / page_bytes() * page_bytes();
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        // SAFETY: the pages belong to the mapping of this slot. The thread that accessed the page
        // keeps the mapping.
        let at = unsafe { libc::mmap(from as *mut _, end - from, libc::PROT_READ, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return false;
        }
        slot.replaced_from.fetch_min(from, Ordering::SeqCst);
        REPLACED.fetch_add(1, Ordering::SeqCst);
        return true;
    }
    false
}

fn page_bytes() -> usize {
    // SAFETY: sysconf is async-signal-safe and has no memory to access.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Performs the action that SIGBUS had before the handler was installed.
///
/// # Safety
/// The arguments must be the arguments of a signal handler.
unsafe fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let previous = PREVIOUS.get().map_or(libc::SIG_DFL, |action| action.0.sa_sigaction);
    let wants_info = PREVIOUS.get().is_some_and(|action| action.0.sa_flags & libc::SA_SIGINFO != 0);
    // SAFETY: `previous` is an installed handler, and its SA_SIGINFO flag selects the signature.
    // The arguments are the arguments of the handler that called this function. `signal` and
    // `raise` are async-signal-safe.
    unsafe {
        if previous == libc::SIG_DFL || previous == libc::SIG_IGN {
            // After the return, the access faults again and ends the process. A signal that another
            // process sent does not repeat, so the code raises it again.
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        } else if wants_info {
            type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
            std::mem::transmute::<usize, Handler>(previous)(signal, info, context);
        } else {
            std::mem::transmute::<usize, extern "C" fn(libc::c_int)>(previous)(signal);
        }
    }
}

/// Runs `work`, which may read mapped files. If a file was truncated during `work`, returns the
/// error [`Truncated`] instead of the result, because `work` may have read zeros.
///
/// # Errors
/// The errors of `work`, and [`Truncated`]. Concurrent calls on other threads may also return
/// [`Truncated`].
pub fn guarded<T, E: From<Truncated>>(work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    if PREVIOUS.get().is_none() {
        return work();
    }
    let call = Call::begin();
    let result = work();
    match call.truncated() {
        None => result,
        Some(truncated) => Err(truncated.into()),
    }
}

/// A running call of [`guarded`]. Its drop also runs if `work` unwinds.
struct Call {
    /// The value of [`REPLACED`] at the beginning of the call.
    replaced: usize,
}

impl Call {
    /// Restores all replaced pages first. Otherwise this call would read their zeros without an
    /// error.
    fn begin() -> Self {
        CALLS.enter();
        loop {
            let replaced = REPLACED.load(Ordering::SeqCst);
            if replaced == RESTORED.load(Ordering::SeqCst) {
                return Self { replaced };
            }
            restore();
        }
    }

    /// The files whose pages were replaced since the beginning of the call.
    fn truncated(&self) -> Option<Truncated> {
        // Wait for threads that have replaced pages but not yet incremented `REPLACED`.
        while REPLACING.count() > 0 {
            std::hint::spin_loop();
        }
        if REPLACED.load(Ordering::SeqCst) == self.replaced {
            return None;
        }
        restore();
        let mut files: Vec<File> = Vec::new();
        for (when, file) in TRUNCATED_FILES.lock().iter() {
            if *when > self.replaced && !files.contains(file) {
                files.push(file.clone());
            }
        }
        Some(Truncated { files })
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        // If `work` unwound, `truncated` has not restored the pages.
        if REPLACED.load(Ordering::SeqCst) != RESTORED.load(Ordering::SeqCst) {
            restore();
        }
        CALLS.leave();
    }
}

/// Maps all replaced pages from their files again. Holds the lock that [`TruncatableMapping`]
/// acquires before a mapping ends, so that no mapping ends during this function.
fn restore() {
    let mut truncated = TRUNCATED_FILES.lock();
    let replaced = REPLACED.load(Ordering::SeqCst);
    for slot in &SLOTS {
        let from = slot.replaced_from.swap(NONE_REPLACED, Ordering::SeqCst);
        if from != NONE_REPLACED {
            slot.restore(from);
            record(&mut truncated, replaced, slot.describe());
        }
    }
    RESTORED.store(replaced, Ordering::SeqCst);
}

impl Slot {
    fn restore(&self, from: usize) {
        let (start, end) = (self.start.load(Ordering::SeqCst), self.end.load(Ordering::SeqCst));
        let (bytes, offset) = (end.saturating_sub(from), from.saturating_sub(start));
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        let file = self.file.load(Ordering::SeqCst);
        // SAFETY: the pages belong to the mapping of this slot, which cannot end while the caller
        // holds the lock of `TRUNCATED_FILES`. The calls map the file's contents again, or make the
        // pages inaccessible.
        unsafe {
            let at = from as *mut libc::c_void;
            if libc::mmap(at, bytes, libc::PROT_READ, flags, file, offset as libc::off_t) == libc::MAP_FAILED
            {
                libc::mprotect(at, bytes, libc::PROT_NONE);
            }
        }
    }

    /// The file's path, its length when it was mapped, and its current length.
    fn describe(&self) -> File {
        let link = format!("/proc/self/fd/{}", self.file.load(Ordering::SeqCst));
        let current = std::fs::metadata(&link).map_or(0, |metadata| metadata.len());
        let path = std::fs::read_link(link).map(|path| path.display().to_string());
        (path.unwrap_or_else(|_| "a file".to_owned()), self.bytes.load(Ordering::SeqCst) as u64, current)
    }
}

fn record(truncated: &mut VecDeque<(usize, File)>, replaced: usize, file: File) {
    if truncated.len() == MAX_TRUNCATED_FILES {
        truncated.pop_front();
    }
    truncated.push_back((replaced, file));
}

/// Registers a mapping with the signal handler. Must be dropped before the mapping and its file.
pub(crate) struct TruncatableMapping(&'static Slot);

impl TruncatableMapping {
    /// Returns `None` if no slot is free.
    pub(crate) fn new(start: NonNull<u8>, bytes: usize, file: RawFd) -> Option<Self> {
        let start = start.as_ptr().addr();
        let claim = |slot: &&Slot| {
            slot.start.compare_exchange(FREE, CLAIMED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let slot = SLOTS.iter().find(claim)?;
        slot.replaced_from.store(NONE_REPLACED, Ordering::SeqCst);
        slot.bytes.store(bytes, Ordering::SeqCst);
        slot.file.store(file, Ordering::SeqCst);
        slot.end.store(start + bytes.next_multiple_of(page_bytes()), Ordering::Release);
        slot.start.store(start, Ordering::Release);
        Some(Self(slot))
    }
}

impl Drop for TruncatableMapping {
    fn drop(&mut self) {
        let mut truncated = TRUNCATED_FILES.lock();
        if self.0.replaced_from.swap(NONE_REPLACED, Ordering::SeqCst) != NONE_REPLACED {
            record(&mut truncated, REPLACED.load(Ordering::SeqCst), self.0.describe());
        }
        self.0.start.store(FREE, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
    use std::time::Duration;

    use super::*;
    use crate::files::mapping::Mapping;

    const BYTES: usize = 100_000;

    /// Runs the tests one after another, because concurrent calls may return each other's errors.
    fn serialised() -> MutexGuard<'static, ()> {
        static SERIAL: Mutex<()> = Mutex::new(());
        handle_sigbus().unwrap();
        SERIAL.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn mapped(folder: &tempfile::TempDir, name: &str) -> (File, Arc<Mapping>) {
        let path = folder.path().join(name);
        std::fs::write(&path, vec![1; BYTES]).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let mapping = Mapping::new(Arc::new(File::open(&path).unwrap())).unwrap().unwrap();
        (file, mapping)
    }

    fn sum(mapping: &Mapping) -> usize {
        mapping.bytes().iter().map(|byte| usize::from(*byte)).sum()
    }

    fn read(mapping: &Mapping) -> Result<usize, ApiError> {
        guarded(|| Ok(sum(mapping)))
    }

    #[test]
    fn every_call_that_reads_a_truncated_file_returns_an_error_that_names_it() {
        let _guard = serialised();
        let folder = tempfile::tempdir().unwrap();
        let (file, mapping) = mapped(&folder, "truncated");
        let (_other, whole) = mapped(&folder, "whole");
        assert_eq!(read(&mapping).unwrap(), BYTES);
        file.set_len(5000).unwrap();
        for _ in 0..3 {
            let error = read(&mapping).unwrap_err();
            let path = folder.path().join("truncated");
            let expected = format!(
                "'{}' was truncated while it was mapped: expected {BYTES} bytes, got 5000",
                path.display()
            );
            assert!(error.message().starts_with(&expected), "{error}");
            assert_eq!(read(&whole).unwrap(), BYTES, "another file has all of its bytes");
        }
        // The file has its old length again, so the call reads the file's contents instead of
        // zeros.
        file.set_len(0).unwrap();
        std::fs::write(folder.path().join("truncated"), vec![2; BYTES]).unwrap();
        assert_eq!(read(&mapping).unwrap(), 2 * BYTES);
    }

    #[test]
    fn nested_calls_both_return_the_error() {
        let _guard = serialised();
        let folder = tempfile::tempdir().unwrap();
        let (file, mapping) = mapped(&folder, "nested");
        file.set_len(0).unwrap();
        let mut inner = None;
        let outer: Result<(), ApiError> = guarded(|| {
            inner = Some(read(&mapping));
            Ok(())
        });
        assert!(inner.unwrap().unwrap_err().message().contains("nested"));
        assert!(outer.unwrap_err().message().contains("was truncated while it was"));
    }

    #[test]
    fn returns_the_error_if_the_file_was_unmapped_or_the_call_failed() {
        let _guard = serialised();
        let folder = tempfile::tempdir().unwrap();
        let (file, mapping) = mapped(&folder, "unmapped");
        file.set_len(0).unwrap();
        let work = move || -> Result<(), ApiError> {
            // An unused sum would not be calculated in an optimised build.
            std::hint::black_box(sum(&mapping));
            drop(mapping);
            Err(ApiError::bad_data("zeros"))
        };
        let error = guarded(work).unwrap_err();
        assert!(error.message().contains("unmapped' was truncated"), "{error}");
    }

    #[test]
    fn concurrent_calls_all_return_the_error() {
        let _guard = serialised();
        let folder = tempfile::tempdir().unwrap();
        let (file, mapping) = mapped(&folder, "threads");
        file.set_len(0).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        assert!(read(&mapping).is_err(), "zeros were read as the file's contents");
                        std::thread::sleep(Duration::from_micros(50));
                    }
                });
            }
        });
    }
}
