//! Reads and writes tables as files and bytes, through plugins.

use std::path::Path;

use crossdock_plugin_api::Options;

use super::Table;
use crate::error::Result;
use crate::read_options::ReadOptions;
use crate::reader::Reader;
use crate::session::Session;
use crate::sink::{Output, VecSink};
use crate::source::{Bytes, Input};
use crate::writer::WriteOptions;

/// The two forms of Arrow IPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpcForm {
    /// The form with a footer, for random access.
    File,
    /// The form without a footer, for reading in order.
    Stream,
}

impl IpcForm {
    /// The name of the format.
    pub fn name(self) -> &'static str {
        match self {
            Self::File => "arrow-ipc-file",
            Self::Stream => "arrow-ipc-stream",
        }
    }
}

/// The first bytes of an Arrow IPC file (Arrow columnar format, "IPC File Format").
const FILE_MAGIC: &[u8] = b"ARROW1";

impl Table {
    /// Creates a table from all batches of a reader.
    pub fn from_reader(session: &Session, mut reader: Reader) -> Result<Self> {
        let schema = reader.schema().clone();
        let mut batches = Vec::new();
        while let Some(batch) = reader.next()? {
            batches.push(batch);
        }
        reader.end();
        Ok(Self { session: session.clone(), schema, batches })
    }

    /// Reads a file, or a URI that a plugin opens. The host recognises the format.
    pub fn read(session: &Session, path: impl AsRef<Path>) -> Result<Self> {
        let input = session.open_input(path, &Options::new())?;
        Self::from_reader(session, session.read_shared(input, &ReadOptions::default())?)
    }

    /// Reads Arrow IPC of either form from memory. On the device "cpu", the columns share `bytes`.
    pub fn from_ipc_bytes(session: &Session, bytes: impl Into<Bytes>) -> Result<Self> {
        Self::from_ipc_input(session, Input::bytes(bytes))
    }

    /// Reads Arrow IPC of either form from any input.
    pub fn from_ipc_input(session: &Session, input: Input) -> Result<Self> {
        Self::from_ipc_input_with(session, input, ReadOptions::default())
    }

    /// Like [`Self::from_ipc_input`], with options; `from` is ignored. The last progress report has
    /// the number of bytes that the table was read from. After a stream, the input may contain more
    /// bytes.
    pub fn from_ipc_input_with(session: &Session, input: Input, options: ReadOptions) -> Result<Self> {
        // An IPC file begins with its magic number. Any other input is read as a stream, because
        // streams of old writers do not begin with fixed bytes.
        let form = if input.head(FILE_MAGIC.len())? == FILE_MAGIC { IpcForm::File } else { IpcForm::Stream };
        let options = ReadOptions { from: Some(form.name().into()), ..options };
        Self::from_reader(session, session.read_shared(input, &options)?)
    }

    /// Writes a file in the format that the file's extension selects. The file appears only when it
    /// is complete.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        let output = Output::create(path, self.session.cancel_flag())?;
        self.write_to(output, &WriteOptions::default())
    }

    /// Writes to any output in any format.
    pub fn write_to(&self, output: Output, options: &WriteOptions) -> Result<()> {
        let mut writer = self.session.write(output, &self.schema, options)?;
        writer.write_all(&self.batches, |_| ())?;
        writer.finish().map(|_| ())
    }

    /// Writes Arrow IPC to memory.
    pub fn to_ipc_bytes(&self, form: IpcForm) -> Result<Vec<u8>> {
        let sink = VecSink::new();
        let options = WriteOptions { to: Some(form.name().into()), ..WriteOptions::default() };
        self.write_to(Output::Memory(sink.clone()), &options)?;
        Ok(sink.take())
    }
}
