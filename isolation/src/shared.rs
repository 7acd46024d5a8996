//! Memory that two processes see: sealed files without a name, and mapped files.
//!
//! What is sent is written into a file in memory that is sealed before it leaves: neither side can change it from then on.
//! What lies in a mapping is sent as that file and an offset. A file that comes is mapped for reading, once, as long as
//! anybody reads it.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::Duration;

use crossdock_memory::{Buffer, ForeignOwner, Ready};
use crossdock_memory_backend::Reserved;
use crossdock_plugin_api::{Device, Error, Result};
use rustix::fs::{SealFlags, fcntl_add_seals, fcntl_get_seals};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::mapping::{Allowance, Mapping};

/// What nobody can do to a sealed file any more.
pub const SEALS: SealFlags =
    SealFlags::SEAL.union(SealFlags::SHRINK).union(SealFlags::GROW).union(SealFlags::WRITE);

/// From now on nobody changes the bytes of memory in a file, nor how many there are.
pub fn seal(file: impl AsFd) -> std::io::Result<()> {
    /// In each of them the system waits for 150 ms.
    const TRIES: usize = 20;
    for _ in 1..TRIES {
        match fcntl_add_seals(&file, SEALS) {
            // The system itself may hold a page for a moment, as it does while it moves memory about.
            Err(Errno::BUSY) => std::thread::sleep(Duration::from_millis(5)),
            result => return Ok(result?),
        }
    }
    Ok(fcntl_add_seals(&file, SEALS)?)
}

/// Where bytes lie: in which of a message's files, or of its rooms.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Place {
    pub(crate) within: Within,
    pub(crate) offset: u64,
    /// How many.
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Within {
    Nothing,
    File(u32),
    /// On the process's device.
    Room(u32),
}

impl Place {
    pub(crate) const NOWHERE: Self = Self { within: Within::Nothing, offset: 0, bytes: 0 };

    /// From the file's first byte on.
    pub fn offset(&self) -> u64 {
        self.offset
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
    /// What the message itself takes.
    counted: Option<Reserved>,
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
        Ok(Self { files, rooms: Vec::new(), believed: true, counted: None })
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

    /// The same, with what is counted for as long as the message is.
    pub fn counted(self, counted: Option<Reserved>) -> Self {
        Self { counted, ..self }
    }

    /// What is counted for the message, to be kept with what is made of it.
    pub fn into_counted(self) -> Option<Reserved> {
        self.counted
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
        Ok(Self { files, rooms: Vec::new(), believed: false, counted: None })
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
    use std::os::unix::fs::FileExt;

    use crossdock_memory_backend::Backend;
    use rustix::fs::{MemfdFlags, fcntl_add_seals, fstat, memfd_create};

    use super::*;
    use crate::outgoing::Outgoing;

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
    fn what_a_plugin_sends_in_memory_counts_for_as_long_as_it_is_mapped() {
        let sent = |n: u8| {
            let mut to = Outgoing::default();
            to.place(&[n; 10_000], 1).unwrap();
            to.into_files().unwrap()
        };
        let backend = Backend::builder().limit_bytes(15_000).build();
        let allowed = Allowance::default().counted_by(backend.account("sender (its process)"));
        let first = Incoming::of_a_plugin(sent(1), &allowed).unwrap();
        assert_eq!(backend.ledger().live_bytes(), 10_000);
        let refused = Incoming::of_a_plugin(sent(2), &allowed).err().unwrap();
        assert!(refused.message().contains("'sender (its process)' asked for 10000 bytes"), "{refused}");
        drop(first);
        assert_eq!(backend.ledger().live_bytes(), 0);
        assert!(Incoming::of_a_plugin(sent(2), &allowed).is_ok());
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
