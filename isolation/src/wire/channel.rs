//! Channels: Unix sockets that carry messages of bytes and open files between a host and a plugin's
//! process.
//!
//! A channel carries one request and its response at a time. New channels and messages without a
//! response are sent over the control socket, which is the standard input of the process.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crossdock_memory_backend::pause_for_files_in_flight;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recv, recvmsg, send, sendmsg,
};

use crate::wire::message_limits::{MAX_BYTES, MAX_FILES, MessageBudget, MessageReservation};

/// A message begins with its length in bytes and its number of files, both `u32`, little-endian.
const HEAD_BYTES: usize = 8;
const SEND_FLAGS: SendFlags = SendFlags::NOSIGNAL.union(SendFlags::DONTWAIT);

/// The interval at which a thread that waits for a socket calls its `wait` function.
pub const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The default time limit from the first to the last byte of a message.
pub const STALL_TIMEOUT: Duration = Duration::from_secs(60);
/// A function that is called while a socket is not ready. If it returns an error, the wait ends.
pub type Wait<'a, E> = &'a mut dyn FnMut() -> Result<(), E>;

/// A received message.
#[derive(Default)]
pub struct Message {
    pub bytes: Vec<u8>,
    pub files: Vec<OwnedFd>,
}

/// A message that replies to another message. `payload` is sent after `bytes`.
#[derive(Default)]
pub struct Reply {
    pub bytes: Vec<u8>,
    pub payload: Vec<u8>,
    pub files: Vec<OwnedFd>,
    /// Memory for the next message that is received. It may be empty.
    pub spare: Vec<u8>,
}

/// One end of a channel.
pub struct Channel {
    socket: UnixStream,
    /// The time limit from the first to the last byte of a message.
    stall_timeout: Option<Duration>,
}

impl Channel {
    pub fn pair() -> io::Result<(Self, Self)> {
        let (a, b) = UnixStream::pair()?;
        Ok((a.into(), b.into()))
    }

    /// Returns an error if a message that began at `start` has exceeded the stall timeout.
    fn check_stall(&self, start: Instant) -> io::Result<()> {
        match self.stall_timeout {
            Some(timeout) if start.elapsed() > timeout => Err(io::ErrorKind::TimedOut.into()),
            _ => Ok(()),
        }
    }

    /// How long a sender waits while too many files are in flight.
    fn in_flight_timeout(&self) -> Duration {
        self.stall_timeout.map_or(STALL_TIMEOUT, |timeout| timeout.min(STALL_TIMEOUT))
    }

    /// Sends one message that consists of `bytes` and `payload`.
    pub fn send(&self, bytes: &[u8], payload: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.send_while(bytes, payload, files, &mut || Ok(()))
    }

    /// Sends one message. Calls `wait` repeatedly while the socket is full, or too many files of
    /// this user are in flight. If `wait` returns an error, the transmission ends.
    pub fn send_while<E: From<io::Error>>(
        &self,
        bytes: &[u8],
        payload: &[u8],
        files: &[BorrowedFd<'_>],
        wait: Wait<'_, E>,
    ) -> Result<(), E> {
        let too_long =
            || io::Error::new(io::ErrorKind::InvalidInput, "a message has too many bytes or files");
        let len = bytes.len() + payload.len();
        let len = u32::try_from(len).ok().filter(|_| len <= MAX_BYTES).ok_or_else(too_long)?;
        let mut head = [0; HEAD_BYTES];
        head[..4].copy_from_slice(&len.to_le_bytes());
        head[4..].copy_from_slice(&(files.len() as u32).to_le_bytes());
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(files)) {
            return Err(too_long().into());
        }
        let pieces = [IoSlice::new(&head), IoSlice::new(bytes), IoSlice::new(payload)];
        let start = Instant::now();
        let sent = loop {
            match sendmsg(&self.socket, &pieces, &mut ancillary, SEND_FLAGS) {
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => self.wait_for(PollFlags::OUT, start, wait)?,
                Err(rustix::io::Errno::TOOMANYREFS) => {
                    wait()?;
                    pause_for_files_in_flight(start, self.in_flight_timeout())?;
                }
                result => break result.map_err(io::Error::from)?,
            }
        };
        // The system has sent the files with the first byte.
        let mut piece_start = 0;
        for piece in [&head, bytes, payload] {
            let rest = piece.get(sent.saturating_sub(piece_start)..).unwrap_or_default();
            self.send_rest(rest, start, wait)?;
            piece_start += piece.len();
        }
        Ok(())
    }

    /// Sends the remaining bytes of a message that began at `start`.
    fn send_rest<E: From<io::Error>>(
        &self,
        mut rest: &[u8],
        start: Instant,
        wait: Wait<'_, E>,
    ) -> Result<(), E> {
        while !rest.is_empty() {
            match send(&self.socket, rest, SEND_FLAGS) {
                Ok(n) => rest = rest.get(n..).unwrap_or_default(),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => self.wait_for(PollFlags::OUT, start, wait)?,
                Err(error) => return Err(io::Error::from(error).into()),
            }
            if !rest.is_empty() {
                self.check_stall(start)?;
            }
        }
        Ok(())
    }

    /// Waits until the socket is ready to continue a message that began at `start`.
    fn wait_for<E: From<io::Error>>(
        &self,
        events: PollFlags,
        start: Instant,
        wait: Wait<'_, E>,
    ) -> Result<(), E> {
        while !self.is_ready_for(events, POLL_INTERVAL)? {
            wait()?;
            self.check_stall(start)?;
        }
        Ok(())
    }

    /// Waits for the next message. Returns `None` if the remote end is closed.
    pub fn receive(&self) -> io::Result<Option<Message>> {
        self.receive_while(&mut || Ok(()))
    }

    /// Waits for the next message. After the first byte, calls `wait` repeatedly while no bytes
    /// arrive. If `wait` returns an error, the reception ends.
    pub fn receive_while<E: From<io::Error>>(&self, wait: Wait<'_, E>) -> Result<Option<Message>, E> {
        Ok(self.receive_within(&MessageBudget::default(), Vec::new(), wait)?.map(|(message, _)| message))
    }

    /// Waits for the next message, and counts it against `budget`. Its bytes are written to `bytes`
    /// if they fit.
    fn receive_within<'a, E: From<io::Error>>(
        &self,
        budget: &'a MessageBudget,
        mut bytes: Vec<u8>,
        wait: Wait<'_, E>,
    ) -> Result<Option<(Message, MessageReservation<'a>)>, E> {
        let mut head = [0; HEAD_BYTES];
        // The time limit does not apply before the first byte.
        let (received, mut reservation, files) = self.receive_first(&mut head, budget)?;
        if received == 0 {
            return Ok(None);
        }
        // `send_while` sends a whole head at once, and the system delivers the files with the head.
        // A partial head with files is therefore malformed.
        if received < HEAD_BYTES && !files.is_empty() {
            let message = format!(
                "{} open files came with {received} bytes of a message's head, expected {HEAD_BYTES} bytes",
                files.len()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, message).into());
        }
        let start = Instant::now();
        self.receive_rest(head.get_mut(received..).unwrap_or_default(), start, wait)?;
        let [a, b, c, d, n @ ..] = head;
        let (len, count) = (u32::from_le_bytes([a, b, c, d]) as usize, u32::from_le_bytes(n) as usize);
        if len > MAX_BYTES || count != files.len() {
            let message =
                format!("a message of {len} bytes has {} open files, expected {count} files", files.len());
            return Err(io::Error::new(io::ErrorKind::InvalidData, message).into());
        }
        reservation.add_bytes(len)?;
        // The allocation grows with the received bytes, because the declared length may be wrong.
        const FIRST_BYTES: usize = 64 << 10;
        bytes.truncate(len);
        let mut received = 0;
        while received < len {
            bytes.resize(len.min(bytes.capacity().max(2 * received).max(FIRST_BYTES)), 0);
            self.receive_rest(bytes.get_mut(received..).unwrap_or_default(), start, wait)?;
            received = bytes.len();
        }
        Ok(Some((Message { bytes, files }, reservation)))
    }

    /// Waits for the first bytes of a message. The files of the message arrive with these bytes,
    /// and are counted before other threads can receive files.
    fn receive_first<'a>(
        &self,
        head: &mut [u8],
        budget: &'a MessageBudget,
    ) -> io::Result<(usize, MessageReservation<'a>, Vec<OwnedFd>)> {
        const FLAGS: RecvFlags = RecvFlags::CMSG_CLOEXEC.union(RecvFlags::DONTWAIT);
        const LONG: Duration = Duration::from_secs(3600);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
        loop {
            let guard = budget.lock();
            // The system opens only as many files as fit into the buffer.
            let space_bytes = Self::space_for(budget.remaining_files().min(MAX_FILES));
            let mut ancillary = RecvAncillaryBuffer::new(space.get_mut(..space_bytes).unwrap_or_default());
            let result = recvmsg(&self.socket, &mut [IoSliceMut::new(head)], &mut ancillary, FLAGS);
            let received = match result {
                Err(rustix::io::Errno::INTR) => continue,
                Err(rustix::io::Errno::AGAIN) => {
                    drop(guard);
                    self.is_ready_within(LONG)?;
                    continue;
                }
                received => received?,
            };
            let mut files = Vec::new();
            for message in ancillary.drain() {
                if let RecvAncillaryMessage::ScmRights(rights) = message {
                    files.extend(rights);
                }
            }
            let reservation = budget.reserve_files(files.len())?;
            drop(guard);
            if received.flags.contains(ReturnFlags::CTRUNC) {
                let message = "a message with more open files than may be open at once";
                return Err(io::Error::new(io::ErrorKind::QuotaExceeded, message));
            }
            return Ok((received.bytes, reservation, files));
        }
    }

    /// The length in bytes of an ancillary buffer that has space for at most `files` files.
    const fn space_for(files: usize) -> usize {
        // The length of the buffer is a multiple of a word. A word holds two file descriptors, so
        // an odd number of files is rounded down.
        match files / 2 * 2 {
            0 => 0,
            files => rustix::cmsg_space!(ScmRights(files)),
        }
    }

    /// Fills `rest` with the remaining bytes of a message that began at `start`. The system closes
    /// files that arrive with these bytes.
    fn receive_rest<E: From<io::Error>>(
        &self,
        mut rest: &mut [u8],
        start: Instant,
        wait: Wait<'_, E>,
    ) -> Result<(), E> {
        while !rest.is_empty() {
            match recv(&self.socket, &mut *rest, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Ok((n, _)) => rest = rest.get_mut(n..).unwrap_or_default(),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => self.wait_for(PollFlags::IN, start, wait)?,
                Err(error) => return Err(io::Error::from(error).into()),
            }
            if !rest.is_empty() {
                self.check_stall(start)?;
            }
        }
        Ok(())
    }

    /// Sets the time limit from the first to the last byte of a message.
    pub fn with_stall_timeout(self, timeout: Duration) -> Self {
        Self { stall_timeout: Some(timeout), ..self }
    }

    /// Waits until bytes arrive or the remote end is closed, but not longer than `time`. Returns
    /// false if neither has happened.
    pub fn is_ready_within(&self, time: Duration) -> io::Result<bool> {
        self.is_ready_for(PollFlags::IN, time)
    }

    /// Like [`Self::is_ready_within`], but `waker` ends the wait too. After that, it is `None`.
    pub fn is_ready_unless_woken(
        &self,
        time: Duration,
        waker: &mut Option<BorrowedFd<'_>>,
    ) -> io::Result<bool> {
        let Some(fd) = *waker else { return self.is_ready_within(time) };
        if self.spin(PollFlags::IN, time) {
            return Ok(true);
        }
        let timeout = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
        let mut polled =
            [PollFd::new(&self.socket, PollFlags::IN), PollFd::from_borrowed_fd(fd, PollFlags::IN)];
        match poll(&mut polled, Some(&timeout)) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        let [of_socket, of_waker] = polled;
        if !of_waker.revents().is_empty() {
            *waker = None;
        }
        Ok(!of_socket.revents().is_empty())
    }

    /// Polls for a short time without sleeping. Waking a sleeping thread takes longer than most
    /// replies. Returns whether the socket is ready.
    fn spin(&self, events: PollFlags, time: Duration) -> bool {
        const SPIN: Duration = Duration::from_micros(50);
        let start = Instant::now();
        while time > SPIN && start.elapsed() < SPIN {
            if poll(&mut [PollFd::new(&self.socket, events)], Some(&Timespec::default())).is_ok_and(|n| n > 0)
            {
                return true;
            }
            std::thread::yield_now();
        }
        false
    }

    fn is_ready_for(&self, events: PollFlags, time: Duration) -> io::Result<bool> {
        if self.spin(events, time) {
            return Ok(true);
        }
        let timeout = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
        match poll(&mut [PollFd::new(&self.socket, events)], Some(&timeout)) {
            Ok(n) => Ok(n > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Handles messages one after another, within `budget`, until the remote end is closed or a
    /// reply cannot be sent.
    pub fn serve(&self, budget: &MessageBudget, handle: impl Fn(Message) -> Reply) {
        let mut spare = Vec::new();
        let mut exchange = || -> io::Result<bool> {
            let received =
                self.receive_within::<io::Error>(budget, std::mem::take(&mut spare), &mut || Ok(()))?;
            let Some((message, _reservation)) = received else { return Ok(false) };
            let mut reply = handle(message);
            let files: Vec<_> = reply.files.iter().map(AsFd::as_fd).collect();
            self.send(&reply.bytes, &reply.payload, &files)?;
            spare = std::mem::take(&mut reply.spare);
            Ok(true)
        };
        let error = loop {
            match exchange() {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => break error,
            }
        };
        // The remote end only learns that the channel is closed. Other errors mean that it has
        // closed the channel itself.
        if error.kind() == io::ErrorKind::QuotaExceeded {
            tracing::warn!("a channel between a host and a plugin's process is closed: {error}");
        }
    }

    /// Shuts the socket down in both directions. This ends the waits at both ends.
    pub fn close(&self) {
        // This fails if the remote end is already closed.
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }
}

impl From<UnixStream> for Channel {
    fn from(socket: UnixStream) -> Self {
        Self { socket, stall_timeout: None }
    }
}

impl From<Channel> for OwnedFd {
    fn from(channel: Channel) -> Self {
        channel.socket.into()
    }
}

impl From<OwnedFd> for Channel {
    fn from(socket: OwnedFd) -> Self {
        UnixStream::from(socket).into()
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Write;
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::wire::message_limits::check_len;

    fn no_limit() -> io::Result<()> {
        Ok(())
    }

    #[test]
    fn rejects_slow_message_whose_pieces_each_arrive_in_time() {
        let (local, remote) = Channel::pair().unwrap();
        let local = local.with_stall_timeout(Duration::from_millis(200));
        let mut message = [0; HEAD_BYTES + 1000];
        message[0..4].copy_from_slice(&1000u32.to_le_bytes());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for byte in message {
                    // This fails after the receiver has closed the channel.
                    let result = (&remote.socket).write(&[byte]);
                    if result.is_err() {
                        break;
                    }
                    std::thread::sleep(Duration::from_millis(10));
                }
            });
            let received = local.receive().map(|message| message.is_some());
            assert_eq!(received.unwrap_err().kind(), io::ErrorKind::TimedOut);
            local.close();
        });
    }

    #[test]
    fn rejects_large_messages_beyond_the_budget() {
        let ((a, send_a), (b, send_b), (c, send_c)) =
            (Channel::pair().unwrap(), Channel::pair().unwrap(), Channel::pair().unwrap());
        let (budget, large) = (MessageBudget::default(), vec![1; MAX_BYTES]);
        std::thread::scope(|scope| {
            for channel in [&send_a, &send_b] {
                scope.spawn(|| channel.send(&large, &[], &[]).unwrap());
            }
            let first = a.receive_within(&budget, Vec::new(), &mut no_limit).unwrap().unwrap();
            let second = b.receive_within(&budget, Vec::new(), &mut no_limit).unwrap().unwrap();
            // Small messages are not counted.
            send_c.send(b"small", &[], &[]).unwrap();
            assert_eq!(
                c.receive_within(&budget, Vec::new(), &mut no_limit).unwrap().unwrap().0.bytes,
                b"small"
            );
            scope.spawn(|| {
                // This fails because the receiver rejects the message after its head.
                let _ = send_c.send(&large, &[], &[]);
            });
            let error = c.receive_within(&budget, Vec::new(), &mut no_limit).map(drop).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::QuotaExceeded);
            c.close();
            drop((first, second));
        });
        assert_eq!(budget.bytes.load(Ordering::Relaxed), 0);
        assert!(budget.reserve_files(MessageBudget::MAX_FILES).is_ok());
        assert!(budget.reserve_files(MessageBudget::MAX_FILES + 1).is_err());
        assert!(check_len(MAX_BYTES).is_ok() && check_len(MAX_BYTES + 1).is_err());
    }
}
