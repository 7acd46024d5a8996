//! Trees as bytes: what is written where, that it comes back, and what is refused.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossdock_plugin_api::encoded::blob;
use crossdock_plugin_api::{Code, EncodedArray, Error, LogicalType, NodeParts, Owned, Release, Result, abi};

/// A buffer over bytes of its own, whose release `count` hears of.
fn buffer(bytes: &[u8], count: &Arc<AtomicUsize>) -> Owned<abi::EncodedBuffer> {
    struct Kept(Vec<u8>, Arc<AtomicUsize>);
    unsafe extern "C" fn release(buffer: *mut abi::EncodedBuffer) {
        // SAFETY: set below only.
        let kept = unsafe {
            (*buffer).release = None;
            Box::from_raw((*buffer).private_data.cast::<Kept>())
        };
        kept.1.fetch_add(1, Ordering::Relaxed);
    }
    let kept = Box::new(Kept(bytes.to_vec(), count.clone()));
    let mut raw = abi::EncodedBuffer::new();
    raw.address = if bytes.is_empty() { std::ptr::null() } else { kept.0.as_ptr().cast() };
    (raw.bytes, raw.alignment) = (bytes.len() as u64, 1);
    raw.private_data = Box::into_raw(kept).cast::<c_void>();
    raw.release = Some(release);
    // SAFETY: complete, and nobody else's.
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

/// A root with two buffers, the second one empty, and two children.
fn sample() -> EncodedArray {
    let nodes = vec![node("root", b"metadata", 2, 2), node("a", b"", 0, 0), node("b.v2", &[9], 1, 0)];
    let count = Arc::default();
    EncodedArray::new(nodes, vec![buffer(&[1; 70], &count), buffer(&[], &count), buffer(&[2; 5], &count)])
        .unwrap()
}

fn bytes_of(array: &EncodedArray) -> Vec<u8> {
    let written = blob::describe(array).unwrap();
    let mut bytes = written.header;
    let nodes = (0..array.n_nodes()).map(|index| array.node(index).unwrap());
    let buffers = nodes.flat_map(|node| (0..node.n_buffers()).map(move |i| node.buffer(i).unwrap()));
    for (buffer, place) in buffers.zip(&written.buffers) {
        bytes.resize(place.offset as usize, 0);
        if buffer.bytes > 0 {
            // SAFETY: the tests' own buffers, which the array holds.
            bytes.extend(unsafe {
                std::slice::from_raw_parts(buffer.address.cast::<u8>(), buffer.bytes as usize)
            });
        }
    }
    assert_eq!(bytes.len() as u64, written.total_bytes);
    bytes
}

fn read(bytes: &[u8]) -> Result<EncodedArray> {
    let described = blob::read(bytes)?;
    let count = Arc::default();
    let at = |place: &blob::Place| &bytes[place.offset as usize..(place.offset + place.bytes) as usize];
    let buffers = described.places().iter().map(|place| buffer(at(place), &count)).collect();
    described.with_buffers(buffers, None)
}

fn refused(bytes: &[u8]) -> Error {
    read(bytes).err().expect("it was read")
}

/// The same bytes with a checksum that fits, worked out bit by bit.
fn resigned(mut bytes: Vec<u8>) -> Vec<u8> {
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

/// `value` in the place of what stands at `at`.
fn with(at: usize, value: &[u8]) -> Vec<u8> {
    let mut bytes = bytes_of(&sample());
    bytes[at..at + value.len()].copy_from_slice(value);
    resigned(bytes)
}

#[test]
fn each_field_stands_where_the_document_says() {
    let bytes = bytes_of(&sample());
    let number =
        |at: usize, n: usize| bytes[at..at + n].iter().rev().fold(0u64, |v, b| v << 8 | u64::from(*b));
    assert_eq!(&bytes[..8], b"CDENC\r\n\x1a");
    assert_eq!((number(8, 4), number(16, 8), number(32, 4), number(36, 4)), (1, 453, 3, 3));
    // 64, nodes of 32 + 4 + 4 + 8, 32 + 1 + 4, 32 + 4 + 4 + 1, each rounded up to 8, and 3 buffers of 24.
    assert_eq!(number(24, 8), 64 + 48 + 40 + 48 + 72);
    assert_eq!(bytes[40..64], [0; 24]);
    assert_eq!((number(64, 8), number(72, 4), number(76, 4), number(80, 2)), (300, 8, 4, 4));
    assert_eq!((bytes[82], bytes[83], number(84, 4), number(88, 4), number(92, 4)), (1, 0, 2, 2, 0));
    assert_eq!(&bytes[96..112], b"roottypemetadata");
    assert_eq!(&bytes[112 + 32..112 + 40], b"atype\0\0\0");
    let buffers = [200, 224, 248].map(|at| [number(at, 8), number(at + 8, 8), number(at + 16, 8)]);
    assert_eq!(buffers, [[320, 70, 1], [448, 0, 1], [448, 5, 1]]);
    assert_eq!(bytes[320..390], [1; 70]);
    assert_eq!(resigned(bytes.clone()), bytes, "the checksum is CRC-32");
}

#[test]
fn a_tree_comes_back_as_it_was_and_is_written_the_same_again() {
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
fn bytes_that_are_cut_short_anywhere_or_go_on_are_refused() {
    let mut bytes = bytes_of(&sample());
    for n in 0..bytes.len() {
        let error = refused(&bytes[..n]);
        assert_eq!(error.code(), Code::BAD_DATA, "{n} bytes");
        assert!(error.message().contains("truncated"), "{n} bytes: {error}");
    }
    bytes.push(0);
    assert!(
        refused(&bytes).message().contains("follows their end: expected 453 bytes, got 454"),
        "{}",
        refused(&bytes)
    );
}

#[test]
fn a_header_of_which_any_bit_was_changed_is_refused() {
    let bytes = bytes_of(&sample());
    let header_bytes = blob::describe(&sample()).unwrap().header.len();
    for bit in 0..8 * header_bytes {
        let mut changed = bytes.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let error = refused(&changed);
        assert!(matches!(error.code(), Code::BAD_DATA | Code::UNSUPPORTED), "bit {bit}: {error}");
    }
}

#[test]
fn another_version_is_refused_by_name() {
    for version in [0u32, 2, 7, u32::MAX] {
        let error = refused(&with(8, &version.to_le_bytes()));
        assert_eq!(error.code(), Code::UNSUPPORTED);
        assert!(error.message().contains(&format!("in version {version}, and only version 1")), "{error}");
    }
}

#[test]
fn fields_that_contradict_each_other_are_refused_whoever_signed_them() {
    let most = [0xff; 8];
    for (name, at, value, words) in [
        ("the magic", 0, &b"CDENC\n\n\x1a"[..], "they begin with"),
        ("the total", 16, &most, "they are truncated: expected 18446744073709551615"),
        ("the total", 16, &[0xc4], "something follows"),
        ("the header", 24, &most, "a header of 18446744073709551615 bytes"),
        ("the header", 24, &271u64.to_le_bytes(), "truncated"),
        ("the header", 24, &280u64.to_le_bytes(), "left"),
        ("no header", 24, &[0; 8], "a header of 0 bytes"),
        ("nodes", 32, &[0; 4], "0 nodes"),
        ("nodes", 32, &most[..4], "4294967295 nodes and 3 buffers, expected 1 to 1048576"),
        ("nodes", 32, &[4], "a header of 272 bytes"),
        ("nodes", 32, &[2], "buffer 0: "),
        ("buffers", 36, &most[..4], "4294967295 buffers"),
        ("buffers", 36, &[2], "24 bytes are left"),
        ("what means nothing", 40, &[1], "zeros were expected"),
        ("what means nothing", 63, &[1], "zeros were expected"),
        ("bytes of metadata", 72, &most[..4], "metadata of 4294967295, at most"),
        ("bytes of metadata", 72, &[200], "node"),
        ("bytes of a type", 76, &most[..4], "a type of 4294967295"),
        ("bytes of an id", 80, &most[..2], "an id of 65535 bytes"),
        ("bytes of an id", 80, &[0], "node 0"),
        ("a type's kind", 82, &[3], "a type of kind 3"),
        ("a type's kind", 82, &[2], "its type: "),
        ("what means nothing", 83, &[1], "zeros were expected"),
        ("buffers of a node", 84, &most[..4], "buffers together"),
        ("buffers of a node", 84, &[1], "buffers"),
        ("children", 88, &most[..4], "too early"),
        ("children", 88, &[1], "no node's child"),
        ("what means nothing", 92, &[1], "zeros were expected"),
        ("an id", 96, &[0xff], "UTF-8"),
        ("what fills up", 112 + 39, &[1], "zeros were expected"),
        ("a buffer's offset", 200, &[65], "expected them at the first multiple of 64"),
        ("a buffer's offset", 200, &most, "expected them at the first multiple of 64"),
        ("a buffer's bytes", 208, &most, "bytes at 320"),
        ("a buffer's bytes", 208, &[129], "buffer 1: "),
        ("the last one's bytes", 256, &[6], "ends at 454, expected 453"),
        ("an alignment", 216, &[0], "an alignment of 0"),
        ("an alignment", 216, &[3], "an alignment of 3"),
        ("an alignment", 216, &[128], "an alignment of 128"),
        ("what means nothing", 220, &[1], "zeros were expected"),
    ] {
        let error = refused(&with(at, value));
        assert_eq!(error.code(), Code::BAD_DATA, "{name} at {at}: {error}");
        assert!(error.message().contains(words), "{name} at {at}: expected {words:?}, got {error}");
    }
}

/// A sequence of numbers that is the same everywhere.
fn numbers(mut seed: u64) -> impl FnMut(usize) -> usize {
    move |below| {
        seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        ((seed >> 33) as usize) % below
    }
}

#[test]
fn whatever_was_changed_the_answer_is_an_error_or_a_tree_that_is_written_just_so() {
    let (sample, mut read_again) = (bytes_of(&sample()), 0);
    let header_bytes = blob::describe(&self::sample()).unwrap().header.len();
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
        let bytes = resigned(bytes);
        if let Ok(array) = read(&bytes) {
            // The test's own buffers do not keep what was told of their alignment.
            let again = bytes_of(&array);
            assert_eq!(again.len(), bytes.len(), "seed {seed}");
            assert_eq!(again[64..200], bytes[64..200], "seed {seed}");
            read_again += 1;
        }
    }
    assert!(read_again > 1000, "{read_again} of them were read: the changes hit nothing that may change");
}

/// A field of a flat schema.
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

/// A tree of one node whose type is `flat`, in Arrow's way.
fn of_schema(flat: &[u8]) -> Vec<u8> {
    let logical_type = LogicalType::Dtype(flat.to_vec());
    let root = NodeParts { logical_type, ..node("root", b"", 0, 0) };
    let mut bytes = bytes_of(&EncodedArray::new(vec![root], vec![]).unwrap());
    bytes[82] = 2;
    resigned(bytes)
}

#[test]
fn types_as_arrow_writes_them_go_through_whole() {
    let flat = [
        field("+s", "", [2, 0, 1], 2, &[("ARROW:extension:name", "somebody.else")]),
        field("i", "codes", [0, 1, 0], 3, &[]),
        field("vu", "värde", [0, 0, 0], 2, &[]),
        field("+l", "of a kind that nobody knows", [1, 0, 2], 4, &[("a", ""), ("", "b")]),
        field("?", "", [0, 0, 0], 0, &[]),
    ]
    .concat();
    let bytes = of_schema(&flat);
    let array = read(&bytes).unwrap();
    assert_eq!(bytes_of(&array), bytes);
    let root = array.root().unwrap();
    assert!(root.dtype().is_none());
    let schema = root.schema().unwrap();
    assert_eq!((schema.n_children, schema.flags), (2, 2));
    // SAFETY: a valid schema, by its reader's word.
    unsafe {
        let codes = &**schema.children;
        assert_eq!(std::ffi::CStr::from_ptr(codes.name), c"codes");
        assert_eq!(std::ffi::CStr::from_ptr((*codes.dictionary).format), c"vu");
        // A child that a consumer moves out outlives its parent.
        let mut moved = Owned::take(*schema.children.add(1));
        drop(array);
        assert_eq!(std::ffi::CStr::from_ptr((**moved.children).format), c"?");
        (*moved.as_mut_ptr()).release();
    }
}

#[test]
fn a_types_metadata_are_pairs_as_arrow_has_them_and_null_where_there_are_none() {
    for (pairs, expected) in [
        (&[][..], None),
        (&[("a", "bc")], Some(&b"\x01\0\0\0\x01\0\0\0a\x02\0\0\0bc"[..])),
        (&[("", "x"), ("k", "")], Some(b"\x02\0\0\0\0\0\0\0\x01\0\0\0x\x01\0\0\0k\0\0\0\0")),
    ] {
        let array = read(&of_schema(&field("i", "", [0, 0, pairs.len() as u32], 0, pairs))).unwrap();
        let schema = array.root().unwrap().schema().unwrap();
        let Some(expected) = expected else {
            assert!(schema.metadata.is_null());
            continue;
        };
        assert!(!schema.metadata.is_null());
        // Numbers are of this machine's byte order, which is that of the bytes above wherever there are tests.
        // SAFETY: as many bytes as the pairs take, by the reader's word.
        let bytes = unsafe { std::slice::from_raw_parts(schema.metadata.cast::<u8>(), expected.len()) };
        assert_eq!(bytes, expected);
    }
}

#[test]
fn types_that_are_none_are_refused() {
    let leaf = field("i", "", [0, 0, 0], 0, &[]);
    let nested = |depth: usize| [field("+l", "", [1, 0, 0], 0, &[]).repeat(depth), leaf.clone()].concat();
    assert!(read(&of_schema(&nested(63))).is_ok());
    for (flat, words) in [
        (leaf[..leaf.len() - 1].to_vec(), "truncated"),
        ([&leaf[..], &[0]].concat(), "1 bytes are left"),
        (vec![0], "truncated"),
        (nested(64), "at level 65"),
        (nested(20_000), "at level 65"),
        (field("+s", "", [u32::MAX, 0, 0], 0, &[]), "with 4294967295 fields"),
        (field("+s", "", [1 << 19, 0, 0], 0, &[]), "truncated"),
        (field("i", "", [0, 2, 0], 0, &[]), "2 dictionaries"),
        (field("i", "", [0, 0, u32::MAX], 0, &[]), "4294967295 pairs"),
        (field("i", "", [0, 0, 1], 0, &[]), "truncated"),
        (field("i\0", "", [0, 0, 0], 0, &[]), "a NUL"),
        (field("i", "a\0b", [0, 0, 0], 0, &[]), "a NUL"),
    ] {
        let error = refused(&of_schema(&flat));
        assert_eq!(error.code(), Code::BAD_DATA);
        assert!(error.message().contains(words), "expected {words:?}, got {error}");
    }
}

#[test]
fn a_share_has_the_same_tree_and_keeps_it_while_any_of_it_is_there() {
    let count = Arc::default();
    let released = || Arc::<AtomicUsize>::clone(&count).load(Ordering::Relaxed);
    let nodes = vec![node("root", b"metadata", 1, 1), node("a", b"", 1, 0)];
    let array = EncodedArray::new(nodes, vec![buffer(b"one", &count), buffer(b"two", &count)]).unwrap();
    let array = Arc::new(array);
    let (first, second) = (array.share().unwrap(), array.share().unwrap());
    assert_eq!(bytes_of(&first), bytes_of(&array));
    // SAFETY: nobody else takes the share's.
    let taken = unsafe { first.node(1).unwrap().take_buffer(0) }.unwrap();
    drop(first);
    assert_eq!(bytes_of(&second), bytes_of(&array), "another share's buffers are its own");
    drop((array, second));
    assert_eq!(released(), 0);
    // SAFETY: what was taken keeps the bytes.
    assert_eq!(unsafe { std::slice::from_raw_parts(taken.address.cast::<u8>(), 3) }, b"two");
    drop(taken);
    assert_eq!(released(), 2);
}

#[test]
fn of_an_array_whose_buffers_were_taken_there_is_no_share_and_there_are_no_bytes() {
    let array = Arc::new(sample());
    // SAFETY: nobody else takes them.
    let taken = unsafe { array.node(2).unwrap().take_buffer(0) }.unwrap();
    assert!(array.share().err().unwrap().message().contains("root[1]/b.v2: buffer 0 was taken already"));
    assert!(blob::describe(&array).err().unwrap().message().contains("buffer 0 was taken already"));
    drop(taken);
}
