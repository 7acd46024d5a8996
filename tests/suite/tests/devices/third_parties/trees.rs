//! Creates sessions with an example plugin, decodes trees, and builds trees with the layout of
//! `fastlanes.bitpacked`.

use std::path::Path;

use arrow_array::ArrayRef;
use arrow_schema::DataType;
use crossdock::memory::Backend;
use crossdock::{Host, Session, Table};
use crossdock_plugin_api::{Device, EncodedArray};
use crossdock_tests::built;
use crossdock_tests::tree::Node;

/// A host with the shipped plugins and `plugin`.
pub fn host(plugin: &Path) -> Host {
    let backend = Backend::builder().untouchable(true).build();
    Host::builder().backend(backend).plugins(built()).plugins(plugin).build().unwrap()
}

pub fn session(plugin: &Path, device: Device) -> Session {
    host(plugin).session().device(device).open().unwrap()
}

/// Decodes a tree.
pub fn decoded(session: &Session, tree: EncodedArray) -> ArrayRef {
    let batch = session.decode(tree).unwrap();
    let schema = batch.schema().clone();
    let table = Table::from_batches(session, schema, vec![batch]).unwrap();
    table.to_record_batches().unwrap()[0].column(0).clone()
}

/// Integers of 32 bits, bit-packed to `WIDTH` bits.
pub fn bit_packed<const WIDTH: usize>(values: &[u32]) -> Node {
    packed(DataType::UInt32, WIDTH, values)
}

/// Unsigned integers, bit-packed to `bits` bits in the layout of `fastlanes.bitpacked`.
pub fn packed(data_type: DataType, bits: usize, values: &[u32]) -> Node {
    const ORDER: [usize; 8] = [0, 4, 2, 6, 1, 5, 3, 7];
    let width = data_type.primitive_width().unwrap();
    let (lanes, word_bits) = (128 / width, 8 * width);
    let mut bytes = Vec::new();
    for block in values.chunks(1024) {
        let mut rows = vec![0u8; 128 * bits];
        for (row, lane) in (0..word_bits).flat_map(|row| (0..lanes).map(move |lane| (row, lane))) {
            let value = block.get(ORDER[row / 8] * 16 + row % 8 * 128 + lane).copied().unwrap_or(0);
            for bit in (0..bits).filter(|bit| value >> bit & 1 != 0) {
                let at = row * bits + bit;
                rows[(at / word_bits * lanes + lane) * width + at % word_bits / 8] |= 1 << (at % 8);
            }
        }
        bytes.extend(rows);
    }
    // Field 1 of the protobuf message is the bit width.
    let metadata = if bits == 0 { vec![] } else { vec![0x08, bits as u8] };
    Node {
        metadata,
        buffers: vec![bytes],
        ..Node::new("fastlanes.bitpacked", data_type, values.len() as u64)
    }
}
