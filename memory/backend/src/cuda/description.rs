//! Describes an exported range of device memory for the process that opens it.

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;

use crossdock_plugin_api::{Error, Result};
use twox_hash::XxHash64;

use super::driver::IPC_HANDLE_BYTES;

/// An exported range of device memory, for another process on the same machine. Keep the
/// description secret, because a process that has its bytes can read and write the whole allocation
/// that contains the range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IpcDescription {
    /// The id that `this_process` returned in the exporting process.
    pub(super) process: u64,
    /// UUID of the GPU. It is used instead of the ordinal, because ordinals differ between
    /// processes.
    pub(super) gpu: [u8; 16],
    /// Offset in bytes of the range in the allocation to which the driver's handle refers.
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) memory: [u8; IPC_HANDLE_BYTES],
    pub(super) event: [u8; IPC_HANDLE_BYTES],
}

const MAGIC: [u8; 8] = *b"XDCUIPC1";
const CHECKSUM_BYTES: usize = 8;

impl IpcDescription {
    /// Length of [`IpcDescription::to_bytes`] in bytes.
    pub const BYTES: usize = 8 + 8 + 16 + 8 + 8 + 2 * IPC_HANDLE_BYTES + CHECKSUM_BYTES;

    /// Serialises the description. The bytes can be sent to the other process in any way.
    pub fn to_bytes(&self) -> Vec<u8> {
        let Self { process, gpu, offset, bytes, memory, event } = self;
        let numbers = [process, offset, bytes].map(|number| number.to_le_bytes());
        let [process, offset, bytes] = &numbers;
        let mut out = [&MAGIC[..], process, gpu, offset, bytes, memory, event].concat();
        out.extend_from_slice(&checksum(&out));
        out
    }

    /// Parses the output of [`IpcDescription::to_bytes`].
    ///
    /// # Errors
    /// If the bytes are not a description, have another version, or are damaged. A checksum detects
    /// damage, because a driver that opens a damaged handle may crash. Whether the range is inside
    /// its allocation is checked only when the memory is opened.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let bad = |what: String| Error::bad_data(format!("a description of CUDA IPC memory {what}"));
        if bytes.len() != Self::BYTES {
            return Err(bad(format!("has {} bytes; expected {}", bytes.len(), Self::BYTES)));
        }
        let (mut rest, declared) = bytes.split_at(Self::BYTES - CHECKSUM_BYTES);
        let actual = checksum(rest);
        if take::<8>(&mut rest) != Some(MAGIC) {
            return Err(bad("does not begin with XDCUIPC1; expected a description of this version".into()));
        }
        if declared != actual {
            return Err(bad("is damaged: its checksum does not match; send it as it was exported".into()));
        }
        let read = |rest: &mut &[u8]| {
            Some(Self {
                process: u64::from_le_bytes(take(rest)?),
                gpu: take(rest)?,
                offset: u64::from_le_bytes(take(rest)?),
                bytes: u64::from_le_bytes(take(rest)?),
                memory: take(rest)?,
                event: take(rest)?,
            })
        };
        read(&mut rest).ok_or_else(|| bad("is truncated".into()))
    }

    /// Length of the range in bytes.
    pub fn range_bytes(&self) -> u64 {
        self.bytes
    }

    /// Rejects memory that this process exported itself.
    pub(super) fn check_other_process(&self) -> Result<()> {
        if self.process != this_process() {
            return Ok(());
        }
        Err(Error::invalid_argument(
            "this memory was exported by this very process, and the CUDA driver opens it in others only; use the buffer \
             itself here",
        ))
    }
}

/// XXH64, little-endian.
fn checksum(bytes: &[u8]) -> [u8; CHECKSUM_BYTES] {
    XxHash64::oneshot(0, bytes).to_le_bytes()
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, others) = rest.split_first_chunk::<N>()?;
    *rest = others;
    Some(*first)
}

/// An id of this process. The process id is not enough, because processes in two containers may
/// have the same process id.
pub(super) fn this_process() -> u64 {
    static NUMBER: OnceLock<u64> = OnceLock::new();
    *NUMBER.get_or_init(|| RandomState::new().hash_one(std::process::id()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn example() -> IpcDescription {
        IpcDescription {
            process: 7,
            gpu: *b"a GPU's own UUID",
            offset: 1000,
            bytes: u64::MAX,
            memory: [3; IPC_HANDLE_BYTES],
            event: std::array::from_fn(|i| i as u8),
        }
    }

    #[test]
    fn ipc_description_round_trips_through_bytes() {
        let bytes = example().to_bytes();
        assert_eq!(bytes.len(), IpcDescription::BYTES);
        assert_eq!(IpcDescription::from_bytes(&bytes).unwrap(), example());
    }

    #[test]
    fn rejects_other_lengths_and_magic_numbers() {
        let bytes = example().to_bytes();
        for n in (0..bytes.len()).chain([bytes.len() + 1, 1 << 20]) {
            let mut bytes = bytes.clone();
            bytes.resize(n, 0);
            let error = IpcDescription::from_bytes(&bytes).unwrap_err();
            assert!(error.message().contains(&format!("has {n} bytes; expected 184")), "{error}");
        }
        for i in 0..MAGIC.len() {
            let mut bytes = bytes.clone();
            *bytes.get_mut(i).unwrap() ^= 1;
            let error = IpcDescription::from_bytes(&bytes).unwrap_err();
            assert!(error.message().contains("XDCUIPC1"), "{error}");
        }
    }

    #[test]
    fn detects_flipped_bits() {
        let bytes = example().to_bytes();
        for bit in MAGIC.len() * 8..bytes.len() * 8 {
            let mut bytes = bytes.clone();
            *bytes.get_mut(bit / 8).unwrap() ^= 1 << (bit % 8);
            let error = IpcDescription::from_bytes(&bytes).unwrap_err();
            assert!(error.message().contains("is damaged"), "{error}");
        }
    }

    #[test]
    fn import_rejects_only_memory_that_this_process_exported() {
        let own = IpcDescription { process: this_process(), ..example() };
        let error = own.check_other_process().unwrap_err();
        assert!(error.message().contains("exported by this very process"), "{error}");
        let others = IpcDescription { process: this_process() ^ 1, ..example() };
        assert_eq!(others.check_other_process(), Ok(()));
    }
}
