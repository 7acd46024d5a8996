//! What one process tells another one, so that this can open a range of its device memory.

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;

use crossdock_plugin_api::{Error, Result};
use twox_hash::XxHash64;

use super::driver::IPC_HANDLE_BYTES;

/// A range of device memory, for another process on the same machine. It is meant for few eyes: whoever has its bytes can
/// read and write the whole allocation that the range lies in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IpcDescription {
    /// Of the exporter: a number that no other process has.
    pub(super) process: u64,
    /// The GPU's UUID: ordinals differ between processes.
    pub(super) gpu: [u8; 16],
    /// The driver's handle names the allocation, and this where in it the range begins.
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) memory: [u8; IPC_HANDLE_BYTES],
    pub(super) event: [u8; IPC_HANDLE_BYTES],
}

const MAGIC: [u8; 8] = *b"XDCUIPC1";
const SUM_BYTES: usize = 8;

impl IpcDescription {
    /// How long [`IpcDescription::to_bytes`] is.
    pub const BYTES: usize = 8 + 8 + 16 + 8 + 8 + 2 * IPC_HANDLE_BYTES + SUM_BYTES;

    /// As bytes, to be sent to the other process in any way.
    pub fn to_bytes(&self) -> Vec<u8> {
        let Self { process, gpu, offset, bytes, memory, event } = self;
        let numbers = [process, offset, bytes].map(|number| number.to_le_bytes());
        let [process, offset, bytes] = &numbers;
        let mut told = [&MAGIC[..], process, gpu, offset, bytes, memory, event].concat();
        told.extend_from_slice(&sum(&told));
        told
    }

    /// From such bytes.
    ///
    /// # Errors
    /// They are none, of another version, or not as they were written: a driver that opens a damaged handle of its own may
    /// crash. That the range lies in its allocation is checked when that is opened.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let refused = |what: String| Error::bad_data(format!("a description of CUDA IPC memory {what}"));
        if bytes.len() != Self::BYTES {
            return Err(refused(format!("has {} bytes; expected {}", bytes.len(), Self::BYTES)));
        }
        let (mut rest, told) = bytes.split_at(Self::BYTES - SUM_BYTES);
        let expected = sum(rest);
        if take::<8>(&mut rest) != Some(MAGIC) {
            return Err(refused("does not begin with XDCUIPC1, as those of this version do".into()));
        }
        if told != expected {
            return Err(refused("is damaged: its checksum is another; send it as it was exported".into()));
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
        read(&mut rest).ok_or_else(|| refused("is cut off".into()))
    }

    /// How long the range is.
    pub fn range_bytes(&self) -> u64 {
        self.bytes
    }

    /// Refuses what this process has exported itself.
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
fn sum(bytes: &[u8]) -> [u8; SUM_BYTES] {
    XxHash64::oneshot(0, bytes).to_le_bytes()
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, others) = rest.split_first_chunk::<N>()?;
    *rest = others;
    Some(*first)
}

/// A number of this process's own. Process ids are not enough: two containers have each a process 1.
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
    fn what_is_told_is_what_is_read() {
        let told = example().to_bytes();
        assert_eq!(told.len(), IpcDescription::BYTES);
        assert_eq!(IpcDescription::from_bytes(&told).unwrap(), example());
    }

    #[test]
    fn other_lengths_and_other_beginnings_are_refused() {
        let told = example().to_bytes();
        for n in (0..told.len()).chain([told.len() + 1, 1 << 20]) {
            let mut bytes = told.clone();
            bytes.resize(n, 0);
            let refused = IpcDescription::from_bytes(&bytes).unwrap_err();
            assert!(refused.message().contains(&format!("has {n} bytes; expected 184")), "{refused}");
        }
        for i in 0..MAGIC.len() {
            let mut bytes = told.clone();
            *bytes.get_mut(i).unwrap() ^= 1;
            let refused = IpcDescription::from_bytes(&bytes).unwrap_err();
            assert!(refused.message().contains("XDCUIPC1"), "{refused}");
        }
    }

    #[test]
    fn a_bit_that_is_another_is_seen() {
        let told = example().to_bytes();
        for bit in MAGIC.len() * 8..told.len() * 8 {
            let mut bytes = told.clone();
            *bytes.get_mut(bit / 8).unwrap() ^= 1 << (bit % 8);
            let refused = IpcDescription::from_bytes(&bytes).unwrap_err();
            assert!(refused.message().contains("is damaged"), "{refused}");
        }
    }

    #[test]
    fn what_this_process_exported_is_refused_and_what_another_one_did_is_not() {
        let own = IpcDescription { process: this_process(), ..example() };
        let refused = own.check_other_process().unwrap_err();
        assert!(refused.message().contains("exported by this very process"), "{refused}");
        let others = IpcDescription { process: this_process() ^ 1, ..example() };
        assert_eq!(others.check_other_process(), Ok(()));
    }
}
