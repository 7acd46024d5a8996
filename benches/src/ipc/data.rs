//! Creates the benchmark table and its files, and opens them in several ways.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema};
use crossdock_arrays::{DeviceArray, DeviceBatch, export_batch, export_schema};
use crossdock_memory::BufferMut;
use crossdock_plugin_api::{ByteSink, ByteSource, CallSettings, Device, Error, Options, Sink, Source};
use crossdock_test_support::Random;

use super::bench::Bench;
use crate::Result;

const COLUMNS: usize = 8;
const ROWS: usize = 1 << 20;
const BATCH_BYTES: u64 = (COLUMNS * ROWS * 8) as u64;
/// Maximum size of pinned memory. Pinning 1 GiB takes half a second.
const MAX_PINNED_BYTES: u64 = 10 << 30;

/// How a file is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ReadMode {
    Mapped,
    ReadAt,
    Pinned,
}

impl ReadMode {
    pub fn name(self) -> &'static str {
        match self {
            Self::Mapped => "mapped file in the page cache",
            Self::ReadAt => "file in the page cache, not mapped,",
            Self::Pinned => "pinned memory",
        }
    }
}

/// Creates a batch on the host. Its integers are small, as in measured data, and LZ4 compresses
/// them to half of their size.
pub fn batch(bench: &Bench) -> Result<DeviceBatch> {
    let memory = bench.session.memory();
    let stream = memory.default_stream(Device::CPU)?;
    let fields: Vec<_> = (0..COLUMNS).map(|i| Field::new(format!("c{i}"), DataType::Int64, false)).collect();
    let column = |i: usize| -> Result<DeviceArray> {
        let data = memory.alloc_with(&stream, ROWS * 8, |to| {
            fill(to, i as u64 + 1);
            Ok(())
        })?;
        let buffers = vec![None, Some(data.freeze(&stream)?)];
        Ok(DeviceArray::try_new(DataType::Int64, ROWS, 0, Some(0), buffers, vec![], None)?)
    };
    let columns = (0..COLUMNS).map(column).collect::<Result<_>>()?;
    Ok(DeviceBatch::try_new(Arc::new(Schema::new(fields)), ROWS, columns)?)
}

/// Generates the values of a column.
pub fn fill(to: &mut [u8], seed: u64) {
    let mut random = Random::new(seed);
    for word in to.chunks_exact_mut(8) {
        word.copy_from_slice(&(random.word() % 5_000).to_le_bytes());
    }
}

/// Writes a file with a table of about `bytes` bytes. Returns the exact size of the table.
pub fn write(bench: &Bench, path: &Path, bytes: u64, codec: &str) -> Result<u64> {
    let batch = batch(bench)?;
    let batches = (bytes / BATCH_BYTES).max(2);
    let plugin = bench.session.plugin("arrow-ipc")?;
    let call = CallSettings::new(Device::CPU);
    let schema = export_schema(batch.schema())?;
    let options = Options::new().with("compression", codec);
    let sink = Sink::new(Box::new(FileSink(File::create(path)?)));
    let mut writer = plugin.exporter()?.begin(&call, "arrow-ipc-file", &schema, &options, Some(sink))?;
    let stream = bench.session.memory().default_stream(Device::CPU)?;
    for _ in 0..batches {
        writer.write(&call, export_batch(&batch, false, &stream)?)?;
    }
    writer.finish(&call)?;
    Ok(batches * BATCH_BYTES)
}

struct FileSink(File);

impl ByteSink for FileSink {
    fn name(&self) -> &str {
        "benchmark"
    }

    fn write(&mut self, bytes: &[u8]) -> crossdock_plugin_api::Result<()> {
        self.0.write_all(bytes).map_err(|e| Error::io(e.to_string()))
    }
}

/// Discards all bytes.
pub struct NullSink;

impl ByteSink for NullSink {
    fn name(&self) -> &str {
        "null"
    }

    fn write(&mut self, _: &[u8]) -> crossdock_plugin_api::Result<()> {
        Ok(())
    }
}

/// Opens the file; `None` if it is too large to be pinned.
pub fn source(bench: &Bench, path: &Path, mode: ReadMode) -> Result<Option<Arc<dyn ByteSource>>> {
    let file = File::open(path)?;
    let bytes = file.metadata()?.len();
    let name = path.display().to_string();
    Ok(match mode {
        ReadMode::Mapped => Some(Arc::new(crossdock::source::FileSource::new(file, name)?)),
        ReadMode::ReadAt => Some(Arc::new(crossdock::source::FileSource::unmapped(file, name)?)),
        ReadMode::Pinned if bytes > MAX_PINNED_BYTES => None,
        ReadMode::Pinned => Some(Arc::new(Pinned::read(bench, file, bytes as usize)?)),
    })
}

/// Returns a source that shares the opened file.
pub fn share(source: &Arc<dyn ByteSource>) -> Source {
    Source::new(source.clone())
}

/// The file's bytes in pinned memory.
pub struct Pinned {
    address: usize,
    bytes: usize,
    _block: BufferMut,
}

impl Pinned {
    pub fn read(bench: &Bench, mut file: File, bytes: usize) -> Result<Self> {
        let mut block = bench.session.memory().alloc_pinned(bytes)?;
        let to = block.host_slice_mut().ok_or("the host cannot write pinned memory")?;
        std::io::Read::read_exact(&mut file, to)?;
        let address = to.as_ptr() as usize;
        Ok(Self { address, bytes, _block: block })
    }

    fn all(&self) -> &[u8] {
        // SAFETY: `read` initialized the `bytes` bytes of `_block`, which lives as long as `self`
        // and is not written again.
        unsafe { std::slice::from_raw_parts(self.address as *const u8, self.bytes) }
    }
}

impl ByteSource for Pinned {
    fn name(&self) -> &str {
        "pinned memory"
    }

    fn len(&self) -> Option<u64> {
        Some(self.bytes as u64)
    }

    fn read_at(&self, offset: u64, to: &mut [u8]) -> crossdock_plugin_api::Result<usize> {
        let rest = self.all().get(offset as usize..).unwrap_or_default();
        let n = rest.len().min(to.len());
        to[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }

    fn map(&self) -> Option<&[u8]> {
        Some(self.all())
    }
}
