//! An encoding in Rust with programs but without `decode`.

use std::ops::Range;

use arrow_schema::DataType;
use crossdock::api::{
    Device, EncodedArray, EncodedNode, Encoding, Host as HostHandle, Operator, Plugin, Result, abi, entry,
};
use crossdock::memory::Backend;
use crossdock::{Host, NodePlan};

use crate::common::encoding::{self, node};

/// An encoding that decodes to 5, 6, 7 and so on. It has no program for an odd number of values.
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

    fn size(&self, node: EncodedNode<'_>, _: Range<u64>) -> Result<Option<u64>> {
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

/// An encoding whose `decodes` wrongly returns true.
struct WithoutDecode;

impl Plugin for WithoutDecode {
    fn create(_: HostHandle) -> Result<Self> {
        Ok(Self)
    }

    fn encoding(&self) -> Option<&dyn Encoding> {
        Some(self)
    }
}

impl Encoding for WithoutDecode {
    fn ids(&self) -> &[&'static str] {
        &["counting"]
    }

    fn check(&self, _: EncodedNode<'_>) -> Result<()> {
        Ok(())
    }

    fn size(&self, _: EncodedNode<'_>, _: Range<u64>) -> Result<Option<u64>> {
        Ok(None)
    }
}

fn host(entry: &'static abi::PluginEntry) -> Host {
    let backend = Backend::builder().untouchable(true).build();
    encoding::host(backend, [(entry, encoding::description("counting", "counting"))])
}

fn tree(length: u64) -> EncodedArray {
    encoding::tree(vec![node("counting", DataType::Int32, length, 0, 0)], Vec::new())
}

#[test]
fn encoding_with_only_programs_decodes_on_every_device() {
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
        let error = session.decode(tree(3)).unwrap_err().one_line();
        assert!(error.contains("decodes only by programs, and returned no program"), "{device}: {error}");
    }
}

#[test]
fn error_for_encoding_with_neither_decode_nor_programs_gives_advice() {
    static ENTRY: abi::PluginEntry = entry::<WithoutDecode>();
    let session = host(&ENTRY).session().open().unwrap();
    let error = session.decode(tree(4)).unwrap_err().one_line();
    assert!(error.contains("`decodes`"), "{error}");
}
