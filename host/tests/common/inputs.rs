//! A linked-in plugin with unusual inputs:
//!
//! - the format `tail`: `i32` values, then the bytes `TAIL`;
//! - the format `parts`: several sources, each with the bytes `PART` and `i32` values;
//! - an opener of `mem://NAME`, whose contents are set with [`put`]. Options: `fail`, an error;
//!   `panic`, reads panic.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_schema::DataType;
use crossdock::api::{
    BatchStream, ByteSource, Call, Error, Format, Host as HostHandle, Importer, Input, Opener, Options,
    Owned, Plugin, PluginDescription, ReadRequest, Result, Source, abi, entry,
};
use crossdock::discovery::Search;
use crossdock::load::LinkedPlugin;
use crossdock_arrays::{DeviceArray, DeviceBatch, export_batch, export_schema};
use crossdock_memory::{Memory, Stream};

use super::mini::schema;

static ENTRY: abi::PluginEntry = entry::<Inputs>();

/// A content, its version, and a token that each of its sources holds.
type Versioned = (Vec<u8>, String, Arc<()>);

static CONTENTS: Mutex<Option<HashMap<String, Versioned>>> = Mutex::new(None);

/// Sets the content and the version of `mem://name`.
pub fn put(name: &str, bytes: &[u8], version: &str) {
    let mut contents = CONTENTS.lock().unwrap_or_else(PoisonError::into_inner);
    let content = (bytes.to_vec(), version.into(), Arc::default());
    contents.get_or_insert_default().insert(format!("mem://{name}"), content);
}

/// The number of sources of `mem://name` that are not released.
pub fn n_open(name: &str) -> usize {
    let contents = CONTENTS.lock().unwrap_or_else(PoisonError::into_inner);
    let content = contents.as_ref().and_then(|contents| contents.get(&format!("mem://{name}")));
    content.map_or(0, |(_, _, token)| Arc::strong_count(token) - 1)
}

/// A host with this plugin.
pub fn host() -> crossdock::Host {
    let about = PluginDescription {
        name: "inputs",
        version: "0.1.0",
        description: "unusual inputs",
        licence: "Apache-2.0",
        interfaces: "crossdock.importer/1 crossdock.opener/1",
        formats: "tail parts",
        encodings: "",
        requires: "",
        api_range: abi::API_RANGE,
    };
    let plugin = LinkedPlugin::new(&ENTRY, about.meta().with_schemes("mem"));
    crossdock::Host::builder()
        .search(Search::nowhere().linked(plugin))
        .backend(crossdock::memory::Backend::builder().untouchable(true).build())
        .build()
        .unwrap()
}

/// Values as bytes, after `head` and before `tail`.
pub fn bytes(head: &[u8], values: &[i32], tail: &[u8]) -> Vec<u8> {
    let values: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    [head, &values, tail].concat()
}

struct Inputs {
    memory: Memory,
    formats: Vec<Format>,
}

impl Plugin for Inputs {
    fn create(host: HostHandle) -> Result<Self> {
        let format = |name, magic: (i64, &[u8])| Format {
            bytes: true,
            magics: vec![(magic.0, magic.1.to_vec())],
            ..Format::new(name, "i32 values")
        };
        let parts = Format { several: true, ..format("parts", (0, b"PART")) };
        Ok(Self { memory: Memory::from_host(&host)?, formats: vec![format("tail", (-4, b"TAIL")), parts] })
    }

    fn importer(&self) -> Option<&dyn Importer> {
        Some(self)
    }

    fn opener(&self) -> Option<&dyn Opener> {
        Some(self)
    }
}

impl Importer for Inputs {
    fn formats(&self) -> &[Format] {
        &self.formats
    }

    fn open(&self, call: &Call<'_>, input: Input, request: &ReadRequest<'_>) -> Result<Box<dyn BatchStream>> {
        let (skipped, sources) = match (request.format, input) {
            ("tail", Input::Source(source)) => ((0, 4), vec![source]),
            ("parts", Input::Sources(sources)) => ((4, 0), sources),
            (format, _) => return Err(Error::internal(format!("{format}: another kind of input"))),
        };
        // SAFETY: the call's stream is valid during the call.
        let stream = unsafe { Stream::from_call(&self.memory, call.device(), call.stream()) }?;
        Ok(Box::new(Values { memory: self.memory.clone(), stream, skipped, sources: sources.into_iter() }))
    }
}

/// One batch for each source.
struct Values {
    memory: Memory,
    stream: Stream,
    /// The numbers of bytes before and after the values of a source.
    skipped: (u64, u64),
    sources: std::vec::IntoIter<Source>,
}

impl BatchStream for Values {
    fn schema(&mut self) -> Result<Owned<abi::ArrowSchema>> {
        export_schema(&schema())
    }

    fn next(&mut self, call: &Call<'_>) -> Result<Option<Owned<abi::Batch>>> {
        call.check_cancelled()?;
        let Some(source) = self.sources.next() else { return Ok(None) };
        let bytes = source.len().unwrap() - self.skipped.0 - self.skipped.1;
        let mut values = vec![0; bytes as usize];
        source.read_exact_at(self.skipped.0, &mut values)?;
        let buffer = self.memory.alloc_with(&self.stream, values.len(), |to| {
            to.copy_from_slice(&values);
            Ok(())
        })?;
        let (buffers, n) = (vec![None, Some(buffer.freeze(&self.stream)?)], values.len() / 4);
        let array = DeviceArray::try_new(DataType::Int32, n, 0, Some(0), buffers, Vec::new(), None)?;
        let batch = DeviceBatch::try_new(schema(), n, vec![array])?;
        export_batch(&batch, false, &self.stream).map(Some)
    }
}

impl Opener for Inputs {
    fn schemes(&self) -> &[&'static str] {
        &["mem"]
    }

    fn open(&self, call: &Call<'_>, uri: &str, options: &Options) -> Result<Arc<dyn ByteSource>> {
        call.check_cancelled()?;
        options.only("mem://", &["fail", "panic"])?;
        if let Some(message) = options.get("fail") {
            return Err(Error::io(message.to_owned()));
        }
        let contents = CONTENTS.lock().unwrap_or_else(PoisonError::into_inner);
        let content = contents.as_ref().and_then(|contents| contents.get(uri)).cloned();
        let (bytes, version, token) = content.ok_or_else(|| Error::io(format!("'{uri}' has no content")))?;
        let panics = options.get("panic").is_some();
        Ok(Arc::new(Content { name: uri.to_owned(), bytes, version, panics, _token: token }))
    }
}

struct Content {
    name: String,
    bytes: Vec<u8>,
    version: String,
    panics: bool,
    _token: Arc<()>,
}

impl ByteSource for Content {
    fn name(&self) -> &str {
        &self.name
    }

    fn len(&self) -> Option<u64> {
        Some(self.bytes.len() as u64)
    }

    fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<usize> {
        assert!(!self.panics, "read_at panics");
        Ok(crossdock::source::read_from(&self.bytes, offset, to))
    }

    fn version(&self) -> &str {
        &self.version
    }
}
