//! Tests encoded arrays. In each test, structs of the host, of the plugin or of the array have the
//! size of a later version.

use std::ffi::{CStr, c_char, c_void};
use std::mem::offset_of;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossdock_plugin_api::encoded::blob;
use crossdock_plugin_api::{
    Call, CallSettings, DecodePlan, Device, EncodedArray, EncodedNode, Encoding, Error, Host, Instance,
    LogicalType, NodeParts, Operator, Owned, Plugin, Result, abi, entry,
};

use crate::sizes::other_versions::{Longer, keep, shorter};
use crate::sizes::tree::{IDS, LENGTH, Tree, buffer, node, schema};
use crate::sizes::{MARK, Nothing, host, interface};

static BATCHES_RELEASED: AtomicUsize = AtomicUsize::new(0);

/// Creates an empty batch. `mark` identifies it.
fn batch(mark: usize) -> abi::Batch {
    unsafe extern "C" fn release(array: *mut abi::ArrowArray) {
        // SAFETY: the caller passes the array that is to be released.
        unsafe { (*array).release = None };
        BATCHES_RELEASED.fetch_add(1, Ordering::SeqCst);
    }
    let mut batch = abi::Batch { n_buffer_sizes: mark, ..abi::Batch::new() };
    batch.array.array.release = Some(release);
    batch
}

/// Asserts that `root` is the root of a [`Tree`].
fn assert_is_the_tree(root: EncodedNode<'_>) {
    let fields = |node: EncodedNode<'_>| {
        let bytes = node.buffer(0).unwrap().bytes;
        (node.encoding().to_owned(), node.length(), node.metadata().to_vec(), bytes, node.schema().is_ok())
    };
    let expected = |id: &str, metadata, bytes| (id.to_owned(), LENGTH, vec![metadata], bytes, true);
    assert_eq!(fields(root), expected(IDS[0], 10, 8));
    let leaves: Vec<_> = root.children().map(fields).collect();
    assert_eq!(leaves, [expected(IDS[1], 11, 16), expected(IDS[1], 12, 24)]);
    assert_eq!((root.end(), root.dtype().is_none()), (3, true));
}

/// A plugin of the current version. It reads the whole tree, takes one of its buffers, and calls
/// the host to decode another tree.
struct Decoder(Host);

impl Plugin for Decoder {
    fn create(host: Host) -> Result<Self> {
        Ok(Self(host))
    }
    fn encoding(&self) -> Option<&dyn Encoding> {
        Some(self)
    }
}

impl Encoding for Decoder {
    fn ids(&self) -> &[&'static str] {
        &IDS
    }
    fn check(&self, node: EncodedNode<'_>) -> Result<()> {
        assert_is_the_tree(node);
        Ok(())
    }
    fn size(&self, node: EncodedNode<'_>, _: Range<u64>) -> Result<Option<u64>> {
        node.child(1)?.buffer(0).map(|buffer| Some(buffer.bytes))
    }
    fn lower(&self, node: EncodedNode<'_>) -> Result<Option<Vec<Operator>>> {
        Ok(Some(vec![Operator::Child(0), Operator::Add(node.child(1)?.metadata()[0].into())]))
    }
    fn plan(&self, node: EncodedNode<'_>, wanted: Device, rows: Range<u64>) -> Result<DecodePlan> {
        let decoded = vec![node.child(0)?.n_buffers() == 1, false];
        Ok(DecodePlan { device: wanted, rows, decoded, rows_below: vec![1..2, 0..3] })
    }
    fn decode(
        &self,
        call: &Call<'_>,
        node: EncodedNode<'_>,
        rows: Range<u64>,
        below: Vec<Option<Owned<abi::Batch>>>,
    ) -> Result<Owned<abi::Batch>> {
        assert_is_the_tree(node);
        assert_eq!(rows, 1..3);
        let marks: Vec<_> = below.iter().map(|batch| batch.as_ref().map(|b| b.n_buffer_sizes)).collect();
        assert_eq!(marks, [Some(1), None]);
        // SAFETY: this function decodes the node, so it may take the buffers of descendants that
        // are not decoded.
        let buffer = unsafe { node.child(1)?.take_buffer(0) }?;
        assert_eq!((buffer.bytes, buffer.struct_size), (24, size_of::<abi::EncodedBuffer>()));
        let logical_type = LogicalType::Dtype(vec![1]);
        let (encoding, metadata) = ("ours".into(), Vec::new());
        let parts = NodeParts { encoding, logical_type, length: 3, metadata, n_buffers: 0, n_children: 0 };
        self.0.decode(call, EncodedArray::new(vec![parts], Vec::new())?, Some(0..2))
    }
}

static DECODER: abi::PluginEntry = entry::<Decoder>();

unsafe extern "C" fn decode_by_host(
    decoder: *const abi::HostDecode,
    call: *const abi::Call,
    array: *mut abi::EncodedArray,
    rows: *const abi::RowRange,
    out: *mut abi::Batch,
    _err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: the caller passes valid arguments and the ownership of the array.
    unsafe {
        assert_eq!(decoder.cast::<usize>().read(), size_of::<Longer<abi::HostDecode>>());
        assert_eq!((*decoder).private_data, MARK);
        assert_eq!(
            call.cast::<usize>().read(),
            size_of::<Longer<abi::Call>>(),
            "the call is that of the host"
        );
        let array = EncodedArray::from_raw(Owned::take(array)).unwrap();
        assert_eq!((array.n_nodes(), array.root().unwrap().encoding()), (1, "ours"));
        assert_eq!(((*rows).begin, (*rows).end), (0, 2));
        out.write(batch(2));
    }
    abi::OK
}

unsafe extern "C" fn get_decode_interface(_host: *const abi::Host, id: *const c_char) -> *const c_void {
    // SAFETY: the caller passes a NUL-terminated id.
    if unsafe { CStr::from_ptr(id) } != abi::HOST_DECODE_ID {
        return std::ptr::null();
    }
    let decode =
        abi::HostDecode { decode: Some(decode_by_host), private_data: MARK, ..abi::HostDecode::new() };
    keep(Longer::new(decode).into_words())
}

#[test]
fn current_plugin_decodes_array_of_host_with_longer_structs() {
    let mut host = Longer::new(abi::Host { get_interface: Some(get_decode_interface), ..host() });
    let mut instance = std::ptr::null_mut();
    // SAFETY: `host` has `struct_size` bytes.
    Error::check(|err| unsafe { DECODER.create.unwrap()(host.at(), &mut instance, err) }).unwrap();
    let table: &abi::Encoding = interface(&DECODER, instance, abi::ENCODING_ID);
    let mut tree = Tree::new();
    let array = tree.array.at().cast_const();
    let mut call = Longer::new(abi::Call { device: Device::CPU, ..abi::Call::new() });
    let mut err = Longer::new(abi::Error::new());
    let mut below = [Longer::new(batch(1)), Longer::new(abi::Batch::new())];
    let mut out = Longer::new(abi::Batch::new());
    // SAFETY: the functions belong to the instance, and all structs have `struct_size` bytes.
    unsafe {
        let err = err.at();
        assert_eq!(table.check.unwrap()(instance, array, 0, err), abi::OK);
        let (rows, mut bytes) = (abi::RowRange { begin: 1, end: 3 }, -1);
        assert_eq!((table.size.unwrap()(instance, array, 0, &rows, &mut bytes, err), bytes), (abi::OK, 24));
        let mut operators = [abi::Operator { code: 0, index: 0, a: 0, b: 0 }; abi::MAX_OPERATORS];
        let mut n = 0;
        let lower = table.lower.unwrap();
        assert_eq!(lower(instance, array, 0, operators.as_mut_ptr(), operators.len(), &mut n, err), abi::OK);
        assert_eq!((n, operators[1].code, operators[1].a), (2, abi::OP_ADD, 12));
        let (mut decoded, mut rows_below) = ([1, 1], [abi::RowRange { begin: 0, end: 0 }; 2]);
        let mut plan = Longer::new(abi::DecodePlan {
            decoded: decoded.as_mut_ptr(),
            rows_below: rows_below.as_mut_ptr(),
            n_below: 2,
            ..abi::DecodePlan::new()
        });
        let make_plan = table.plan.unwrap();
        assert_eq!(make_plan(instance, array, 0, Device::cuda(3), &rows, plan.at(), err), abi::OK);
        assert_eq!((plan.base.device, decoded), (Device::cuda(3), [1, 0]));
        assert_eq!((plan.base.rows.begin, plan.base.rows.end), (1, 3));
        assert_eq!(rows_below.map(|rows| (rows.begin, rows.end)), [(1, 2), (0, 3)]);
        plan.assert_tail_unchanged();
        let (list, decode) = (below.as_mut_ptr().cast(), table.decode.unwrap());
        assert_eq!(decode(instance, call.at(), array, 0, &rows, list, 2, out.at(), err), abi::OK);
        DECODER.destroy.unwrap()(instance);
    }
    assert_eq!(out.base.n_buffer_sizes, 2, "the host's batch");
    below.iter().chain([&out]).for_each(Longer::assert_tail_unchanged);
    assert!(below.iter().all(|batch| batch.base.array.array.release.is_none()), "the plugin took ownership");
    let is_present: Vec<_> = tree.buffers.iter().map(|buffer| buffer.base.release.is_some()).collect();
    assert_eq!((is_present, tree.n_released()), (vec![true, true, false], 1));
    tree.assert_tails_unchanged();
    host.assert_tail_unchanged();
    call.assert_tail_unchanged();
    err.assert_tail_unchanged();
}

/// A plugin of a later version, whose interface is longer.
mod later {
    use super::*;

    unsafe extern "C" fn create(
        _host: *const abi::Host,
        out: *mut *mut abi::Instance,
        _err: *mut abi::Error,
    ) -> abi::Code {
        // SAFETY: the caller passes a valid out parameter.
        unsafe { *out = std::ptr::dangling_mut() };
        abi::OK
    }

    unsafe extern "C" fn destroy(_instance: *mut abi::Instance) {}

    unsafe extern "C" fn ids(
        _instance: *mut abi::Instance,
        out: *mut *const abi::Str,
        n: *mut usize,
        _err: *mut abi::Error,
    ) -> abi::Code {
        let ids = IDS.map(abi::Str::new).into_iter().flat_map(|id| [id.data.addr() as u64, id.bytes as u64]);
        // SAFETY: the caller passes valid out parameters.
        unsafe { (*out, *n) = (keep(ids.collect()).cast(), IDS.len()) };
        abi::OK
    }

    unsafe extern "C" fn check(
        _instance: *mut abi::Instance,
        array: *const abi::EncodedArray,
        _node: usize,
        _err: *mut abi::Error,
    ) -> abi::Code {
        // SAFETY: the caller passes a valid array with more than one node.
        let second = unsafe { &*crossdock_at((*array).nodes, 1) };
        if second.first_buffer == 1 { abi::OK } else { abi::BAD_DATA }
    }

    /// Computes the address of element `i` in the same way as the macro `CROSSDOCK_AT`.
    unsafe fn crossdock_at<T>(list: *const T, i: usize) -> *const T {
        // SAFETY: the caller guarantees that the list has more than `i` elements, each of which
        // begins with its `struct_size`.
        unsafe { list.byte_add(i * list.cast::<usize>().read()) }
    }

    unsafe extern "C" fn decode(
        _instance: *mut abi::Instance,
        _call: *const abi::Call,
        array: *const abi::EncodedArray,
        _node: usize,
        _rows: *const abi::RowRange,
        below: *mut abi::Batch,
        n_below: usize,
        out: *mut abi::Batch,
        _err: *mut abi::Error,
    ) -> abi::Code {
        // SAFETY: the caller passes the ownership of the batches and a valid array, whose buffers
        // this function may take.
        unsafe {
            (0..n_below).for_each(|i| drop(Owned::take(crossdock_at(below, i).cast_mut())));
            drop(Owned::take(crossdock_at((*array).buffers, 2).cast_mut()));
            Owned::new(batch(3)).put(out, "decode").unwrap();
        }
        abi::OK
    }

    unsafe extern "C" fn get_interface(_instance: *mut abi::Instance, id: *const c_char) -> *const c_void {
        // SAFETY: the caller passes a NUL-terminated id.
        if unsafe { CStr::from_ptr(id) } != abi::ENCODING_ID {
            return std::ptr::null();
        }
        let table = abi::Encoding {
            struct_size: 0,
            ids: Some(ids),
            check: Some(check),
            children: None,
            size: None,
            lower: None,
            plan: None,
            decode: Some(decode),
        };
        keep(Longer::new(table).into_words())
    }

    pub static ENTRY: abi::PluginEntry = abi::PluginEntry {
        create: Some(create),
        destroy: Some(destroy),
        get_interface: Some(get_interface),
        ..entry::<Nothing>()
    };
}

#[test]
fn plugin_with_longer_structs_decodes_array_of_current_host() {
    let mut tree = Tree::new();
    let array = tree.take();
    // SAFETY: `create` of this plugin ignores its host, so the host may be null.
    let instance = unsafe { Instance::create(&later::ENTRY, std::ptr::null()) }.unwrap();
    let encoding = instance.encoding().unwrap();
    assert_eq!(encoding.ids().unwrap(), IDS);
    encoding.check(&array, 0).unwrap();
    assert!(encoding.lower(&array, 0).unwrap().is_none());
    let plan = encoding.plan(&array, 0, Device::cuda(1), &(0..3)).unwrap();
    assert_eq!(plan, DecodePlan::with_children_decoded(array.root().unwrap()));
    assert_eq!((plan.device, plan.decoded), (Device::CPU, vec![true, true]));
    // SAFETY: there is no other copy of the batch.
    let below = vec![Some(unsafe { Owned::new(batch(1)) }), None];
    let out = encoding.decode(&CallSettings::new(Device::CPU), &array, 0, &(0..3), below).unwrap();
    assert_eq!((out.n_buffer_sizes, out.struct_size), (3, size_of::<abi::Batch>()));
    drop((out, array));
    assert_eq!(tree.n_released(), 1, "the buffer that was taken");
    tree.assert_tails_unchanged();
}

#[test]
fn reads_shares_and_writes_arrays_with_longer_structs() {
    let mut tree = Tree::new();
    let mut array = tree.take();
    assert!(tree.array.base.release.is_none(), "the array was moved out");
    assert_is_the_tree(array.root().unwrap());
    let parts = |index| {
        let node = node(index);
        // SAFETY: the string and the metadata are static data.
        let (id, metadata) = unsafe { (node.encoding.get().unwrap(), *node.metadata.cast::<u8>()) };
        let logical_type = LogicalType::Schema(schema());
        let (encoding, metadata, length) = (id.into(), vec![metadata], node.length);
        let (n_buffers, n_children) = (node.n_buffers, node.n_children);
        NodeParts { encoding, logical_type, length, metadata, n_buffers, n_children }
    };
    let count = AtomicUsize::new(0);
    // SAFETY: `buffer` returns a valid buffer, and there is no other copy of it.
    let owned_buffer = |i| unsafe { Owned::new(buffer(i, &count)) };
    let expected =
        EncodedArray::new((0..3).map(parts).collect(), (0..3).map(owned_buffer).collect()).unwrap();
    let (actual, expected) = (blob::write_header(&array).unwrap(), blob::write_header(&expected).unwrap());
    assert_eq!(actual.header, expected.header);

    let replaced = array.replace_buffer(2, 0, |buffer| {
        assert_eq!((buffer.bytes, buffer.struct_size), (24, size_of::<abi::EncodedBuffer>()));
        Ok(owned_buffer(5))
    });
    replaced.unwrap();
    assert_eq!((tree.n_released(), array.node(2).unwrap().buffer(0).unwrap().bytes), (1, 48));
    tree.assert_tails_unchanged();

    let array = Arc::new(array);
    let share = array.share().unwrap();
    let bytes = |index: usize| share.node(index).unwrap().buffer(0).unwrap().bytes;
    assert_eq!([0, 1, 2].map(bytes), [8, 16, 48]);
    // SAFETY: no other thread accesses the share.
    let buffer = unsafe { share.node(1).unwrap().take_buffer(0) }.unwrap();
    drop((share, array));
    assert_eq!(buffer.address.addr(), 128);
    drop(buffer);
    tree.assert_tails_unchanged();
}

#[test]
fn reads_no_dtype_from_nodes_of_an_earlier_version() {
    let count = AtomicUsize::new(0);
    let mut buffers: Vec<_> = (0..3).map(|index| buffer(index, &count)).collect();
    let mut read = |with_schema: bool| {
        let of = |node: abi::EncodedNode| match with_schema {
            true => node,
            false => abi::EncodedNode { schema: std::ptr::null(), ..node },
        };
        let nodes = shorter((0..3).map(|i| of(node(i))).collect(), offset_of!(abi::EncodedNode, dtype));
        let mut array =
            abi::EncodedArray { release: Tree::new().array.base.release, ..abi::EncodedArray::new() };
        (array.nodes, array.n_nodes) = (keep(nodes).cast(), 3);
        (array.buffers, array.n_buffers) = (buffers.as_mut_ptr(), 3);
        // SAFETY: the lists have the declared lengths, and outlive the array.
        unsafe { EncodedArray::from_raw(Owned::new(array)) }
    };
    assert_is_the_tree(read(true).unwrap().root().unwrap());
    // Garbage follows the nodes in memory. It must not be read as the field `dtype`.
    assert!(read(false).err().unwrap().message().contains("no type"));
}
