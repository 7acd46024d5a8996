//! Generates the sample input that `crossdock verify` passes to a new plugin.

use arrow_schema::{DataType, Field};
use crossdock::discovery::Search;
use crossdock::source::Input;
use crossdock::{EncodedParts, Host, Result};

/// Three numbers in the format that the template plugins read.
pub const LINES: &[u8] = b"1\n-20\n300\n";

/// Returns a tree of one node in the encoding of the template plugins, which stores differences
/// from 1000.
pub fn tree(id: &str) -> Result<Vec<u8>> {
    let session = Host::builder().search(Search::nowhere()).build()?.session().open()?;
    let stored = [1i32, -2, 0].map(i32::to_le_bytes).concat();
    let array = session.build_encoded(EncodedParts {
        encoding: id.into(),
        field: Field::new("", DataType::Int32, false),
        length: 3,
        metadata: 1000i32.to_le_bytes().to_vec(),
        buffers: vec![Input::bytes(stored)],
        children: Vec::new(),
    })?;
    session.encoded_to_bytes(array)
}
