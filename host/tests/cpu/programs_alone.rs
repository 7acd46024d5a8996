//! An encoding in Rust that has programs and no `decode`, as one in C may.

use arrow_schema::{DataType, Field};
use crossdock::api::{
    About, Device, EncodedArray, EncodedNode, Encoding, Host as HostHandle, LogicalType, NodeParts, Operator,
    Plugin, Result, abi, entry,
};
use crossdock::discovery::Search;
use crossdock::load::LinkedPlugin;
use crossdock::memory::Backend;
use crossdock::{Host, NodePlan};
use crossdock_arrays::export_field;

/// Counts up from 5; for an odd number of values it has no program.
struct Counting;

impl Plugin for Counting {
    fn create(_: HostHandle) -> Result<Self> {
        Ok(Self)
    }

    fn encoding(&self) -> Option<&dyn Encoding> {
        Some(self)
    }
}

impl Encoding for Counting {
    fn ids(&self) -> &[&'static str] {
        &["counting"]
    }

    fn check(&self, _: EncodedNode<'_>) -> Result<()> {
        Ok(())
    }

    fn size(&self, node: EncodedNode<'_>) -> Result<Option<u64>> {
        Ok(Some(4 * node.length()))
    }

    fn decodes(&self) -> bool {
        false
    }

    fn lower(&self, node: EncodedNode<'_>) -> Result<Option<Vec<Operator>>> {
        let program = vec![Operator::Sequence { base: 5, step: 1 }];
        Ok(node.length().is_multiple_of(2).then_some(program))
    }
}

/// The same, whose author forgot to say that it does not decode.
struct Forgetful;

impl Plugin for Forgetful {
    fn create(_: HostHandle) -> Result<Self> {
        Ok(Self)
    }

    fn encoding(&self) -> Option<&dyn Encoding> {
        Some(self)
    }
}

impl Encoding for Forgetful {
    fn ids(&self) -> &[&'static str] {
        &["counting"]
    }

    fn check(&self, _: EncodedNode<'_>) -> Result<()> {
        Ok(())
    }

    fn size(&self, _: EncodedNode<'_>) -> Result<Option<u64>> {
        Ok(None)
    }
}

fn host(entry: &'static abi::PluginEntry) -> Host {
    let about = About {
        name: "counting",
        version: "0.1.0",
        description: "counts",
        licence: "Apache-2.0",
        interfaces: "crossdock.encoding/1",
        formats: "",
        encodings: "counting",
    };
    let search = Search::nowhere().linked(LinkedPlugin::new(entry, about.meta()));
    Host::builder().backend(Backend::builder().untouchable(true).build()).search(search).build().unwrap()
}

fn tree(length: u64) -> EncodedArray {
    let node = NodeParts {
        encoding: "counting".into(),
        logical_type: LogicalType::Schema(export_field(&Field::new("", DataType::Int32, false)).unwrap()),
        length,
        metadata: Vec::new(),
        n_buffers: 0,
        n_children: 0,
    };
    EncodedArray::new(vec![node], Vec::new()).unwrap()
}

#[test]
fn who_has_programs_alone_decodes_by_them_everywhere() {
    static ENTRY: abi::PluginEntry = entry::<Counting>();
    let host = host(&ENTRY);
    for device in [Device::CPU, Device::UNTOUCHABLE] {
        let session = host.session().device(device).open().unwrap();
        assert_eq!(session.plan_decoding(&tree(4), device).unwrap(), [NodePlan::Program(device)], "{device}");
        let batch = session.decode(tree(4)).unwrap();
        assert_eq!((batch.len(), batch.device()), (4, device));
        let on_host = batch.move_to(session.stream(), Device::CPU).unwrap();
        let values = on_host.columns()[0].buffers()[1].as_ref().unwrap();
        let values = values.host_view(session.stream()).unwrap();
        let expected: Vec<u8> = (5..9i32).flat_map(i32::to_ne_bytes).collect();
        assert_eq!(values[..16], expected[..], "{device}");
        let told = session.decode(tree(3)).unwrap_err().one_line();
        assert!(told.contains("decodes by programs alone, and gave none"), "{device}: {told}");
    }
}

#[test]
fn who_has_neither_is_told_what_to_write() {
    static ENTRY: abi::PluginEntry = entry::<Forgetful>();
    let session = host(&ENTRY).session().open().unwrap();
    let told = session.decode(tree(4)).unwrap_err().one_line();
    assert!(told.contains("`decodes`"), "{told}");
}
