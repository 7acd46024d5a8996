//! Tables from and to files and bytes, through plugins.

use std::path::Path;
use std::sync::Arc;

use crossdock_plugin_api::Progress;

use super::Table;
use crate::error::Result;
use crate::reader::{ReadOptions, Reader};
use crate::session::Session;
use crate::sink::{Output, VecSink};
use crate::source::{Bytes, Input};
use crate::writer::WriteOptions;

/// The two forms of Arrow IPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpcForm {
    /// With a footer, for reading anywhere in it.
    File,
    /// For reading in order.
    Stream,
}

impl IpcForm {
    /// The format's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::File => "arrow-ipc-file",
            Self::Stream => "arrow-ipc-stream",
        }
    }
}

/// Arrow columnar format, "IPC File Format".
const FILE_MAGIC: &[u8] = b"ARROW1";

impl Table {
    /// Everything that a reader gives.
    pub fn from_reader(session: &Session, mut reader: Reader) -> Result<Self> {
        let schema = reader.schema().clone();
        let mut batches = Vec::new();
        while let Some(batch) = reader.next()? {
            batches.push(batch);
        }
        Ok(Self { session: session.clone(), schema, batches })
    }

    /// A file of any format that a plugin reads, recognised by its bytes.
    pub fn read(session: &Session, path: impl AsRef<Path>) -> Result<Self> {
        let input = Input::open(path, session.cancel_flag())?;
        Self::from_reader(session, session.read_shared(input, &ReadOptions::default())?)
    }

    /// Arrow IPC in memory, either form. On `cpu` the columns are parts of `bytes`.
    pub fn from_ipc_bytes(session: &Session, bytes: impl Into<Bytes>) -> Result<Self> {
        Self::from_ipc_input(session, Input::bytes(bytes))
    }

    /// Arrow IPC of either form from any input.
    pub fn from_ipc_input(session: &Session, input: Input) -> Result<Self> {
        Self::from_ipc_input_heard(session, input, None)
    }

    /// The same, where somebody hears of bytes read: the last time, of how many the table was made. Of a stream these need not be
    /// all that there are.
    pub fn from_ipc_input_heard(
        session: &Session,
        input: Input,
        progress: Option<Arc<Progress>>,
    ) -> Result<Self> {
        // A file begins with its magic number; streams of old writers begin with nothing that could be recognised.
        let form = if input.head(FILE_MAGIC.len())? == FILE_MAGIC { IpcForm::File } else { IpcForm::Stream };
        let options = ReadOptions { from: Some(form.name().into()), progress, ..ReadOptions::default() };
        Self::from_reader(session, session.read_shared(input, &options)?)
    }

    /// Writes a file of the format that its ending says. It appears whole or not at all.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        let output = Output::create(path, self.session.cancel_flag())?;
        self.write_to(output, &WriteOptions::default())
    }

    /// Writes to any output, as any format.
    pub fn write_to(&self, output: Output, options: &WriteOptions) -> Result<()> {
        let mut writer = self.session.write(output, &self.schema, options)?;
        for batch in &self.batches {
            writer.write(batch.clone())?;
        }
        writer.finish().map(|_| ())
    }

    /// Arrow IPC in memory.
    pub fn to_ipc_bytes(&self, form: IpcForm) -> Result<Vec<u8>> {
        let sink = VecSink::new();
        let options = WriteOptions { to: Some(form.name().into()), ..WriteOptions::default() };
        self.write_to(Output::Memory(sink.clone()), &options)?;
        Ok(sink.take())
    }
}
