//! Device memory with handles. Such memory is allocated without an address, is mapped at addresses,
//! and can be shared with other processes as files.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;

use crate::codes::{INVALID_DEVICE, INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY, Outcome, UNKNOWN};
use crate::memory::{Block, Kind, Mapped};
use crate::order::History;
use crate::real::Real;
use crate::report::Site;
use crate::state::{Handle, Sim};

/// The size of an allocation must be a multiple of this number of bytes, as on real devices.
pub(crate) const GRANULARITY: u64 = 2 << 20;
/// The prefix of the name of each memory file, followed by the device's number. It identifies files
/// that the simulator created.
const NAME: &str = "crossdock-sim-cuda-";

/// Device memory that exists as long as it has a handle or a mapping.
pub(crate) struct Physical {
    pub device: usize,
    pub bytes: u64,
    pub handles: u64,
    pub created_at: Site,
    file: OwnedFd,
    mappings: u64,
    /// Whether this process allocated the memory.
    is_own: bool,
}

impl Sim {
    pub(crate) fn make_memory(&mut self, device: usize, bytes: u64) -> Outcome<Handle> {
        if bytes == 0 || !bytes.is_multiple_of(GRANULARITY) {
            return Err(INVALID_VALUE);
        }
        if bytes > self.config.memory_bytes.saturating_sub(self.used_bytes(device)) {
            return Err(OUT_OF_MEMORY);
        }
        let name = std::ffi::CString::new(format!("{NAME}{device}")).map_err(|_| UNKNOWN)?;
        // SAFETY: the name ends with a NUL.
        let file = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
        if file < 0 {
            return Err(OUT_OF_MEMORY);
        }
        // SAFETY: memfd_create opened the file above, and nothing else owns it.
        let file = unsafe { File::from_raw_fd(file) };
        file.set_len(bytes).map_err(|_| OUT_OF_MEMORY)?;
        Ok(self.add(file.into(), device, bytes, true))
    }

    fn add(&mut self, file: OwnedFd, device: usize, bytes: u64, is_own: bool) -> Handle {
        let (handle, created_at) = (self.new_handle(), self.here());
        let physical = Physical { device, bytes, handles: 1, created_at, file, mappings: 0, is_own };
        self.physical.insert(handle, physical);
        handle
    }

    pub(crate) fn memory_of(&mut self, handle: Handle) -> Outcome<&mut Physical> {
        if self.physical.get(&handle).is_none_or(|physical| physical.handles == 0) {
            return Err(self.stale("memory", handle));
        }
        self.physical.get_mut(&handle).ok_or(INVALID_VALUE)
    }

    /// Releases one handle.
    pub(crate) fn release_memory(&mut self, handle: Handle) -> Outcome {
        self.memory_of(handle)?.handles -= 1;
        self.free_if_unused(handle);
        Ok(())
    }

    fn free_if_unused(&mut self, handle: Handle) {
        if self.physical.get(&handle).is_some_and(|physical| physical.handles == 0 && physical.mappings == 0)
        {
            self.physical.remove(&handle);
        }
    }

    /// The bytes on a device that this process allocated with cuMemCreate.
    pub(crate) fn physical_bytes(&self, device: usize) -> u64 {
        let own = self.physical.values().filter(|physical| physical.is_own && physical.device == device);
        own.map(|physical| physical.bytes).sum()
    }

    pub(crate) fn reserve(&mut self, bytes: u64) -> Outcome<u64> {
        let device = self.current()?;
        if bytes == 0 || !bytes.is_multiple_of(GRANULARITY) {
            return Err(INVALID_VALUE);
        }
        let begin = self.new_address(device, bytes.checked_add(GRANULARITY).ok_or(OUT_OF_MEMORY)?)?;
        let begin = begin.next_multiple_of(GRANULARITY);
        self.reserved.insert(begin, bytes);
        Ok(begin)
    }

    pub(crate) fn free_reserved(&mut self, begin: u64, bytes: u64) -> Outcome {
        if self.reserved.get(&begin) != Some(&bytes) || self.find(begin).is_some() {
            return Err(INVALID_VALUE);
        }
        self.reserved.remove(&begin);
        Ok(())
    }

    /// Maps the whole memory at a whole reserved range. Like a real driver, this function does not
    /// support mapping only a part.
    pub(crate) fn map(&mut self, begin: u64, bytes: u64, offset: u64, handle: Handle) -> Outcome {
        let physical = self.memory_of(handle)?;
        let (device, whole, file) = (physical.device, physical.bytes, physical.file.as_raw_fd());
        if offset != 0 || bytes != whole {
            return Err(NOT_SUPPORTED);
        }
        if self.reserved.get(&begin) != Some(&bytes) || self.find(begin).is_some() {
            return Err(INVALID_VALUE);
        }
        let real = Real::shared(file, bytes)?;
        let site = self.here();
        self.memory_of(handle)?.mappings += 1;
        self.insert(Block {
            begin,
            bytes,
            kind: Kind::Device { device, pool: None },
            managed: false,
            real,
            history: History::new(bytes, None),
            allocated: site,
            allocation: None,
            freed: None,
            free: None,
            mapped: Some(Mapped { physical: handle, devices: 0 }),
        });
        Ok(())
    }

    /// Unmaps a range. The call does not wait, so all work that uses the range must have run.
    pub(crate) fn unmap(&mut self, begin: u64, bytes: u64) -> Outcome {
        let block =
            self.find(begin).filter(|(_, b)| b.begin == begin && b.bytes == bytes && b.mapped.is_some());
        let id = block.map(|(id, _)| id).ok_or(INVALID_VALUE)?;
        let (site, host) = (self.here(), self.host.clone());
        self.check_free(id, &host, site);
        if let Some(block) = self.blocks.get_mut(&id) {
            block.freed = Some(site);
        }
        self.destroy_block(id);
        Ok(())
    }

    /// Decrements the number of mappings, and frees the memory if it is no longer used.
    pub(crate) fn remove_mapping(&mut self, handle: Handle) {
        if let Some(physical) = self.physical.get_mut(&handle) {
            physical.mappings = physical.mappings.saturating_sub(1);
        }
        self.free_if_unused(handle);
    }

    pub(crate) fn give_access(&mut self, begin: u64, bytes: u64, device: usize, accessible: bool) -> Outcome {
        let block = self.find(begin).filter(|(_, block)| block.begin == begin && block.bytes == bytes);
        let id = block.map(|(id, _)| id).ok_or(INVALID_VALUE)?;
        let mapped = self.blocks.get_mut(&id).and_then(|block| block.mapped.as_mut());
        let mapped = mapped.ok_or(INVALID_VALUE)?;
        let bit = 1 << device;
        mapped.devices = if accessible { mapped.devices | bit } else { mapped.devices & !bit };
        Ok(())
    }

    /// Returns the handle of the memory that is mapped at `address`, and increments its handle
    /// count.
    pub(crate) fn retain_memory(&mut self, address: u64) -> Outcome<Handle> {
        let mapped = self.find(address).and_then(|(_, block)| block.mapped).ok_or(INVALID_VALUE)?;
        self.physical.get_mut(&mapped.physical).ok_or(INVALID_VALUE)?.handles += 1;
        Ok(mapped.physical)
    }

    /// Returns a file descriptor with which other processes can import the memory. The caller owns
    /// the file descriptor.
    pub(crate) fn export_memory(&mut self, handle: Handle) -> Outcome<RawFd> {
        let file = self.memory_of(handle)?.file.as_raw_fd();
        duplicate(file)
    }

    pub(crate) fn import_memory(&mut self, file: RawFd) -> Outcome<Handle> {
        self.current()?;
        let link = std::fs::read_link(format!("/proc/self/fd/{file}")).map_err(|_| UNKNOWN)?;
        let link = link.to_string_lossy();
        let number = link.strip_prefix("/memfd:").and_then(|name| name.strip_prefix(NAME));
        let number = number.and_then(|name| name.strip_suffix(" (deleted)")).and_then(|n| n.parse().ok());
        let device: i32 = number.ok_or(UNKNOWN)?;
        let device = self.device(device).map_err(|_| INVALID_DEVICE)?;
        // SAFETY: `duplicate` opened the file, and nothing else owns it.
        let file = unsafe { File::from_raw_fd(duplicate(file)?) };
        let bytes = file.metadata().map_err(|_| UNKNOWN)?.size();
        Ok(self.add(file.into(), device, bytes, false))
    }
}

fn duplicate(file: RawFd) -> Outcome<RawFd> {
    // SAFETY: F_DUPFD_CLOEXEC takes an integer and reports an invalid file as an error.
    let file = unsafe { libc::fcntl(file, libc::F_DUPFD_CLOEXEC, 0) };
    if file < 0 { Err(UNKNOWN) } else { Ok(file) }
}
