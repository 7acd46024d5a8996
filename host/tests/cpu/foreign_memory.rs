//! Batches in foreign memory, under a budget.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use crossdock::api::{
    BatchStream, Call, Code, Device, EncodedArray, EncodedNode, Encoding, Error as ApiError, Format,
    Host as HostHandle, Importer, Input as ApiInput, Owned, Plugin, PluginDescription, ReadRequest, Result,
    Source, abi, entry,
};
use crossdock::memory::Backend;
use crossdock::source::Input;
use crossdock::{Error, Host, ReadOptions, Session};
use crossdock_arrays::{DeviceArray, DeviceBatch, export_batch, export_schema};
use crossdock_memory::{Buffer, BufferBuilder, ForeignOwner, Memory, Ready};

use crate::common::encoding::{self, foreign_buffer, node};

const LARGE: usize = 3 << 19;

/// A plugin that returns the bytes of its source as one batch. The name of the format selects which
/// kind of memory contains the batch.
struct Hoarder {
    memory: Memory,
    formats: Vec<Format>,
}

impl Plugin for Hoarder {
    fn create(host: HostHandle) -> Result<Self> {
        let formats = ["own", "growing", "in-place"];
        let formats = formats.map(|name| Format { bytes: true, ..Format::new(name, "bytes") }).to_vec();
        Ok(Self { memory: Memory::from_host(&host)?, formats })
    }

    fn importer(&self) -> Option<&dyn Importer> {
        Some(self)
    }

    fn encoding(&self) -> Option<&dyn Encoding> {
        Some(self)
    }
}

/// Decodes to the bytes of the node's only buffer, in place or in the plugin's own memory.
impl Encoding for Hoarder {
    fn ids(&self) -> &[&'static str] {
        &["hoarder.own", "hoarder.in-place"]
    }

    fn check(&self, _: EncodedNode<'_>) -> Result<()> {
        Ok(())
    }

    fn size(&self, _: EncodedNode<'_>, _: Range<u64>) -> Result<Option<u64>> {
        Ok(None)
    }

    fn decode(
        &self,
        _: &Call<'_>,
        node: EncodedNode<'_>,
        _: Range<u64>,
        _: Vec<Option<Owned<abi::Batch>>>,
    ) -> Result<Owned<abi::Batch>> {
        let stream = self.memory.default_stream(Device::CPU)?;
        // SAFETY: the array's producer guarantees the buffer's address and length; no other call
        // takes it.
        let mut buffer = unsafe { Buffer::from_encoded(node.take_buffer(0)?) }.unwrap();
        if node.encoding() == "hoarder.own" {
            buffer = foreign_buffer(buffer.host_view(&stream)?.to_vec());
        }
        let n = node.length() as usize;
        let column =
            DeviceArray::try_new(DataType::UInt8, n, 0, Some(0), vec![None, Some(buffer)], vec![], None)?;
        let schema = Arc::new(Schema::new(vec![Field::new("", DataType::UInt8, false)]));
        export_batch(&DeviceBatch::try_new(schema, n, vec![column])?, false, &stream)
    }
}

/// An array of one node, whose bytes belong neither to the host nor to the plugin.
fn tree(encoding: &str) -> EncodedArray {
    encoding::tree(vec![node(encoding, DataType::UInt8, LARGE as u64, 1, 0)], vec![vec![7; LARGE]])
}

impl Importer for Hoarder {
    fn formats(&self) -> &[Format] {
        &self.formats
    }

    fn open(&self, _: &Call<'_>, input: ApiInput, request: &ReadRequest<'_>) -> Result<Box<dyn BatchStream>> {
        let ApiInput::Source(source) = input else { return Err(ApiError::unsupported("capsules")) };
        let memory = self.memory.clone();
        Ok(Box::new(Once { memory, format: request.format.into(), source: Some(source) }))
    }
}

struct Once {
    memory: Memory,
    format: String,
    source: Option<Source>,
}

fn schema() -> SchemaRef {
    let field = |name| Field::new(name, DataType::UInt8, false);
    Arc::new(Schema::new(vec![field("byte"), field("again")]))
}

impl BatchStream for Once {
    fn schema(&mut self) -> Result<Owned<abi::ArrowSchema>> {
        export_schema(&schema())
    }

    fn next(&mut self, _: &Call<'_>) -> Result<Option<Owned<abi::Batch>>> {
        let Some(source) = self.source.take() else { return Ok(None) };
        let mut bytes = vec![0; source.len().unwrap() as usize];
        assert_eq!(source.read_at(0, &mut bytes)?, bytes.len());
        let n = bytes.len();
        let buffer = match self.format.as_str() {
            "growing" => {
                let mut growing = BufferBuilder::new(&self.memory)?;
                growing.extend(&bytes)?;
                growing.freeze()?
            }
            "in-place" => {
                let map = source.map().unwrap();
                let (address, n) = (map.address(), Some(n as u64));
                // SAFETY: the source is mapped as a whole, and the owner keeps the map.
                unsafe { Buffer::foreign(&ForeignOwner::new(map), Device::CPU, address, n, Ready::Now) }
            }
            _ => foreign_buffer(bytes),
        };
        // The columns share their bytes, which must count once.
        let column = || {
            DeviceArray::try_new(
                DataType::UInt8,
                n,
                0,
                Some(0),
                vec![None, Some(buffer.clone())],
                vec![],
                None,
            )
        };
        let batch = DeviceBatch::try_new(schema(), n, vec![column()?, column()?])?;
        export_batch(&batch, false, &self.memory.default_stream(Device::CPU)?).map(Some)
    }
}

fn session(limit_bytes: Option<usize>) -> (Host, Session) {
    static ENTRY: abi::PluginEntry = entry::<Hoarder>();
    let description = PluginDescription {
        interfaces: "crossdock.importer/1 crossdock.encoding/1",
        formats: "own growing in-place",
        ..encoding::description("hoarder", "hoarder.own hoarder.in-place")
    };
    let backend = limit_bytes
        .into_iter()
        .fold(Backend::builder().pool_bytes(0), |builder, bytes| builder.limit_bytes(bytes));
    let host = encoding::host(backend.build(), [(&ENTRY, description)]);
    let session = host.session().open().unwrap();
    (host, session)
}

fn read(session: &Session, input: Input, format: &str) -> crossdock::Result<DeviceBatch> {
    let options = ReadOptions { from: Some(format.into()), ..ReadOptions::default() };
    session.read(input, &options)?.next().map(Option::unwrap)
}

fn large() -> Input {
    Input::bytes(vec![7; LARGE])
}

#[test]
fn rejects_a_batch_of_foreign_memory_beyond_the_budget() {
    let (host, session) = session(Some(64 << 10));
    for _ in 0..2 {
        let error = read(&session, large(), "own").unwrap_err();
        let Error::Plugin { source, .. } = &error else { panic!("{error:?}") };
        assert_eq!(source.code(), Code::OUT_OF_MEMORY);
        let line = error.one_line();
        for part in
            ["'hoarder (read)' handed over 1572864 bytes in memory of its own", "the limit of 65536 bytes"]
        {
            assert!(line.contains(part), "{line}");
        }
        assert_eq!(host.ledger().foreign, []);
    }
    // A small batch does not exceed the budget.
    read(&session, Input::bytes(vec![1; 1000]), "own").unwrap();
    assert!(host.settle().is_empty());
}

#[test]
fn foreign_memory_counts_against_the_budget_until_its_release() {
    let (host, session) = session(Some(4 << 20));
    let batch = read(&session, large(), "own").unwrap();
    assert_eq!(host.ledger().foreign, [("hoarder (read)".to_string(), LARGE as u64)]);
    let again = batch.clone();
    drop(batch);
    let alloc = || session.memory().alloc(session.stream(), 3 << 20);
    let line = alloc().err().unwrap().to_string();
    assert!(line.contains("'hoarder (read)' holds 1572864 bytes of foreign memory"), "{line}");
    drop(again);
    assert_eq!(host.ledger().foreign, []);
    drop(alloc().unwrap());
    assert!(host.settle().is_empty());
}

#[test]
fn memory_of_the_host_or_the_input_is_not_counted_again() {
    let (host, bounded) = session(Some(2 * LARGE));
    // The batch is in memory of the host. If it were counted twice, it would exceed the budget.
    let growing = read(&bounded, large(), "growing").unwrap();
    assert_eq!(host.ledger().foreign, []);
    assert!(host.ledger().live_bytes() >= LARGE as u64);
    drop(growing);
    // The batch is in memory of the input. The first input is bytes in memory, the second a mapped
    // file.
    let (host, narrow) = session(Some(4096));
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mapped.bytes");
    std::fs::write(&file, vec![7; LARGE]).unwrap();
    for input in [large(), Input::open(&file, &crossdock::api::CancelFlag::new()).unwrap()] {
        let batch = read(&narrow, input, "in-place").unwrap();
        assert_eq!((batch.len(), host.ledger().foreign), (LARGE, Vec::new()));
    }
    // Without a budget, nothing is counted.
    let (host, unlimited) = session(None);
    let batch = read(&unlimited, large(), "own").unwrap();
    assert_eq!((batch.len(), host.ledger().foreign), (LARGE, Vec::new()));
}

#[test]
fn decoded_foreign_memory_counts_against_the_budget() {
    let (host, narrow) = session(Some(64 << 10));
    let line = narrow.decode(tree("hoarder.own")).unwrap_err().one_line();
    for part in ["handed over 1572864 bytes in memory of its own", "the limit of 65536 bytes"] {
        assert!(line.contains(part), "{line}");
    }
    // A result in the memory of the encoded bytes is not counted again.
    let batch = narrow.decode(tree("hoarder.in-place")).unwrap();
    assert_eq!((batch.len(), host.ledger().foreign), (LARGE, Vec::new()));

    let (host, wide) = session(Some(4 << 20));
    let batch = wide.decode(tree("hoarder.own")).unwrap();
    let foreign: Vec<u64> = host.ledger().foreign.iter().map(|(_, bytes)| *bytes).collect();
    assert_eq!(foreign, [LARGE as u64]);
    drop(batch);
    assert_eq!(host.ledger().foreign, []);
}
