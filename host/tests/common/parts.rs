//! A linked-in plugin in Rust with fragments and statistics. It reads the format `parts`: the bytes
//! `PART`, then `i32` values. Four values are a batch and a fragment. It ignores requested columns
//! and rows, and states the number of rows if the caller asks for it. Reading the value -1 fails.
//! The file name extension `.lonely` is another format with the bytes `LONE`, without row counts.

use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{
    Array, ArrayRef, DictionaryArray, Int32Array, Int64Array, MapArray, RecordBatch, StringArray,
    StructArray, UnionArray,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, Field, UnionFields};
use crossdock::api::{
    BatchStream, Call, Error, Format, Fragment, Honoured, Host as HostHandle, Importer, Input, Owned, Plugin,
    PluginDescription, ReadRequest, Result, Source, abi, entry,
};
use crossdock::discovery::Search;
use crossdock::load::LinkedPlugin;
use crossdock_arrays::{DeviceArray, DeviceBatch, export_batch, export_schema};
use crossdock_memory::{Memory, Stream};

use super::mini::schema;

static ENTRY: abi::PluginEntry = entry::<Parts>();

/// The plugin, with this version.
pub fn linked(version: &'static str) -> LinkedPlugin {
    let about = PluginDescription {
        name: "parts",
        version,
        description: "i32 values in fragments",
        licence: "Apache-2.0",
        interfaces: "crossdock.importer/1",
        requires: "",
        api_range: abi::API_RANGE,
        formats: "parts lonely",
        encodings: "",
    };
    LinkedPlugin::new(&ENTRY, about.meta())
}

/// A host with this plugin and `mini`.
pub fn host_with(version: &'static str) -> crossdock::Host {
    crossdock::Host::builder()
        .search(Search::nowhere().linked(linked(version)).linked(super::mini::linked()))
        .backend(crossdock::memory::Backend::builder().untouchable(true).build())
        .build()
        .unwrap()
}

pub fn host() -> crossdock::Host {
    host_with("1.0.0")
}

/// The content of a file with these values.
pub fn bytes(magic: &[u8; 4], values: &[i32]) -> Vec<u8> {
    let values = values.iter().flat_map(|value| value.to_le_bytes());
    magic.iter().copied().chain(values).collect()
}

struct Parts {
    memory: Memory,
    formats: [Format; 2],
}

impl Plugin for Parts {
    fn create(host: HostHandle) -> Result<Self> {
        let format = |name, magic: &[u8]| Format {
            bytes: true,
            magics: vec![(0, magic.to_vec())],
            ..Format::new(name, "i32 values in fragments")
        };
        let formats = [format("parts", b"PART"), format("lonely", b"LONE")];
        Ok(Self { memory: Memory::from_host(&host)?, formats })
    }

    fn importer(&self) -> Option<&dyn Importer> {
        Some(self)
    }
}

impl Importer for Parts {
    fn formats(&self) -> &[Format] {
        &self.formats
    }

    fn open(&self, call: &Call<'_>, input: Input, request: &ReadRequest<'_>) -> Result<Box<dyn BatchStream>> {
        let Input::Source(source) = input else { return Err(Error::invalid_argument("expected bytes")) };
        let end = source.len().unwrap_or(0);
        let mut range = 4..end;
        if let Some(token) = request.fragment.filter(|token| *token != b"all") {
            let wrong = || Error::bad_data("the token is not one of this input");
            let begin = u64::from_le_bytes(token.try_into().map_err(|_| wrong())?);
            if begin < 4 || begin >= end || begin % 16 != 4 {
                return Err(wrong());
            }
            range = begin..end.min(begin + 16);
        }
        let is_counted = request.format == "parts" && request.selection.row_count;
        let n_rows = is_counted.then_some((range.end - range.start) / 4);
        // SAFETY: the call's stream is valid during the call.
        let stream = unsafe { Stream::from_call(&self.memory, call.device(), call.stream()) }?;
        Ok(Box::new(Values { memory: self.memory.clone(), stream, source, range, n_rows }))
    }

    fn has_fragments(&self) -> bool {
        true
    }

    fn fragments(&self, _: &Call<'_>, input: Input, request: &ReadRequest<'_>) -> Result<Vec<Fragment>> {
        let Input::Source(source) = input else { return Err(Error::invalid_argument("expected bytes")) };
        let end = source.len().unwrap_or(0);
        if request.format == "lonely" {
            return Ok(vec![Fragment { token: b"all".to_vec(), n_rows: None, bytes: 0, statistics: None }]);
        }
        let fragment = |begin: u64| {
            let mut values = vec![0; 16.min(end - begin) as usize];
            source.read_exact_at(begin, &mut values)?;
            let values = values.chunks_exact(4).map(|value| i32::from_le_bytes(value.try_into().unwrap()));
            let (rows, min) = (values.len() as u64, values.min().unwrap());
            Ok(Fragment {
                token: begin.to_le_bytes().to_vec(),
                n_rows: Some(rows),
                bytes: 4 * rows,
                statistics: Some(export(&statistics(rows as i64, min))),
            })
        };
        (4..end).step_by(16).map(fragment).collect()
    }
}

struct Values {
    memory: Memory,
    stream: Stream,
    source: Source,
    /// The bytes that were not read yet.
    range: std::ops::Range<u64>,
    n_rows: Option<u64>,
}

impl BatchStream for Values {
    fn schema(&mut self) -> Result<Owned<abi::ArrowSchema>> {
        export_schema(&schema())
    }

    fn honoured(&self) -> Honoured {
        Honoured { n_rows: self.n_rows, ..Honoured::default() }
    }

    fn next(&mut self, _: &Call<'_>) -> Result<Option<Owned<abi::Batch>>> {
        let n = 16.min(self.range.end - self.range.start) as usize;
        if n == 0 {
            return Ok(None);
        }
        let mut bytes = vec![0; n];
        self.source.read_exact_at(self.range.start, &mut bytes)?;
        self.range.start += n as u64;
        if bytes.chunks_exact(4).any(|value| value == [0xff; 4]) {
            return Err(Error::bad_data("the value -1 was read"));
        }
        let fill = |to: &mut [u8]| {
            to.copy_from_slice(&bytes);
            Ok(())
        };
        let buffer = self.memory.alloc_with(&self.stream, n, fill)?.freeze(&self.stream)?;
        let buffers = vec![None, Some(buffer)];
        let array = DeviceArray::try_new(DataType::Int32, n / 4, 0, Some(0), buffers, Vec::new(), None)?;
        let batch = DeviceBatch::try_new(schema(), n / 4, vec![array])?;
        export_batch(&batch, false, &self.stream).map(Some)
    }
}

/// Statistics in Arrow's statistics schema: the number of rows, and the least value of column 0.
pub fn statistics(rows: i64, min: i32) -> RecordBatch {
    let names = StringArray::from(vec!["ARROW:row_count:exact", "ARROW:min_value:exact"]);
    let keys = DictionaryArray::<Int32Type>::new(Int32Array::from(vec![0, 1]), Arc::new(names));
    let types = [("int64", DataType::Int64), ("int32", DataType::Int32)];
    let types = types.map(|(name, data_type)| Field::new(name, data_type, true));
    let values = UnionArray::try_new(
        UnionFields::try_new(vec![0, 1], types).unwrap(),
        vec![0i8, 1].into(),
        Some(vec![0i32, 0].into()),
        vec![Arc::new(Int64Array::from(vec![rows])) as ArrayRef, Arc::new(Int32Array::from(vec![min]))],
    )
    .unwrap();
    let key = Arc::new(Field::new("key", keys.data_type().clone(), false));
    let value = Arc::new(Field::new("value", values.data_type().clone(), true));
    let entries = StructArray::new(vec![key, value].into(), vec![Arc::new(keys), Arc::new(values)], None);
    let field = Arc::new(Field::new("entries", entries.data_type().clone(), false));
    let map = MapArray::new(field, OffsetBuffer::from_lengths([1, 1]), entries, None, false);
    let column = Int32Array::from(vec![None, Some(0)]);
    RecordBatch::try_from_iter_with_nullable([
        ("column", Arc::new(column) as ArrayRef, true),
        ("statistics", Arc::new(map), false),
    ])
    .unwrap()
}

/// Exports a record batch with its schema.
fn export(batch: &RecordBatch) -> Owned<abi::Batch> {
    let array: StructArray = batch.clone().into();
    let (array, schema) = arrow_array::ffi::to_ffi(&array.to_data()).unwrap();
    let mut raw = abi::Batch::new();
    // SAFETY: both types are the structs of the C Data interface, and their owners are forgotten.
    unsafe {
        raw.array.array = std::mem::transmute::<arrow_array::ffi::FFI_ArrowArray, abi::ArrowArray>(array);
        raw.schema = std::mem::transmute::<arrow_array::ffi::FFI_ArrowSchema, abi::ArrowSchema>(schema);
    }
    (raw.array.device_type, raw.array.device_id) = (abi::DEVICE_CPU, -1);
    // SAFETY: the batch is valid, and nothing else owns it.
    unsafe { Owned::new(raw) }
}
