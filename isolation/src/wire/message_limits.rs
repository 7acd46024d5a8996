//! The limits of the bytes and files of one message, and of all messages that a process receives or
//! handles at the same time.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crossdock_plugin_api::Error;

/// The maximum length of one message in bytes, without the arrays, which are sent in files. A
/// longer message is malformed.
pub const MAX_BYTES: usize = 16 << 20;
/// The maximum number of open files in one message (Linux allows 253).
pub const MAX_FILES: usize = 250;

/// Checks the length of a message.
///
/// # Errors
/// The message is longer than [`MAX_BYTES`].
pub fn check_len(bytes: usize) -> Result<(), Error> {
    if bytes <= MAX_BYTES {
        return Ok(());
    }
    Err(Error::unsupported(format!(
        "a message of {bytes} bytes without its arrays, expected at most {MAX_BYTES} to or from the process of an isolated \
         plugin"
    )))
}

/// Limits the messages that one process receives or handles at the same time. Counts the bytes of
/// large messages, and the files of all messages.
#[derive(Default)]
pub struct MessageBudget {
    pub(super) bytes: AtomicUsize,
    files: AtomicUsize,
    /// Locked while a thread receives files, because the files are open before they can be counted.
    receiving: Mutex<()>,
}

impl MessageBudget {
    /// The limit is low because a parsed message takes many times its length in memory.
    const MAX_BYTES: usize = 2 * MAX_BYTES;
    /// The host itself needs the remaining files of the usual limit of 1024 open files.
    pub(super) const MAX_FILES: usize = 2 * MAX_FILES;
    /// Messages up to this length are not counted, because many threads may write through sinks at
    /// the same time, and each of their messages may have this length.
    const MAX_UNCOUNTED_BYTES: usize = (1 << 20) + (64 << 10);

    /// Keeps other threads from receiving files until the guard is dropped.
    pub fn lock(&self) -> MutexGuard<'_, ()> {
        self.receiving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of files that may still be received.
    pub fn remaining_files(&self) -> usize {
        Self::MAX_FILES.saturating_sub(self.files.load(Ordering::Relaxed))
    }

    /// Counts received files.
    ///
    /// # Errors
    /// The pending messages have too many files.
    pub fn reserve_files(&self, files: usize) -> io::Result<MessageReservation<'_>> {
        let mut reservation = MessageReservation { budget: self, bytes: 0, files: 0 };
        add_within(&self.files, files, Self::MAX_FILES)?;
        reservation.files = files;
        Ok(reservation)
    }
}

fn add_within(count: &AtomicUsize, n: usize, max: usize) -> io::Result<()> {
    let add = |count: usize| count.checked_add(n).filter(|sum| n == 0 || *sum <= max);
    let result = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    let exceeded =
        |_| io::Error::new(io::ErrorKind::QuotaExceeded, "the pending messages have too many bytes or files");
    result.map(drop).map_err(exceeded)
}

/// A part of a [`MessageBudget`]. Dropping it returns the part to the budget.
pub struct MessageReservation<'a> {
    budget: &'a MessageBudget,
    bytes: usize,
    files: usize,
}

impl MessageReservation<'_> {
    /// Counts the bytes of a large message.
    ///
    /// # Errors
    /// The pending messages have too many bytes.
    pub fn add_bytes(&mut self, bytes: usize) -> io::Result<()> {
        if bytes > MessageBudget::MAX_UNCOUNTED_BYTES {
            add_within(&self.budget.bytes, bytes, MessageBudget::MAX_BYTES)?;
            self.bytes += bytes;
        }
        Ok(())
    }
}

impl Drop for MessageReservation<'_> {
    fn drop(&mut self) {
        self.budget.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        self.budget.files.fetch_sub(self.files, Ordering::Relaxed);
    }
}
