//! The description of an object whose buffers are in memory that processes share.

use crossdock_plugin_api::Result;
use serde::{Deserialize, Serialize};

use crate::format::Format;

const FORMAT: Format = Format { magic: *b"CDSHARE\0", version: 2, of: "shared memory" };

/// An object whose buffers are in memory of one process. Another process on the same host opens the
/// memory as a file, which it receives from the first process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedObject {
    /// The number of the process that shares the memory.
    pub process: u32,
    /// The random part of the name of the process's socket.
    pub socket: [u8; 16],
    /// The token by which the process finds the file.
    pub token: [u8; 16],
    /// The UUID of the GPU, because processes may number the GPUs differently. `None` for host
    /// memory.
    pub gpu: Option<[u8; 16]>,
    /// The length of the file in bytes.
    pub bytes: u64,
    /// The header of the object. It has one buffer, which begins at the first byte of the file.
    pub header: Vec<u8>,
}

impl SharedObject {
    /// Returns the bytes of the description. They have the beginning of a
    /// [`Header`](crate::Header), with another magic number.
    ///
    /// # Errors
    /// Memory is exhausted.
    pub fn write(&self) -> Result<Vec<u8>> {
        FORMAT.write(self)
    }

    /// Parses a description.
    ///
    /// # Errors
    /// - bad data: the bytes are not exactly one description
    /// - unsupported: the description has another version
    pub fn read(bytes: &[u8]) -> Result<Self> {
        FORMAT.read(bytes)
    }
}

#[cfg(test)]
mod tests {
    use crossdock_plugin_api::Code;

    use super::*;

    #[test]
    fn reads_what_it_writes_and_rejects_other_bytes() {
        let object = |gpu| SharedObject {
            process: 7,
            socket: [1; 16],
            token: [2; 16],
            gpu,
            bytes: 4096,
            header: b"header".to_vec(),
        };
        for object in [object(None), object(Some([3; 16]))] {
            assert_eq!(SharedObject::read(&object.write().unwrap()).unwrap(), object);
        }
        let bytes = object(Some([3; 16])).write().unwrap();
        for n in 0..bytes.len() {
            assert_eq!(SharedObject::read(&bytes[..n]).unwrap_err().code(), Code::BAD_DATA);
        }
        let mut other = bytes.clone();
        other[8] = 3;
        let error = SharedObject::read(&other).unwrap_err();
        assert_eq!(error.code(), Code::UNSUPPORTED);
        assert!(error.message().contains("shared memory of version 3"), "{error}");
        let error = SharedObject::read(b"CDPARTS\0").unwrap_err();
        assert!(error.message().contains("begin with \"CDSHARE\""), "{error}");
    }
}
