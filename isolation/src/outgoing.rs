//! The files of a message that is being made.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crossdock_memory::Buffer;
use crossdock_plugin_api::{Device, Error, Result};
use rustix::fs::{MemfdFlags, memfd_create};

use crate::link::MOST_FILES;
use crate::mapping::{Mapping, OpenFile};
use crate::rooms::{Lender, RoomParts};
use crate::shared::{Place, Within, seal};

/// Where pieces begin: as Arrow recommends it, and a cache line.
const ALIGNMENT: u64 = 64;
/// No more is promised: that of a page.
const MOST_ALIGNMENT: u64 = 4096;

/// The files of a message that is being made.
#[derive(Default)]
pub struct Outgoing {
    files: Vec<Sent>,
    /// The one that takes what lies in none, and how far it is written.
    pub(crate) own: Option<(u32, u64)>,
    /// Which files that are mapped go as they are.
    as_files: AsFiles,
    /// What takes buffers on a device there; without one they go as bytes of the host's.
    lender: Option<Arc<dyn Lender>>,
    rooms: Vec<RoomParts>,
    /// For the next room, and where in it.
    waiting: Vec<(Buffer, usize)>,
    waiting_bytes: usize,
    /// What the rooms are, until the message is answered.
    kept: Vec<Buffer>,
}

/// Which mapped files are sent as descriptors. A receiver can read all of a file, not only the part that is meant.
#[derive(Default)]
enum AsFiles {
    /// Every file: to the host, which sees them anyway.
    #[default]
    All,
    /// Those that hold a message: what a user's file has is copied.
    Messages,
    /// Of those the ones that have nothing else than what is sent.
    Whole(Vec<Arc<OpenFile>>),
}

enum Sent {
    Own(File),
    /// And the same file opened once more, where who gets it is not to share this process's open file.
    Mapped(Arc<OpenFile>, Option<File>),
    Room(OwnedFd),
}

impl AsFd for Sent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Own(file) => file.as_fd(),
            Self::Mapped(_, Some(again)) => again.as_fd(),
            Self::Mapped(file, None) => file.as_fd(),
            Self::Room(file) => file.as_fd(),
        }
    }
}

impl Outgoing {
    /// A message in which buffers on the lender's device stay there.
    pub fn to(lender: Option<Arc<dyn Lender>>) -> Self {
        Self { lender, ..Self::default() }
    }

    /// The same to a plugin, which gets no more of any file than what is sent.
    pub fn to_plugin(lender: Option<Arc<dyn Lender>>) -> Self {
        Self { as_files: AsFiles::Messages, ..Self::to(lender) }
    }

    /// Sends an input, which is a file's where these bytes are all of it.
    pub fn only_input(&mut self, bytes: &[u8]) {
        let around = Mapping::file_around(bytes);
        let whole = around.filter(|(_, offset, len)| *offset == 0 && *len == bytes.len() as u64);
        self.as_files = AsFiles::Whole(whole.map(|(file, ..)| file).into_iter().collect());
    }

    /// Sends these parts and no others, so that a plugin gets the file of an earlier message only where they are all of it.
    pub fn only<'a>(&mut self, parts: impl Iterator<Item = &'a [u8]>) {
        if matches!(self.as_files, AsFiles::All) {
            return;
        }
        type Parts = (Arc<OpenFile>, u64, Vec<(u64, u64)>);
        let mut files: Vec<Parts> = Vec::new();
        for bytes in parts.filter(|bytes| !bytes.is_empty()) {
            let Some((file, offset, len)) = Mapping::file_around(bytes) else { continue };
            let range = (offset, offset + bytes.len() as u64);
            match files.iter_mut().find(|(known, ..)| Arc::ptr_eq(known, &file)) {
                Some((_, _, ranges)) => ranges.push(range),
                None => files.push((file, len, vec![range])),
            }
        }
        let is_whole = |(file, len, ranges): &mut Parts| {
            ranges.sort_unstable();
            // Pieces begin at multiples of it.
            let reaches = |end: u64, to: u64| to < end.saturating_add(ALIGNMENT);
            let end =
                ranges.iter().try_fold(0, |end, (from, to)| reaches(end, *from).then_some(end.max(*to)));
            file.of_a_message && end.is_some_and(|end| reaches(end, *len))
        };
        let whole = files.into_iter().filter_map(|mut file| is_whole(&mut file).then_some(file.0));
        self.as_files = AsFiles::Whole(whole.collect());
    }

    /// Whether files that are mapped go as they are, whatever else is in them.
    pub fn takes_files(&self) -> bool {
        matches!(self.as_files, AsFiles::All)
    }

    fn goes_as_it_is(&self, file: &Arc<OpenFile>) -> bool {
        match &self.as_files {
            AsFiles::All => true,
            AsFiles::Messages => file.of_a_message,
            AsFiles::Whole(files) => files.iter().any(|whole| Arc::ptr_eq(whole, file)),
        }
    }

    /// Whether buffers of this device go as they are.
    pub fn takes(&self, device: Device) -> bool {
        self.lender.as_ref().is_some_and(|lender| lender.device() == device)
    }

    /// Sends a buffer on a device that is taken, to lie at a multiple of `alignment` (bytes, a power of two) in its room. It has to be
    /// there until [`Outgoing::lend`] has it copied.
    ///
    /// # Errors
    /// It is too much, or of unknown length.
    pub fn place_on_device(&mut self, buffer: Buffer, alignment: u64) -> Result<Place> {
        /// As the device aligns its own memory.
        const APART: u64 = 256;
        let unknown = || Error::internal("a buffer of unknown length was to be sent");
        let bytes = buffer.len().ok_or_else(unknown)?;
        let offset =
            self.waiting_bytes.checked_next_multiple_of(alignment.clamp(APART, MOST_ALIGNMENT) as usize);
        let range = offset.and_then(|offset| Some((offset, offset.checked_add(bytes)?)));
        let (offset, end) =
            range.ok_or_else(|| Error::out_of_memory("arrays of more bytes than there are"))?;
        self.waiting_bytes = end;
        self.waiting.push((buffer, offset));
        let within = Within::Room(self.rooms.len() as u32);
        Ok(Place { within, offset: offset as u64, bytes: bytes as u64 })
    }

    /// Copies what waits for it into a room, once for all of it.
    ///
    /// # Errors
    /// There is no memory for them there, or the device fails.
    pub fn lend(&mut self) -> Result<()> {
        let (waiting, bytes) = (std::mem::take(&mut self.waiting), std::mem::take(&mut self.waiting_bytes));
        let Some(lender) = self.lender.as_ref().filter(|_| !waiting.is_empty()) else { return Ok(()) };
        let lent = lender.lend(&waiting, bytes)?;
        let number = match (lent.number, lent.file) {
            (_, Some(file)) => u64::from(self.push(Sent::Room(file))?),
            (number, None) => number,
        };
        self.rooms.push(RoomParts { number, bytes: lent.bytes });
        self.kept.extend(lent.kept);
        Ok(())
    }

    /// The rooms of the message, by the numbers that its places have.
    pub fn rooms(&self) -> &[RoomParts] {
        &self.rooms
    }

    /// Sends `bytes`, which will lie at a multiple of `alignment` (bytes, a power of two).
    ///
    /// # Errors
    /// There is no memory for them, or they lie in too many files.
    pub fn place(&mut self, bytes: &[u8], alignment: u64) -> Result<Place> {
        let size = bytes.len() as u64;
        if bytes.is_empty() {
            return Ok(Place::NOWHERE);
        }
        if alignment > MOST_ALIGNMENT {
            return Err(Error::unsupported(format!(
                "a buffer at a multiple of {alignment} bytes goes to no other process, at most of {MOST_ALIGNMENT}"
            )));
        }
        let around = Mapping::file_around(bytes).filter(|(file, ..)| self.goes_as_it_is(file));
        if let Some((file, offset, _)) = around
            && let Some(file) = self.mapped(file)?
        {
            return Ok(Place { within: Within::File(file), offset, bytes: size });
        }
        let no_room = |error: std::io::Error| {
            Error::out_of_memory(format!("{size} bytes of shared memory for an isolated plugin: {error}"))
        };
        let (file, end) = match self.own {
            Some(own) => own,
            None => {
                let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
                let made = memfd_create("crossdock-arrays", flags).map_err(|errno| no_room(errno.into()))?;
                (self.push(Sent::Own(made.into()))?, 0)
            }
        };
        let offset = end.next_multiple_of(alignment.max(ALIGNMENT));
        if let Some(Sent::Own(own)) = self.files.get(file as usize) {
            own.write_all_at(bytes, offset).map_err(no_room)?;
        }
        self.own = Some((file, offset + size));
        Ok(Place { within: Within::File(file), offset, bytes: size })
    }

    /// Sends a mapped file; `None` where a plugin would get a user's file that cannot be opened once more.
    fn mapped(&mut self, file: Arc<OpenFile>) -> Result<Option<u32>> {
        let is_it = |sent: &Sent| matches!(sent, Sent::Mapped(known, _) if Arc::ptr_eq(known, &file));
        if let Some(known) = self.files.iter().position(is_it) {
            return Ok(Some(known as u32));
        }
        if self.takes_files() || file.of_a_message {
            return self.push(Sent::Mapped(file, None)).map(Some);
        }
        match file.open_again() {
            Ok(again) => self.push(Sent::Mapped(file, Some(again))).map(Some),
            Err(_) => Ok(None),
        }
    }

    fn push(&mut self, sent: Sent) -> Result<u32> {
        if self.files.len() >= MOST_FILES {
            return Err(Error::unsupported(format!(
                "arrays in more than {MOST_FILES} files go to no other process at once"
            )));
        }
        self.files.push(sent);
        Ok(self.files.len() as u32 - 1)
    }

    /// Nothing is written any more.
    pub fn seal(&self) -> Result<Vec<BorrowedFd<'_>>> {
        for sent in &self.files {
            if let Sent::Own(file) = sent {
                seal(file).map_err(|error| Error::internal(format!("cannot seal shared memory: {error}")))?;
            }
        }
        Ok(self.files.iter().map(AsFd::as_fd).collect())
    }

    /// The same, for those who send it later.
    pub fn into_files(self) -> Result<Vec<OwnedFd>> {
        self.seal()?;
        let owned = |sent: &Sent| sent.as_fd().try_clone_to_owned();
        Ok(self.files.iter().map(owned).collect::<std::io::Result<_>>()?)
    }
}
