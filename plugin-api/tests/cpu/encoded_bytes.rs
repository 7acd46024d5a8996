//! Tests reading and writing encoded arrays as bytes.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossdock_plugin_api::encoded::blob;
use crossdock_plugin_api::{Code, EncodedArray, Error, LogicalType, NodeParts, Owned, Release, Result, abi};

/// Creates a buffer with a copy of `bytes`. It increments `count` when it is released.
fn buffer(bytes: &[u8], count: &Arc<AtomicUsize>) -> Owned<abi::EncodedBuffer> {
    struct Private(Vec<u8>, Arc<AtomicUsize>);
    unsafe extern "C" fn release(buffer: *mut abi::EncodedBuffer) {
        // SAFETY: only `buffer` sets this function, with a boxed `Private`. Clearing `release`
        // ensures that this runs only once.
        let private = unsafe {
            (*buffer).release = None;
            Box::from_raw((*buffer).private_data.cast::<Private>())
        };
        private.1.fetch_add(1, Ordering::Relaxed);
    }
    let private = Box::new(Private(bytes.to_vec(), count.clone()));
    let mut raw = abi::EncodedBuffer::new();
    raw.address = if bytes.is_empty() { std::ptr::null() } else { private.0.as_ptr().cast() };
    (raw.bytes, raw.alignment) = (bytes.len() as u64, 1);
    raw.private_data = Box::into_raw(private).cast::<c_void>();
    raw.release = Some(release);
    // SAFETY: this function created the buffer with its release function, and there is no other
    // copy of it.
    unsafe { Owned::new(raw) }
}

fn node(id: &str, metadata: &[u8], n_buffers: u32, n_children: u32) -> NodeParts {
    let logical_type = LogicalType::Dtype(b"type".to_vec());
    NodeParts {
        encoding: id.into(),
        logical_type,
        length: 300,
        metadata: metadata.into(),
        n_buffers,
        n_children,
    }
}

/// Creates an array whose root has two children and two buffers. The second buffer is empty.
fn sample() -> EncodedArray {
    let nodes = vec![node("root", b"metadata", 2, 2), node("a", b"", 0, 0), node("b.v2", &[9], 1, 0)];
    let count = Arc::default();
    EncodedArray::new(nodes, vec![buffer(&[1; 70], &count), buffer(&[], &count), buffer(&[2; 5], &count)])
        .unwrap()
}

fn bytes_of(array: &EncodedArray) -> Vec<u8> {
    let layout = blob::write_header(array).unwrap();
    let mut bytes = layout.header;
    let nodes = (0..array.n_nodes()).map(|index| array.node(index).unwrap());
    let buffers = nodes.flat_map(|node| (0..node.n_buffers()).map(move |i| node.buffer(i).unwrap()));
    for (buffer, range) in buffers.zip(&layout.buffers) {
        bytes.resize(range.offset as usize, 0);
        if buffer.bytes > 0 {
            // SAFETY: the array owns the buffer, so its memory is readable.
            bytes.extend(unsafe {
                std::slice::from_raw_parts(buffer.address.cast::<u8>(), buffer.bytes as usize)
            });
        }
    }
    assert_eq!(bytes.len() as u64, layout.total_bytes);
    bytes
}

fn read(bytes: &[u8]) -> Result<EncodedArray> {
    let header = blob::read(bytes)?;
    let count = Arc::default();
    let at = |range: &blob::BufferRange| &bytes[range.offset as usize..(range.offset + range.bytes) as usize];
    let buffers = header.buffer_ranges().iter().map(|range| buffer(at(range), &count)).collect();
    header.with_buffers(buffers, None)
}

fn read_error(bytes: &[u8]) -> Error {
    read(bytes).err().expect("an error")
}

/// Sets the checksum in the bytes of an array to the correct value.
fn with_checksum(mut bytes: Vec<u8>) -> Vec<u8> {
    let header_bytes = u64::from_le_bytes(bytes[24..32].try_into().unwrap());
    let header_bytes = usize::try_from(header_bytes).unwrap_or(usize::MAX).min(bytes.len());
    bytes[12..16].fill(0);
    let mut crc = !0u32;
    for byte in &bytes[..header_bytes] {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    bytes[12..16].copy_from_slice(&(!crc).to_le_bytes());
    bytes
}

/// Returns the bytes of the sample with `value` at offset `at` and a correct checksum.
fn with(at: usize, value: &[u8]) -> Vec<u8> {
    let mut bytes = bytes_of(&sample());
    bytes[at..at + value.len()].copy_from_slice(value);
    with_checksum(bytes)
}

#[test]
fn fields_have_the_documented_offsets() {
    let bytes = bytes_of(&sample());
    let number =
        |at: usize, n: usize| bytes[at..at + n].iter().rev().fold(0u64, |v, b| v << 8 | u64::from(*b));
    assert_eq!(&bytes[..8], b"CDENC\r\n\x1a");
    assert_eq!((number(8, 4), number(16, 8), number(32, 4), number(36, 4)), (1, 453, 3, 3));
    // The head has 64 bytes. The nodes have 32 + 4 + 4 + 8, 32 + 1 + 4, and 32 + 4 + 4 + 1 bytes,
    // each rounded up to a multiple of 8. Each of the 3 buffers has 24 bytes.
    assert_eq!(number(24, 8), 64 + 48 + 40 + 48 + 72);
    assert_eq!(bytes[40..64], [0; 24]);
    assert_eq!((number(64, 8), number(72, 4), number(76, 4), number(80, 2)), (300, 8, 4, 4));
    assert_eq!((bytes[82], bytes[83], number(84, 4), number(88, 4), number(92, 4)), (1, 0, 2, 2, 0));
    assert_eq!(&bytes[96..112], b"roottypemetadata");
    assert_eq!(&bytes[112 + 32..112 + 40], b"atype\0\0\0");
    let buffers = [200, 224, 248].map(|at| [number(at, 8), number(at + 8, 8), number(at + 16, 8)]);
    assert_eq!(buffers, [[320, 70, 1], [448, 0, 1], [448, 5, 1]]);
    assert_eq!(bytes[320..390], [1; 70]);
    assert_eq!(with_checksum(bytes.clone()), bytes, "the checksum is CRC-32");
}

#[test]
fn round_trip_keeps_tree_and_bytes() {
    let bytes = bytes_of(&sample());
    let array = read(&bytes).unwrap();
    assert_eq!(bytes_of(&array), bytes);
    let nodes: Vec<_> = (0..3).map(|index| array.node(index).unwrap()).collect();
    assert_eq!(nodes.iter().map(|node| node.encoding()).collect::<Vec<_>>(), ["root", "a", "b.v2"]);
    assert_eq!(nodes[0].dtype(), Some(&b"type"[..]));
    assert_eq!((nodes[0].length(), nodes[0].metadata(), nodes[0].n_children()), (300, &b"metadata"[..], 2));
    assert_eq!((nodes[2].metadata(), nodes[2].buffer(0).unwrap().bytes), (&[9][..], 5));
}

#[test]
fn rejects_truncated_and_trailing_bytes() {
    let mut bytes = bytes_of(&sample());
    for n in 0..bytes.len() {
        let error = read_error(&bytes[..n]);
        assert_eq!(error.code(), Code::BAD_DATA, "{n} bytes");
        assert!(error.message().contains("truncated"), "{n} bytes: {error}");
    }
    bytes.push(0);
    let error = read_error(&bytes);
    assert!(error.message().contains("trailing bytes: expected 453 bytes, got 454"), "{error}");
}

#[test]
fn rejects_any_changed_bit_of_the_header() {
    let bytes = bytes_of(&sample());
    let header_bytes = blob::write_header(&sample()).unwrap().header.len();
    for bit in 0..8 * header_bytes {
        let mut changed = bytes.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let error = read_error(&changed);
        assert!(matches!(error.code(), Code::BAD_DATA | Code::UNSUPPORTED), "bit {bit}: {error}");
    }
}

#[test]
fn rejects_other_versions() {
    for version in [0u32, 2, 7, u32::MAX] {
        let error = read_error(&with(8, &version.to_le_bytes()));
        assert_eq!(error.code(), Code::UNSUPPORTED);
        assert!(error.message().contains(&format!("in version {version}, expected version 1")), "{error}");
    }
}

#[test]
fn rejects_inconsistent_fields_with_a_correct_checksum() {
    let max = [0xff; 8];
    for (name, at, value, words) in [
        ("the magic", 0, &b"CDENC\n\n\x1a"[..], "the magic is"),
        ("the total", 16, &max, "truncated: expected 18446744073709551615"),
        ("the total", 16, &[0xc4], "trailing bytes"),
        ("the header", 24, &max, "a header of 18446744073709551615 bytes"),
        ("the header", 24, &271u64.to_le_bytes(), "truncated"),
        ("the header", 24, &280u64.to_le_bytes(), "left"),
        ("no header", 24, &[0; 8], "a header of 0 bytes"),
        ("nodes", 32, &[0; 4], "0 nodes"),
        ("nodes", 32, &max[..4], "4294967295 nodes and 3 buffers, expected 1 to 1048576"),
        ("nodes", 32, &[4], "a header of 272 bytes"),
        ("nodes", 32, &[2], "buffer 0: "),
        ("buffers", 36, &max[..4], "4294967295 buffers"),
        ("buffers", 36, &[2], "24 bytes are left"),
        ("reserved bytes", 40, &[1], "are not 0"),
        ("reserved bytes", 63, &[1], "are not 0"),
        ("bytes of metadata", 72, &max[..4], "metadata of 4294967295 bytes, expected at most"),
        ("bytes of metadata", 72, &[200], "node"),
        ("bytes of a type", 76, &max[..4], "a type of 4294967295"),
        ("bytes of an id", 80, &max[..2], "an id of 65535 bytes"),
        ("bytes of an id", 80, &[0], "node 0"),
        ("a type's kind", 82, &[3], "a type of kind 3"),
        ("a type's kind", 82, &[2], "the type: "),
        ("reserved bytes", 83, &[1], "are not 0"),
        ("buffers of a node", 84, &max[..4], "but its nodes have"),
        ("buffers of a node", 84, &[1], "buffers"),
        ("children", 88, &max[..4], "children are missing"),
        ("children", 88, &[1], "no parent"),
        ("reserved bytes", 92, &[1], "are not 0"),
        ("an id", 96, &[0xff], "UTF-8"),
        ("padding", 112 + 39, &[1], "are not 0"),
        ("a buffer's offset", 200, &[65], "expected the first multiple of 64"),
        ("a buffer's offset", 200, &max, "expected the first multiple of 64"),
        ("a buffer's bytes", 208, &max, "bytes at offset 320"),
        ("a buffer's bytes", 208, &[129], "buffer 1: "),
        ("the bytes of the last buffer", 256, &[6], "ends at 454, expected 453"),
        ("an alignment", 216, &[0], "an alignment of 0"),
        ("an alignment", 216, &[3], "an alignment of 3"),
        ("an alignment", 216, &[128], "an alignment of 128"),
        ("reserved bytes", 220, &[1], "are not 0"),
    ] {
        let error = read_error(&with(at, value));
        assert_eq!(error.code(), Code::BAD_DATA, "{name} at {at}: {error}");
        assert!(error.message().contains(words), "{name} at {at}: expected {words:?}, got {error}");
    }
}

/// Returns a generator of reproducible pseudorandom numbers.
fn numbers(mut seed: u64) -> impl FnMut(usize) -> usize {
    move |below| {
        seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        ((seed >> 33) as usize) % below
    }
}

#[test]
fn randomly_changed_bytes_are_rejected_or_keep_the_header() {
    let (sample, mut accepted) = (bytes_of(&sample()), 0);
    let header_bytes = blob::write_header(&self::sample()).unwrap().header.len();
    for seed in 0..30_000 {
        let mut next = numbers(seed);
        let mut bytes = sample.clone();
        for _ in 0..=next(3) {
            let at = next(header_bytes);
            bytes[at] = [0, 1, 2, 0x7f, 0x80, 0xff, next(256) as u8, bytes[at] ^ 1 << next(8)][next(8)];
        }
        if next(8) == 0 {
            bytes.truncate(64 + next(bytes.len() - 64));
        }
        let bytes = with_checksum(bytes);
        if let Ok(array) = read(&bytes) {
            // Compares only the records of the nodes. The records of the buffers differ, because
            // `read` does not keep the alignment of the buffers.
            let rewritten = bytes_of(&array);
            assert_eq!(rewritten.len(), bytes.len(), "seed {seed}");
            assert_eq!(rewritten[64..200], bytes[64..200], "seed {seed}");
            accepted += 1;
        }
    }
    assert!(accepted > 1000, "only {accepted} changed arrays were accepted");
}

/// Creates the bytes of a field of a schema.
fn field(format: &str, name: &str, counts: [u32; 3], flags: u32, pairs: &[(&str, &str)]) -> Vec<u8> {
    let [children, dictionary, n_pairs] = counts;
    let mut bytes = Vec::new();
    for n in [format.len() as u32, name.len() as u32, children, dictionary, n_pairs, flags] {
        bytes.extend(n.to_le_bytes());
    }
    bytes.extend(format.as_bytes());
    bytes.extend(name.as_bytes());
    for (key, value) in pairs {
        bytes.extend((key.len() as u32).to_le_bytes());
        bytes.extend((value.len() as u32).to_le_bytes());
        bytes.extend(key.as_bytes());
        bytes.extend(value.as_bytes());
    }
    bytes
}

/// Creates the bytes of an array with one node. `schema` contains the bytes of the node's type.
fn with_schema(schema: &[u8]) -> Vec<u8> {
    let logical_type = LogicalType::Dtype(schema.to_vec());
    let root = NodeParts { logical_type, ..node("root", b"", 0, 0) };
    let mut bytes = bytes_of(&EncodedArray::new(vec![root], vec![]).unwrap());
    bytes[82] = 2;
    with_checksum(bytes)
}

#[test]
fn reads_all_fields_of_schemas() {
    let schema = [
        field("+s", "", [2, 0, 1], 2, &[("ARROW:extension:name", "vendor.type")]),
        field("i", "codes", [0, 1, 0], 3, &[]),
        field("vu", "värde", [0, 0, 0], 2, &[]),
        field("+l", "of an unknown type", [1, 0, 2], 4, &[("a", ""), ("", "b")]),
        field("?", "", [0, 0, 0], 0, &[]),
    ]
    .concat();
    let bytes = with_schema(&schema);
    let array = read(&bytes).unwrap();
    assert_eq!(bytes_of(&array), bytes);
    let root = array.root().unwrap();
    assert!(root.dtype().is_none());
    let schema = root.schema().unwrap();
    assert_eq!((schema.n_children, schema.flags), (2, 2));
    // SAFETY: `read` returns valid schemas.
    unsafe {
        let codes = &**schema.children;
        assert_eq!(std::ffi::CStr::from_ptr(codes.name), c"codes");
        assert_eq!(std::ffi::CStr::from_ptr((*codes.dictionary).format), c"vu");
        // A child that a consumer moves out of the schema outlives its parent.
        let mut moved = Owned::take(*schema.children.add(1));
        drop(array);
        assert_eq!(std::ffi::CStr::from_ptr((**moved.children).format), c"?");
        (*moved.as_mut_ptr()).release();
    }
}

#[test]
fn schema_metadata_has_arrow_encoding() {
    for (pairs, expected) in [
        (&[][..], None),
        (&[("a", "bc")], Some(&b"\x01\0\0\0\x01\0\0\0a\x02\0\0\0bc"[..])),
        (&[("", "x"), ("k", "")], Some(b"\x02\0\0\0\0\0\0\0\x01\0\0\0x\x01\0\0\0k\0\0\0\0")),
    ] {
        let array = read(&with_schema(&field("i", "", [0, 0, pairs.len() as u32], 0, pairs))).unwrap();
        let schema = array.root().unwrap().schema().unwrap();
        let Some(expected) = expected else {
            assert!(schema.metadata.is_null());
            continue;
        };
        assert!(!schema.metadata.is_null());
        // The expected bytes are little-endian, like all machines that run the tests.
        // SAFETY: `read` returns valid schemas, whose metadata has this length.
        let bytes = unsafe { std::slice::from_raw_parts(schema.metadata.cast::<u8>(), expected.len()) };
        assert_eq!(bytes, expected);
    }
}

#[test]
fn rejects_invalid_schemas() {
    let leaf = field("i", "", [0, 0, 0], 0, &[]);
    let nested = |depth: usize| [field("+l", "", [1, 0, 0], 0, &[]).repeat(depth), leaf.clone()].concat();
    assert!(read(&with_schema(&nested(63))).is_ok());
    for (schema, words) in [
        (leaf[..leaf.len() - 1].to_vec(), "truncated"),
        ([&leaf[..], &[0]].concat(), "1 bytes are left"),
        (vec![0], "truncated"),
        (nested(64), "at level 65"),
        (nested(20_000), "at level 65"),
        (field("+s", "", [u32::MAX, 0, 0], 0, &[]), "has 4294967295 children"),
        (field("+s", "", [1 << 19, 0, 0], 0, &[]), "truncated"),
        (field("i", "", [0, 2, 0], 0, &[]), "2 dictionaries"),
        (field("i", "", [0, 0, u32::MAX], 0, &[]), "4294967295 metadata pairs"),
        (field("i", "", [0, 0, 1], 0, &[]), "truncated"),
        (field("i\0", "", [0, 0, 0], 0, &[]), "a NUL"),
        (field("i", "a\0b", [0, 0, 0], 0, &[]), "a NUL"),
    ] {
        let error = read_error(&with_schema(&schema));
        assert_eq!(error.code(), Code::BAD_DATA);
        assert!(error.message().contains(words), "expected {words:?}, got {error}");
    }
}

#[test]
fn shared_arrays_and_their_buffers_keep_the_original_alive() {
    let count = Arc::default();
    let released = || Arc::<AtomicUsize>::clone(&count).load(Ordering::Relaxed);
    let nodes = vec![node("root", b"metadata", 1, 1), node("a", b"", 1, 0)];
    let array = EncodedArray::new(nodes, vec![buffer(b"one", &count), buffer(b"two", &count)]).unwrap();
    let array = Arc::new(array);
    let (first, second) = (array.share().unwrap(), array.share().unwrap());
    assert_eq!(bytes_of(&first), bytes_of(&array));
    // SAFETY: no other thread accesses the share.
    let buffer = unsafe { first.node(1).unwrap().take_buffer(0) }.unwrap();
    drop(first);
    assert_eq!(bytes_of(&second), bytes_of(&array), "each share has its own buffers");
    drop((array, second));
    assert_eq!(released(), 0);
    // SAFETY: the buffer that was taken keeps its memory alive.
    assert_eq!(unsafe { std::slice::from_raw_parts(buffer.address.cast::<u8>(), 3) }, b"two");
    drop(buffer);
    assert_eq!(released(), 2);
}

#[test]
fn arrays_with_taken_buffers_cannot_be_shared_or_written() {
    let array = Arc::new(sample());
    // SAFETY: no other thread accesses the array.
    let _buffer = unsafe { array.node(2).unwrap().take_buffer(0) }.unwrap();
    assert!(array.share().err().unwrap().message().contains("root[1]/b.v2: buffer 0 has been taken already"));
    assert!(blob::write_header(&array).err().unwrap().message().contains("buffer 0 has been taken already"));
}
