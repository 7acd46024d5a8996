//! Channels on which one process sends requests to another process.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use crossdock_plugin_api::{Cancel, Subscription};
use rustix::event::{EventfdFlags, eventfd};

use crate::wire::channel::{Channel, Message, POLL_INTERVAL};
use crate::wire::channel_pool::ChannelPool;

/// The maximum number of requests that one process sends at the same time. A higher limit has no
/// benefit.
pub const MAX_CHANNELS: usize = 64;

/// The open channels of a process, and the control socket over which it opens them.
pub struct Channels {
    control: Channel,
    pool: ChannelPool<Channel>,
    max: usize,
    stall_timeout: Duration,
}

impl Channels {
    /// The time that a request waits for an idle channel if `max` channels are busy.
    const BUSY_TIMEOUT: Duration = Duration::from_secs(60);

    /// Creates at most `max` channels, which are opened over `control`. A request fails if a
    /// message takes longer than `stall_timeout` from its first to its last byte. The time until
    /// the first byte has no limit.
    pub fn new(control: Channel, max: usize, stall_timeout: Duration) -> Self {
        let control = control.with_stall_timeout(stall_timeout);
        Self { control, pool: ChannelPool::new(max), max, stall_timeout }
    }

    /// Sends a message without a response over the control socket.
    pub fn notify(&self, bytes: &[u8]) -> io::Result<()> {
        self.pool.exclusive(|| self.control.send(bytes, &[], &[]))
    }

    /// Whether a request can be sent without waiting for a channel.
    pub fn has_capacity(&self) -> bool {
        self.pool.has_capacity()
    }

    /// Sends a request and returns the response. Calls `wait` repeatedly until the response
    /// arrives, and at once after `cancel` is set. If `wait` returns an error, the request ends.
    ///
    /// # Errors
    /// `wait` failed, no channel became idle, or the other process closed the connection.
    pub fn request<E: From<io::Error>>(
        &self,
        bytes: &[u8],
        payload: &[u8],
        files: &[BorrowedFd<'_>],
        cancel: Option<Cancel<'_>>,
        wait: impl FnMut() -> Result<(), E>,
    ) -> Result<Message, E> {
        let channel = self.take()?;
        let response = request_on(&channel, bytes, payload, files, cancel, wait);
        // A failed channel is closed before the pool counts it as closed.
        let channel = response.is_ok().then_some(channel);
        self.pool.put_back(channel);
        response
    }

    fn take(&self) -> io::Result<Channel> {
        let busy = || {
            let message = format!("{} requests are pending, which is the maximum", self.max);
            io::Error::new(io::ErrorKind::ResourceBusy, message)
        };
        self.pool.take(Self::BUSY_TIMEOUT, || self.open())?.ok_or_else(busy)
    }

    fn open(&self) -> io::Result<Channel> {
        let (local, remote) = Channel::pair()?;
        let local = local.with_stall_timeout(self.stall_timeout);
        self.control.send(&[], &[], &[remote.as_fd()])?;
        Ok(local)
    }

    /// Closes the control socket. This ends the other process's wait for new channels, and no more
    /// channels can be opened.
    pub fn close(&self) {
        self.control.close();
    }
}

fn request_on<E: From<io::Error>>(
    channel: &Channel,
    bytes: &[u8],
    payload: &[u8],
    files: &[BorrowedFd<'_>],
    cancel: Option<Cancel<'_>>,
    mut wait: impl FnMut() -> Result<(), E>,
) -> Result<Message, E> {
    channel.send_while(bytes, payload, files, &mut wait)?;
    // Most responses arrive soon, and then nothing has to be set up.
    if !channel.is_ready_within(SHORT)? {
        wait()?;
        let waker = cancel.and_then(Waker::new);
        let mut fd = waker.as_ref().map(|waker| waker.fd.as_fd());
        while !channel.is_ready_unless_woken(POLL_INTERVAL, &mut fd)? {
            wait()?;
        }
    }
    Ok(channel.receive_while(&mut wait)?.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?)
}

/// The time within which most responses arrive.
const SHORT: Duration = Duration::from_millis(1);

/// A descriptor that becomes readable when a flag is set.
struct Waker<'a> {
    fd: Arc<OwnedFd>,
    _subscription: Subscription<'a>,
}

impl<'a> Waker<'a> {
    /// `None` if the system has no descriptor left, or the flag cannot be subscribed to. The flag
    /// is then read after each interval.
    fn new(cancel: Cancel<'a>) -> Option<Self> {
        let fd = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok()?);
        let written = fd.clone();
        // The write fails only if the counter is at its maximum, and then the descriptor is
        // readable already.
        let wake = move || {
            let _ = rustix::io::write(&*written, &1u64.to_ne_bytes());
        };
        let subscription = cancel.subscribe(wake).ok()?;
        Some(Self { fd, _subscription: subscription })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant;

    use super::*;

    fn no_limit() -> Result<(), io::Error> {
        Ok(())
    }

    /// Returns the remote end of the channel that was opened over `control`.
    fn accept(control: &Channel) -> Channel {
        control.receive().unwrap().unwrap().files.pop().unwrap().into()
    }

    #[test]
    fn request_waits_for_an_idle_channel_when_all_are_busy() {
        let (local, remote) = Channel::pair().unwrap();
        let channels = Channels::new(local, 1, Duration::from_secs(60));
        std::thread::scope(|scope| {
            let request = |bytes: &'static [u8]| {
                let channels = &channels;
                scope.spawn(move || {
                    channels.request(bytes, &[], &[], None, no_limit).map(|message| message.bytes)
                })
            };
            let first = request(b"first");
            let channel = accept(&remote);
            assert_eq!(channel.receive().unwrap().unwrap().bytes, b"first");
            let second = request(b"second");
            assert!(
                !remote.is_ready_within(Duration::from_millis(50)).unwrap(),
                "another channel was opened"
            );
            channel.send(b"1", &[], &[]).unwrap();
            assert_eq!(first.join().unwrap().unwrap(), b"1");
            assert_eq!(channel.receive().unwrap().unwrap().bytes, b"second");
            // The pool replaces the closed channel by a new channel.
            drop(channel);
            assert!(second.join().unwrap().is_err());
            let third = request(b"third");
            let channel = accept(&remote);
            assert_eq!(channel.receive().unwrap().unwrap().bytes, b"third");
            channel.send(b"3", &[], &[]).unwrap();
            assert_eq!(third.join().unwrap().unwrap(), b"3");
        });
    }

    #[test]
    fn waiting_requests_fail_at_once_when_no_channel_can_be_opened() {
        let (local, remote) = Channel::pair().unwrap();
        let channels = Channels::new(local, 1, Duration::from_secs(60));
        let start = Instant::now();
        std::thread::scope(|scope| {
            let request = || scope.spawn(|| channels.request(b"request", &[], &[], None, no_limit).map(drop));
            let first = request();
            let channel = accept(&remote);
            channel.receive().unwrap().unwrap();
            let waiting: Vec<_> = (0..3).map(|_| request()).collect();
            std::thread::sleep(Duration::from_millis(100));
            drop((remote, channel));
            assert!(first.join().unwrap().is_err());
            waiting.into_iter().for_each(|request| assert!(request.join().unwrap().is_err()));
        });
        assert!(start.elapsed() < Channels::BUSY_TIMEOUT / 2, "{:?}", start.elapsed());
    }

    #[test]
    fn error_of_wait_function_ends_request_whose_message_stalls() {
        let (local, remote) = Channel::pair().unwrap();
        let channels = Channels::new(local, 1, Duration::from_secs(10));
        let is_stalled = AtomicBool::new(false);
        let expect_refused = |bytes: &[u8]| {
            let (start, mut calls) = (Instant::now(), 0);
            let wait = || {
                calls += usize::from(is_stalled.load(Ordering::Relaxed));
                if calls < 5 { Ok(()) } else { Err(io::ErrorKind::ConnectionRefused.into()) }
            };
            let error: io::Error = channels.request(bytes, &[], &[], None, wait).err().unwrap();
            assert!(start.elapsed() < Duration::from_secs(5), "{error} after {:?}", start.elapsed());
            assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let channel = accept(&remote);
                assert_eq!(channel.receive().unwrap().unwrap().bytes, b"request");
                let socket = UnixStream::from(OwnedFd::from(channel));
                // The head declares 100 bytes, but only one byte follows.
                (&socket).write_all(&[100, 0, 0, 0, 0, 0, 0, 0, 1]).unwrap();
                is_stalled.store(true, Ordering::Relaxed);
                assert_eq!((&socket).read(&mut [0]).unwrap(), 0, "the requester closed its end");
            });
            expect_refused(b"request");
        });
        // The message is longer than the socket's buffers, and the remote end does not read.
        expect_refused(&vec![1; 8 << 20]);
    }
}
