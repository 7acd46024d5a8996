//! The files and shared segments of a message to send.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crossdock_memory::Buffer;
use crossdock_plugin_api::{Device, Error, Result};
use rustix::fs::{MemfdFlags, memfd_create};

use crate::files::mapping::{Mapping, OpenFile};
use crate::files::seal::seal;
use crate::wire::incoming::{Place, Within};
use crate::wire::message_limits::MAX_FILES;
use crate::wire::segments::{SegmentCopies, SegmentParts, SegmentSender};

/// The alignment of buffers in files, in bytes. It is the length of a cache line, which Arrow
/// recommends.
const ALIGNMENT: u64 = 64;
/// The maximum alignment in bytes. A larger alignment cannot be guaranteed, because mappings begin
/// at pages.
const MAX_ALIGNMENT: u64 = 4096;

/// The files, segments and payload of a message to send.
#[derive(Default)]
pub struct Outgoing {
    /// The bytes that follow the message.
    pub payload: Vec<u8>,
    files: Vec<SentFile>,
    /// The file into which this message copies buffers: its index, and the number of bytes written.
    pub(crate) own_file: Option<(u32, u64)>,
    mapped_files: MappedFiles,
    /// Sends buffers on its device in segments. Without a sender, device buffers are copied to host
    /// memory.
    segment_sender: Option<Arc<dyn SegmentSender>>,
    segments: Vec<SegmentParts>,
    copies: SegmentCopies,
    /// Buffers to copy into the next segment, with their offsets in the segment.
    pending: Vec<(Buffer, usize)>,
    pending_bytes: usize,
}

/// Selects the mapped files that are sent as descriptors. A receiver of a descriptor can read the
/// whole file, including bytes outside the buffer.
#[derive(Default)]
enum MappedFiles {
    /// All mapped files, for messages to the host. The host may read all of their bytes.
    #[default]
    All,
    /// Files of earlier messages. Buffers in a user's file are copied.
    Messages,
    /// Files whose bytes are all sent.
    Whole(Vec<Arc<OpenFile>>),
}

enum SentFile {
    Own(File),
    /// A mapped file. The second field is the same file opened again, if the receiver must not
    /// share this process's open file.
    Mapped(Arc<OpenFile>, Option<File>),
    Segment(OwnedFd),
}

impl AsFd for SentFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Own(file) => file.as_fd(),
            Self::Mapped(_, Some(reopened)) => reopened.as_fd(),
            Self::Mapped(file, None) => file.as_fd(),
            Self::Segment(file) => file.as_fd(),
        }
    }
}

impl Outgoing {
    /// Creates a message to the host. Buffers on the device of `segment_sender` are copied into
    /// segments.
    pub fn to_host(segment_sender: Option<Arc<dyn SegmentSender>>) -> Self {
        Self { segment_sender, ..Self::default() }
    }

    /// Creates a message to a plugin's process. The process can read only the bytes of a file that
    /// are sent.
    pub fn to_plugin(segment_sender: Option<Arc<dyn SegmentSender>>) -> Self {
        Self { mapped_files: MappedFiles::Messages, ..Self::to_host(segment_sender) }
    }

    /// Sends the file of an input as a descriptor only if `bytes` are the whole file.
    pub fn restrict_to_input(&mut self, bytes: &[u8]) {
        let location = Mapping::file_containing(bytes);
        let whole = location.filter(|(_, offset, len)| *offset == 0 && *len == bytes.len() as u64);
        self.mapped_files = MappedFiles::Whole(whole.map(|(file, ..)| file).into_iter().collect());
    }

    /// Sends the file of an earlier message as a descriptor only if `parts` cover it. `parts` are
    /// all buffers of this message.
    pub fn restrict_to<'a>(&mut self, parts: impl Iterator<Item = &'a [u8]>) {
        if matches!(self.mapped_files, MappedFiles::All) {
            return;
        }
        type Parts = (Arc<OpenFile>, u64, Vec<(u64, u64)>);
        let mut files: Vec<Parts> = Vec::new();
        for bytes in parts.filter(|bytes| !bytes.is_empty()) {
            let Some((file, offset, len)) = Mapping::file_containing(bytes) else { continue };
            let range = (offset, offset + bytes.len() as u64);
            match files.iter_mut().find(|(known, ..)| Arc::ptr_eq(known, &file)) {
                Some((_, _, ranges)) => ranges.push(range),
                None => files.push((file, len, vec![range])),
            }
        }
        let is_whole = |(file, len, ranges): &mut Parts| {
            ranges.sort_unstable();
            // Buffers begin at multiples of the alignment, so a gap that is smaller than the
            // alignment is padding.
            let reaches = |end: u64, to: u64| to < end.saturating_add(ALIGNMENT);
            let end =
                ranges.iter().try_fold(0, |end, (from, to)| reaches(end, *from).then_some(end.max(*to)));
            file.is_message && end.is_some_and(|end| reaches(end, *len))
        };
        let whole = files.into_iter().filter_map(|mut file| is_whole(&mut file).then_some(file.0));
        self.mapped_files = MappedFiles::Whole(whole.collect());
    }

    /// Whether mapped files are sent as descriptors even if they contain bytes that belong to no
    /// buffer of the message.
    pub fn sends_whole_files(&self) -> bool {
        matches!(self.mapped_files, MappedFiles::All)
    }

    fn sends_as_descriptor(&self, file: &Arc<OpenFile>) -> bool {
        match &self.mapped_files {
            MappedFiles::All => true,
            MappedFiles::Messages => file.is_message,
            MappedFiles::Whole(files) => files.iter().any(|whole| Arc::ptr_eq(whole, file)),
        }
    }

    /// Returns the mapped file that contains `bytes`, if it is sent as a descriptor: the file, the
    /// offset of `bytes` in it, and its length in bytes.
    fn file_to_send(&self, bytes: &[u8]) -> Option<(Arc<OpenFile>, u64, u64)> {
        Mapping::file_containing(bytes).filter(|(file, ..)| self.sends_as_descriptor(file))
    }

    /// Whether [`Outgoing::place`] sends the file that contains `bytes` without a copy.
    pub fn sends_file_of(&self, bytes: &[u8]) -> bool {
        self.file_to_send(bytes).is_some()
    }

    /// Whether buffers on this device are sent in segments.
    pub fn accepts_device(&self, device: Device) -> bool {
        self.segment_sender.as_ref().is_some_and(|sender| sender.device() == device)
    }

    /// Whether the buffers of a batch of `bytes` bytes are sent in segments if they are on this
    /// device.
    pub fn accepts_batch(&self, device: Device, bytes: u64) -> bool {
        /// The host copies arrays in host memory out of a writable segment. This is faster than a
        /// new file only if the copy stays in the cache.
        const MAX_COPIED_BYTES: u64 = 8 << 20;
        let is_copied = |sender: &Arc<dyn SegmentSender>| device == Device::CPU && !sender.is_read_only();
        self.accepts_device(device)
            && (bytes <= MAX_COPIED_BYTES || !self.segment_sender.as_ref().is_some_and(is_copied))
    }

    /// Adds a buffer on an accepted device. The buffer's offset in the segment is a multiple of
    /// `alignment` (bytes, a power of two).
    ///
    /// # Errors
    /// The buffer's length is unknown, or the segment would be longer than the address space.
    pub fn place_in_segment(&mut self, buffer: Buffer, alignment: u64) -> Result<Place> {
        /// The alignment of memory that CUDA allocates.
        const DEVICE_ALIGNMENT: u64 = 256;
        let unknown = || Error::internal("cannot send a buffer of unknown length");
        let bytes = buffer.len().ok_or_else(unknown)?;
        let alignment = alignment.clamp(DEVICE_ALIGNMENT, MAX_ALIGNMENT) as usize;
        let offset = self.pending_bytes.checked_next_multiple_of(alignment);
        let range = offset.and_then(|offset| Some((offset, offset.checked_add(bytes)?)));
        let too_long = || Error::out_of_memory("the arrays exceed the address space");
        let (offset, end) = range.ok_or_else(too_long)?;
        self.pending_bytes = end;
        self.pending.push((buffer, offset));
        let within = Within::Segment(self.segments.len() as u32);
        Ok(Place { within, offset: offset as u64, bytes: bytes as u64 })
    }

    /// Copies the buffers that [`Outgoing::place_in_segment`] added into one segment. The copies
    /// may not be complete yet.
    ///
    /// # Errors
    /// Device memory is exhausted, or the device fails.
    pub fn fill_segments(&mut self) -> Result<()> {
        let (pending, bytes) = (std::mem::take(&mut self.pending), std::mem::take(&mut self.pending_bytes));
        let Some(sender) = self.segment_sender.as_ref().filter(|_| !pending.is_empty()) else {
            return Ok(());
        };
        let sent = sender.fill_segment(&pending, bytes)?;
        self.copies.add(sent.filled);
        let is_read_only = sender.is_read_only();
        let file = sent.file.map(|file| self.push(SentFile::Segment(file))).transpose()?;
        self.segments.push(SegmentParts { number: sent.number, file, bytes: sent.bytes, is_read_only });
        Ok(())
    }

    /// The number of bytes that are copied for this message.
    pub fn copied_bytes(&self) -> u64 {
        let in_segments: u64 = self.segments.iter().map(|segment| segment.bytes).sum();
        self.pending_bytes as u64 + in_segments + self.own_file.map_or(0, |(_, bytes)| bytes)
    }

    /// The segments of the message, in the order of the indices in its places.
    pub fn segments(&self) -> &[SegmentParts] {
        &self.segments
    }

    /// Adds a buffer in host memory. The receiver maps the buffer at a multiple of `alignment`
    /// (bytes, a power of two).
    ///
    /// # Errors
    /// The alignment is larger than a page, the buffers are in too many files, or memory is
    /// exhausted.
    pub fn place(&mut self, bytes: &[u8], alignment: u64) -> Result<Place> {
        let size = bytes.len() as u64;
        if bytes.is_empty() {
            return Ok(Place::EMPTY);
        }
        if alignment > MAX_ALIGNMENT {
            return Err(Error::unsupported(format!(
                "cannot send a buffer with an alignment of {alignment} bytes to another process, expected at most \
                 {MAX_ALIGNMENT}"
            )));
        }
        if let Some((file, offset, _)) = self.file_to_send(bytes)
            && let Some(index) = self.push_mapped(file)?
        {
            return Ok(Place { within: Within::File(index), offset, bytes: size });
        }
        let out_of_memory = |error: std::io::Error| {
            Error::out_of_memory(format!(
                "cannot allocate {size} bytes of shared memory for an isolated plugin: {error}"
            ))
        };
        let (index, end) = match self.own_file {
            Some(own_file) => own_file,
            None => {
                let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
                let file =
                    memfd_create("crossdock-arrays", flags).map_err(|errno| out_of_memory(errno.into()))?;
                (self.push(SentFile::Own(file.into()))?, 0)
            }
        };
        let offset = end.next_multiple_of(alignment.max(ALIGNMENT));
        if let Some(SentFile::Own(file)) = self.files.get(index as usize) {
            file.write_all_at(bytes, offset).map_err(out_of_memory)?;
        }
        self.own_file = Some((index, offset + size));
        Ok(Place { within: Within::File(index), offset, bytes: size })
    }

    /// Adds a mapped file and returns its index. Returns `None` for a user's file that the plugin
    /// must not share and that cannot be opened again.
    fn push_mapped(&mut self, file: Arc<OpenFile>) -> Result<Option<u32>> {
        let is_same =
            |sent: &SentFile| matches!(sent, SentFile::Mapped(known, _) if Arc::ptr_eq(known, &file));
        if let Some(index) = self.files.iter().position(is_same) {
            return Ok(Some(index as u32));
        }
        if self.sends_whole_files() || file.is_message {
            return self.push(SentFile::Mapped(file, None)).map(Some);
        }
        match file.open_again() {
            Ok(reopened) => self.push(SentFile::Mapped(file, Some(reopened))).map(Some),
            Err(_) => Ok(None),
        }
    }

    fn push(&mut self, file: SentFile) -> Result<u32> {
        if self.files.len() >= MAX_FILES {
            return Err(Error::unsupported(format!(
                "cannot send arrays in more than {MAX_FILES} files to another process"
            )));
        }
        self.files.push(file);
        Ok(self.files.len() as u32 - 1)
    }

    /// Waits for the copies into the segments, seals the files that this message has written, and
    /// returns all files.
    pub fn seal(&self) -> Result<Vec<BorrowedFd<'_>>> {
        self.copies.wait()?;
        for file in &self.files {
            if let SentFile::Own(file) = file {
                seal(file).map_err(|error| Error::internal(format!("cannot seal shared memory: {error}")))?;
            }
        }
        Ok(self.files.iter().map(AsFd::as_fd).collect())
    }

    /// Like [`Self::seal`], but returns duplicates of the files.
    pub fn into_files(self) -> Result<Vec<OwnedFd>> {
        self.seal()?;
        let duplicate = |file: &SentFile| file.as_fd().try_clone_to_owned();
        Ok(self.files.iter().map(duplicate).collect::<std::io::Result<_>>()?)
    }
}
