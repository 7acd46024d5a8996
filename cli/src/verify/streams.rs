//! Arrow IPC of the suite's own making, as another library writes it.

use arrow_array::RecordBatch;
use arrow_ipc::MetadataVersion;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use arrow_schema::{ArrowError, Schema};
use crossdock::api::Format;

/// The two ways in which messages lie behind each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Stream,
    File,
}

pub const FORMS: [Form; 2] = [Form::Stream, Form::File];

impl Form {
    fn ending(self) -> &'static str {
        match self {
            Form::Stream => ".arrows",
            Form::File => ".arrow",
        }
    }

    /// Whether a format is this one: it knows the bytes, or the ending.
    pub fn is_of(self, format: &Format, bytes: &[u8]) -> bool {
        format.bytes && (format.matches(bytes) || format.endings.iter().any(|ending| ending == self.ending()))
    }

    /// A table, whose buffers are multiples of `alignment` bytes long.
    pub fn bytes(
        self,
        schema: &Schema,
        batches: &[RecordBatch],
        alignment: usize,
    ) -> Result<Vec<u8>, ArrowError> {
        let options = IpcWriteOptions::try_new(alignment, false, MetadataVersion::V5)?;
        match self {
            Form::Stream => {
                let mut writer = StreamWriter::try_new_with_options(Vec::new(), schema, options)?;
                batches.iter().try_for_each(|batch| writer.write(batch))?;
                writer.into_inner()
            }
            Form::File => {
                let mut writer = FileWriter::try_new_with_options(Vec::new(), schema, options)?;
                batches.iter().try_for_each(|batch| writer.write(batch))?;
                writer.into_inner()
            }
        }
    }
}
