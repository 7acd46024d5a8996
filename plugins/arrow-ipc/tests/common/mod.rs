//! Helpers for the tests: the plugin in a test host, sources and sinks of bytes, and arrow-rs as
//! the other reader and writer.
#![allow(dead_code)]

pub mod tables;

use std::io::Cursor;
use std::sync::{Arc, Mutex};

use arrow_array::RecordBatch;
use arrow_ipc::reader::{FileReader, StreamReader};
use arrow_ipc::writer::{DictionaryHandling, FileWriter, IpcWriteOptions, StreamWriter};
use arrow_ipc::{CompressionType, MetadataVersion};
use arrow_schema::{Schema, SchemaRef};
use crossdock_arrays::{DeviceBatch, export_batch, export_schema, import_batch, import_schema};
use crossdock_arrow_ipc::{ArrowIpc, FILE, STREAM};
use crossdock_memory::{Device, Result};
use crossdock_plugin_api::{
    BatchStream, ByteSink, ByteSource, CallSettings, Fragment, Input, Options, Plugin, ReadRequest,
    Selection, Sink, Source, Validate,
};
use crossdock_test_support::TestHost;

/// The plugin and its host.
pub struct Rig {
    pub host: TestHost,
    pub plugin: ArrowIpc,
}

/// The way a source provides its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceKind {
    /// The source is mapped into memory.
    Mapped,
    /// The source has a known length and is read only with `read_at`.
    ReadAt,
    /// The source is a pipe that returns a few bytes at a time.
    Pipe,
}

pub const SOURCE_KINDS: [SourceKind; 3] = [SourceKind::Mapped, SourceKind::ReadAt, SourceKind::Pipe];
pub const FORMS: [&str; 2] = [FILE, STREAM];
pub const CODECS: [&str; 3] = ["none", "lz4", "zstd"];

struct Bytes {
    /// The bytes, stored as 16-byte words so that they are aligned like a mapping.
    words: Vec<u128>,
    bytes: usize,
    how: SourceKind,
}

impl ByteSource for Bytes {
    fn name(&self) -> &str {
        "test input"
    }
    fn len(&self) -> Option<u64> {
        (self.how != SourceKind::Pipe).then_some(self.bytes as u64)
    }
    fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<usize> {
        let rest = self.all().get(offset as usize..).unwrap_or_default();
        let max_bytes = if self.how == SourceKind::Pipe { 1009 } else { usize::MAX };
        let n = to.len().min(rest.len()).min(max_bytes);
        to[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }
    fn map(&self) -> Option<&[u8]> {
        (self.how == SourceKind::Mapped).then(|| self.all())
    }
}

impl Bytes {
    fn new(bytes: &[u8], how: SourceKind) -> Self {
        let mut words = vec![0u128; bytes.len().div_ceil(16)];
        for (word, chunk) in words.iter_mut().zip(bytes.chunks(16)) {
            let mut full = [0; 16];
            full[..chunk.len()].copy_from_slice(chunk);
            *word = u128::from_ne_bytes(full);
        }
        Self { words, bytes: bytes.len(), how }
    }
    fn all(&self) -> &[u8] {
        // SAFETY: `words` has at least `self.bytes` initialised bytes.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast(), self.bytes) }
    }
}

/// A sink that stores up to `max_bytes` bytes.
#[derive(Clone)]
pub struct LimitedSink {
    pub bytes: Arc<Mutex<Vec<u8>>>,
    pub max_bytes: usize,
}

impl ByteSink for LimitedSink {
    fn name(&self) -> &str {
        "test output"
    }
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let mut sink = self.bytes.lock().unwrap();
        if sink.len() + bytes.len() > self.max_bytes {
            return Err(crossdock_memory::Error::io("no space left on device"));
        }
        sink.extend_from_slice(bytes);
        Ok(())
    }
}

impl Rig {
    pub fn new() -> Self {
        let host = TestHost::new();
        let plugin = ArrowIpc::create(host.host()).unwrap();
        Self { host, plugin }
    }

    pub fn open(
        &self,
        bytes: &[u8],
        how: SourceKind,
        settings: &CallSettings,
    ) -> Result<Box<dyn BatchStream>> {
        let source = Source::new(Arc::new(Bytes::new(bytes, how)));
        let importer = self.plugin.importer().unwrap();
        settings.enter(|call| importer.open(call, Input::Source(source), &ReadRequest::new(STREAM)))
    }

    /// Reads all batches with the plugin.
    pub fn read(
        &self,
        bytes: &[u8],
        how: SourceKind,
        device: Device,
    ) -> Result<(SchemaRef, Vec<DeviceBatch>)> {
        let mut settings = CallSettings::new(device);
        settings.validate = Validate::Full;
        self.read_with(bytes, how, &settings)
    }

    /// Reads the selected columns and rows, and writes them as an uncompressed stream.
    pub fn convert_selected(
        &self,
        bytes: &[u8],
        how: SourceKind,
        device: Device,
        selection: &Selection,
    ) -> Result<Vec<u8>> {
        let (schema, batches) = self.read_selected(bytes, how, device, selection)?;
        self.write(&schema, &batches, STREAM, "none")
    }

    /// Reads the selected columns and rows.
    pub fn read_selected(
        &self,
        bytes: &[u8],
        how: SourceKind,
        device: Device,
        selection: &Selection,
    ) -> Result<(SchemaRef, Vec<DeviceBatch>)> {
        let mut settings = CallSettings::new(device);
        settings.validate = Validate::Full;
        let source = Source::new(Arc::new(Bytes::new(bytes, how)));
        let request = ReadRequest::new(STREAM).with_selection(selection);
        let importer = self.plugin.importer().unwrap();
        let mut stream = settings.enter(|call| importer.open(call, Input::Source(source), &request))?;
        let schema: SchemaRef = Arc::new(import_schema(&stream.schema()?)?);
        let mut batches = Vec::new();
        while let Some(batch) = settings.enter(|call| stream.next(call))? {
            batches.push(import_batch(batch, &schema, &self.host.memory())?);
        }
        Ok((schema, batches))
    }

    /// Lists the fragments.
    pub fn fragments(&self, bytes: &[u8], how: SourceKind) -> Result<Vec<Fragment>> {
        let source = Source::new(Arc::new(Bytes::new(bytes, how)));
        let importer = self.plugin.importer().unwrap();
        let request = ReadRequest::new(STREAM);
        CallSettings::new(Device::CPU).enter(|call| importer.fragments(call, Input::Source(source), &request))
    }

    /// Opens a fragment, or the whole input.
    pub fn open_piece(
        &self,
        bytes: &[u8],
        how: SourceKind,
        device: Device,
        selection: &Selection,
        token: Option<&[u8]>,
    ) -> Result<Box<dyn BatchStream>> {
        let source = Source::new(Arc::new(Bytes::new(bytes, how)));
        let request = ReadRequest::new(STREAM).with_selection(selection).with_fragment(token);
        let importer = self.plugin.importer().unwrap();
        CallSettings::new(device).enter(|call| importer.open(call, Input::Source(source), &request))
    }

    /// Reads a fragment, or the whole input. Returns the stated number of rows.
    pub fn read_piece(
        &self,
        bytes: &[u8],
        how: SourceKind,
        device: Device,
        selection: &Selection,
        token: Option<&[u8]>,
    ) -> Result<(Option<u64>, Vec<RecordBatch>)> {
        let mut stream = self.open_piece(bytes, how, device, selection, token)?;
        let schema: SchemaRef = Arc::new(import_schema(&stream.schema()?)?);
        let mut batches = Vec::new();
        while let Some(batch) = CallSettings::new(device).enter(|call| stream.next(call))? {
            batches.push(import_batch(batch, &schema, &self.host.memory())?);
        }
        let written = self.write(&schema, &batches, STREAM, "none")?;
        Ok((stream.honoured().n_rows, peer_reads(&written)))
    }

    pub fn read_with(
        &self,
        bytes: &[u8],
        how: SourceKind,
        settings: &CallSettings,
    ) -> Result<(SchemaRef, Vec<DeviceBatch>)> {
        let mut stream = self.open(bytes, how, settings)?;
        let schema: SchemaRef = Arc::new(import_schema(&stream.schema()?)?);
        let mut batches = Vec::new();
        while let Some(batch) = settings.enter(|call| stream.next(call))? {
            batches.push(import_batch(batch, &schema, &self.host.memory())?);
        }
        Ok((schema, batches))
    }

    /// Writes `batches` with the plugin.
    pub fn write(
        &self,
        schema: &Schema,
        batches: &[DeviceBatch],
        form: &str,
        codec: &str,
    ) -> Result<Vec<u8>> {
        let sink = LimitedSink { bytes: Arc::default(), max_bytes: usize::MAX };
        self.write_to(sink.clone(), schema, batches, form, codec)?;
        let bytes = std::mem::take(&mut *sink.bytes.lock().unwrap());
        Ok(bytes)
    }

    pub fn write_to(
        &self,
        sink: LimitedSink,
        schema: &Schema,
        batches: &[DeviceBatch],
        form: &str,
        codec: &str,
    ) -> Result<()> {
        let device = batches.first().map_or(Device::CPU, DeviceBatch::device);
        let settings = CallSettings::new(device);
        let options = Options::new().with("compression", codec);
        let raw = export_schema(schema)?;
        let exporter = self.plugin.exporter().unwrap();
        let mut writer = settings
            .enter(|call| exporter.begin(call, form, &raw, &options, Some(Sink::new(Box::new(sink)))))?;
        for batch in batches {
            let raw = export_batch(batch, false, &self.host.stream(batch.device()))?;
            settings.enter(|call| writer.write(call, raw))?;
        }
        settings.enter(|call| writer.finish(call))?;
        Ok(())
    }

    /// Reads `bytes` with the plugin and writes the batches with the plugin.
    pub fn convert(
        &self,
        bytes: &[u8],
        how: SourceKind,
        device: Device,
        form: &str,
        codec: &str,
    ) -> Result<Vec<u8>> {
        let (schema, batches) = self.read(bytes, how, device)?;
        self.write(&schema, &batches, form, codec)
    }
}

fn options(codec: &str) -> IpcWriteOptions {
    let codec = match codec {
        "lz4" => Some(CompressionType::LZ4_FRAME),
        "zstd" => Some(CompressionType::ZSTD),
        _ => None,
    };
    IpcWriteOptions::try_new(64, false, MetadataVersion::V5).unwrap().try_with_compression(codec).unwrap()
}

/// Writes `batches` with arrow-rs.
pub fn peer_writes(batches: &[RecordBatch], form: &str, codec: &str) -> Vec<u8> {
    peer_writes_with(batches, form, options(codec))
}

pub fn peer_writes_deltas(batches: &[RecordBatch], form: &str) -> Vec<u8> {
    peer_writes_with(batches, form, options("none").with_dictionary_handling(DictionaryHandling::Delta))
}

/// Writes `batches` with arrow-rs and the given options.
pub fn peer_writes_with(batches: &[RecordBatch], form: &str, options: IpcWriteOptions) -> Vec<u8> {
    let mut out = Vec::new();
    let schema = batches[0].schema();
    if form == FILE {
        let mut writer = FileWriter::try_new_with_options(&mut out, &schema, options).unwrap();
        batches.iter().for_each(|batch| writer.write(batch).unwrap());
        writer.finish().unwrap();
    } else {
        let mut writer = StreamWriter::try_new_with_options(&mut out, &schema, options).unwrap();
        batches.iter().for_each(|batch| writer.write(batch).unwrap());
        writer.finish().unwrap();
    }
    out
}

/// Reads `bytes` with arrow-rs.
pub fn peer_reads(bytes: &[u8]) -> Vec<RecordBatch> {
    let cursor = Cursor::new(bytes);
    if bytes.starts_with(b"ARROW1") {
        FileReader::try_new(cursor, None).unwrap().map(|batch| batch.unwrap()).collect()
    } else {
        StreamReader::try_new(cursor, None).unwrap().map(|batch| batch.unwrap()).collect()
    }
}
