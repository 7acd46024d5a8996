//! Batches in memory that their plugin did not take from the host, under a budget.

use std::path::Path;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use crossdock::api::{
    About, BatchStream, Call, Code, Device, EncodedArray, EncodedNode, Encoding, Error as ApiError, Format,
    Host as HostHandle, Importer, Input as ApiInput, LogicalType, NodeParts, Options, Owned, Plugin, Result,
    Source, abi, entry,
};
use crossdock::discovery::Search;
use crossdock::load::LinkedPlugin;
use crossdock::memory::Backend;
use crossdock::source::Input;
use crossdock::{Error, Host, ReadOptions, Session};
use crossdock_arrays::{DeviceArray, DeviceBatch, export_batch, export_field, export_schema};
use crossdock_memory::{Buffer, ForeignOwner, Growing, Memory, Ready};

const LARGE: usize = 3 << 19;

/// Gives the bytes of its source as one batch, in memory of the kind that the format is called after.
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

/// The bytes of the node's one buffer, in place or in memory of the plugin's own.
impl Encoding for Hoarder {
    fn ids(&self) -> &[&'static str] {
        &["hoarder.own", "hoarder.in-place"]
    }

    fn check(&self, _: EncodedNode<'_>) -> Result<()> {
        Ok(())
    }

    fn size(&self, _: EncodedNode<'_>) -> Result<Option<u64>> {
        Ok(None)
    }

    fn decode(
        &self,
        _: &Call<'_>,
        node: EncodedNode<'_>,
        _: Vec<Option<Owned<abi::Batch>>>,
    ) -> Result<Owned<abi::Batch>> {
        let stream = self.memory.default_stream(Device::CPU)?;
        // SAFETY: its maker vouches for the buffer.
        let mut buffer = unsafe { Buffer::of_encoded(node.take_buffer(0)?) }.unwrap();
        if node.encoding() == "hoarder.own" {
            let bytes = buffer.host_view(&stream)?.to_vec();
            let (address, n) = (bytes.as_ptr() as u64, bytes.len() as u64);
            // SAFETY: the owner has as many bytes there, which stay.
            buffer = unsafe {
                Buffer::foreign(&ForeignOwner::new(bytes), Device::CPU, address, Some(n), Ready::Now)
            };
        }
        let n = node.length() as usize;
        let column =
            DeviceArray::try_new(DataType::UInt8, n, 0, Some(0), vec![None, Some(buffer)], vec![], None)?;
        let schema = Arc::new(Schema::new(vec![Field::new("", DataType::UInt8, false)]));
        export_batch(&DeviceBatch::try_new(schema, n, vec![column])?, false, &stream)
    }
}

/// One node over bytes that are neither the host's nor the plugin's.
fn tree(encoding: &str) -> EncodedArray {
    let bytes = vec![7u8; LARGE];
    let (address, n) = (bytes.as_ptr() as u64, bytes.len() as u64);
    // SAFETY: the owner has as many bytes there, which stay.
    let buffer =
        unsafe { Buffer::foreign(&ForeignOwner::new(bytes), Device::CPU, address, Some(n), Ready::Now) };
    let field = export_field(&Field::new("", DataType::UInt8, false)).unwrap();
    let node = NodeParts {
        encoding: encoding.into(),
        logical_type: LogicalType::Schema(field),
        length: n,
        metadata: Vec::new(),
        n_buffers: 1,
        n_children: 0,
    };
    EncodedArray::new(vec![node], vec![buffer.to_encoded()]).unwrap()
}

impl Importer for Hoarder {
    fn formats(&self) -> &[Format] {
        &self.formats
    }

    fn open(
        &self,
        _: &Call<'_>,
        format: &str,
        input: ApiInput,
        _: Option<&abi::ArrowSchema>,
        _: &Options,
    ) -> Result<Box<dyn BatchStream>> {
        let ApiInput::Source(source) = input else { return Err(ApiError::unsupported("capsules")) };
        let memory = self.memory.clone();
        Ok(Box::new(Once { memory, format: format.into(), source: Some(source) }))
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
        let of = |owner: ForeignOwner, address: u64| {
            // SAFETY: the owner has as many bytes there, which stay.
            unsafe { Buffer::foreign(&owner, Device::CPU, address, Some(n as u64), Ready::Now) }
        };
        let buffer = match self.format.as_str() {
            "growing" => {
                let mut growing = Growing::new(&self.memory)?;
                growing.extend(&bytes)?;
                growing.freeze()?
            }
            "in-place" => {
                let map = source.map().unwrap();
                let address = map.address();
                of(ForeignOwner::new(map), address)
            }
            _ => {
                let address = bytes.as_ptr() as u64;
                of(ForeignOwner::new(bytes), address)
            }
        };
        // The same bytes in two columns are there once.
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

fn session(limit: Option<usize>) -> (Host, Session) {
    static ENTRY: abi::PluginEntry = entry::<Hoarder>();
    let about = About {
        name: "hoarder",
        version: "0.1.0",
        description: "keeps bytes",
        licence: "Apache-2.0",
        interfaces: "crossdock.importer/1 crossdock.encoding/1",
        formats: "own growing in-place",
        encodings: "hoarder.own hoarder.in-place",
    };
    let search = Search::nowhere().linked(LinkedPlugin::new(&ENTRY, about.meta()));
    let backend =
        limit.into_iter().fold(Backend::builder().pool_bytes(0), |builder, bytes| builder.limit_bytes(bytes));
    let host = Host::builder().backend(backend.build()).search(search).build().unwrap();
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
fn a_batch_in_memory_of_the_plugins_own_is_held_to_the_budget() {
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
        assert_eq!(host.ledger().outside, []);
    }
    // A small one fits.
    read(&session, Input::bytes(vec![1; 1000]), "own").unwrap();
    assert!(host.settle().is_empty());
}

#[test]
fn it_counts_until_it_is_released_and_others_are_told_of_it() {
    let (host, session) = session(Some(4 << 20));
    let batch = read(&session, large(), "own").unwrap();
    assert_eq!(host.ledger().outside, [("hoarder (read)".to_string(), LARGE as u64)]);
    let again = batch.clone();
    drop(batch);
    let alloc = || session.memory().alloc(session.stream(), 3 << 20);
    let line = alloc().err().unwrap().to_string();
    assert!(line.contains("'hoarder (read)' lends 1572864 bytes in memory of its own"), "{line}");
    drop(again);
    assert_eq!(host.ledger().outside, []);
    drop(alloc().unwrap());
    assert!(host.settle().is_empty());
}

#[test]
fn what_is_the_hosts_or_the_inputs_counts_once_and_not_at_all() {
    let (host, bounded) = session(Some(2 * LARGE));
    // In the host's memory: twice would be too much beside what else there is.
    let growing = read(&bounded, large(), "growing").unwrap();
    assert_eq!(host.ledger().outside, []);
    assert!(host.ledger().live_bytes() >= LARGE as u64);
    drop(growing);
    // In the input's: bytes in memory, and a file that is mapped.
    let (host, narrow) = session(Some(4096));
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mapped.bytes");
    std::fs::write(&file, vec![7; LARGE]).unwrap();
    for input in [large(), Input::open(&file, &crossdock::api::CancelFlag::new()).unwrap()] {
        let batch = read(&narrow, input, "in-place").unwrap();
        assert_eq!((batch.len(), host.ledger().outside), (LARGE, Vec::new()));
    }
    // Without a budget nobody is held to one.
    let (host, free) = session(None);
    let batch = read(&free, large(), "own").unwrap();
    assert_eq!((batch.len(), host.ledger().outside), (LARGE, Vec::new()));
}

#[test]
fn what_is_decoded_into_memory_of_the_plugins_own_is_held_to_the_budget_too() {
    let (host, narrow) = session(Some(64 << 10));
    let line = narrow.decode(tree("hoarder.own")).unwrap_err().one_line();
    for part in ["handed over 1572864 bytes in memory of its own", "the limit of 65536 bytes"] {
        assert!(line.contains(part), "{line}");
    }
    // What lies where the encoded bytes do is nothing new.
    let batch = narrow.decode(tree("hoarder.in-place")).unwrap();
    assert_eq!((batch.len(), host.ledger().outside), (LARGE, Vec::new()));

    let (host, wide) = session(Some(4 << 20));
    let batch = wide.decode(tree("hoarder.own")).unwrap();
    let outside: Vec<u64> = host.ledger().outside.iter().map(|(_, bytes)| *bytes).collect();
    assert_eq!(outside, [LARGE as u64]);
    drop(batch);
    assert_eq!(host.ledger().outside, []);
}
