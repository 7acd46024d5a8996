//! Memory that two processes see: sealed files without a name, and mapped files.
//!
//! What is sent is written into a file in memory that is sealed before it leaves: neither side can change it from then on.
//! What lies in a mapping is sent as that file and an offset. A file that comes is mapped for reading, once, as long as
//! anybody reads it.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;

use crossdock_memory::{Buffer, ForeignOwner, Ready};
use crossdock_plugin_api::{Device, Error, Result};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create};
use serde::{Deserialize, Serialize};

use crate::link::MOST_FILES;
use crate::mapping::{Allowance, Mapping, OpenFile};
use crate::rooms::{Lender, RoomParts};

/// What nobody can do to a sealed file any more.
pub const SEALS: SealFlags =
    SealFlags::SEAL.union(SealFlags::SHRINK).union(SealFlags::GROW).union(SealFlags::WRITE);

/// Where pieces begin: as Arrow recommends it, and a cache line.
const ALIGNMENT: u64 = 64;
/// No more is promised: that of a page.
const MOST_ALIGNMENT: u64 = 4096;

/// Where bytes lie: in which of a message's files, or of its rooms.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Place {
    within: Within,
    offset: u64,
    /// How many.
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Within {
    Nothing,
    File(u32),
    /// On the process's device.
    Room(u32),
}

impl Place {
    const NOWHERE: Self = Self { within: Within::Nothing, offset: 0, bytes: 0 };

    /// From the file's first byte on.
    pub fn offset(&self) -> u64 {
        self.offset
    }
}

/// The files of a message that is being made.
#[derive(Default)]
pub struct Outgoing {
    files: Vec<Sent>,
    /// The one that takes what lies in none, and how far it is written.
    own: Option<(u32, u64)>,
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
                fcntl_add_seals(file, SEALS)
                    .map_err(|errno| Error::internal(format!("cannot seal shared memory: {errno}")))?;
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

/// The files and rooms of a message that came.
#[derive(Default)]
pub struct Incoming {
    /// `None` where it was a room.
    files: Vec<Option<ForeignOwnerOf>>,
    rooms: Vec<Buffer>,
    /// Of the host, which is believed.
    believed: bool,
}

struct ForeignOwnerOf {
    mapping: Arc<Mapping>,
    owner: ForeignOwner,
}

impl Incoming {
    /// Of this process itself, for a while.
    pub fn of_this_process(files: Vec<OwnedFd>) -> Result<Self> {
        let map = |file: OwnedFd| {
            let file = File::from(file);
            let none = || Error::out_of_memory("no room to map shared memory");
            let mapping = match Mapping::known(&file)? {
                Some(known) => known,
                None => Mapping::of_a_message(file)?.ok_or_else(none)?,
            };
            Ok(Some(ForeignOwnerOf { owner: ForeignOwner::new(mapping.clone()), mapping }))
        };
        let files = files.into_iter().map(map).collect::<Result<_>>()?;
        Ok(Self { files, rooms: Vec::new(), believed: true })
    }

    /// Of those whom this process trusts to leave the files as they are.
    pub fn of_the_host(files: Vec<OwnedFd>) -> Result<Self> {
        Ok(Self { believed: true, ..Self::new(files, |_| Ok(()))? })
    }

    /// The same, without those that were taken out.
    pub fn of_the_host_but(files: Vec<Option<OwnedFd>>) -> Result<Self> {
        Ok(Self { believed: true, ..Self::of_those(files, None, |_| Ok(()))? })
    }

    /// The same with its rooms.
    pub fn with_rooms(self, rooms: Vec<Buffer>) -> Self {
        Self { rooms, ..self }
    }

    /// Whether the other side may speak of what cannot be seen here.
    pub fn is_believed(&self) -> bool {
        self.believed
    }

    /// Of a plugin: memory that nobody can change any more, or a file that this process has mapped itself.
    pub fn of_a_plugin(files: Vec<OwnedFd>, allowed: &Allowance) -> Result<Self> {
        let files = files.into_iter().map(Some).collect();
        Self::of_those(files, Some(allowed), |file| match fcntl_get_seals(file) {
            Ok(seals) if seals.contains(SEALS.difference(SealFlags::SEAL)) => is_there(file),
            Ok(seals) => {
                Err(Error::bad_data(format!("it shares memory that it can still change (seals {seals:?})")))
            }
            Err(errno) => Err(Error::bad_data(format!("it shares a file that is no sealed memory: {errno}"))),
        })
    }

    fn new(files: Vec<OwnedFd>, check: impl Fn(&File) -> Result<()>) -> Result<Self> {
        Self::of_those(files.into_iter().map(Some).collect(), None, check)
    }

    fn of_those(
        files: Vec<Option<OwnedFd>>,
        allowed: Option<&Allowance>,
        check: impl Fn(&File) -> Result<()>,
    ) -> Result<Self> {
        let take = |file: OwnedFd| {
            let file = File::from(file);
            let mapping = match Mapping::known(&file)? {
                Some(known) => known,
                None => {
                    check(&file)?;
                    Mapping::of_one_that_came(file, allowed)?
                        .ok_or_else(|| Error::out_of_memory("no room to map shared memory"))?
                }
            };
            Ok(ForeignOwnerOf { owner: ForeignOwner::new(mapping.clone()), mapping })
        };
        let files = files.into_iter().map(|file| file.map(take).transpose()).collect::<Result<_>>()?;
        Ok(Self { files, rooms: Vec::new(), believed: false })
    }

    /// The bytes there: on the CPU, or on the device of a room.
    pub fn buffer(&self, place: Place) -> Result<Buffer> {
        static NOTHING: [u64; 8] = [0; 8];
        let outside = |_| Error::bad_data(format!("bytes at {}, outside shared memory", place.offset));
        let offset = usize::try_from(place.offset).map_err(outside)?;
        let size = usize::try_from(place.bytes).map_err(outside)?;
        let number = match place.within {
            Within::Room(room) => {
                let came = self.rooms.len();
                let none = || Error::bad_data(format!("bytes in room {room} of {came} that came"));
                return self.rooms.get(room as usize).ok_or_else(none)?.slice(offset, size);
            }
            Within::File(file) if size > 0 => file,
            _ if size > 0 => return Err(Error::bad_data(format!("{size} bytes that lie nowhere"))),
            _ => {
                let owner = ForeignOwner::new(());
                // SAFETY: a constant.
                return Ok(unsafe {
                    Buffer::foreign(&owner, Device::CPU, NOTHING.as_ptr() as u64, Some(0), Ready::Now)
                });
            }
        };
        let none = || Error::bad_data(format!("bytes in file {number} of {} that came", self.files.len()));
        let file = self.files.get(number as usize).and_then(Option::as_ref).ok_or_else(none)?;
        let bytes = file.mapping.bytes();
        // SAFETY: mapped for reading as long as the owner has it.
        let whole = unsafe {
            Buffer::foreign(
                &file.owner,
                Device::CPU,
                bytes.as_ptr() as u64,
                Some(bytes.len() as u64),
                Ready::Now,
            )
        };
        whole.slice(offset, size)
    }

    /// The whole mapping of the file there.
    pub fn mapping(&self, place: Place) -> Option<Arc<Mapping>> {
        let Within::File(file) = place.within else { return None };
        self.files.get(file as usize)?.as_ref().map(|file| file.mapping.clone())
    }
}

/// Memory has all of its bytes: what has not would get them when they are looked at, from whoever looks.
fn is_there(file: &File) -> Result<()> {
    const SLACK: u64 = 1 << 20;
    let stat = file.metadata()?;
    if stat.blocks().saturating_mul(512).saturating_add(SLACK) >= stat.len() {
        return Ok(());
    }
    Err(Error::bad_data(format!(
        "it shares memory of {} bytes, of which {} blocks of 512 are there",
        stat.len(),
        stat.blocks()
    )))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::{Seek, Write};

    use rustix::fs::fstat;

    use super::*;

    fn bytes_of(buffer: &Buffer) -> &[u8] {
        // SAFETY: host memory, which the buffer keeps.
        unsafe { std::slice::from_raw_parts(buffer.address() as *const u8, buffer.len().unwrap()) }
    }

    #[test]
    fn what_is_sent_arrives_where_it_is_asked_for_and_stays_as_it_is() {
        let mut to = Outgoing::default();
        let (first, second) = (vec![1u8; 100], vec![2u8; 5000]);
        let places =
            [to.place(&first, 8).unwrap(), to.place(&[], 64).unwrap(), to.place(&second, 4096).unwrap()];
        let files = to.into_files().unwrap();
        assert_eq!(files.len(), 1, "all in one file");
        let same = File::from(files[0].try_clone().unwrap());
        assert!(same.write_all_at(&[9], 0).is_err() && same.set_len(10).is_err(), "it is sealed");
        let from = Incoming::of_a_plugin(files, &Allowance::default()).unwrap();
        let arrived = places.map(|place| from.buffer(place).unwrap());
        assert_eq!((bytes_of(&arrived[0]), arrived[1].len()), (&first[..], Some(0)));
        assert_eq!(bytes_of(&arrived[2]), &second[..]);
        assert!(arrived[2].address().is_multiple_of(4096));
    }

    #[test]
    fn what_arrived_goes_on_without_a_copy() {
        let mut to = Outgoing::default();
        let place = to.place(&[7; 1000], 1).unwrap();
        let there = Incoming::of_the_host(to.into_files().unwrap()).unwrap();
        let buffer = there.buffer(place).unwrap().slice(10, 20).unwrap();
        let mut on = Outgoing::default();
        let place = on.place(bytes_of(&buffer), 1).unwrap();
        assert!(on.own.is_none(), "it was copied");
        let back = Incoming::of_a_plugin(on.into_files().unwrap(), &Allowance::default()).unwrap();
        assert_eq!(back.buffer(place).unwrap().address(), buffer.address());
    }

    #[test]
    fn memory_that_a_plugin_can_still_change_is_refused() {
        let wrong = |file: File, why: &str| {
            let error = Incoming::of_a_plugin(vec![file.into()], &Allowance::default()).err().unwrap();
            assert!(error.message().contains(why), "{error}");
        };
        let memory = |seals: SealFlags| {
            let memory = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
            let mut memory = File::from(memory);
            memory.write_all(&[1; 100]).unwrap();
            fcntl_add_seals(&memory, seals).unwrap();
            memory
        };
        wrong(memory(SealFlags::empty()), "still change");
        wrong(memory(SealFlags::GROW | SealFlags::SHRINK), "still change");
        wrong(memory(SealFlags::WRITE), "still change");
        assert!(Incoming::of_a_plugin(vec![memory(SEALS).into()], &Allowance::default()).is_ok());
        let sparse = memory(SealFlags::empty());
        sparse.set_len(1 << 40).unwrap();
        fcntl_add_seals(&sparse, SEALS).unwrap();
        wrong(sparse, "blocks of 512 are there");
        wrong(tempfile::tempfile().unwrap(), "no sealed memory");
        wrong(File::open("/proc/self/exe").unwrap(), "no sealed memory");
    }

    #[test]
    fn a_plugin_gets_a_user_s_file_opened_for_it_alone() {
        let user = tempfile::tempfile().unwrap();
        (&user).write_all(&[7; 5000]).unwrap();
        let mapping = Mapping::of(Arc::new(user.try_clone().unwrap())).unwrap().unwrap();
        let mut to = Outgoing::to_plugin(None);
        to.only_input(mapping.bytes());
        to.place(mapping.bytes(), 1).unwrap();
        to.place(mapping.bytes(), 1).unwrap();
        let sent = to.seal().unwrap();
        assert_eq!(sent.len(), 1, "once");
        let inode = |stat: rustix::fs::Stat| (stat.st_dev, stat.st_ino);
        assert_eq!(inode(fstat(sent[0]).unwrap()), inode(fstat(&user).unwrap()), "no copy");
        // An open file that both share has one offset.
        let before = (&user).stream_position().unwrap();
        rustix::fs::seek(sent[0], rustix::fs::SeekFrom::Start(3)).unwrap();
        assert_eq!((&user).stream_position().unwrap(), before);
        assert!(rustix::io::write(sent[0], b"x").is_err(), "it is open for reading alone");
    }

    #[test]
    fn no_more_files_of_a_plugin_are_mapped_at_once_than_it_is_allowed() {
        let sent = |n: u8| {
            let mut to = Outgoing::default();
            to.place(&[n; 100], 1).unwrap();
            to.into_files().unwrap()
        };
        let (allowed, again) = (Allowance::of(2), sent(2));
        let same = again.iter().map(|file| file.try_clone().unwrap()).collect();
        let first = Incoming::of_a_plugin(sent(1), &allowed).unwrap();
        let _second = Incoming::of_a_plugin(again, &allowed).unwrap();
        // It is mapped already.
        assert!(Incoming::of_a_plugin(same, &allowed).is_ok());
        let refused = Incoming::of_a_plugin(sent(3), &allowed).err().unwrap();
        assert!(refused.message().contains("as many as may be mapped"), "{refused}");
        assert!(Incoming::of_a_plugin(sent(3), &Allowance::default()).is_ok(), "of another plugin's");
        drop(first);
        assert!(Incoming::of_a_plugin(sent(3), &allowed).is_ok());
        // What failed to be mapped is not counted.
        let empty = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        fcntl_add_seals(&empty, SEALS).unwrap();
        assert!(Incoming::of_a_plugin(vec![empty], &allowed).is_err());
        assert!(Incoming::of_a_plugin(sent(4), &allowed).is_ok());
    }

    #[test]
    fn places_outside_are_refused() {
        let mut to = Outgoing::default();
        to.place(&[1; 100], 1).unwrap();
        let from = Incoming::of_a_plugin(to.into_files().unwrap(), &Allowance::default()).unwrap();
        for (file, offset, bytes) in
            [(1, 0, 1), (0, 0, 101), (0, 100, 1), (0, u64::MAX, 2), (0, 1, u64::MAX), (7, 0, 1)]
        {
            for within in [Within::File(file), Within::Room(file), Within::Nothing] {
                assert!(from.buffer(Place { within, offset, bytes }).is_err(), "{within:?} {offset} {bytes}");
            }
        }
        assert!(from.buffer(Place { within: Within::File(0), offset: 99, bytes: 1 }).is_ok());
    }

    #[test]
    fn places_outside_a_room_are_refused() {
        let mut to = Outgoing::default();
        let place = to.place(&[1; 100], 1).unwrap();
        let room = Incoming::of_the_host(to.into_files().unwrap()).unwrap().buffer(place).unwrap();
        let from = Incoming::of_a_plugin(Vec::new(), &Allowance::default()).unwrap().with_rooms(vec![room]);
        let at = |room, offset, bytes| from.buffer(Place { within: Within::Room(room), offset, bytes });
        for (room, offset, bytes) in [(0, 0, 101), (0, 100, 1), (0, u64::MAX, 2), (0, 1, u64::MAX), (1, 0, 1)]
        {
            assert!(at(room, offset, bytes).is_err(), "{room} {offset} {bytes}");
        }
        assert_eq!(at(0, 99, 1).unwrap().len(), Some(1));
        assert_eq!(at(0, 100, 0).unwrap().len(), Some(0));
    }
}
