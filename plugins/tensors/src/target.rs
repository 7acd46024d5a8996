//! What the rows of a file are loaded with: the interfaces of the host, the file and the device.

use std::ops::Range;
use std::sync::Arc;

use crossdock_arrays::DeviceArray;
use crossdock_memory::{Buffer, BufferMut, Device, Error, Loader, Memory, Result, StoredSource, Stream};
use crossdock_plugin_api::{Call, Tasks};

use crate::tensor::Column;
use crate::zip::Inflater;

/// A column, and the state of its decompression.
pub struct Loading {
    pub column: Arc<Column>,
    /// `None` if the next rows are decompressed from the beginning of the column.
    pub inflater: Option<Inflater>,
}

/// The file and the device of a load.
pub struct Target<'a> {
    pub call: &'a Call<'a>,
    pub memory: &'a Memory,
    pub loader: &'a Loader,
    pub tasks: &'a Tasks,
    pub file: &'a Arc<StoredSource>,
    pub stream: &'a Stream,
}

/// The elements of a column on the device.
pub enum Elements {
    /// The elements as they are in a file.
    Plain(Buffer),
    /// The elements in the form of Arrow.
    Decoded(DeviceArray),
}

impl Target<'_> {
    /// The number of rows.
    pub fn len(&self, rows: &Range<u64>) -> Result<usize> {
        usize::try_from(rows.end - rows.start)
            .map_err(|_| Error::out_of_memory("a batch has too many rows for the address space"))
    }

    /// Makes a buffer readable on the device.
    pub fn freeze(&self, buffer: BufferMut) -> Result<Buffer> {
        if self.stream.device() == Device::CPU { Ok(buffer.freeze_now()) } else { buffer.freeze(self.stream) }
    }
}

/// Adds the tensor's name to an error.
pub fn in_tensor(error: &Error, column: &Column) -> Error {
    error.clone().context(format_args!("tensor '{}'", column.field.name()))
}
