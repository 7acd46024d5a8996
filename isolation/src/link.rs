//! Messages between a host and the process of an isolated plugin: bytes and open files, over Unix sockets.
//!
//! A lane carries one question and its answer at a time; a process asks on as many lanes as it has questions open. New lanes,
//! and what is said without an answer, go over the one socket that the process was started with.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crossdock_plugin_api::Error;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recv, recvmsg, send, sendmsg,
};

/// Bytes of one message, and open files that come with it. Arrays come in files: what is above is no message of ours.
const MOST_BYTES: usize = 16 << 20;
/// As the system has it for one message.
pub const MOST_FILES: usize = 250;
/// Bytes of the message, and how many files.
const HEAD_BYTES: usize = 8;

/// How long who waits does not look at anything else.
pub const LOOK_AFTER: Duration = Duration::from_millis(20);
/// What is on its way to or from a process takes no longer.
pub const STALL: Duration = Duration::from_secs(60);
/// What is called while nothing moves, and ends the waiting by an error.
pub type Wait<'a, E> = &'a mut dyn FnMut() -> Result<(), E>;

/// What is sent and received.
#[derive(Default)]
pub struct Message {
    pub bytes: Vec<u8>,
    pub files: Vec<OwnedFd>,
}

/// A message on its way: its bytes, and more of them.
#[derive(Default)]
pub struct Reply {
    pub bytes: Vec<u8>,
    pub after: Vec<u8>,
    pub files: Vec<OwnedFd>,
}

/// Whether so many bytes can be a message.
///
/// # Errors
/// There are too many.
pub fn fits(bytes: usize) -> Result<(), Error> {
    if bytes <= MOST_BYTES {
        return Ok(());
    }
    Err(Error::unsupported(format!(
        "{bytes} bytes beside the arrays themselves; the process of an isolated plugin takes and gives at most {MOST_BYTES} at \
         once"
    )))
}

/// What all questions that are being read, or answered, have at once: those of many bytes these, and all their open files.
#[derive(Default)]
pub struct InFlight {
    bytes: AtomicUsize,
    files: AtomicUsize,
    /// Whose files arrive just now: they are open before they can be counted.
    turn: Mutex<()>,
}

impl InFlight {
    /// What is read takes many times as much. Who asks for more at once is up to no good.
    const MOST_BYTES: usize = 2 * MOST_BYTES;
    /// A host may have few more open itself.
    const MOST_FILES: usize = 2 * MOST_FILES;
    /// Pieces of what is written come in these, from many threads: they do not count.
    const SMALL_BYTES: usize = (1 << 20) + (64 << 10);

    /// Holds others off: until it is dropped nobody else's files arrive.
    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many more files may be open.
    fn files_left(&self) -> usize {
        Self::MOST_FILES.saturating_sub(self.files.load(Ordering::Relaxed))
    }

    fn take_files(&self, files: usize) -> io::Result<Taken<'_>> {
        let mut taken = Taken { of: self, bytes: 0, files: 0 };
        more(&self.files, files, Self::MOST_FILES)?;
        taken.files = files;
        Ok(taken)
    }
}

fn more(count: &AtomicUsize, n: usize, most: usize) -> io::Result<()> {
    let sum = |before: usize| before.checked_add(n).filter(|sum| n == 0 || *sum <= most);
    let taken = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum);
    taken.map(drop).map_err(|_| io::Error::new(io::ErrorKind::QuotaExceeded, "too much is asked at once"))
}

/// Some of it, for as long as this lives.
struct Taken<'a> {
    of: &'a InFlight,
    bytes: usize,
    files: usize,
}

impl Taken<'_> {
    /// So many bytes too.
    fn add_bytes(&mut self, bytes: usize) -> io::Result<()> {
        if bytes > InFlight::SMALL_BYTES {
            more(&self.of.bytes, bytes, InFlight::MOST_BYTES)?;
            self.bytes += bytes;
        }
        Ok(())
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.of.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        self.of.files.fetch_sub(self.files, Ordering::Relaxed);
    }
}

/// One of two ends.
pub struct Lane {
    socket: UnixStream,
    /// No piece of a message takes longer, nor all of them together.
    stall: Option<Duration>,
}

impl Lane {
    pub fn pair() -> io::Result<(Self, Self)> {
        let (a, b) = UnixStream::pair()?;
        Ok((a.into(), b.into()))
    }

    /// An error if a message that began to move then has not arrived yet.
    fn hurry(&self, since: Instant) -> io::Result<()> {
        match self.stall {
            Some(most) if since.elapsed() > most => Err(io::ErrorKind::TimedOut.into()),
            _ => Ok(()),
        }
    }

    /// Sends a message in two pieces, as if they were one.
    pub fn send(&self, bytes: &[u8], after: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.send_while(bytes, after, files, &mut || Ok(()))
    }

    /// The same. While it does not go on, `wait` is called again and again, and ends it by an error.
    pub fn send_while<E: From<io::Error>>(
        &self,
        bytes: &[u8],
        after: &[u8],
        files: &[BorrowedFd<'_>],
        wait: Wait<'_, E>,
    ) -> Result<(), E> {
        const FLAGS: SendFlags = SendFlags::NOSIGNAL.union(SendFlags::DONTWAIT);
        let too_much = || io::Error::new(io::ErrorKind::InvalidInput, "a message of so many bytes or files");
        let size = bytes.len() + after.len();
        let size = u32::try_from(size).ok().filter(|_| size <= MOST_BYTES);
        let (size, count) = (size.ok_or_else(too_much)?, files.len() as u32);
        let mut head = [0; HEAD_BYTES];
        head[..4].copy_from_slice(&size.to_le_bytes());
        head[4..].copy_from_slice(&count.to_le_bytes());
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
        let mut beside = SendAncillaryBuffer::new(&mut room);
        if !files.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(files)) {
            return Err(too_much().into());
        }
        let pieces = [IoSlice::new(&head), IoSlice::new(bytes), IoSlice::new(after)];
        let begun = Instant::now();
        let sent = loop {
            match sendmsg(&self.socket, &pieces, &mut beside, FLAGS) {
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => self.wait_for(PollFlags::OUT, begun, wait)?,
                result => break result.map_err(io::Error::from)?,
            }
        };
        // The files went with the first byte.
        let mut before = 0;
        for piece in [&head, bytes, after] {
            let mut rest = piece.get(sent.saturating_sub(before)..).unwrap_or_default();
            while !rest.is_empty() {
                match send(&self.socket, rest, FLAGS) {
                    Ok(n) => rest = rest.get(n..).unwrap_or_default(),
                    Err(rustix::io::Errno::INTR) => {}
                    Err(rustix::io::Errno::AGAIN) => self.wait_for(PollFlags::OUT, begun, wait)?,
                    Err(error) => return Err(io::Error::from(error).into()),
                }
                if !rest.is_empty() {
                    self.hurry(begun)?;
                }
            }
            before += piece.len();
        }
        Ok(())
    }

    /// Waits until a message that began to move then goes on.
    fn wait_for<E: From<io::Error>>(
        &self,
        what: PollFlags,
        begun: Instant,
        wait: Wait<'_, E>,
    ) -> Result<(), E> {
        while !self.is_ready_for(what, LOOK_AFTER)? {
            wait()?;
            self.hurry(begun)?;
        }
        Ok(())
    }

    /// Waits for the next message; `None` where the other end is closed.
    pub fn receive(&self) -> io::Result<Option<Message>> {
        self.receive_while(&mut || Ok(()))
    }

    /// The same. While a message that began to come does not go on, `wait` is called again and again, and ends it by an error.
    pub fn receive_while<E: From<io::Error>>(&self, wait: Wait<'_, E>) -> Result<Option<Message>, E> {
        Ok(self.receive_some_of(&InFlight::default(), wait)?.map(|(message, _)| message))
    }

    /// The same, where it is one of several at once.
    fn receive_some_of<'a, E: From<io::Error>>(
        &self,
        others: &'a InFlight,
        wait: Wait<'_, E>,
    ) -> Result<Option<(Message, Taken<'a>)>, E> {
        let mut head = [0; HEAD_BYTES];
        // The next one may take its time.
        let (got, mut taken, files) = self.receive_first(&mut head, others)?;
        if got == 0 {
            return Ok(None);
        }
        // Who sends as this side does gives all of a head at once, and the system never parts it from the files.
        if got < HEAD_BYTES && !files.is_empty() {
            let early = format!(
                "{} open files with {got} bytes of a message's head, expected all {HEAD_BYTES}",
                files.len()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, early).into());
        }
        let begun = Instant::now();
        self.receive_rest(head.get_mut(got..).unwrap_or_default(), begun, wait)?;
        let [a, b, c, d, n @ ..] = head;
        let (size, count) = (u32::from_le_bytes([a, b, c, d]) as usize, u32::from_le_bytes(n) as usize);
        if size > MOST_BYTES || count != files.len() {
            let wrong =
                format!("a message of {size} bytes with {} open files, expected {count}", files.len());
            return Err(io::Error::new(io::ErrorKind::InvalidData, wrong).into());
        }
        taken.add_bytes(size)?;
        // As much as comes, not as much as is said.
        const AT_ONCE: usize = 64 << 10;
        let (mut bytes, mut got) = (Vec::new(), 0);
        while got < size {
            bytes.resize(size.min((2 * got).max(AT_ONCE)), 0);
            self.receive_rest(bytes.get_mut(got..).unwrap_or_default(), begun, wait)?;
            got = bytes.len();
        }
        Ok(Some((Message { bytes, files }, taken)))
    }

    /// Waits for the first bytes of a message, with which its files come; those are counted before others' can come.
    fn receive_first<'a>(
        &self,
        head: &mut [u8],
        others: &'a InFlight,
    ) -> io::Result<(usize, Taken<'a>, Vec<OwnedFd>)> {
        const FLAGS: RecvFlags = RecvFlags::CMSG_CLOEXEC.union(RecvFlags::DONTWAIT);
        const LONG: Duration = Duration::from_secs(3600);
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
        loop {
            let turn = others.turn();
            // The system opens no more of them than have room here, or two, as it lies.
            let space = Self::room_for(others.files_left().min(MOST_FILES));
            let mut beside = RecvAncillaryBuffer::new(room.get_mut(..space).unwrap_or_default());
            let received = match recvmsg(&self.socket, &mut [IoSliceMut::new(head)], &mut beside, FLAGS) {
                Err(rustix::io::Errno::INTR) => continue,
                Err(rustix::io::Errno::AGAIN) => {
                    drop(turn);
                    self.is_ready_within(LONG)?;
                    continue;
                }
                received => received?,
            };
            let mut files = Vec::new();
            for message in beside.drain() {
                if let RecvAncillaryMessage::ScmRights(rights) = message {
                    files.extend(rights);
                }
            }
            let taken = others.take_files(files.len())?;
            drop(turn);
            if received.flags.contains(ReturnFlags::CTRUNC) {
                let more = "more open files came than may be open at once";
                return Err(io::Error::new(io::ErrorKind::QuotaExceeded, more));
            }
            return Ok((received.bytes, taken, files));
        }
    }

    /// Bytes beside a message in which so many files have room, and no more.
    const fn room_for(files: usize) -> usize {
        // The system fills whole words, each with two.
        match files / 2 * 2 {
            0 => 0,
            files => rustix::cmsg_space!(ScmRights(files)),
        }
    }

    /// All of these bytes, of a message that began to come then. Files that come with them are nobody's, and closed by the system.
    fn receive_rest<E: From<io::Error>>(
        &self,
        mut rest: &mut [u8],
        begun: Instant,
        wait: Wait<'_, E>,
    ) -> Result<(), E> {
        while !rest.is_empty() {
            match recv(&self.socket, &mut *rest, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Ok((n, _)) => rest = rest.get_mut(n..).unwrap_or_default(),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => self.wait_for(PollFlags::IN, begun, wait)?,
                Err(error) => return Err(io::Error::from(error).into()),
            }
            if !rest.is_empty() {
                self.hurry(begun)?;
            }
        }
        Ok(())
    }

    /// What is being sent or received stops by an error where it takes so long.
    pub fn stall_for(self, most: Duration) -> Self {
        Self { stall: Some(most), ..self }
    }

    /// Whether something can be received by then, the other's end included.
    pub fn is_ready_within(&self, time: Duration) -> io::Result<bool> {
        self.is_ready_for(PollFlags::IN, time)
    }

    fn is_ready_for(&self, what: PollFlags, time: Duration) -> io::Result<bool> {
        let timeout = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
        match poll(&mut [PollFd::new(&self.socket, what)], Some(&timeout)) {
            Ok(n) => Ok(n > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Answers each question, which is one of several, until the other end is closed or an answer cannot be sent.
    pub fn serve(&self, others: &InFlight, answer: impl Fn(Message) -> Reply) {
        while let Ok(Some((question, _taken))) = self.receive_some_of::<io::Error>(others, &mut || Ok(())) {
            let reply = answer(question);
            let files: Vec<_> = reply.files.iter().map(AsFd::as_fd).collect();
            if self.send(&reply.bytes, &reply.after, &files).is_err() {
                return;
            }
        }
    }

    /// Nothing goes either way any more, whoever waits.
    pub fn close(&self) {
        // It fails where the other end is closed already.
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }
}

impl From<UnixStream> for Lane {
    fn from(socket: UnixStream) -> Self {
        Self { socket, stall: None }
    }
}

impl From<Lane> for OwnedFd {
    fn from(lane: Lane) -> Self {
        lane.socket.into()
    }
}

impl From<OwnedFd> for Lane {
    fn from(socket: OwnedFd) -> Self {
        UnixStream::from(socket).into()
    }
}

impl AsFd for Lane {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Write;

    use super::*;

    fn nothing() -> io::Result<()> {
        Ok(())
    }

    #[test]
    fn a_message_that_trickles_is_an_error_though_every_piece_comes_in_time() {
        let (ours, theirs) = Lane::pair().unwrap();
        let ours = ours.stall_for(Duration::from_millis(200));
        let mut message = [0; HEAD_BYTES + 1000];
        message[0..4].copy_from_slice(&1000u32.to_le_bytes());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for byte in message {
                    // It fails once nobody listens any more.
                    let sent = (&theirs.socket).write(&[byte]);
                    if sent.is_err() {
                        break;
                    }
                    std::thread::sleep(Duration::from_millis(10));
                }
            });
            let received = ours.receive().map(|message| message.is_some());
            assert_eq!(received.unwrap_err().kind(), io::ErrorKind::TimedOut);
            ours.close();
        });
    }

    #[test]
    fn questions_of_more_bytes_at_once_than_there_may_be_are_not_read() {
        let ((a, asks), (b, asks_too), (c, asks_last)) =
            (Lane::pair().unwrap(), Lane::pair().unwrap(), Lane::pair().unwrap());
        let (others, large) = (InFlight::default(), vec![1; MOST_BYTES]);
        std::thread::scope(|scope| {
            for lane in [&asks, &asks_too] {
                scope.spawn(|| lane.send(&large, &[], &[]).unwrap());
            }
            let first = a.receive_some_of(&others, &mut nothing).unwrap().unwrap();
            let second = b.receive_some_of(&others, &mut nothing).unwrap().unwrap();
            // What is small is heard all the same.
            asks_last.send(b"a little more", &[], &[]).unwrap();
            assert_eq!(c.receive_some_of(&others, &mut nothing).unwrap().unwrap().0.bytes, b"a little more");
            scope.spawn(|| {
                // Nobody reads all of it.
                let _ = asks_last.send(&large, &[], &[]);
            });
            let refused = c.receive_some_of(&others, &mut nothing).map(drop).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::QuotaExceeded);
            c.close();
            drop((first, second));
        });
        assert_eq!(others.bytes.load(Ordering::Relaxed), 0);
        assert!(others.take_files(InFlight::MOST_FILES).is_ok());
        assert!(others.take_files(InFlight::MOST_FILES + 1).is_err());
        assert!(fits(MOST_BYTES).is_ok() && fits(MOST_BYTES + 1).is_err());
    }
}
