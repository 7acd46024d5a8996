//! Arrow IPC bytes that the arrow-rs library writes.

use arrow_array::RecordBatch;
use arrow_ipc::MetadataVersion;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use arrow_schema::{ArrowError, Schema};
use crossdock::api::Format;

/// The two Arrow IPC formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpcFormat {
    Stream,
    File,
}

pub const IPC_FORMATS: [IpcFormat; 2] = [IpcFormat::Stream, IpcFormat::File];

impl IpcFormat {
    fn extension(self) -> &'static str {
        match self {
            Self::Stream => ".arrows",
            Self::File => ".arrow",
        }
    }

    /// Returns whether a plugin's format is this Arrow IPC format: the plugin's format recognises
    /// `bytes`, or has the same file extension.
    pub fn is_of(self, format: &Format, bytes: &[u8]) -> bool {
        let has_extension = || format.extensions.iter().any(|extension| extension == self.extension());
        format.bytes && (format.matches(bytes) || has_extension())
    }

    /// Writes a table, and pads its buffers to multiples of `alignment` bytes.
    pub fn bytes(
        self,
        schema: &Schema,
        batches: &[RecordBatch],
        alignment: usize,
    ) -> Result<Vec<u8>, ArrowError> {
        let options = IpcWriteOptions::try_new(alignment, false, MetadataVersion::V5)?;
        match self {
            Self::Stream => {
                let mut writer = StreamWriter::try_new_with_options(Vec::new(), schema, options)?;
                batches.iter().try_for_each(|batch| writer.write(batch))?;
                writer.into_inner()
            }
            Self::File => {
                let mut writer = FileWriter::try_new_with_options(Vec::new(), schema, options)?;
                batches.iter().try_for_each(|batch| writer.write(batch))?;
                writer.into_inner()
            }
        }
    }
}
