use std::fs::File;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

/// Files that a process has sent and that no process receives. They are in flight until this is
/// dropped.
pub struct FilesInFlight(#[allow(dead_code)] (UnixStream, UnixStream));

impl FilesInFlight {
    /// The number of files in one message. Linux allows 253.
    const PER_MESSAGE: usize = 200;

    /// Sends `messages` messages of 200 files each.
    pub fn new(messages: usize) -> io::Result<Self> {
        let (from, to) = UnixStream::pair()?;
        let file = File::open("/dev/null")?;
        let files = [file.as_fd(); Self::PER_MESSAGE];
        for _ in 0..messages {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(Self::PER_MESSAGE))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(&files)));
            sendmsg(&from, &[IoSlice::new(b"x")], &mut ancillary, SendFlags::empty())?;
        }
        Ok(Self((from, to)))
    }
}
