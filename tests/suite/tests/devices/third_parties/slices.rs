//! Calls the decoder of `example.xor` directly, with slices and other batches that the host never
//! passes to a decoder. Also tests that columns can outlive their batch.

use std::path::Path;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use crossdock_arrays::{DeviceArray, DeviceBatch, export_batch, export_field, import_batch};
use crossdock_memory::{Buffer, Stream};
use crossdock_plugin_api::{
    CallSettings, CallStream, Device, EncodedArray, Instance, LogicalType, NodeParts, Owned, abi,
};
use crossdock_test_support::{TestHost, devices};
use crossdock_tests::example_plugin;
use libloading::Library;

/// Creates an instance of the plugin in a test host. The host must outlive the instance.
fn instance(plugin: &Path, host: &TestHost) -> Instance {
    // SAFETY: the library is a plugin, whose symbol has the type that crossdock.h declares. The
    // library is never unloaded, so its code stays valid.
    unsafe {
        let library = std::mem::ManuallyDrop::new(Library::new(plugin).unwrap());
        let entry: *const abi::PluginEntry = *library.get(b"crossdock_plugin_v1").unwrap();
        Instance::create(&*entry, host.raw()).unwrap()
    }
}

fn buffer(host: &TestHost, device: Device, bytes: &[u8]) -> Buffer {
    let stream = host.stream(device);
    let copy = |to: &mut [u8]| {
        to.copy_from_slice(bytes);
        Ok(())
    };
    host.memory().alloc_with(&stream, bytes.len(), copy).unwrap().freeze(&stream).unwrap()
}

fn schema(data_type: DataType) -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("", data_type, true)]))
}

/// 100 words of 16 bits; every third one is null.
fn words(host: &TestHost, device: Device) -> DeviceBatch {
    let values: Vec<u8> = (0..100u16).flat_map(u16::to_ne_bytes).collect();
    let valid: Vec<u8> =
        (0..13).map(|byte| (0..8).fold(0, |bits, i| bits | u8::from(is_valid(byte * 8 + i)) << i)).collect();
    let buffers = vec![Some(buffer(host, device, &valid)), Some(buffer(host, device, &values))];
    let nulls = (0..100).filter(|i| !is_valid(*i)).count();
    let column = DeviceArray::try_new(DataType::UInt16, 100, 0, Some(nulls), buffers, vec![], None).unwrap();
    DeviceBatch::try_new(schema(DataType::UInt16), 100, vec![column]).unwrap()
}

fn is_valid(i: usize) -> bool {
    !i.is_multiple_of(3)
}

/// A tree of `len` 16-bit integers. The tests pass the child to the plugin as an already decoded
/// batch.
fn tree(len: usize) -> EncodedArray {
    let node = |encoding: &str, data_type: DataType, metadata: &[u8], n_children: u32| NodeParts {
        encoding: encoding.into(),
        logical_type: LogicalType::Schema(export_field(&Field::new("", data_type, true)).unwrap()),
        length: len as u64,
        metadata: metadata.into(),
        n_buffers: 0,
        n_children,
    };
    let nodes = vec![
        node("example.xor", DataType::Int16, &[0x55, 0x12], 1),
        node("unknown.encoding", DataType::UInt16, &[], 0),
    ];
    EncodedArray::new(nodes, vec![]).unwrap()
}

/// Decodes a batch of words with the plugin. Returns the raw batch.
fn decode(plugin: &Instance, words_batch: Owned<abi::Batch>, stream: &Stream) -> Owned<abi::Batch> {
    let (encoding, device) = (plugin.encoding().unwrap(), stream.device());
    let len = words_batch.array.array.length;
    let (tree, rows) = (tree(len as usize), 0..len as u64);
    encoding.check(&tree, 0).unwrap();
    let plan = encoding.plan(&tree, 0, device, &rows).unwrap();
    assert_eq!((plan.device, plan.decoded), (device, vec![true]));
    // SAFETY: the stream belongs to the device and outlives the call.
    let stream = unsafe { CallStream::new(stream.raw()) };
    let call = CallSettings { stream, ..CallSettings::new(device) };
    encoding.decode(&call, &tree, 0, &rows, vec![Some(words_batch)]).unwrap()
}

/// `len` words from index `first` on. Either the column is a slice or the batch has an offset.
fn slice(
    host: &TestHost,
    device: Device,
    (first, len): (usize, usize),
    slices_column: bool,
) -> Owned<abi::Batch> {
    let words = words(host, device);
    let export = |batch: &DeviceBatch| export_batch(batch, false, &host.stream(device)).unwrap();
    if slices_column {
        return export(&words.slice(first, len).unwrap());
    }
    let mut raw = export(&words).into_raw();
    (raw.array.array.offset, raw.array.array.length) = (first as i64, len as i64);
    // SAFETY: this function exported the batch and has only reduced its range of rows.
    unsafe { Owned::new(raw) }
}

/// The devices on which the kernel runs. The device `untouchable` is excluded, because the plugin
/// decodes its arrays on the CPU.
fn kernel_devices() -> impl Iterator<Item = Device> {
    devices().iter().copied().filter(|device| *device != Device::UNTOUCHABLE)
}

#[test]
fn slices_decode_with_their_nulls() {
    let Some(plugin) = example_plugin("slices_decode_with_their_nulls") else {
        return;
    };
    for device in kernel_devices() {
        let host = TestHost::new();
        let plugin = instance(&plugin, &host);
        // The words are created on the default stream, decoded on a second and read on a third, so
        // only the events of the batches order the work.
        let [decode_stream, stream] = [0, 1].map(|_| host.memory().create_stream(device).unwrap());
        let ranges = [(0, 100), (1, 99), (8, 8), (13, 50), (99, 1), (40, 0), (64, 36)];
        for ((first, len), slices_column) in
            ranges.into_iter().flat_map(|range| [(range, true), (range, false)])
        {
            let raw = decode(&plugin, slice(&host, device, (first, len), slices_column), &decode_stream);
            let batch = import_batch(raw, &schema(DataType::Int16), &host.memory()).unwrap();
            let column = batch.column(0).unwrap();
            let expected = (first..first + len).filter(|i| !is_valid(*i)).count();
            assert_eq!(
                (batch.len(), column.count_nulls(&stream).unwrap()),
                (len, expected),
                "{device} {first}"
            );
            for (i, word) in values(column, &stream).into_iter().enumerate() {
                let expected = is_valid(first + i).then_some((first + i) as u16 ^ 0x1255);
                assert_eq!(word, expected, "{device}: value {i} of {first}..+{len}");
            }
        }
        drop((plugin, decode_stream, stream));
        host.assert_nothing_leaked();
    }
}

#[test]
fn devices_without_a_kernel_decode_on_the_cpu() {
    let Some(plugin) = example_plugin("devices_without_a_kernel_decode_on_the_cpu") else { return };
    let host = TestHost::new();
    let plugin = instance(&plugin, &host);
    let device = |requested| plugin.encoding().unwrap().plan(&tree(1), 0, requested, &(0..1)).unwrap().device;
    assert_eq!([Device::UNTOUCHABLE, Device::CPU].map(device), [Device::CPU; 2]);
    assert_eq!(device(Device::cuda(3)), Device::cuda(3));
}

/// Reads the values of a column on the host.
fn values(column: &DeviceArray, stream: &Stream) -> Vec<Option<u16>> {
    let bytes = |i: usize| match column.buffers().get(i) {
        Some(Some(buffer)) => buffer.host_view(stream).unwrap().to_vec(),
        _ => Vec::new(),
    };
    let (valid, values) = (bytes(0), bytes(1));
    let at = |i: usize| {
        let value = u16::from_ne_bytes([values[2 * i], values[2 * i + 1]]);
        let valid = valid.is_empty() || valid[i / 8] >> (i % 8) & 1 == 1;
        valid.then_some(value)
    };
    (column.offset()..column.offset() + column.len()).map(at).collect()
}

#[test]
fn moved_column_outlives_its_batch() {
    let Some(plugin) = example_plugin("moved_column_outlives_its_batch") else {
        return;
    };
    let host = TestHost::new();
    let plugin = instance(&plugin, &host);
    let raw = decode(&plugin, slice(&host, Device::CPU, (0, 100), true), &host.stream(Device::CPU));
    // SAFETY: the batch has one column in host memory, which is moved out according to the Arrow
    // specification and read before its release.
    let (column, second) = unsafe {
        let column = Owned::take(*raw.array.array.children);
        let second = |column: &Owned<abi::ArrowArray>| *(*column.buffers.add(1)).cast::<u16>().add(1);
        drop(raw);
        let read = second(&column);
        (column, read)
    };
    assert_eq!((column.length, second), (100, 1 ^ 0x1255));
    drop(column);
    drop(plugin);
    host.assert_nothing_leaked();
}

#[test]
fn rejects_batches_that_do_not_match_their_node() {
    let Some(plugin) = example_plugin("rejects_batches_that_do_not_match_their_node") else { return };
    let host = TestHost::new();
    let plugin = instance(&plugin, &host);
    let encoding = plugin.encoding().unwrap();
    let words_batch = words(&host, Device::CPU);
    let error_for = |below: Vec<Option<Owned<abi::Batch>>>, len: usize| {
        let rows = 0..len as u64;
        let result = encoding.decode(&CallSettings::new(Device::CPU), &tree(len), 0, &rows, below);
        result.err().expect("the batch is rejected").message().to_string()
    };
    let batch = || export_batch(&words_batch, false, &host.stream(Device::CPU)).unwrap();
    assert!(error_for(vec![None], 100).contains("was not decoded"));
    assert!(error_for(vec![], 100).contains("got 0 entries for descendants, expected 1"));
    let line = error_for(vec![Some(batch())], 99);
    assert!(line.contains("example.xor: a batch of another length than its node"), "{line}");
    drop((words_batch, plugin));
    host.assert_nothing_leaked();
}
