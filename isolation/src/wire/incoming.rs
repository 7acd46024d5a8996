//! The files and shared segments of a received message.
//!
//! The sender writes buffers into a file in memory and seals the file, so that no process can
//! change it afterwards. A buffer in a mapped file is sent as this file and an offset. The receiver
//! maps each file once for reading, and keeps the mapping as long as a buffer uses it.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use crossdock_memory::{Buffer, ForeignOwner, Ready};
use crossdock_memory_backend::Reservation;
use crossdock_plugin_api::{Device, Error, Result};
use rustix::fs::{SealFlags, fcntl_get_seals};
use serde::{Deserialize, Serialize};

use crate::files::mapping::{Mapping, ReceiveBudget};
use crate::files::seal::SEALS;

/// The place of a buffer in a file or a shared segment of its message.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Place {
    pub(crate) within: Within,
    /// The offset from the beginning of the file or segment (bytes).
    pub(crate) offset: u64,
    /// The length of the buffer in bytes.
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Within {
    /// The buffer is empty.
    Nothing,
    /// The index of a file of the message.
    File(u32),
    /// The index of a segment of the message.
    Segment(u32),
}

impl Place {
    pub(crate) const EMPTY: Self = Self { within: Within::Nothing, offset: 0, bytes: 0 };

    /// The offset from the beginning of the file or segment (bytes).
    pub fn offset(&self) -> u64 {
        self.offset
    }
}

/// The files and segments of a received message.
#[derive(Default)]
pub struct Incoming {
    /// The mapped files. `None` for a file that belongs to a segment.
    files: Vec<Option<MappedFile>>,
    segments: Vec<Buffer>,
    /// Whether the host sent the message.
    is_trusted: bool,
    /// Reserves the memory of the parsed message.
    reservation: Option<Reservation>,
}

struct MappedFile {
    mapping: Arc<Mapping>,
    owner: ForeignOwner,
}

impl Incoming {
    /// Maps files that this process has written itself.
    pub fn from_this_process(files: Vec<OwnedFd>) -> Result<Self> {
        let map = |file: OwnedFd| {
            let file = File::from(file);
            let mapping = match Mapping::existing(&file)? {
                Some(mapping) => mapping,
                None => Mapping::from_message(file)?.ok_or_else(cannot_map)?,
            };
            Ok(Some(MappedFile { owner: ForeignOwner::new(mapping.clone()), mapping }))
        };
        let files = files.into_iter().map(map).collect::<Result<_>>()?;
        Ok(Self { files, segments: Vec::new(), is_trusted: true, reservation: None })
    }

    /// Maps the files of a message from the host. The host does not change these files.
    pub fn from_host(files: Vec<OwnedFd>) -> Result<Self> {
        Self::from_host_without_segments(files.into_iter().map(Some).collect())
    }

    /// Maps the files of a message from the host. `files` has `None` for a file that belongs to a
    /// segment.
    pub fn from_host_without_segments(files: Vec<Option<OwnedFd>>) -> Result<Self> {
        Ok(Self { is_trusted: true, ..Self::from_files(files, None, |_| Ok(()))? })
    }

    pub fn with_segments(self, segments: Vec<Buffer>) -> Self {
        Self { segments, ..self }
    }

    /// Keeps the reservation for the memory of the parsed message.
    pub fn with_reservation(self, reservation: Option<Reservation>) -> Self {
        Self { reservation, ..self }
    }

    /// Returns the reservation for the memory of the parsed message. The objects that are created
    /// from the message should keep it.
    pub fn into_reservation(self) -> Option<Reservation> {
        self.reservation
    }

    /// Whether the sender may refer to buffers that it did not send.
    pub fn is_trusted(&self) -> bool {
        self.is_trusted
    }

    /// Maps the files of a message from a plugin.
    ///
    /// # Errors
    /// A file is neither a sealed file in memory nor a file that this process has already mapped,
    /// or the budget is exceeded.
    pub fn from_plugin(files: Vec<OwnedFd>, budget: &ReceiveBudget) -> Result<Self> {
        let files = files.into_iter().map(Some).collect();
        Self::from_files(files, Some(budget), |file| match fcntl_get_seals(file) {
            Ok(seals) if seals.contains(SEALS.difference(SealFlags::SEAL)) => check_is_allocated(file),
            Ok(seals) => Err(Error::bad_data(format!(
                "the plugin's process shares memory that it can still change: the seals are {seals:?}"
            ))),
            Err(errno) => Err(Error::bad_data(format!(
                "the plugin's process shares a file that is not sealed memory: {errno}"
            ))),
        })
    }

    fn from_files(
        files: Vec<Option<OwnedFd>>,
        budget: Option<&ReceiveBudget>,
        check: impl Fn(&File) -> Result<()>,
    ) -> Result<Self> {
        let map = |file: OwnedFd| {
            let file = File::from(file);
            let mapping = match Mapping::existing(&file)? {
                Some(mapping) => mapping,
                None => {
                    check(&file)?;
                    Mapping::from_received(file, budget)?.ok_or_else(cannot_map)?
                }
            };
            Ok(MappedFile { owner: ForeignOwner::new(mapping.clone()), mapping })
        };
        let files = files.into_iter().map(|file| file.map(map).transpose()).collect::<Result<_>>()?;
        Ok(Self { files, segments: Vec::new(), is_trusted: false, reservation: None })
    }

    /// Returns the buffer at a place. The buffer is in host memory, or on the device of a segment.
    ///
    /// # Errors
    /// The place is outside the message's files and segments.
    pub fn buffer(&self, place: Place) -> Result<Buffer> {
        static NOTHING: [u64; 8] = [0; 8];
        let outside =
            |_| Error::bad_data(format!("a buffer at offset {} is outside shared memory", place.offset));
        let offset = usize::try_from(place.offset).map_err(outside)?;
        let size = usize::try_from(place.bytes).map_err(outside)?;
        let index = match place.within {
            Within::Segment(index) => {
                let count = self.segments.len();
                let missing = || {
                    Error::bad_data(format!(
                        "a buffer in segment {index}, but the message has {count} segments"
                    ))
                };
                return self.segments.get(index as usize).ok_or_else(missing)?.slice(offset, size);
            }
            Within::File(index) if size > 0 => index,
            _ if size > 0 => {
                return Err(Error::bad_data(format!(
                    "a buffer of {size} bytes is in no file and no segment"
                )));
            }
            _ => {
                let owner = ForeignOwner::new(());
                // SAFETY: the buffer has 0 bytes, and its address is the address of a static.
                return Ok(unsafe {
                    Buffer::foreign(&owner, Device::CPU, NOTHING.as_ptr() as u64, Some(0), Ready::Now)
                });
            }
        };
        let missing = || {
            Error::bad_data(format!(
                "a buffer in file {index}, but the message has {} files",
                self.files.len()
            ))
        };
        let file = self.files.get(index as usize).and_then(Option::as_ref).ok_or_else(missing)?;
        let bytes = file.mapping.bytes();
        // SAFETY: the mapping is readable while it exists, and the owner keeps it.
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

    /// Returns the mapping of the file that contains a place.
    pub fn mapping(&self, place: Place) -> Option<Arc<Mapping>> {
        let Within::File(index) = place.within else { return None };
        self.files.get(index as usize)?.as_ref().map(|file| file.mapping.clone())
    }
}

fn cannot_map() -> Error {
    Error::out_of_memory("cannot map shared memory")
}

/// Rejects sparse files in memory, because reading them would allocate their pages and use memory
/// of this process.
fn check_is_allocated(file: &File) -> Result<()> {
    const SLACK: u64 = 1 << 20;
    let stat = file.metadata()?;
    if stat.blocks().saturating_mul(512).saturating_add(SLACK) >= stat.len() {
        return Ok(());
    }
    Err(Error::bad_data(format!(
        "the plugin's process shares memory of {} bytes, but only {} blocks of 512 bytes are allocated",
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
    use crate::wire::outgoing::Outgoing;

    fn bytes_of(buffer: &Buffer) -> &[u8] {
        // SAFETY: the buffer is in host memory, and is borrowed while the slice is used.
        unsafe { std::slice::from_raw_parts(buffer.address() as *const u8, buffer.len().unwrap()) }
    }

    #[test]
    fn buffers_are_sent_aligned_in_one_sealed_file() {
        let mut to = Outgoing::default();
        let (first, second) = (vec![1u8; 100], vec![2u8; 5000]);
        let places =
            [to.place(&first, 8).unwrap(), to.place(&[], 64).unwrap(), to.place(&second, 4096).unwrap()];
        let files = to.into_files().unwrap();
        assert_eq!(files.len(), 1, "all in one file");
        let file = File::from(files[0].try_clone().unwrap());
        assert!(file.write_all_at(&[9], 0).is_err() && file.set_len(10).is_err(), "it is sealed");
        let from = Incoming::from_plugin(files, &ReceiveBudget::default()).unwrap();
        let buffers = places.map(|place| from.buffer(place).unwrap());
        assert_eq!((bytes_of(&buffers[0]), buffers[1].len()), (&first[..], Some(0)));
        assert_eq!(bytes_of(&buffers[2]), &second[..]);
        assert!(buffers[2].address().is_multiple_of(4096));
    }

    #[test]
    fn received_buffers_are_forwarded_without_a_copy() {
        let mut to = Outgoing::default();
        let place = to.place(&[7; 1000], 1).unwrap();
        let received = Incoming::from_host(to.into_files().unwrap()).unwrap();
        let buffer = received.buffer(place).unwrap().slice(10, 20).unwrap();
        let mut resent = Outgoing::default();
        let place = resent.place(bytes_of(&buffer), 1).unwrap();
        assert!(resent.own_file.is_none(), "it was copied");
        let back = Incoming::from_plugin(resent.into_files().unwrap(), &ReceiveBudget::default()).unwrap();
        assert_eq!(back.buffer(place).unwrap().address(), buffer.address());
    }

    #[test]
    fn rejects_received_files_that_are_not_sealed_or_not_fully_allocated() {
        let expect_error = |file: File, reason: &str| {
            let error = Incoming::from_plugin(vec![file.into()], &ReceiveBudget::default()).err().unwrap();
            assert!(error.message().contains(reason), "{error}");
        };
        let memory = |seals: SealFlags| {
            let memory = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
            let mut memory = File::from(memory);
            memory.write_all(&[1; 100]).unwrap();
            fcntl_add_seals(&memory, seals).unwrap();
            memory
        };
        expect_error(memory(SealFlags::empty()), "still change");
        expect_error(memory(SealFlags::GROW | SealFlags::SHRINK), "still change");
        expect_error(memory(SealFlags::WRITE), "still change");
        assert!(Incoming::from_plugin(vec![memory(SEALS).into()], &ReceiveBudget::default()).is_ok());
        let sparse = memory(SealFlags::empty());
        sparse.set_len(1 << 40).unwrap();
        fcntl_add_seals(&sparse, SEALS).unwrap();
        expect_error(sparse, "blocks of 512 bytes are allocated");
        expect_error(tempfile::tempfile().unwrap(), "not sealed memory");
        expect_error(File::open("/proc/self/exe").unwrap(), "not sealed memory");
    }

    #[test]
    fn plugin_receives_user_file_as_separate_read_only_open_file() {
        let user = tempfile::tempfile().unwrap();
        (&user).write_all(&[7; 5000]).unwrap();
        let mapping = Mapping::new(Arc::new(user.try_clone().unwrap())).unwrap().unwrap();
        let mut to = Outgoing::to_plugin(None);
        to.restrict_to_input(mapping.bytes());
        to.place(mapping.bytes(), 1).unwrap();
        to.place(mapping.bytes(), 1).unwrap();
        let sent = to.seal().unwrap();
        assert_eq!(sent.len(), 1, "once");
        let inode = |stat: rustix::fs::Stat| (stat.st_dev, stat.st_ino);
        assert_eq!(inode(fstat(sent[0]).unwrap()), inode(fstat(&user).unwrap()), "no copy");
        // The descriptors of one open file share an offset.
        let before = (&user).stream_position().unwrap();
        rustix::fs::seek(sent[0], rustix::fs::SeekFrom::Start(3)).unwrap();
        assert_eq!((&user).stream_position().unwrap(), before);
        assert!(rustix::io::write(sent[0], b"x").is_err(), "it is read-only");
    }

    #[test]
    fn received_memory_is_charged_while_it_is_mapped() {
        let files = |n: u8| {
            let mut to = Outgoing::default();
            to.place(&[n; 10_000], 1).unwrap();
            to.into_files().unwrap()
        };
        let backend = Backend::builder().limit_bytes(15_000).build();
        let budget = ReceiveBudget::default().with_account(backend.account("sender (its process)"));
        let first = Incoming::from_plugin(files(1), &budget).unwrap();
        assert_eq!(backend.ledger().live_bytes(), 10_000);
        let error = Incoming::from_plugin(files(2), &budget).err().unwrap();
        assert!(error.message().contains("'sender (its process)' asked for 10000 bytes"), "{error}");
        drop(first);
        assert_eq!(backend.ledger().live_bytes(), 0);
        assert!(Incoming::from_plugin(files(2), &budget).is_ok());
    }

    #[test]
    fn rejects_plugin_files_beyond_the_maximum_of_mappings() {
        let files = |n: u8| {
            let mut to = Outgoing::default();
            to.place(&[n; 100], 1).unwrap();
            to.into_files().unwrap()
        };
        let (budget, second) = (ReceiveBudget::new(2), files(2));
        let second_again = second.iter().map(|file| file.try_clone().unwrap()).collect();
        let first = Incoming::from_plugin(files(1), &budget).unwrap();
        let _second = Incoming::from_plugin(second, &budget).unwrap();
        // A file that is already mapped is not counted again.
        assert!(Incoming::from_plugin(second_again, &budget).is_ok());
        let error = Incoming::from_plugin(files(3), &budget).err().unwrap();
        assert!(error.message().contains("which is the maximum"), "{error}");
        assert!(Incoming::from_plugin(files(3), &ReceiveBudget::default()).is_ok(), "of another plugin");
        drop(first);
        assert!(Incoming::from_plugin(files(3), &budget).is_ok());
        // A file that cannot be mapped is not counted.
        let empty = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        fcntl_add_seals(&empty, SEALS).unwrap();
        assert!(Incoming::from_plugin(vec![empty], &budget).is_err());
        assert!(Incoming::from_plugin(files(4), &budget).is_ok());
    }

    #[test]
    fn rejects_ranges_outside_the_files() {
        let mut to = Outgoing::default();
        to.place(&[1; 100], 1).unwrap();
        let from = Incoming::from_plugin(to.into_files().unwrap(), &ReceiveBudget::default()).unwrap();
        for (file, offset, bytes) in
            [(1, 0, 1), (0, 0, 101), (0, 100, 1), (0, u64::MAX, 2), (0, 1, u64::MAX), (7, 0, 1)]
        {
            for within in [Within::File(file), Within::Segment(file), Within::Nothing] {
                assert!(from.buffer(Place { within, offset, bytes }).is_err(), "{within:?} {offset} {bytes}");
            }
        }
        assert!(from.buffer(Place { within: Within::File(0), offset: 99, bytes: 1 }).is_ok());
    }

    #[test]
    fn rejects_ranges_outside_the_segments() {
        let mut to = Outgoing::default();
        let place = to.place(&[1; 100], 1).unwrap();
        let segment = Incoming::from_host(to.into_files().unwrap()).unwrap().buffer(place).unwrap();
        let from = Incoming::from_plugin(Vec::new(), &ReceiveBudget::default())
            .unwrap()
            .with_segments(vec![segment]);
        let buffer_at =
            |segment, offset, bytes| from.buffer(Place { within: Within::Segment(segment), offset, bytes });
        for (segment, offset, bytes) in
            [(0, 0, 101), (0, 100, 1), (0, u64::MAX, 2), (0, 1, u64::MAX), (1, 0, 1)]
        {
            assert!(buffer_at(segment, offset, bytes).is_err(), "{segment} {offset} {bytes}");
        }
        assert_eq!(buffer_at(0, 99, 1).unwrap().len(), Some(1));
        assert_eq!(buffer_at(0, 100, 0).unwrap().len(), Some(0));
    }
}
