//! Linked-in plugins with encodings, and encoded arrays for them.

use arrow_schema::{DataType, Field};
use crossdock::Host;
use crossdock::api::{Device, EncodedArray, LogicalType, NodeParts, PluginDescription, abi};
use crossdock::discovery::Search;
use crossdock::load::LinkedPlugin;
use crossdock::memory::Backend;
use crossdock_arrays::export_field;
use crossdock_memory::{Buffer, ForeignOwner, Ready};

/// The description of a plugin that offers only these encodings. Their ids are separated by spaces.
pub fn description(name: &'static str, encodings: &'static str) -> PluginDescription {
    PluginDescription {
        name,
        version: "0.1.0",
        description: "a plugin for tests",
        licence: "Apache-2.0",
        requires: "",
        api_range: abi::API_RANGE,
        interfaces: if encodings.is_empty() { "" } else { "crossdock.encoding/1" },
        formats: "",
        encodings,
    }
}

/// A host with only these plugins.
pub fn host<const N: usize>(
    backend: Backend,
    plugins: [(&'static abi::PluginEntry, PluginDescription); N],
) -> Host {
    let search = plugins.into_iter().fold(Search::nowhere(), |search, (entry, description)| {
        search.linked(LinkedPlugin::new(entry, description.meta()))
    });
    Host::builder().backend(backend).search(search).build().unwrap()
}

/// A node without metadata, whose values are not nullable.
pub fn node(encoding: &str, data_type: DataType, length: u64, n_buffers: u32, n_children: u32) -> NodeParts {
    NodeParts {
        encoding: encoding.into(),
        logical_type: LogicalType::Schema(export_field(&Field::new("", data_type, false)).unwrap()),
        length,
        metadata: Vec::new(),
        n_buffers,
        n_children,
    }
}

/// An array with the given nodes, in pre-order, and with the buffers of these nodes, in the same
/// order.
pub fn tree(nodes: Vec<NodeParts>, buffers: Vec<Vec<u8>>) -> EncodedArray {
    let buffers = buffers.into_iter().map(|bytes| foreign_buffer(bytes).to_encoded());
    EncodedArray::new(nodes, buffers.collect()).unwrap()
}

/// A buffer in foreign memory, on the CPU.
pub fn foreign_buffer(bytes: Vec<u8>) -> Buffer {
    let (address, n) = (bytes.as_ptr() as u64, bytes.len() as u64);
    // SAFETY: the vector has `n` bytes at `address`, which stay valid as long as the owner.
    unsafe { Buffer::foreign(&ForeignOwner::new(bytes), Device::CPU, address, Some(n), Ready::Now) }
}
