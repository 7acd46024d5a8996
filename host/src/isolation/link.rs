//! Messages between a host and the process of an isolated plugin: bytes and open files, over Unix sockets.
//!
//! A lane carries one question and its answer at a time; a process asks on as many lanes as it has questions open. New lanes,
//! and what is said without an answer, go over the one socket that the process was started with.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

/// Bytes of one message, and open files that come with it. Arrays come in files: what is above is no message of ours.
const MOST_BYTES: usize = 16 << 20;
/// As the system has it for one message.
pub const MOST_FILES: usize = 250;
/// Bytes of the message, and how many files.
const HEAD_BYTES: usize = 8;

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

/// One of two ends.
pub struct Lane(UnixStream);

impl Lane {
    pub fn pair() -> io::Result<(Self, Self)> {
        let (a, b) = UnixStream::pair()?;
        Ok((Self(a), Self(b)))
    }

    /// Sends a message in two pieces, as if they were one.
    pub fn send(&self, bytes: &[u8], after: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
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
            return Err(too_much());
        }
        let pieces = [IoSlice::new(&head), IoSlice::new(bytes), IoSlice::new(after)];
        let sent = loop {
            match sendmsg(&self.0, &pieces, &mut beside, SendFlags::NOSIGNAL) {
                Err(rustix::io::Errno::INTR) => {}
                result => break result?,
            }
        };
        // The files went with the first byte.
        let mut before = 0;
        for piece in [&head, bytes, after] {
            (&self.0).write_all(piece.get(sent.saturating_sub(before)..).unwrap_or_default())?;
            before += piece.len();
        }
        Ok(())
    }

    /// Waits for the next message; `None` where the other end is closed.
    pub fn receive(&self) -> io::Result<Option<Message>> {
        let mut files = Vec::new();
        let mut head = [0; HEAD_BYTES];
        let mut got = 0;
        while let Some(rest) = head.get_mut(got..).filter(|rest| !rest.is_empty()) {
            let (before, first) = (files.len(), got == 0);
            let n = self.receive_some(rest, &mut files)?;
            // They go with the first byte: many heads in pieces, each with files, would be more than a process may have open.
            if !first && files.len() > before {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "open files in the middle of a message",
                ));
            }
            match n {
                0 if first => return Ok(None),
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                n => got += n,
            }
        }
        let [a, b, c, d, n @ ..] = head;
        let (size, count) = (u32::from_le_bytes([a, b, c, d]) as usize, u32::from_le_bytes(n) as usize);
        if size > MOST_BYTES || count != files.len() {
            let wrong =
                format!("a message of {size} bytes with {} open files, expected {count}", files.len());
            return Err(io::Error::new(io::ErrorKind::InvalidData, wrong));
        }
        // As much as comes, not as much as is said.
        let mut bytes = Vec::new();
        (&self.0).take(size as u64).read_to_end(&mut bytes)?;
        if bytes.len() < size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(Some(Message { bytes, files }))
    }

    fn receive_some(&self, to: &mut [u8], files: &mut Vec<OwnedFd>) -> io::Result<usize> {
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
        let mut beside = RecvAncillaryBuffer::new(&mut room);
        let received = loop {
            match recvmsg(&self.0, &mut [IoSliceMut::new(to)], &mut beside, RecvFlags::CMSG_CLOEXEC) {
                Err(rustix::io::Errno::INTR) => {}
                result => break result?,
            }
        };
        for message in beside.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                files.extend(rights);
            }
        }
        Ok(received.bytes)
    }

    /// What is being sent or received stops by an error where the other end takes or gives nothing for so long.
    fn stall_for(self, most: Duration) -> io::Result<Self> {
        self.0.set_write_timeout(Some(most))?;
        self.0.set_read_timeout(Some(most))?;
        Ok(self)
    }

    /// Whether something can be received by then, the other's end included.
    pub fn is_ready_within(&self, time: Duration) -> io::Result<bool> {
        let timeout = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
        match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&timeout)) {
            Ok(n) => Ok(n > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Answers each question, until the other end is closed or an answer cannot be sent.
    pub fn serve(&self, answer: impl Fn(Message) -> Reply) {
        while let Ok(Some(question)) = self.receive() {
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
        let _ = self.0.shutdown(std::net::Shutdown::Both);
    }
}

impl From<UnixStream> for Lane {
    fn from(socket: UnixStream) -> Self {
        Self(socket)
    }
}

impl From<Lane> for OwnedFd {
    fn from(lane: Lane) -> Self {
        lane.0.into()
    }
}

impl From<OwnedFd> for Lane {
    fn from(socket: OwnedFd) -> Self {
        Self(socket.into())
    }
}

impl AsFd for Lane {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The lanes on which one process asks another one.
pub struct Lanes {
    control: Lane,
    idle: Mutex<Vec<Lane>>,
    stall: Duration,
}

impl Lanes {
    /// Over the socket that both were started with. A message that stops on its way for longer than `stall` is an error; waiting
    /// for one is none.
    pub fn new(control: Lane, stall: Duration) -> io::Result<Self> {
        control.0.set_write_timeout(Some(stall))?;
        Ok(Self { control, idle: Mutex::default(), stall })
    }

    /// Says something that has no answer.
    pub fn tell(&self, bytes: &[u8]) -> io::Result<()> {
        let _turn = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        self.control.send(bytes, &[], &[])
    }

    /// Asks. While there is no answer yet, `wait` is called again and again, and ends it by an error.
    pub fn ask<E: From<io::Error>>(
        &self,
        bytes: &[u8],
        after: &[u8],
        files: &[BorrowedFd<'_>],
        mut wait: impl FnMut() -> Result<(), E>,
    ) -> Result<Message, E> {
        const LOOK_AFTER: Duration = Duration::from_millis(20);
        let lane = self.lane()?;
        lane.send(bytes, after, files)?;
        while !lane.is_ready_within(LOOK_AFTER)? {
            wait()?;
        }
        let answer = lane.receive()?.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(lane);
        Ok(answer)
    }

    fn lane(&self) -> io::Result<Lane> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lane) = idle.pop() {
            return Ok(lane);
        }
        let (ours, theirs) = Lane::pair()?;
        self.control.send(&[], &[], &[theirs.as_fd()])?;
        ours.stall_for(self.stall)
    }

    /// Ends everything that is asked, and the other side's waiting.
    pub fn close(&self) {
        self.control.close();
    }
}
