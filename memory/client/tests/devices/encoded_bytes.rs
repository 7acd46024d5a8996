//! Trees as bytes, out of every kind of source, from buffers on every device.

use std::cell::RefCell;
use std::sync::Arc;

use crossdock_memory::{ALIGNMENT, Buffer, Code, Device, Error, Result, read_encoded, write_encoded};
use crossdock_plugin_api::{ByteSource, EncodedArray, LogicalType, NodeParts, Source};
use crossdock_test_support::{TestHost, devices};

/// Bytes that are mapped from `skew` bytes on, or read; at their end or not.
struct Bytes {
    bytes: Vec<u8>,
    skew: usize,
    is_mapped: bool,
    is_pipe: bool,
    /// The most that one read gives.
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

/// Mapped, mapped one byte further than buffers like it, read, and read as a pipe in pieces.
fn sources(bytes: &[u8]) -> [(&'static str, Bytes); 4] {
    let of = |skew, is_mapped, is_pipe| {
        // Somewhere in the first bytes a buffer's address is a multiple of what it wants.
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
        ("mapped askew", of(1, true, false)),
        ("read", of(0, false, false)),
        ("a pipe", of(0, false, true)),
    ]
}

const LARGE: usize = 3 << 20;

fn content(i: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 7 + i) as u8).collect()
}

/// A root and a child, with buffers of these lengths on a device.
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

/// The bytes of its buffers, each where it should be.
fn contents(host: &TestHost, array: &EncodedArray) -> Vec<Vec<u8>> {
    let stream = host.stream(Device::CPU);
    let nodes = (0..array.n_nodes()).map(|index| array.node(index).unwrap());
    let buffers = nodes.flat_map(|node| (0..node.n_buffers()).map(move |i| (node, i)));
    let content = |(node, i): (crossdock_plugin_api::EncodedNode<'_>, usize)| {
        // SAFETY: nobody else takes it, and its maker vouches for it.
        let buffer = unsafe { Buffer::of_encoded(node.take_buffer(i).unwrap()) };
        let Some(buffer) = buffer else { return Vec::new() };
        assert_eq!(buffer.device(), Device::CPU);
        assert_eq!(buffer.address() as usize % ALIGNMENT, 0);
        buffer.host_view(&stream).unwrap().to_vec()
    };
    buffers.map(content).collect()
}

#[test]
fn a_tree_comes_back_from_every_device_through_every_source() {
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
                assert!(again == bytes, "{name} from {device}: other bytes again");
                let found = contents(&host, &array);
                for (i, length) in lengths.iter().enumerate() {
                    assert!(found[i] == content(i, *length), "{name}, buffer {i} from {device}");
                }
            }
        }
        host.stream(device).synchronize().unwrap();
        host.backend().trim();
        host.assert_nothing_leaked();
    }
}

#[test]
fn buffers_of_mapped_bytes_lie_in_them_unless_they_would_lie_askew() {
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
        assert_eq!(host.backend().leaks().is_empty(), inside, "{name}: whether there are copies");
    }
    host.assert_nothing_leaked();
}

#[test]
fn what_is_cut_short_anywhere_or_goes_on_is_refused_from_every_source() {
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
        assert!(error.message().contains("follows their end"), "{name}: {error}");
    }
    host.assert_nothing_leaked();
}

#[test]
fn what_a_pipe_claims_takes_no_memory_before_it_comes() {
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
    assert!(peak < 4 * LARGE as u64, "{peak} bytes were taken");
    host.assert_nothing_leaked();
}

#[test]
fn a_buffer_that_was_taken_cannot_be_written() {
    let host = TestHost::new();
    let array = tree(&host, Device::CPU, &[1, 2]);
    // SAFETY: nobody else takes it.
    drop(unsafe { array.node(1).unwrap().take_buffer(0) }.unwrap());
    let error = write_encoded(&host.memory(), array, |_| panic!("something was written")).unwrap_err();
    assert!(error.message().contains("a[0]/b: buffer 0 was taken already"), "{error}");
}

#[test]
fn whoever_watches_hears_how_far_it_is_and_may_end_it() {
    let host = TestHost::new();
    // More than is read at once.
    let bytes = bytes_of(&host, tree(&host, Device::CPU, &[9 << 20, 1]));
    let total = bytes.len() as u64;
    for (name, source) in sources(&bytes) {
        let (is_mapped, heard) = (source.is_mapped, RefCell::new(Vec::new()));
        let source = Source::new(Arc::new(source));
        let watch = |done, of| {
            heard.borrow_mut().push(done);
            assert_eq!(of, total);
            Ok(())
        };
        read_encoded(&host.memory(), &source, Device::CPU, watch).unwrap();
        let heard = heard.into_inner();
        assert!(heard.is_sorted(), "{name}");
        assert_eq!(heard.last().copied(), (!is_mapped).then_some(total), "{name}");
        if is_mapped {
            continue;
        }
        let end = |done, _| if done > total / 2 { Err(Error::cancelled("enough")) } else { Ok(()) };
        let error = read_encoded(&host.memory(), &source, Device::CPU, end).err().unwrap();
        assert_eq!(error.message(), "enough", "{name}");
    }
    host.assert_nothing_leaked();
}
