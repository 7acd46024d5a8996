//! Mapped files that another program truncates while they are read.
//!
//! The system sends SIGBUS to whoever touches a page that is gone. With [`handle_sigbus`], pages of mapped inputs that are
//! touched during a call of [`guarded`] read as zeros until the call has returned, and the call returns an error that names
//! the file. Then the pages are gone again: a reader outside such a call gets the signal, and no zeros.

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
    /// Each file's path, with the bytes that were mapped and those that it has now.
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
        f.write_str("; a file that others write to is read without mapping it (map=False, --no-map)")
    }
}

impl std::error::Error for Truncated {}

impl From<Truncated> for ApiError {
    fn from(truncated: Truncated) -> Self {
        Self::io(truncated.to_string())
    }
}

/// How many mappings can be looked up in the signal's handler; readers of more get the signal.
const MAX_MAPPINGS: usize = 1024;
/// A slot's `start` while it is free, and while it is being filled in.
const FREE: usize = 0;
const CLAIMED: usize = 1;
const WHOLE: usize = usize::MAX;

/// A mapping, for the handler, which may take no lock.
struct Slot {
    start: AtomicUsize,
    end: AtomicUsize,
    bytes: AtomicUsize,
    /// Open while the slot is not free.
    file: AtomicI32,
    /// From where on pages were replaced; [`WHOLE`] where none was.
    replaced_from: AtomicUsize,
}

static SLOTS: [Slot; MAX_MAPPINGS] = [const {
    Slot {
        start: AtomicUsize::new(FREE),
        end: AtomicUsize::new(0),
        bytes: AtomicUsize::new(0),
        file: AtomicI32::new(-1),
        replaced_from: AtomicUsize::new(WHOLE),
    }
}; MAX_MAPPINGS];
/// How many calls of [`guarded`] are running.
static CALLS: Threads = Threads::new();
/// How many threads are replacing pages.
static REPLACING: Threads = Threads::new();
/// How often pages were replaced.
static REPLACED: AtomicUsize = AtomicUsize::new(0);
/// What [`REPLACED`] was when all replaced pages had been given back to their files.
static RESTORED: AtomicUsize = AtomicUsize::new(0);
/// What was done on the signal before; set once the handler is installed.
static PREVIOUS: OnceLock<Action> = OnceLock::new();
/// Files of which pages were replaced, the newest last, with what [`REPLACED`] was.
static FOUND: ProcessWide<VecDeque<(usize, File)>> = ProcessWide::new();
/// As many of them are remembered for calls that are still running.
const MAX_FOUND: usize = 64;

type File = (String, u64, u64);

/// How many threads of this process are somewhere: a forked child has none of its parent's. Its functions may be called in a
/// handler.
struct Threads(AtomicU64);

impl Threads {
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

    /// The process in the upper half, the count in the lower one.
    fn of(both: u64, process: u32) -> u32 {
        if both >> 32 == u64::from(process) { both as u32 } else { 0 }
    }

    fn change(&self, change: impl Fn(u32) -> u32) {
        let process = std::process::id();
        let changed = |both| Some(u64::from(process) << 32 | u64::from(change(Self::of(both, process))));
        // Never refused.
        let _ = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, changed);
    }
}

struct Action(libc::sigaction);

// SAFETY: a function's address and flags.
unsafe impl Send for Action {}
// SAFETY: as above.
unsafe impl Sync for Action {}

/// From now on SIGBUS for a page of a mapped input is an error of the [`guarded`] call that touched it. Whatever else SIGBUS is
/// sent for goes to the handler that was installed before. Does nothing the second time.
///
/// # Errors
/// The system's, where a handler cannot be installed.
pub fn handle_sigbus() -> io::Result<()> {
    if PREVIOUS.get().is_some() {
        return Ok(());
    }
    let mut previous = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: all zero is a valid sigaction, with an empty mask; both are locals.
    let previous = unsafe {
        if libc::sigaction(libc::SIGBUS, std::ptr::null(), previous.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        previous.assume_init()
    };
    if PREVIOUS.set(Action(previous)).is_err() {
        return Ok(());
    }
    // SAFETY: as above.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_signal as extern "C" fn(_, *mut libc::siginfo_t, *mut libc::c_void) as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: a valid action whose handler only does what a handler may.
    match unsafe { libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Atomics, and async-signal-safe calls only.
extern "C" fn on_signal(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO the system gives the signal's description; errno is this thread's.
    unsafe {
        let errno = *libc::__errno_location();
        let is_past_the_end = (*info).si_code == libc::BUS_ADRERR;
        REPLACING.enter();
        let handled = is_past_the_end && replace((*info).si_addr().addr());
        REPLACING.leave();
        *libc::__errno_location() = errno;
        if !handled {
            pass_on(signal, info, context);
        }
    }
}

/// Puts pages of zeros in the place of those from `address` to the end of its mapping: a file that ends before a page ends before
/// all later ones.
fn replace(address: usize) -> bool {
    if CALLS.count() == 0 {
        return false;
    }
    for slot in &SLOTS {
        let start = slot.start.load(Ordering::Acquire);
        let end = slot.end.load(Ordering::Acquire);
        // The slot may have been given to another mapping in between.
        if start <= CLAIMED || !(start..end).contains(&address) || slot.start.load(Ordering::Acquire) != start
        {
            continue;
        }
        let from = start + (address - start) / page_bytes() * page_bytes();
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        // SAFETY: these pages are of a mapping that the thread which touched them keeps alive.
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
    // SAFETY: a plain question, which may be asked in a handler.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Does what was done on the signal before.
///
/// # Safety
/// What the system gave a handler.
unsafe fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let previous = PREVIOUS.get().map_or(libc::SIG_DFL, |action| action.0.sa_sigaction);
    let takes_info = PREVIOUS.get().is_some_and(|action| action.0.sa_flags & libc::SA_SIGINFO != 0);
    // SAFETY: a handler that was installed, called as its flags say; the other functions are async-signal-safe.
    unsafe {
        if previous == libc::SIG_DFL || previous == libc::SIG_IGN {
            // The access is repeated when this returns, and ends the process. A signal that was sent is sent again.
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        } else if takes_info {
            type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
            std::mem::transmute::<usize, Handler>(previous)(signal, info, context);
        } else {
            std::mem::transmute::<usize, extern "C" fn(libc::c_int)>(previous)(signal);
        }
    }
}

/// Runs `work`, which may read mapped files. Whatever it returns, a file that was found truncated meanwhile is the error: the
/// result was made of zeros in part.
///
/// # Errors
/// Those of `work`, and [`Truncated`]. Calls that run at the same time on other threads may all get it.
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

/// A call until it ends, or unwinds.
struct Call {
    /// What [`REPLACED`] was when it began.
    replaced: usize,
}

impl Call {
    /// No page is replaced when it begins, or the call would read one without being told.
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

    /// Which files had pages replaced since it began.
    fn truncated(&self) -> Option<Truncated> {
        // A thread that has put zeros in place and has not counted it yet.
        while REPLACING.count() > 0 {
            std::hint::spin_loop();
        }
        if REPLACED.load(Ordering::SeqCst) == self.replaced {
            return None;
        }
        restore();
        let mut files: Vec<File> = Vec::new();
        for (when, file) in FOUND.lock().iter() {
            if *when > self.replaced && !files.contains(file) {
                files.push(file.clone());
            }
        }
        Some(Truncated { files })
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        // Of work that unwound, too, no zeros stay.
        if REPLACED.load(Ordering::SeqCst) != RESTORED.load(Ordering::SeqCst) {
            restore();
        }
        CALLS.leave();
    }
}

/// Maps the files again where pages were replaced. A mapping ends with the same lock held, see [`Listed`].
fn restore() {
    let mut found = FOUND.lock();
    let replaced = REPLACED.load(Ordering::SeqCst);
    for slot in &SLOTS {
        let from = slot.replaced_from.swap(WHOLE, Ordering::SeqCst);
        if from != WHOLE {
            slot.restore(from);
            note(&mut found, replaced, slot.described());
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
        // SAFETY: pages of this very mapping, in place of which the same ones come, or where the system has no room, ones that
        // cannot be read.
        unsafe {
            let at = from as *mut libc::c_void;
            if libc::mmap(at, bytes, libc::PROT_READ, flags, file, offset as libc::off_t) == libc::MAP_FAILED
            {
                libc::mprotect(at, bytes, libc::PROT_NONE);
            }
        }
    }

    /// The file's path, how many bytes were mapped, and how many it has now.
    fn described(&self) -> File {
        let link = format!("/proc/self/fd/{}", self.file.load(Ordering::SeqCst));
        let now = std::fs::metadata(&link).map_or(0, |metadata| metadata.len());
        let path = std::fs::read_link(link).map(|path| path.display().to_string());
        (path.unwrap_or_else(|_| "a file".to_owned()), self.bytes.load(Ordering::SeqCst) as u64, now)
    }
}

fn note(found: &mut VecDeque<(usize, File)>, replaced: usize, file: File) {
    if found.len() == MAX_FOUND {
        found.pop_front();
    }
    found.push_back((replaced, file));
}

/// A mapping's place in the list that the handler looks at. It ends before the mapping does, and before the file is closed.
pub(crate) struct Listed(&'static Slot);

impl Listed {
    /// `None` where the list is full.
    pub(crate) fn new(start: NonNull<u8>, bytes: usize, file: RawFd) -> Option<Self> {
        let start = start.as_ptr().addr();
        let claim = |slot: &&Slot| {
            slot.start.compare_exchange(FREE, CLAIMED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let slot = SLOTS.iter().find(claim)?;
        slot.replaced_from.store(WHOLE, Ordering::SeqCst);
        slot.bytes.store(bytes, Ordering::SeqCst);
        slot.file.store(file, Ordering::SeqCst);
        slot.end.store(start + bytes.next_multiple_of(page_bytes()), Ordering::Release);
        slot.start.store(start, Ordering::Release);
        Some(Self(slot))
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        let mut found = FOUND.lock();
        if self.0.replaced_from.swap(WHOLE, Ordering::SeqCst) != WHOLE {
            note(&mut found, REPLACED.load(Ordering::SeqCst), self.0.described());
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
    use crate::mapping::Mapping;

    const BYTES: usize = 100_000;

    /// One test at a time: calls of other threads get the error too.
    fn alone() -> MutexGuard<'static, ()> {
        static ALONE: Mutex<()> = Mutex::new(());
        handle_sigbus().unwrap();
        ALONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn mapped(folder: &tempfile::TempDir, name: &str) -> (File, Arc<Mapping>) {
        let path = folder.path().join(name);
        std::fs::write(&path, vec![1; BYTES]).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let mapping = Mapping::of(Arc::new(File::open(&path).unwrap())).unwrap().unwrap();
        (file, mapping)
    }

    fn sum(mapping: &Mapping) -> usize {
        mapping.bytes().iter().map(|byte| usize::from(*byte)).sum()
    }

    fn read(mapping: &Mapping) -> Result<usize, ApiError> {
        guarded(|| Ok(sum(mapping)))
    }

    #[test]
    fn a_call_that_reads_a_truncated_file_fails_as_often_as_it_does_and_names_it() {
        let _alone = alone();
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
        // What comes back is read as it is: no page of zeros has stayed.
        file.set_len(0).unwrap();
        std::fs::write(folder.path().join("truncated"), vec![2; BYTES]).unwrap();
        assert_eq!(read(&mapping).unwrap(), 2 * BYTES);
    }

    #[test]
    fn the_error_is_the_inner_calls_and_the_outer_calls() {
        let _alone = alone();
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
    fn the_error_comes_also_where_the_file_was_unmapped_before_the_call_ended_or_the_call_failed() {
        let _alone = alone();
        let folder = tempfile::tempdir().unwrap();
        let (file, mapping) = mapped(&folder, "unmapped");
        file.set_len(0).unwrap();
        let work = move || -> Result<(), ApiError> {
            sum(&mapping);
            drop(mapping);
            Err(ApiError::bad_data("zeros"))
        };
        let error = guarded(work).unwrap_err();
        assert!(error.message().contains("unmapped' was truncated"), "{error}");
    }

    #[test]
    fn threads_that_read_at_once_get_the_error_each() {
        let _alone = alone();
        let folder = tempfile::tempdir().unwrap();
        let (file, mapping) = mapped(&folder, "threads");
        file.set_len(0).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        assert!(read(&mapping).is_err(), "zeros were taken for the file's bytes");
                        std::thread::sleep(Duration::from_micros(50));
                    }
                });
            }
        });
    }
}
