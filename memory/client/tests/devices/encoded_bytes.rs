//! Tests reading encoded arrays from bytes and writing them as bytes, with every kind of source and
//! with buffers on every device.

use std::cell::RefCell;
use std::sync::Arc;

use crossdock_memory::{ALIGNMENT, Buffer, Code, Device, Error, Result, read_encoded, write_encoded};
use crossdock_plugin_api::{ByteSource, EncodedArray, LogicalType, NodeParts, Source};
use crossdock_test_support::{TestHost, devices};

/// A source whose content begins at offset `skew` of `bytes`. It can be a mapping, a file of known
/// length, or a pipe.
struct Bytes {
    bytes: Vec<u8>,
    skew: usize,
    is_mapped: bool,
    is_pipe: bool,
    /// Maximum number of bytes that one read returns.
    piece_bytes: usize,
}

impl Bytes {
    fn content(&self) -> &[u8] {
        &self.bytes[self.skew..]
    }
}

impl ByteSource for Bytes {
    fn name(&self) -> &str {
        "bytes"
    }

    fn len(&self) -> Option<u64> {
        (!self.is_pipe).then_some(self.content().len() as u64)
    }

    fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<usize> {
        let rest = self.content().get(offset as usize..).unwrap_or_default();
        let n = rest.len().min(to.len()).min(self.piece_bytes);
        to[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }

    fn map(&self) -> Option<&[u8]> {
        self.is_mapped.then(|| self.content())
    }
}

/// Returns sources with the content `bytes`: a mapping, a misaligned mapping, a file that is read,
/// and a pipe that returns only a part of the content per read.
fn sources(bytes: &[u8]) -> [(&'static str, Bytes); 4] {
    let of = |skew, is_mapped, is_pipe| {
        // If `skew` is 0, the content begins at a multiple of `ALIGNMENT`.
        let mut moved = vec![0; bytes.len() + 2 * ALIGNMENT];
        let skew = skew + moved.as_ptr().align_offset(ALIGNMENT);
        moved.truncate(skew + bytes.len());
        moved[skew..].copy_from_slice(bytes);
        Bytes {
            bytes: moved,
            skew,
            is_mapped,
            is_pipe,
            piece_bytes: if is_pipe { 7_777 } else { usize::MAX },
        }
    };
    [
        ("mapped", of(0, true, false)),
        ("mapped, misaligned", of(1, true, false)),
        ("read", of(0, false, false)),
        ("a pipe", of(0, false, true)),
    ]
}

const LARGE: usize = 3 << 20;

fn content(i: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 7 + i) as u8).collect()
}

/// Returns an array with a root node and a child node. Their buffers on `device` have the given
/// lengths in bytes.
fn tree(host: &TestHost, device: Device, lengths: &[usize]) -> EncodedArray {
    let node = |id: &str, n_buffers, n_children| NodeParts {
        encoding: id.into(),
        logical_type: LogicalType::Dtype(b"type".to_vec()),
        length: 1,
        metadata: vec![7],
        n_buffers,
        n_children,
    };
    let stream = host.stream(device);
    let buffer = |(i, bytes): (usize, &usize)| {
        let fill = |to: &mut [u8]| {
            to.copy_from_slice(&content(i, *bytes));
            Ok(())
        };
        host.memory().alloc_with(&stream, *bytes, fill).unwrap().freeze(&stream).unwrap().to_encoded()
    };
    let buffers: Vec<_> = lengths.iter().enumerate().map(buffer).collect();
    let nodes = vec![node("a", 1, 1), node("b", lengths.len() as u32 - 1, 0)];
    EncodedArray::new(nodes, buffers).unwrap()
}

fn bytes_of(host: &TestHost, array: EncodedArray) -> Vec<u8> {
    let mut bytes = Vec::new();
    let write = |piece: &[u8]| {
        bytes.extend_from_slice(piece);
        Ok(())
    };
    let total = write_encoded(&host.memory(), array, write).unwrap();
    assert_eq!(bytes.len() as u64, total);
    bytes
}

fn read(host: &TestHost, source: Bytes, device: Device) -> Result<EncodedArray> {
    read_encoded(&host.memory(), &Source::new(Arc::new(source)), device, |_, _| Ok(()))
}

/// Checks the device and the alignment of all buffers, and returns their contents.
fn contents(host: &TestHost, array: &EncodedArray) -> Vec<Vec<u8>> {
    let stream = host.stream(Device::CPU);
    let nodes = (0..array.n_nodes()).map(|index| array.node(index).unwrap());
    let buffers = nodes.flat_map(|node| (0..node.n_buffers()).map(move |i| (node, i)));
    let content = |(node, i): (crossdock_plugin_api::EncodedNode<'_>, usize)| {
        // SAFETY: only this test takes the buffer, and `read_encoded` guarantees its range.
        let buffer = unsafe { Buffer::from_encoded(node.take_buffer(i).unwrap()) };
        let Some(buffer) = buffer else { return Vec::new() };
        assert_eq!(buffer.device(), Device::CPU);
        assert_eq!(buffer.address() as usize % ALIGNMENT, 0);
        buffer.host_view(&stream).unwrap().to_vec()
    };
    buffers.map(content).collect()
}

#[test]
fn tree_survives_a_round_trip_from_every_device_and_source() {
    let lengths = [100, 0, LARGE, 1];
    for &device in devices() {
        let host = TestHost::new();
        let bytes = bytes_of(&host, tree(&host, device, &lengths));
        for to in [Device::CPU, device] {
            for (name, source) in sources(&bytes) {
                let array = read(&host, source, to).unwrap();
                assert_eq!(array.node(1).unwrap().metadata(), [7], "{name}");
                let array = Arc::new(array);
                let again = bytes_of(&host, array.share().unwrap());
                assert!(again == bytes, "{name} from {device}: writing it again gave other bytes");
                let contents = contents(&host, &array);
                for (i, length) in lengths.iter().enumerate() {
                    assert!(contents[i] == content(i, *length), "{name}, buffer {i} from {device}");
                }
            }
        }
        host.stream(device).synchronize().unwrap();
        host.backend().trim();
        host.assert_nothing_leaked();
    }
}

#[test]
fn buffers_refer_to_the_mapping_unless_misaligned() {
    let host = TestHost::new();
    let bytes = bytes_of(&host, tree(&host, Device::CPU, &[100, 0, 1]));
    for (name, source) in sources(&bytes) {
        if !source.is_mapped {
            continue;
        }
        let from = source.content().as_ptr().addr();
        let range = from..from + bytes.len();
        let array = read(&host, source, Device::CPU).unwrap();
        let addresses =
            [(0, 0), (1, 1)].map(|(index, i)| array.node(index).unwrap().buffer(i).unwrap().address);
        let inside = addresses.iter().all(|address| range.contains(&address.addr()));
        assert_eq!(inside, name == "mapped", "{name}");
        assert_eq!(host.backend().leaks().is_empty(), inside, "{name}: copies only if misaligned");
    }
    host.assert_nothing_leaked();
}

#[test]
fn rejects_truncated_and_trailing_bytes_from_every_source() {
    let host = TestHost::new();
    let mut bytes = bytes_of(&host, tree(&host, Device::CPU, &[100, 0, 1]));
    for n in 0..bytes.len() {
        for (name, source) in sources(&bytes[..n]) {
            let error = read(&host, source, Device::CPU).err().expect("it was read");
            assert_eq!(error.code(), Code::BAD_DATA, "{n} bytes, {name}: {error}");
            assert!(error.message().contains("truncated"), "{n} bytes, {name}: {error}");
        }
    }
    bytes.push(0);
    for (name, source) in sources(&bytes) {
        let error = read(&host, source, Device::CPU).err().expect("it was read");
        assert!(error.message().contains("trailing bytes"), "{name}: {error}");
    }
    host.assert_nothing_leaked();
}

#[test]
fn declared_size_allocates_nothing_before_the_bytes_arrive() {
    let host = TestHost::new();
    let mut bytes = bytes_of(&host, tree(&host, Device::CPU, &[LARGE, 0]));
    bytes[16..24].copy_from_slice(&(1u64 << 60).to_le_bytes());
    let [.., (_, read_whole), (_, pipe)] = sources(&bytes);
    for source in [read_whole, pipe] {
        let error = read(&host, source, Device::CPU).err().expect("it was read");
        assert!(error.message().contains("truncated: expected 1152921504606846976 bytes"), "{error}");
    }
    let account = host.backend().ledger().accounts;
    let peak = account.iter().flat_map(|a| &a.devices).map(|d| d.peak_bytes).max().unwrap_or(0);
    assert!(peak < 4 * LARGE as u64, "{peak} bytes were allocated");
    host.assert_nothing_leaked();
}

#[test]
fn rejects_writing_an_array_whose_buffer_was_taken() {
    let host = TestHost::new();
    let array = tree(&host, Device::CPU, &[1, 2]);
    // SAFETY: only this test takes the buffer.
    drop(unsafe { array.node(1).unwrap().take_buffer(0) }.unwrap());
    let error = write_encoded(&host.memory(), array, |_| panic!("something was written")).unwrap_err();
    assert!(error.message().contains("a[0]/b: buffer 0 has been taken already"), "{error}");
}

#[test]
fn progress_reports_every_piece_and_can_cancel() {
    let host = TestHost::new();
    // The array is so large that reading it takes more than one read.
    let bytes = bytes_of(&host, tree(&host, Device::CPU, &[9 << 20, 1]));
    let total = bytes.len() as u64;
    for (name, source) in sources(&bytes) {
        let (is_mapped, reported) = (source.is_mapped, RefCell::new(Vec::new()));
        let source = Source::new(Arc::new(source));
        let progress = |done, of| {
            reported.borrow_mut().push(done);
            assert_eq!(of, total);
            Ok(())
        };
        read_encoded(&host.memory(), &source, Device::CPU, progress).unwrap();
        let reported = reported.into_inner();
        assert!(reported.is_sorted(), "{name}");
        assert_eq!(reported.last().copied(), (!is_mapped).then_some(total), "{name}");
        if is_mapped {
            continue;
        }
        let end = |done, _| if done > total / 2 { Err(Error::cancelled("enough")) } else { Ok(()) };
        let error = read_encoded(&host.memory(), &source, Device::CPU, end).err().unwrap();
        assert_eq!(error.message(), "enough", "{name}");
    }
    host.assert_nothing_leaked();
}
